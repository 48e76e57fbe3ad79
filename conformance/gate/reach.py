"""Reach of a driver: how many requirements a run can decide, and what each missing operation would add. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from conformance.driver.authoring import CAPABILITY_OPS
from conformance.driver.messages import Ready
from conformance.driver.ops import REGISTRY
from conformance.gate.decidability import OPENING_AND_CLOSING
from conformance.ledger.loader import examined_rows
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN, load_operations
from conformance.participants.loop_worker import LOOP_OPERATIONS

MANUAL_WORKER = "manual-worker"
MANAGED_WORKER = "managed-worker"
EVENTS, FLOW = "events", "flow"
FLOW_OPERATIONS = frozenset(name for name, op in REGISTRY.items() if op.on == FLOW)


@dataclass(frozen=True)
class Prospect:
    """Something that a driver lacks. `unlocks`: how many more requirements could be decided with it."""

    what: str
    unlocks: int


@dataclass(frozen=True)
class Reach:
    """How many requirements a driver can decide: `decidable` of `examined` are about operations that it performs.

    `prospects`: what it lacks, the most valuable first; entries that unlock nothing are left out.
    """

    decidable: int
    examined: int
    prospects: tuple[Prospect, ...]


def reach_of(ready: Ready, *, roles: AbstractSet[str]) -> Reach:
    """Compute the reach of a driver from its declarations and the optional `roles` whose handles it opens."""
    can = _can(frozenset(ready.ops), frozenset(ready.capabilities), roles)
    now = _decidable(can)
    prospects = [Prospect(what, len(_decidable(can | more) - now)) for what, more in _steps(ready, roles)]
    useful = [prospect for prospect in prospects if prospect.unlocks]
    # The name decides between equals, so that the order is the same in every run.
    worthwhile = sorted(useful, key=lambda prospect: (-prospect.unlocks, prospect.what))
    return Reach(len(now), len(examined_rows()), tuple(worthwhile))


def unlocked_by(
    ready: Ready, roles: AbstractSet[str], *, ops: Sequence[str], capability: str = "", role: str = ""
) -> int:
    """Return how many more requirements could be decided with these operations, a capability and a role."""
    declared, capabilities = frozenset(ready.ops), frozenset(ready.capabilities)
    more = _can(declared | set(ops), capabilities | ({capability} - {""}), roles | ({role} - {""}))
    return len(_decidable(more) - _decidable(_can(declared, capabilities, roles)))


def _can(ops: frozenset[str], capabilities: frozenset[str], roles: AbstractSet[str]) -> frozenset[str]:
    """Return the operations that the client performs, including its loops; a worker's need the capability as well."""
    # A worker's loop operations as single calls need the capability, even if the driver lists them.
    can = ops if MANUAL_WORKER in capabilities else ops - LOOP_OPERATIONS
    if MANAGED_WORKER in capabilities:
        # With `resolve`, the kit decides how each job of a loop ends, so a loop can replace single calls.
        can |= {WORKER_RUN} | (LOOP_OPERATIONS if "resolve" in ops else frozenset())
    # Nothing that is called on a handle of a role is performed if the driver cannot open one.
    return (can - FLOW_OPERATIONS if FLOW not in roles else can) | ({EVENTS_READ} if EVENTS in roles else frozenset())


def _decidable(can: frozenset[str]) -> frozenset[str]:
    """Return the examined requirements that are about one of these operations, or about any operation."""
    # Opening and closing handles decides nothing, so a driver that only does that reaches no requirement.
    if not can - OPENING_AND_CLOSING:
        return frozenset()
    table = load_operations()
    return frozenset(row for row in examined_rows() if not table.about(row) or table.about(row) & can)


def _steps(ready: Ready, roles: AbstractSet[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each missing role, operation or capability, with the operations that it makes possible."""
    missing = set(REGISTRY) - set(ready.ops) - OPENING_AND_CLOSING
    # These are one step: `resolve` is useless without loops, and loops without it cannot replace single calls.
    loop = {"resolve"} if "resolve" in missing or MANAGED_WORKER not in ready.capabilities else set()
    if loop:
        what = f"the role worker, resolve and the capability {MANAGED_WORKER}"
        yield what, frozenset({"resolve", WORKER_RUN}) | LOOP_OPERATIONS
    manual = LOOP_OPERATIONS if MANUAL_WORKER not in ready.capabilities else frozenset()
    if manual:
        ops = CAPABILITY_OPS[MANUAL_WORKER]
        yield f"the role worker and the capability {MANUAL_WORKER} ({', '.join(ops)})", frozenset(ops)
    if FLOW not in roles:
        yield f"the role flow ({', '.join(sorted(FLOW_OPERATIONS))})", FLOW_OPERATIONS
    for op in sorted(missing - loop - manual - (FLOW_OPERATIONS if FLOW not in roles else set())):
        yield op, frozenset({op})
    if EVENTS not in roles:
        yield "the role events", frozenset({EVENTS_READ})
