"""What can go wrong in the client, and the errors by which a processor says what shall become of its job."""

from __future__ import annotations

from typing import Final

from conformance.protocol.errors import ErrorCode, error_text

RATE_LIMIT_MESSAGE: Final = "bullmq:rateLimitExceeded"
"""A worker recognises a rate limit by this message alone, whatever the class of the error (upstream `worker.ts`)."""


class BullMQError(Exception):
    """Base of everything that the client raises by itself."""


class InvalidArgument(BullMQError, ValueError):
    """Refused before anything was sent to Redis; the text is Node's where Node refuses it too.

    `field` is the option or argument, `constraint` what it must be; both empty where the text says it all.
    """

    def __init__(self, message: str, *, field: str = "", constraint: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.constraint = constraint


class JobLocked(BullMQError):
    """Job.remove on a job that a worker holds."""


class JobFailed(BullMQError):
    """Job.waitUntilFinished: the job ended as failed; the text is its failure reason."""


class WaitTimeout(BullMQError, TimeoutError):
    """Job.waitUntilFinished: no notification in time."""


class Closed(BullMQError):
    """The object was closed before."""


class ScriptError(BullMQError):
    """A Lua script refused with a negative number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class UnrecoverableError(BullMQError):
    """Thrown by a processor: fail the job now, whatever attempts are left."""

    def __init__(self, message: str = "bullmq:unrecoverable") -> None:
        super().__init__(message)


class FailedChildren(ScriptError, UnrecoverableError):
    """The job cannot complete because a child failed; a worker does not retry it."""


class DelayedError(BullMQError):
    """Thrown by a processor that has moved its job to delayed by itself."""

    def __init__(self, message: str = "bullmq:movedToDelayed") -> None:
        super().__init__(message)


class WaitingError(BullMQError):
    """Thrown by a processor that has moved its job back to wait by itself."""

    def __init__(self, message: str = "bullmq:movedToWait") -> None:
        super().__init__(message)


class WaitingChildrenError(BullMQError):
    """Thrown by a processor whose job now waits for its children."""

    def __init__(self, message: str = "bullmq:movedToWaitingChildren") -> None:
        super().__init__(message)


class RateLimitError(BullMQError):
    """Thrown by a processor after Worker.rateLimit: put the job back and pause the worker."""

    def __init__(self, message: str = RATE_LIMIT_MESSAGE) -> None:
        super().__init__(message)


def script_error(
    code: int, *, command: str, job: str | None = None, parent: str | None = None, state: str | None = None
) -> ScriptError:
    """Answer the error for a script's negative result (upstream `src/classes/scripts.ts`, `finishedErrors`)."""
    text = error_text(code, command=command, job=job, parent=parent, state=state)
    if code == ErrorCode.FAILED_CHILDREN:
        error = FailedChildren.__new__(FailedChildren)
        ScriptError.__init__(error, code, text)
        return error
    return ScriptError(code, text)
