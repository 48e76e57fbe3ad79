"""Which requirements a scenario has decided: where the oracle did something in the client's place, not all of them."""

from __future__ import annotations

from collections.abc import Callable

from conformance.participants.stand_in import Deeds

OperationsOf = Callable[[str], frozenset[str]]
"""The operations that a requirement is about; none if it is about none in particular."""

OPENING_AND_CLOSING = frozenset({"open", "close", "reset"})
"""A client that did nothing else has shown nothing."""


def is_decided(requirement: str, deeds: Deeds, operations_of: OperationsOf) -> bool:
    """Whether what the client did itself in the scenario says something about the requirement.

    It does if nobody stood in for it, or if it did one of the operations that the requirement is about. To have opened
    one object says nothing where another had to be opened by the oracle.
    """
    if not deeds.stand_in:
        return True
    own = deeds.own - (deeds.stand_in & OPENING_AND_CLOSING)
    about = operations_of(requirement)
    return bool(own & about) if about else bool(own - OPENING_AND_CLOSING)


def why_undecided(deeds: Deeds) -> str:
    """The sentence that is printed with such requirements."""
    done = sorted(deeds.stand_in - OPENING_AND_CLOSING) or sorted(deeds.stand_in)
    return f"the oracle did this in the client's place: {', '.join(done)}"
