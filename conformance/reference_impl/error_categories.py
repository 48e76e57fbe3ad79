"""Whether another attempt may help: errors are transient or permanent.

By default the category only appears in logs and metrics, because Node retries every error but UnrecoverableError. With
`ErrorPolicy(fail_permanent=True)` a permanent error ends a job at once.
"""

from __future__ import annotations

import asyncio
import errno
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
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.errors import BullMQError, UnrecoverableError


class Category(StrEnum):
    """What an error says about the next attempt."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"


Classify = Callable[[BaseException], Category | None]
"""The user's own judgement; None leaves an error to the library."""


class TransientError(BullMQError):
    """Raise it in a processor, best `from` the original error: another attempt may help."""


class PermanentError(UnrecoverableError):
    """Raise it in a processor, best `from` the original error: fail the job now, whatever attempts are left."""


@dataclass(frozen=True)
class ErrorPolicy:
    """How errors of processors are judged.

    `classify` is asked first. `unknown` is the category of errors that nobody knows. `fail_permanent`: a permanent
    error ends the job at once; off by default, because Node would retry it.
    """

    classify: Classify | None = None
    unknown: Category = Category.PERMANENT
    fail_permanent: bool = False

    def category_of(self, error: BaseException) -> Category:
        """Judge an error."""
        own = self.classify(error) if self.classify is not None else None
        return own or known_category(error) or self.unknown

    def ends_the_job(self, error: BaseException) -> bool:
        """Whether no further attempt is made, whatever attempts are left."""
        if isinstance(error, UnrecoverableError):
            return True
        return self.fail_permanent and self.category_of(error) is Category.PERMANENT


def classify(error: BaseException) -> Category:
    """Judge an error by the library's rules alone; what it does not know is permanent."""
    return known_category(error) or Category.PERMANENT


def known_category(error: BaseException) -> Category | None:
    """Judge an error, or the first of its causes (`raise ... from cause`) that the library knows."""
    for each in _with_causes(error):
        for rule in _RULES:
            category = rule(each)
            if category is not None:
                return category
    return None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__


def _by_wrapper(error: BaseException) -> Category | None:
    if isinstance(error, TransientError):
        return Category.TRANSIENT
    return Category.PERMANENT if isinstance(error, UnrecoverableError) else None


def _by_http_status(error: BaseException) -> Category | None:
    """Errors of HTTP clients tell the status in one of a few ways."""
    status = _http_status(error)
    if status is None:
        return None
    is_worth_retrying = status >= _SERVER_ERRORS or status == _TOO_MANY_REQUESTS
    return Category.TRANSIENT if is_worth_retrying else Category.PERMANENT


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


def _by_type(error: BaseException) -> Category | None:
    if isinstance(error, _REFUSED_LOGIN):
        return Category.PERMANENT
    if isinstance(error, _TRANSIENT_TYPES):
        return Category.TRANSIENT
    if isinstance(error, OSError):
        return Category.TRANSIENT if error.errno in _PASSING_ERRNOS else Category.PERMANENT
    if any(kind.__name__ in _DATABASE_TYPES for kind in type(error).__mro__):
        return Category.TRANSIENT
    return Category.PERMANENT if isinstance(error, _PERMANENT_TYPES) else None


_CLIENT_ERRORS: Final = 400
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERRORS: Final = 500
_LAST_STATUS: Final = 599

_REFUSED_LOGIN: Final = (AuthenticationError, AuthorizationError)
"""For redis-py these are connection errors; trying again does not change a password."""

_TRANSIENT_TYPES: Final[tuple[type[BaseException], ...]] = (
    *(ConnectionError, TimeoutError, asyncio.CancelledError, MemoryError),
    *(socket.gaierror, RedisConnectionError, RedisTimeoutError),
    *(OutOfMemoryError, ReadOnlyError, ClusterDownError, MasterDownError, TryAgainError),
)
"""Network, timeouts, cancellation, and a Redis that is loading, failing over or full."""

_PASSING_ERRNOS: Final = frozenset(
    {
        *(errno.EAGAIN, errno.EINTR, errno.EBUSY),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETRESET),
        *(errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.ENOBUFS, errno.EMFILE, errno.ENFILE),
    }
)

_DATABASE_TYPES: Final = frozenset({"OperationalError", "InterfaceError", "DeadlockDetected", "PoolTimeout"})
"""Names that database drivers use (PEP 249) for a lost connection, a deadlock, or no connection to be had."""

_PERMANENT_TYPES: Final[tuple[type[BaseException], ...]] = (
    *(ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError),
    *(NotImplementedError, ImportError, NameError, BullMQError),
)
"""Validation, parsing, configuration and plain mistakes."""

_RULES: Final = (_by_wrapper, _by_http_status, _by_type)
