"""The client's errors as the driver protocol names them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redis.exceptions import RedisError

from conformance.driver.serve import OpError
from conformance.protocol.errors import DRIVER_CODES, ErrorCode
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.errors import (
    BullMQError,
    InvalidArgument,
    JobFailed,
    JobLocked,
    ScriptError,
    WaitTimeout,
)

Json = dict[str, Any]
Handler = Callable[[str | None, Json], Awaitable[Json | None]]

_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidArgument, "invalid-argument"),
    (JobLocked, "lock-mismatch"),
    (JobFailed, "job-failed"),
    (WaitTimeout, "timeout"),
)


def translated(error: Exception) -> OpError:
    """Turn an error into the answer of an operation. A lost connection leaves open whether Redis has acted."""
    if isinstance(error, OpError):
        return error
    if isinstance(error, WaitTimeout):
        return OpError("timeout", str(error))
    if is_connection_problem(error):
        return OpError("connection-lost", str(error), status="info")
    if isinstance(error, ScriptError) and error.code in DRIVER_CODES:
        return OpError(DRIVER_CODES[ErrorCode(error.code)], str(error))
    for kind, code in _CODES:
        if isinstance(error, kind):
            return OpError(code, str(error))
    if isinstance(error, TypeError) and "serialize" in str(error):
        return OpError("invalid-argument", str(error))
    return OpError("other", _text(error))


def _text(error: Exception) -> str:
    """The client's own words or Redis' own text; redis-py takes the code in front of it (`ERR`) apart."""
    if isinstance(error, BullMQError):
        return str(error)
    if isinstance(error, RedisError):
        code = getattr(error, "status_code", None)
        return f"{code} {error}" if code else str(error)
    return f"{type(error).__name__}: {error}"


def translating(handler: Handler) -> Handler:
    """Wrap a handler so that every error of the client has its protocol name."""

    async def handle(name: str | None, args: Json) -> Json | None:
        try:
            return await handler(name, args)
        except Exception as error:
            raise translated(error) from error

    return handle
