"""Which errors are worth another attempt, and whose word counts."""

from __future__ import annotations

import errno
import socket
import sqlite3
import urllib.error
from email.message import Message

import pytest
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.errors import (
    ErrorCategory,
    ErrorPolicy,
    InvalidArgument,
    PermanentError,
    TransientError,
    UnrecoverableError,
    classify,
)


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status


class ResponseHolder(Exception):
    def __init__(self, status: int) -> None:
        super().__init__("as requests and httpx do")
        self.response = HttpError(status)


class PoolTimeout(Exception):
    pass


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


TRANSIENT = [
    ConnectionRefusedError(),
    TimeoutError(),
    socket.gaierror(socket.EAI_NONAME, "unknown name"),
    OSError(errno.ENETUNREACH, "no route"),
    OSError(errno.ENOSPC, "disk full"),
    OSError(errno.EMFILE, "too many files"),
    MemoryError(),
    RedisConnectionError(),
    RedisTimeoutError(),
    BusyLoadingError(),
    OutOfMemoryError(),
    ResponseError("Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed"),
    ResponseError("Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't write"),
    ResponseError("BUSY Redis is busy running a script"),
    ResponseError("NOREPLICAS Not enough good replicas to write."),
    ReadOnlyError(),
    HttpError(500),
    HttpError(503),
    HttpError(429),
    ResponseHolder(502),
    urllib.error.HTTPError("http://h", 504, "slow", Message(), None),
    sqlite3.OperationalError("database is locked"),
    PoolTimeout(),
    TransientError("try again"),
    caused(TransientError("not deployed yet"), HttpError(404)),
    caused(RuntimeError("while fetching"), ConnectionResetError()),
]

PERMANENT = [
    ValueError("bad"),
    KeyError("missing"),
    TypeError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    FileNotFoundError(errno.ENOENT, "no file"),
    PermissionError(errno.EACCES, "no"),
    HttpError(400),
    HttpError(404),
    HttpError(422),
    ResponseHolder(401),
    AuthenticationError(),
    ClusterCrossSlotError(),
    ResponseError("WRONGTYPE"),
    ResponseError("the text of a user says OOM and BUSY here"),
    InvalidArgument("bad name"),
    UnrecoverableError("never"),
    PermanentError("insufficient funds"),
    caused(PermanentError("no such account"), TimeoutError()),
    sqlite3.IntegrityError("duplicate"),
    Exception("nobody knows"),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_transient_errors(error: Exception) -> None:
    assert classify(error) is ErrorCategory.TRANSIENT


@pytest.mark.parametrize("error", PERMANENT, ids=repr)
def test_permanent_errors(error: Exception) -> None:
    assert classify(error) is ErrorCategory.PERMANENT


def test_a_circle_of_causes_ends() -> None:
    one, other = RuntimeError("a"), RuntimeError("b")
    one.__cause__, other.__cause__ = other, one
    assert classify(one) is ErrorCategory.PERMANENT


def test_the_user_has_the_first_word() -> None:
    def mine(error: BaseException) -> ErrorCategory | None:
        return ErrorCategory.TRANSIENT if "maybe" in str(error) else None

    policy = ErrorPolicy(classify=mine)
    assert policy.category_of(ValueError("maybe")) is ErrorCategory.TRANSIENT
    assert policy.category_of(ValueError("no")) is ErrorCategory.PERMANENT
    assert ErrorPolicy(unknown=ErrorCategory.TRANSIENT).category_of(RuntimeError("?")) is ErrorCategory.TRANSIENT


def test_categories_decide_only_if_configured() -> None:
    assert not ErrorPolicy().ends_the_job(ValueError())
    assert ErrorPolicy().ends_the_job(PermanentError("no"))
    assert ErrorPolicy(fail_permanent=True).ends_the_job(ValueError())
    assert not ErrorPolicy(fail_permanent=True).ends_the_job(TimeoutError())
