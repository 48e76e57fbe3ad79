"""Is a driver honest? Asked before every run: a driver that says `ok` to everything would pass many scenarios.

Two things are tried: operations that nobody can have, and one write that the kit then looks for in Redis by itself.
"""

from __future__ import annotations

import random
import string
from typing import Any

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import (
    DriverDishonest,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.messages import RedisAddress
from conformance.driver.ops import lifecycle, queue

RANDOM_OPERATIONS = 3
DEADLINE_MS = 15_000
QUEUE = "honesty"
HANDLE = "honesty"


def probe_honesty(
    connection: DriverConnection, *, address: RedisAddress, redis: Any, prefix: str, seed: int
) -> list[str]:
    """Raise DriverDishonest (or another DriverBroken) unless the driver tells the truth, as far as it can be seen.

    `redis` is a client of the kit's own for the same Redis, `prefix` one that nobody else uses; its keys are left to
    the caller. Returns notes on what could not be tried.
    """
    probe_unknown_operations(connection, seed=seed)
    if "queue.add" not in connection.ready.ops:
        return ["queue.add is not declared: no write of this driver could be looked for in Redis"]
    try:
        _probe_write(connection, address, redis, prefix, seed)
    except (OperationFailed, OperationIndeterminate, OperationUnsupported) as refusal:
        # A client that cannot add a job fails scenarios; that it says so is what is asked for here.
        return [f"no write could be looked for in Redis: {refusal}"]
    return []


def probe_unknown_operations(connection: DriverConnection, *, seed: int) -> None:
    """Call operations with random names; the only honest answer is `unsupported`. Raises DriverBroken."""
    for op in _random_operations(seed):
        result = connection.call_raw(op, {}, handle=HANDLE)
        if result.status != "unsupported":
            raise _dishonest(
                connection,
                f"it answered `{result.status}` to the operation {op!r}, which does not exist",
                hint="answer `unsupported` to every operation that you do not know",
            )


def job_in_redis(redis: Any, prefix: str, queue_name: str, job: str) -> bool:
    """Whether Redis holds the hash of a job."""
    found: bytes | str = redis.type(f"{prefix}:{queue_name}:{job}")
    return found in {b"hash", "hash"}


def insist_on_job(connection: DriverConnection, redis: Any, prefix: str, queue_name: str, job: str) -> None:
    """Raise DriverDishonest unless the job that the driver says it added is in Redis."""
    if not job_in_redis(redis, prefix, queue_name, job):
        raise _dishonest(
            connection,
            f"it answered `ok` to queue.add with the id {job!r}, but Redis holds no hash {prefix}:{queue_name}:{job}",
            hint="answer when the job is written; take address, prefix, queue and id from the calls and the client",
        )


def _probe_write(connection: DriverConnection, address: RedisAddress, redis: Any, prefix: str, seed: int) -> None:
    opening = lifecycle.Open(role="queue", queue=QUEUE, prefix=prefix, redis=address)
    connection.call(opening, handle=HANDLE, deadline_ms=DEADLINE_MS)
    added = connection.call(
        queue.Add(name="honesty", data_raw=f'{{"seed":{seed}}}'), handle=HANDLE, deadline_ms=DEADLINE_MS
    )
    insist_on_job(connection, redis, prefix, QUEUE, added.id)
    connection.call(lifecycle.Close(), handle=HANDLE, deadline_ms=DEADLINE_MS)


def _random_operations(seed: int) -> list[str]:
    """Names like `queue.zq81hf`, which no list of known names can hold."""
    choose = random.Random(seed)
    letters = string.ascii_lowercase + string.digits
    return [f"queue.z{''.join(choose.choices(letters, k=7))}" for _ in range(RANDOM_OPERATIONS)]


def _dishonest(connection: DriverConnection, what: str, *, hint: str) -> DriverDishonest:
    problem = DriverDishonest(what, hint=hint)
    problem.driver = connection.ready.client.name
    problem.log = tuple(connection.log_tail())
    return problem
