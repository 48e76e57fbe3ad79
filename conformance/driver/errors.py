"""What a call can end with instead of an answer, and what makes a driver unusable.

`OperationFailed`, `OperationUnsupported` and `OperationIndeterminate` are answers of the driver, `EventTimeout` is a
waiting that came to nothing: scenarios judge them. A `DriverBroken` is no answer at all but a problem of the driver:
the run cannot go on with it, and its text has to tell whoever wrote the driver what to do.
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
    "other",
]

MAY_BE_THE_MACHINE: tuple[DriverErrorCode, ...] = ("connection-lost", "timeout")
"""Codes of what may happen to a call though client and server do as they should; any other is somebody's doing."""


class DriverError(msgspec.Struct, frozen=True, kw_only=True):
    """Why an operation did not succeed. `definite`: the client is sure that it did not happen."""

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
    """The operation is done, and the client tells nothing of what came of it."""

    def __init__(self, op: str) -> None:
        super().__init__(op, "the client does it without an answer")


class OperationIndeterminate(Exception):
    """The driver answered `info`, or an error that is not definite: nobody knows whether it happened."""

    def __init__(self, op: str, error: DriverError) -> None:
        super().__init__(f"{op} may or may not have happened ({error.code}): {error.message}")
        self.op = op
        self.error = error


class OperationGivenUp(Exception):
    """The operation has hung or ended the driver so often that it is not tried again: the driver is not asked."""

    def __init__(self, op: str, what: str) -> None:
        super().__init__(f"{op} {what}: it is not tried again")
        self.op = op


class EventTimeout(Exception):
    """No matching event came before the deadline. `seen`: the handle's events that nobody has taken yet, as text."""

    def __init__(self, handle: str, names: Collection[str], deadline_ms: int, seen: Iterable[str]) -> None:
        wanted = " or ".join(sorted(names))
        self.handle = handle
        self.seen = ", ".join(seen) or "nothing"
        super().__init__(f"no event {wanted} of {handle} within {deadline_ms} ms; seen: {self.seen}")


class DriverBroken(EnvironmentProblem):
    """The driver breaks the protocol or is gone. `driver` says which one, `log` are the last lines of its stderr."""

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
            hint="check the command: it is a program and its arguments, not a line for a shell",
        )


class DriverCrashed(DriverBroken):
    """The process ended while the kit still needed it. `returncode` is negative for a signal, as in subprocess."""

    def __init__(self, ending: str, during: str, *, returncode: int | None = None, unfinished: str = "") -> None:
        rest = f"; its last line was not finished: {unfinished}" if unfinished else ""
        super().__init__(
            f"it ended ({ending}) during {during}{rest}",
            hint="a driver lives until its stdin ends; errors of the client are answers with status `fail` or `info`",
        )
        self.returncode = returncode


class ConnectionClosed(DriverBroken):
    """The kit itself ended the driver, by `close` or `kill`."""

    def __init__(self) -> None:
        super().__init__("the kit has ended it", hint="start another connection")


class StdoutClosed(DriverBroken):
    """The process lives on, but nothing can ever come from it again."""

    def __init__(self, during: str) -> None:
        super().__init__(
            f"it closed its stdout during {during}, but the process lives on",
            hint="keep stdout open until stdin ends; it carries the protocol",
        )


class DriverHung(DriverBroken):
    """A call was not answered before its deadline. The driver has been killed."""

    def __init__(self, op: str, deadline_ms: int) -> None:
        super().__init__(
            f"it did not answer {op} within {deadline_ms} ms and was killed",
            hint="answer every call, with status `unsupported` for what the client cannot do; calls run concurrently",
        )
        self.op = op
        self.deadline_ms = deadline_ms


class HandshakeFailed(DriverBroken):
    """The first line was not the `ready` that the kit needs."""


class NotJson(DriverBroken):
    """A line on stdout is not a JSON object in UTF-8."""

    def __init__(self, reason: str, excerpt: str) -> None:
        super().__init__(
            f"a line on its stdout is not JSON ({reason}): {excerpt}",
            hint="every line on stdout is one JSON object in UTF-8, ended by a newline",
        )


class StdoutPollution(DriverBroken):
    """Log text on stdout."""

    def __init__(self, excerpt: str) -> None:
        super().__init__(
            f"it printed text on stdout, which is for the protocol only: {excerpt}",
            hint="send logs and prints, also those of libraries, to stderr",
        )


class OversizedLine(DriverBroken):
    """A line is longer than the protocol allows."""

    def __init__(self, limit: int, excerpt: str) -> None:
        super().__init__(
            f"a line on its stdout is longer than {limit} bytes: {excerpt}", hint="end every message with a newline"
        )


class SchemaViolation(DriverBroken):
    """A line, an answer or an event has not the fields that the protocol gives it."""

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
            hint="copy `id` from the call, and answer each call exactly once; ids do not count up by one",
        )


class DriverDishonest(DriverBroken):
    """The driver says that something happened which did not happen."""
