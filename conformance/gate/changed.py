"""What a version of BullMQ that nobody prepared does otherwise: no error of the kit, and nothing against the client.

On a supported oracle every statement of a scenario holds, and one that does not is an error of the kit. On any other,
it says that the version has changed. What client and oracle did up to there, and what they left, is compared all the
same.
"""

from __future__ import annotations

from conformance.driver.errors import (
    DriverBroken,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
    SchemaViolation,
)
from conformance.findings import Finding
from conformance.participants.cancellation import Cancelled
from conformance.participants.expect import Mismatch
from conformance.participants.tap import TapMissing


def shows_change(failure: BaseException | None) -> bool:
    """Whether the oracle's steps may have ended so because it is another version, and not because something broke.

    Also where the scenario itself could not go on: it looks up what another version has no longer. And where an answer
    of the library has not the fields that it has in other versions.
    """
    if isinstance(failure, SchemaViolation):
        return True
    return failure is not None and not isinstance(failure, DriverBroken | Cancelled | TapMissing)


def says_how_to_end(failure: BaseException) -> bool:
    """Whether a client has to end its steps as the oracle did: not where nobody knows what became of its call."""
    return not isinstance(failure, OperationUnsupported | OperationIndeterminate | SchemaViolation)


def change_text(version: str, failure: object) -> str:
    """What the oracle does otherwise, for people."""
    return f"BullMQ {version} does otherwise than the scenario says: {failure}"


def failure_text(failure: BaseException) -> str:
    """How the steps of a side ended; what is no exception of the kit's own is named by its class as well."""
    own = isinstance(failure, Mismatch | OperationFailed | OperationUnsupported)
    return str(failure) if own else f"{type(failure).__name__}: {failure}"


def ended_alike(oracle: BaseException | None, client: BaseException | None) -> bool:
    """Whether both sides stopped at the same statement or call, so that what they left can be compared."""
    match oracle, client:
        case Mismatch() as theirs, Mismatch() as ours:
            return (theirs.what, theirs.where) == (ours.what, ours.where)
        case OperationFailed() as theirs, OperationFailed() as ours:
            return (theirs.op, theirs.error.code) == (ours.op, ours.error.code)
        case _:
            return False


def other_ending(requirement: str, oracle: BaseException, client: BaseException | None) -> Finding:
    """The client went another way than the oracle, which is the one that is right."""
    went = f"it stopped: {failure_text(client)}" if client is not None else "it went on to the end"
    return Finding(
        requirement=requirement,
        source="assertion",
        kind="other-ending",
        severity="wrong-behaviour",
        where="scenario",
        key="",
        expected=f"as the oracle, which stopped: {failure_text(oracle)}",
        actual=went,
        message="the scenario takes another way than on the oracle",
    )


def not_also(findings: list[Finding], oracles: list[Finding]) -> list[Finding]:
    """The findings at places where the oracle itself is not as the kit's checks say are nothing against the client."""
    places = {finding.where for finding in oracles}
    return [finding for finding in findings if finding.where not in places]
