"""Errors of calls, and problems that make a driver unusable.

`OperationFailed`, `OperationUnsupported` and `OperationIndeterminate` are answers of the driver, and `EventTimeout` is
a wait that ran out: scenarios judge them. `DriverBroken` is a problem of the driver itself: the run cannot continue
with it, and its text must explain to the author of the driver what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from conformance.problems import EnvironmentProblem

DriverErrorCode = Literal[
    "missing-job",  # -1: the job hash does not exist
    "missing-lock",  # -2
    "wrong-state",  # -3: the job is not in the container that the operation needs
    "pending-dependencies",  # -4
    "missing-parent",  # -5
    "lock-mismatch",  # -6: another token owns the lock
    "parent-replaced",  # -7
    "scheduler-job",  # -8: the job is the current iteration of a scheduler
    "failed-children",  # -9
    "scheduler-collision",  # -10 and -11
    "invalid-argument",  # refused by the client before anything was sent to Redis
    "job-failed",  # waitUntilFinished: the job ended as failed
    "timeout",  # the client gave up waiting
    "connection-lost",  # usually with definite=false
    "too-long",  # the answer is longer than a line of the protocol
    "other",
]

TOO_LONG: DriverErrorCode = "too-long"
OTHER: DriverErrorCode = "other"

MAY_BE_THE_MACHINE: tuple[DriverErrorCode, ...] = ("connection-lost", "timeout")
"""Codes that a starved machine can cause. Any other code is a decision of the client or of Redis."""

INVALID: DriverErrorCode = "invalid-argument"
"""The code of a decision that the client makes without Redis."""


class DriverError(msgspec.Struct, frozen=True, kw_only=True):
    """The reason of a failed operation. `definite`: the client is sure that it did not happen."""

    message: str
    code: str = "other"
    definite: bool = True


class OperationFailed(Exception):
    """The driver answered `fail`: the operation certainly did not happen."""

    def __init__(self, op: str, error: DriverError) -> None:
        super().__init__(f"{op} failed ({error.code}): {error.message}")
        self.op = op
        self.error = error


class OperationUnsupported(Exception):
    """The driver does not declare the operation, or answered `unsupported`."""

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(f"{op} is unsupported: {reason}")
        self.op = op
        self.reason = reason


class OperationUnanswered(OperationUnsupported):
    """The operation is done, but the client does not return its result."""

    def __init__(self, op: str) -> None:
        super().__init__(op, "the client does not return the result")


class OperationIndeterminate(Exception):
    """The driver answered `info`, or an error that is not definite: it is unknown whether the operation happened."""

    def __init__(self, op: str, error: DriverError) -> None:
        super().__init__(f"{op} may or may not have happened ({error.code}): {error.message}")
        self.op = op
        self.error = error


class OperationGivenUp(Exception):
    """The operation has hung or ended the driver too often, so the kit does not call it again."""

    def __init__(self, op: str, what: str) -> None:
        super().__init__(f"{op} {what}, so the kit does not call it again")
        self.op = op


class LoopNotHeldBack(OperationGivenUp):
    """A worker's loop that emulates a manual worker takes jobs that the scenario needs for other steps."""

    def __init__(self, what: str) -> None:
        Exception.__init__(self, f"the kit cannot take the steps of a manual worker with the client's loop: {what}")
        self.op = "worker.run"


class EventTimeout(Exception):
    """No matching event came before the deadline. `seen`: the unread events of the handle, as text."""

    def __init__(self, handle: str, names: Collection[str], deadline_ms: int, seen: Iterable[str]) -> None:
        wanted = " or ".join(sorted(names))
        self.handle = handle
        self.seen = ", ".join(seen) or "nothing"
        super().__init__(f"no event {wanted} of {handle} within {deadline_ms} ms; seen: {self.seen}")


class DriverBroken(EnvironmentProblem):
    """The driver breaks the protocol or has ended. `driver`: its name; `log`: the last lines of its stderr."""

    driver = ""
    log: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = f"driver `{self.driver}`: " if self.driver else ""
        lines = "".join(f"\n  | {line}" for line in self.log)
        return f"{who}{super().__str__()}" + (f"\n  the last lines of its stderr:{lines}" if lines else "")


class DriverNotFound(DriverBroken):
    """The command cannot be started."""

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(
            f"cannot start {program!r}: {reason}",
            hint="check the command: it is a program with arguments, not a shell command line",
        )


class DriverCrashed(DriverBroken):
    """The process ended while the kit still needed it. `returncode` is negative for a signal, as in `subprocess`."""

    def __init__(self, ending: str, during: str, *, returncode: int | None = None, unfinished: str = "") -> None:
        rest = f"; its last line was not finished: {unfinished}" if unfinished else ""
        super().__init__(
            f"it ended ({ending}) during {during}{rest}",
            hint="keep running until stdin ends; report errors of the client as answers with status `fail` or `info`",
        )
        self.returncode = returncode


class ConnectionClosed(DriverBroken):
    """The kit itself ended the driver, by `close` or `kill`."""

    def __init__(self) -> None:
        super().__init__("the kit has ended it", hint="start a new connection")


class StdoutClosed(DriverBroken):
    """The driver closed its stdout, but its process is still running."""

    def __init__(self, during: str) -> None:
        super().__init__(
            f"it closed its stdout during {during}, but its process is still running",
            hint="keep stdout open until stdin ends: the protocol needs it",
        )


class DriverHung(DriverBroken):
    """A call was not answered before its deadline. The driver has been killed."""

    def __init__(self, op: str, deadline_ms: int) -> None:
        super().__init__(
            f"it did not answer {op} within {deadline_ms} ms and was killed",
            hint="answer every call, with status `unsupported` if the client cannot do it; run calls concurrently",
        )
        self.op = op
        self.deadline_ms = deadline_ms


class HandshakeFailed(DriverBroken):
    """The first line was not a valid `ready`."""


class NotJson(DriverBroken):
    """A line on stdout is not a JSON object in UTF-8."""

    def __init__(self, reason: str, excerpt: str) -> None:
        super().__init__(
            f"a line on its stdout is not JSON ({reason}): {excerpt}",
            hint="write each message to stdout as one JSON object in UTF-8, followed by a newline",
        )


class StdoutPollution(DriverBroken):
    """Log text on stdout."""

    def __init__(self, excerpt: str) -> None:
        super().__init__(
            f"it printed text to stdout, which is for the protocol only: {excerpt}",
            hint="redirect logs and prints to stderr, including those of libraries",
        )


class OversizedLine(DriverBroken):
    """A line is longer than the protocol allows."""

    def __init__(self, limit: int, excerpt: str) -> None:
        super().__init__(
            f"a line on its stdout is longer than {limit} bytes: {excerpt}", hint="end every message with a newline"
        )


class SchemaViolation(DriverBroken):
    """A line, an answer or an event does not have the fields of the protocol."""

    def __init__(self, what: str, reason: str, excerpt: str) -> None:
        super().__init__(
            f"{what} does not fit the schema: {reason}; got {excerpt}",
            hint="compare with conformance/driver/schema/driver-v1.json",
        )


class WrongId(DriverBroken):
    """A result for a call that is not open."""

    def __init__(self, wrong: int, waiting: Collection[int]) -> None:
        expected = ", ".join(str(number) for number in sorted(waiting)) or "none"
        super().__init__(
            f"it sent a result with id {wrong}, but the open calls are: {expected}",
            hint="copy `id` from the call, and answer each call exactly once; ids do not increase by one",
        )


class DriverDishonest(DriverBroken):
    """The driver claims that something happened that did not happen."""
