"""The honesty probe of a driver, before every run.

A driver that answers `ok` to everything would pass many scenarios. So before every run the honesty probe calls
operations that do not exist, and adds a job that the kit then looks up in Redis itself.
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
    OperationUnanswered,
    OperationUnsupported,
)
from conformance.driver.messages import Ready
from conformance.driver.ops import lifecycle, queue
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.protocol.keys import META, glob_escaped

DEADLINE_MS = 15_000
RANDOM_OPERATIONS = 3
HONESTY_QUEUE = "honesty"
HONESTY_HANDLE = "honesty"


def probe_honesty(
    connection: DriverConnection, *, address: RedisAddress, redis: Any, prefix: str, seed: int
) -> list[str]:
    """Raises DriverDishonest (or another DriverBroken) if the driver claims something that did not happen.

    `redis` is the kit's own connection to the same Redis; `prefix` is unique to this probe, and the caller deletes its
    keys. Returns notes on checks that were not possible.
    """
    # First and without Redis: a driver that says `ok` to this proves nothing with its other answers.
    probe_unknown_operations(connection, seed=seed)
    if "queue.add" not in connection.ready.ops:
        return ["queue.add is not declared, so no write of this driver could be checked in Redis"]
    try:
        _probe_write(connection, address, redis, prefix, seed)
    except (OperationFailed, OperationIndeterminate, OperationUnsupported) as refusal:
        # A client that cannot add a job fails scenarios, but its driver reports that honestly.
        return [f"no write could be checked in Redis: {refusal}"]
    return []


def probe_unknown_operations(connection: DriverConnection, *, seed: int) -> None:
    """Call operations with random names. Raises DriverBroken if the driver does not answer `unsupported`."""
    for op in _random_operations(seed):
        # Raw, because `call` would refuse an undeclared operation before the driver sees it.
        result = connection.call_raw(op, {}, handle=HONESTY_HANDLE)
        if result.status != "unsupported":
            raise _dishonest(
                connection,
                f"it answered `{result.status}` to the unknown operation {op!r}",
                hint="answer `unsupported` to every unknown operation",
            )


def job_in_redis(redis: Any, base: str, job: str) -> bool:
    """Whether Redis holds the hash of a job; `base` is `PREFIX:QUEUE`."""
    kind: bytes | str = redis.type(f"{base}:{job}")
    return kind in {b"hash", "hash"}


def place_for(ready: Ready, prefix: str, queue_name: str) -> tuple[str, str]:
    """The prefix and the queue to open: a client with a fixed prefix gets a unique queue instead of a unique prefix."""
    return (prefix, queue_name) if ready.fixed_prefix is None else (ready.fixed_prefix, f"{queue_name}-{prefix}")


def insist_on_job(connection: DriverConnection, redis: Any, base: str, job: str) -> None:
    """Raises DriverDishonest if a job that the driver claims to have added is not in Redis. `base`: `PREFIX:QUEUE`."""
    if not job_in_redis(redis, base, job):
        raise _dishonest(
            connection,
            f"it answered `ok` to queue.add with the id {job!r}, but Redis has no hash {base}:{job}",
            hint="answer once the job is in Redis; use the address, prefix and queue of the calls, and the client's id",
        )


def _probe_write(connection: DriverConnection, address: RedisAddress, redis: Any, prefix: str, seed: int) -> None:
    own_prefix, own_queue = place_for(connection.ready, prefix, HONESTY_QUEUE)
    opening = lifecycle.Open(role="queue", queue=own_queue, prefix=own_prefix, redis=address)
    connection.call(opening, handle=HONESTY_HANDLE, deadline_ms=DEADLINE_MS)
    add = queue.Add(name="honesty", data_raw=f'{{"seed":{seed}}}')
    added_job(connection, add, HONESTY_HANDLE, redis, f"{own_prefix}:{own_queue}")
    connection.call(lifecycle.Close(), handle=HONESTY_HANDLE, deadline_ms=DEADLINE_MS)


def added_job(connection: DriverConnection, add: queue.Add, handle: str, redis: Any, base: str) -> str:
    """Add a job to the empty queue `base` (`PREFIX:QUEUE`), check that it is in Redis, and return its id.

    Raises DriverDishonest if it is not, and the errors of `DriverConnection.call`.
    """
    try:
        job: str = connection.call(add, handle=handle, deadline_ms=DEADLINE_MS).id
    except OperationUnanswered:
        return _only_job(connection, redis, base)
    insist_on_job(connection, redis, base, job)
    return job


def _only_job(connection: DriverConnection, redis: Any, base: str) -> str:
    """The only job in the queue, found by its hash, for a client that returns no id."""
    # A set: SCAN may return a key more than once.
    keys: list[bytes] = sorted(set(redis.scan_iter(match=f"{glob_escaped(base)}:*")))
    names = [key.decode().removeprefix(f"{base}:") for key in keys]
    jobs = [name for name in names if name != META and job_in_redis(redis, base, name)]
    if len(jobs) != 1:
        raise _dishonest(
            connection,
            f"it answered `ok` to queue.add without an id, and Redis has {len(jobs)} job hashes in {base}",
            hint="answer once the job is in Redis; use the address, prefix and queue of the calls",
        )
    return jobs[0]


def _random_operations(seed: int) -> list[str]:
    """Random names such as `queue.zq81hf`, so that a driver cannot know them."""
    choose = random.Random(seed)
    letters = string.ascii_lowercase + string.digits
    return [f"queue.z{''.join(choose.choices(letters, k=7))}" for _ in range(RANDOM_OPERATIONS)]


def _dishonest(connection: DriverConnection, what: str, *, hint: str) -> DriverDishonest:
    problem = DriverDishonest(what, hint=hint)
    problem.driver = connection.ready.client.name
    problem.log = tuple(connection.log_tail())
    return problem
