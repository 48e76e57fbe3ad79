"""Errors of the client, errors that a processor may throw, and the categories that decide about another attempt."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.protocol.scripts import ErrorCode, error_text

RATE_LIMIT_MESSAGE: Final = "bullmq:rateLimitExceeded"
"""A worker recognises a rate limit by this message alone, not by the class of the error (upstream `worker.ts`)."""


class BullMQError(Exception):
    """Base of all errors that the client itself raises.

    `remote_stack`: the stack trace of an error that came from a sandboxed process.
    """

    remote_stack: str | None = None


class InvalidArgument(BullMQError, ValueError):
    """Refused before anything was sent to Redis; the text is that of Node.js if Node.js refuses it too.

    `field` is the option or argument, `constraint` its rule; both are empty if the text already has them.
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


class UnreadableJob(BullMQError, ValueError):
    """The hash of a job holds text that is not JSON; the message names the job."""


class JobTimeout(BullMQError, TimeoutError):
    """An attempt ran longer than `Policy.job_timeout_s`."""


class Closed(BullMQError):
    """The object was closed before."""


class PartlyStored(BullMQError):
    """Redis ran some scripts of a flow and refused others, so it is unknown which jobs are stored."""


class ScriptError(BullMQError, TypeError):
    """A Lua script refused with a negative number.

    It is a TypeError as well, because the official Python client raises one.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class UnrecoverableError(BullMQError):
    """Thrown by a processor: fail the job now, without further attempts."""

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


class TransientError(BullMQError):
    """Raise it in a processor, best `from` the original error: another attempt may help."""


class PermanentError(UnrecoverableError):
    """Raise it in a processor, best `from` the original error: fail the job now, without further attempts."""


class SandboxedError(BullMQError):
    """A sandboxed processor threw this, or its process ended; `category` is that of the error it threw."""

    def __init__(self, message: str, *, stack: str | None = None, category: ErrorCategory | None = None) -> None:
        super().__init__(message)
        self.remote_stack = stack
        self.category = category


CROSSING_ERRORS: Final[tuple[type[BullMQError], ...]] = (
    *(DelayedError, WaitingError, WaitingChildrenError, RateLimitError),
    *(PermanentError, UnrecoverableError, TransientError),
)
"""Errors that decide how a job continues, so they keep their class across a sandbox. Subclasses come first."""


def script_error(
    code: int, *, command: str, job: str | None = None, parent: str | None = None, state: str | None = None
) -> ScriptError:
    """Return the error for a script's negative result (upstream `src/classes/scripts.ts`, `finishedErrors`)."""
    text = error_text(code, command=command, job=job, parent=parent, state=state)
    if code == ErrorCode.FAILED_CHILDREN:
        error = FailedChildren.__new__(FailedChildren)
        ScriptError.__init__(error, code, text)
        return error
    return ScriptError(code, text)


class ErrorCategory(StrEnum):
    """Whether another attempt can help."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


Classify = Callable[[BaseException], ErrorCategory | None]
"""The user's classification; None leaves an error to the library."""


@dataclass(frozen=True)
class ErrorPolicy:
    """How errors of processors are classified.

    By default the category only appears in logs and metrics, because Node retries every error but UnrecoverableError.
    `classify` is called first. `unknown` is the category of errors that neither it nor the library knows.
    `fail_permanent`: a permanent error ends the job at once; off by default, because Node.js would retry it.
    """

    classify: Classify | None = None
    unknown: ErrorCategory = ErrorCategory.PERMANENT
    fail_permanent: bool = False

    def category_of(self, error: BaseException) -> ErrorCategory:
        """Return the category of an error."""
        own = self.classify(error) if self.classify is not None else None
        return own or known_category(error) or self.unknown

    def ends_the_job(self, error: BaseException) -> bool:
        """Whether the job fails now, even if attempts remain."""
        if isinstance(error, UnrecoverableError):
            return True
        return self.fail_permanent and self.category_of(error) is ErrorCategory.PERMANENT


_CLIENT_ERRORS: Final = 400
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERRORS: Final = 500
_LAST_STATUS: Final = 599
_REFUSED_LOGIN: Final = (AuthenticationError, AuthorizationError)
"""Connection errors for redis-py, but another attempt does not change a password."""

