"""What a scenario can say about a requirement: what the client did not do itself says nothing of it."""

from __future__ import annotations

from collections.abc import Callable

from conformance.driver.messages import Ready
from conformance.ledger.operations import EVENTS_READ, WORKER_RUN
from conformance.participants.loop_worker import LOOP_OPERATIONS
from conformance.participants.marks import Scenario
from conformance.participants.stand_in import PerformedOperations

OperationsOf = Callable[[str], frozenset[str]]
"""The operations that a requirement is about; none if it is about none in particular."""

OPENING_AND_CLOSING = frozenset({"open", "close", "reset"})
"""A client that did nothing else has shown nothing."""


def is_decided(requirement: str, performed: PerformedOperations, operations_of: OperationsOf) -> bool:
    """Whether the client has shown in the scenario that it keeps to the requirement, if nothing speaks against it.

    It has where it did one of the operations that the requirement is about, whoever did the others: the oracle in its
    place, or the other side of a hand-over. To have opened one object says nothing where another had to be opened by
    the oracle.
    """
    about = operations_of(requirement)
    return bool(_own(performed) & about) if about else _did_something(performed)


def may_speak_against(requirement: str, performed: PerformedOperations, operations_of: OperationsOf) -> bool:
    """Whether a finding about the requirement can be the client's doing: always, where nobody stood in for it."""
    return not performed.stand_in or is_decided(requirement, performed, operations_of)


def _own(performed: PerformedOperations) -> set[str]:
    return performed.own - (performed.stand_in & OPENING_AND_CLOSING)


def _did_something(performed: PerformedOperations) -> bool:
    # A reader of events does nothing but open: it has shown something where it was alone in its place.
    return not performed.stand_in or bool(_own(performed) - OPENING_AND_CLOSING)


def why_undecided(performed: PerformedOperations) -> str:
    """The sentence that is printed with such requirements."""
    if not performed.stand_in:
        return "the client does none of the operations that it is about in this part"
    done = sorted(performed.stand_in - OPENING_AND_CLOSING) or sorted(performed.stand_in)
    return f"the oracle did this in the client's place: {', '.join(done)}"


def why_never_decided(scenario: Scenario, ready: Ready, operations_of: OperationsOf) -> str:
    """Say before a scenario begins that it can decide nothing about this client; empty where it can."""
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
    """The operations that a driver declares, and those that its loops do or can be brought to do."""
    can = frozenset((*ready.ops, EVENTS_READ))  # which objects a driver opens, only trying it shows
    if "managed-worker" not in ready.capabilities:
        return can
    return can | {WORKER_RUN} | (LOOP_OPERATIONS if "resolve" in can else frozenset())
