"""Decidability: a scenario decides a requirement only if the client itself performed one of its operations."""

from __future__ import annotations

from collections.abc import Callable

from conformance.driver.messages import Ready
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN
from conformance.participants.loop_worker import LOOP_OPERATIONS
from conformance.participants.marks import Scenario
from conformance.participants.stand_in import PerformedOperations

OperationsOf = Callable[[str], frozenset[str]]
"""Maps a requirement to the operations that it is about; empty if it is about no particular operation."""

OPENING_AND_CLOSING = frozenset({"open", "close", "reset"})
"""A client that only did these has shown nothing."""


def is_decided(requirement: str, performed: PerformedOperations, operations_of: OperationsOf) -> bool:
    """Whether a scenario without findings shows that the client keeps the requirement.

    It does if the client performed one of the requirement's operations; a stand-in or the other side of a hand-over may
    have performed the others. Opening one handle shows nothing if the oracle had to open another one for the client.
    """
    about = operations_of(requirement)
    # A reader of events only opens a handle: that shows something only if no stand-in acted for the client.
    did_something = not performed.stand_in or bool(_own(performed) - OPENING_AND_CLOSING)
    return bool(_own(performed) & about) if about else did_something


def can_count_against(requirement: str, performed: PerformedOperations, operations_of: OperationsOf) -> bool:
    """Whether the client can have caused a finding about the requirement: always, if there was no stand-in."""
    return not performed.stand_in or is_decided(requirement, performed, operations_of)


def _own(performed: PerformedOperations) -> set[str]:
    # If the oracle opened a handle for the client, the client's own `open` may have been another one.
    return performed.own - (performed.stand_in & OPENING_AND_CLOSING)


def why_undecided(performed: PerformedOperations) -> str:
    """Return the reason that reports print for undecided requirements."""
    if not performed.stand_in:
        return "the client performs none of the operations that this is about"
    # If the stand-in only opened or closed something, that is all there is to name.
    done = sorted(performed.stand_in - OPENING_AND_CLOSING) or sorted(performed.stand_in)
    return f"the oracle did this in the client's place: {', '.join(done)}"


def why_never_decided(scenario: Scenario, ready: Ready, operations_of: OperationsOf) -> str:
    """Return why a scenario cannot decide anything about this client; empty if it can."""
    can = operations_within_reach(ready)
    if any(_can_decide(scenario, operations_of(requirement), can) for requirement in scenario.requirements):
        return ""
    wanted = sorted({op for requirement in scenario.requirements for op in operations_of(requirement)})
    return f"the driver declares none of the operations that it is about: {', '.join(wanted) or 'any'}"


def _can_decide(scenario: Scenario, about: frozenset[str], can: frozenset[str]) -> bool:
    if about:
        return bool(about & can)
    return scenario.style != "differential" or bool(can - OPENING_AND_CLOSING - {EVENTS_READ})


def operations_within_reach(ready: Ready) -> frozenset[str]:
    """Return the operations that a driver declares, and those that its loops perform or can emulate."""
    # The handshake does not list roles, so any driver may be able to open a reader of events.
    can = frozenset((*ready.ops, EVENTS_READ))
    if "managed-worker" not in ready.capabilities:
        return can
    return can | {WORKER_RUN} | (LOOP_OPERATIONS if "resolve" in can else frozenset())
