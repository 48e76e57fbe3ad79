"""Changes of an unsupported BullMQ version: neither an error of the kit nor a failure of the client.

On a supported oracle every assertion of a scenario holds, and one that fails is an error of the kit. On any other
version, a failed assertion shows a change. The steps up to there, and the state they left, are still compared.
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
    """Whether the oracle's steps may have ended because it is another version, and not because something broke.

    This includes exceptions of the scenario itself, which may look up something that the version lacks, and answers
    without the fields of other versions.
    """
    # A driver that is alive but answers without a field shows another version, not a broken driver.
    if isinstance(failure, SchemaViolation):
        return True
    # A broken driver, a cancellation and a missing tap have other causes than the version.
    return failure is not None and not isinstance(failure, DriverBroken | Cancelled | TapMissing)


def says_how_to_end(failure: BaseException) -> bool:
    """Whether a client has to end its steps as the oracle did: not if the outcome of the oracle's call is unknown."""
    return not isinstance(failure, OperationUnsupported | OperationIndeterminate | SchemaViolation)


def change_text(version: str, failure: object) -> str:
    """Describe how the oracle differs."""
    return f"BullMQ {version} differs from what the scenario expects: {failure}"


def failure_text(failure: BaseException) -> str:
    """Describe how the steps of a side ended; an exception from outside the kit is shown with its class."""
    own = isinstance(failure, Mismatch | OperationFailed | OperationUnsupported)
    return str(failure) if own else f"{type(failure).__name__}: {failure}"


def ended_alike(oracle: BaseException | None, client: BaseException | None) -> bool:
    """Whether both sides stopped at the same assertion or call, so that their queues can be compared."""
    match oracle, client:
        case Mismatch() as theirs, Mismatch() as ours:
            # Only what was checked and where: the values of the two sides may differ, and snapshots compare those.
            return (theirs.what, theirs.where) == (ours.what, ours.where)
        case OperationFailed() as theirs, OperationFailed() as ours:
            return (theirs.op, theirs.error.code) == (ours.op, ours.error.code)
        case _:
            return False


def other_ending(requirement: str, oracle: BaseException, client: BaseException | None) -> Finding:
    """Return the finding that the client's steps ended differently from the oracle's."""
    went = f"it stopped: {failure_text(client)}" if client is not None else "it continued to the end"
    return Finding(
        requirement=requirement,
        source="assertion",
        kind="other-ending",
        severity="wrong-behaviour",
        where="scenario",
        key="",
        expected=f"as the oracle, which stopped: {failure_text(oracle)}",
        actual=went,
        message="the scenario ends differently than on the oracle",
    )


def not_also(findings: list[Finding], oracles: list[Finding]) -> list[Finding]:
    """Drop findings at locators where the oracle breaks the kit's checks as well."""
    # By locator only: keys and values contain each side's own prefix and ids.
    places = {finding.where for finding in oracles}
    return [finding for finding in findings if finding.where not in places]