_TRANSIENT_TYPES: Final[tuple[type[BaseException], ...]] = (
    *(ConnectionError, TimeoutError, asyncio.CancelledError, MemoryError),
    *(socket.gaierror, RedisConnectionError, RedisTimeoutError),
    *(OutOfMemoryError, ReadOnlyError, ClusterDownError, MasterDownError, TryAgainError),
)
"""Network, timeouts, cancellation, and a Redis that is loading, failing over or full."""

_PASSING_REPLIES: Final = re.compile(
    r"(^|: -)(OOM|READONLY|BUSY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MISCONF|NOREPLICAS) "
)
"""Codes of error replies that pass: alone, or quoted in the text of a script's error, as Redis before 7.0 does."""

_PASSING_ERRNOS: Final = frozenset(
    {
        *(errno.EAGAIN, errno.EINTR, errno.EBUSY),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETRESET),
        *(errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.ENOBUFS, errno.EMFILE, errno.ENFILE),
    }
)
_DATABASE_TYPES: Final = frozenset({"OperationalError", "InterfaceError", "DeadlockDetected", "PoolTimeout"})
"""Class names of database drivers (PEP 249) for a lost connection, a deadlock, or an exhausted pool."""

_PERMANENT_TYPES: Final[tuple[type[BaseException], ...]] = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError),
    *(NotImplementedError, ImportError, NameError, BullMQError),
)
"""Validation, parsing, configuration and plain mistakes."""


def classify(error: BaseException) -> ErrorCategory:
    """Classify an error by the library's rules alone; an unknown error is permanent."""
    return known_category(error) or ErrorCategory.PERMANENT


def known_category(error: BaseException) -> ErrorCategory | None:
    """Classify an error, or the first of its causes (`raise ... from cause`) that the library knows."""
    for cause in _with_causes(error):
        for rule in _RULES:
            category = rule(cause)
            if category is not None:
                return category
    return None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    # `raise ... from` can form a circle.
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def _by_wrapper(error: BaseException) -> ErrorCategory | None:
    if isinstance(error, TransientError):
        return ErrorCategory.TRANSIENT
    return ErrorCategory.PERMANENT if isinstance(error, UnrecoverableError) else None


def _by_sandbox(error: BaseException) -> ErrorCategory | None:
    """The sandbox process has classified the error, because only it has the error's type."""
    return error.category if isinstance(error, SandboxedError) else None


def _by_http_status(error: BaseException) -> ErrorCategory | None:
    """Errors of HTTP clients carry the status in one of a few attributes."""
    status = _http_status(error)
    if status is None:
        return None
    # 429 asks for a later attempt; the other 4xx will not change by waiting.
    is_worth_retrying = status >= _SERVER_ERRORS or status == _TOO_MANY_REQUESTS
    return ErrorCategory.TRANSIENT if is_worth_retrying else ErrorCategory.PERMANENT


def _http_status(error: BaseException) -> int | None:
    candidates: tuple[Any, ...] = (
        getattr(error, "status_code", None),
        getattr(error, "status", None),
        getattr(getattr(error, "response", None), "status_code", None),
        getattr(error, "code", None),
    )
    for candidate in candidates:
        if isinstance(candidate, int) and _CLIENT_ERRORS <= candidate <= _LAST_STATUS:
            return int(candidate)
    return None


def _by_type(error: BaseException) -> ErrorCategory | None:
    # First, because redis-py derives these from its connection errors, which are transient.
    if isinstance(error, _REFUSED_LOGIN):
        return ErrorCategory.PERMANENT
    if isinstance(error, _TRANSIENT_TYPES):
        return ErrorCategory.TRANSIENT
    if isinstance(error, ResponseError) and _PASSING_REPLIES.search(str(error)):
        return ErrorCategory.TRANSIENT
    if isinstance(error, OSError):
        return ErrorCategory.TRANSIENT if error.errno in _PASSING_ERRNOS else ErrorCategory.PERMANENT
    if any(kind.__name__ in _DATABASE_TYPES for kind in type(error).__mro__):
        return ErrorCategory.TRANSIENT
    return ErrorCategory.PERMANENT if isinstance(error, _PERMANENT_TYPES) else None


_RULES: Final = (_by_wrapper, _by_sandbox, _by_http_status, _by_type)
