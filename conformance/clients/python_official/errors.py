"""What the client raises, in the words of the driver protocol.

The client has no error classes or codes for the answers of the Lua scripts: it raises TypeError (sometimes Exception)
with BullMQ's own texts, so that the text is all there is to tell them apart.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from kit import OpError, Unsupported
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    DataError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

TEXTS = [
    (re.compile(pattern, re.DOTALL), code)
    for pattern, code in (
        (r"^Missing key for parent job ", "missing-parent"),
        (r"^Missing key for job ", "missing-job"),
        (r"^Missing lock for job ", "missing-lock"),
        (r"^Job .* is not in the .* state\. ", "wrong-state"),
        (r"^Job .* has pending dependencies\. ", "pending-dependencies"),
        (r"^Lock mismatch for job ", "lock-mismatch"),
        (r"^The parent job .* cannot be replaced\. ", "parent-replaced"),
        (r" belongs to a job scheduler and cannot be removed", "scheduler-job"),
        (r"^Cannot complete job .* failed child\. ", "failed-children"),
        (r"^Cannot create job scheduler iteration - ", "scheduler-collision"),
        (r" could not be removed because it is locked ", "lock-mismatch"),
        (r"^Unknown code -8 error ", "scheduler-job"),
        (r"^Cannot obliterate ", "other"),
        (r"^Unknown backoff strategy ", "invalid-argument"),
    )
]
"""The first text that matches decides."""

CONNECTION = (RedisConnectionError, RedisTimeoutError, BusyLoadingError, OSError, EOFError)
NOT_A_CONNECTION = (AuthenticationError, AuthorizationError)
"""redis-py makes them connection errors, but the connection is fine: the server has refused."""

UNREADABLE = re.compile(r"^invalid literal for int\(\)|^could not convert string to float")
"""A ValueError with such a text is about what the client read from Redis, not about an argument."""


@contextmanager
def told_to_the_kit(op: str) -> Iterator[None]:
    """Turn whatever the client raises into an answer of the protocol. Its traceback goes to the log."""
    try:
        yield
    except (OpError, Unsupported):
        raise
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        raise as_answer(error, op) from error


def as_answer(error: Exception, op: str) -> OpError:
    """Return an error of the client as the answer to the operation it was raised in."""
    message = text_of(error)
    for pattern, code in TEXTS:
        if pattern.search(message):
            return OpError(code, message)
    if isinstance(error, CONNECTION) and not isinstance(error, NOT_A_CONNECTION):
        return OpError("connection-lost", message, definite=False, status="info")
    if isinstance(error, RedisError) and not isinstance(error, DataError):
        return OpError("other", message)
    if _refused_an_argument(error):
        return OpError("invalid-argument", message)
    # What remains is the client stumbling, perhaps over a reply: by then a worker has claimed or finished the job.
    return OpError("other", message, **({"definite": False, "status": "info"} if op.startswith("worker.") else {}))


def text_of(error: BaseException) -> str:
    """Return the message of an error; its class where it has none."""
    return str(error) or type(error).__name__


def _refused_an_argument(error: Exception) -> bool:
    """Tell a refused argument. The client raises ValueError for its own checks, and so do its codecs."""
    if isinstance(error, json.JSONDecodeError) or UNREADABLE.search(str(error)):
        return False
    return isinstance(error, (ValueError, OverflowError, DataError))
