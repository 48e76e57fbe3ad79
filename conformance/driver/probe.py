"""Probes of a driver: the honesty probe before every run, and the steps of `driver check`.

A driver that answers `ok` to everything would pass many scenarios. So before every run the honesty probe calls
operations that do not exist, and adds a job that the kit then looks up in Redis itself.
"""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import (
    DriverDishonest,
    EventTimeout,
    OperationFailed,
    OperationIndeterminate,
    OperationUnanswered,
    OperationUnsupported,
)
from conformance.driver.messages import Ready, convert
from conformance.driver.ops import Op, lifecycle, queue, worker
from conformance.driver.ops.lifecycle import JobEvent, RedisAddress
from conformance.protocol.keys import META, glob_escaped

DEADLINE_MS = 15_000
RANDOM_OPERATIONS = 3
HONESTY_QUEUE = "honesty"
HONESTY_HANDLE = "honesty"
SMOKE_TOKEN = "driver-check"
EVENTS_STEP = "events"
SEEN_WITHIN_MS = 10_000
POLL_SECONDS = 0.01


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


class SmokeMismatch(Exception):
    """Redis or a later answer contradicts the driver. `hint`: what to do, if the hint of the step does not fit."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class RoleUnsupported(Exception):
    """The driver does not support a role that is optional for clients."""


@dataclass(frozen=True)
class SmokeTest:
    """The context of the smoke steps: the driver, its Redis address, and the kit's own connection to that Redis."""

    connection: DriverConnection
    address: RedisAddress
    redis: Any
    prefix: str
    seed: int

    def call(self, op: Op[Any], handle: str | None = None) -> Any:
        """Call the driver with a deadline that is long enough for a first connection."""
        return self.connection.call(op, handle=handle, deadline_ms=DEADLINE_MS)

    def open(self, role: lifecycle.Role, queue_name: str, processor: lifecycle.Processor | None = None) -> str:
        """Open a handle and return its name. Each step uses its own queue. Raises RoleUnsupported."""
        handle = f"{role}-{queue_name}"
        prefix, own_queue = place_for(self.connection.ready, self.prefix, queue_name)
        opening = lifecycle.Open(role=role, queue=own_queue, prefix=prefix, redis=self.address, processor=processor)
        try:
            self.call(opening, handle)
        except OperationUnsupported as refusal:
            if role == "queue":
                raise
            raise RoleUnsupported(f"role {role} is unsupported: {refusal.reason}") from refusal
        return handle

    def add(self, handle: str, queue_name: str) -> str:
        """Add a job, check that it is in Redis, and return its id. Raises DriverDishonest."""
        add = queue.Add(name="check", data_raw='{"n":1}')
        return added_job(self.connection, add, handle, self.redis, self.base(queue_name))

    def base(self, queue_name: str) -> str:
        """The start of a queue's keys, without the last colon."""
        return ":".join(place_for(self.connection.ready, self.prefix, queue_name))

    def wait_until_completed(self, queue_name: str, job: str) -> None:
        """Poll Redis until the job is completed. Raises SmokeMismatch with the state of the job."""
        # Redis is polled although the driver sends an event: the driver is not the witness of state.
        deadline = time.monotonic() + SEEN_WITHIN_MS / 1000
        key = f"{self.base(queue_name)}:completed"
        while self.redis.zscore(key, job) is None:
            if time.monotonic() > deadline:
                raise SmokeMismatch(
                    f"job {job} is not in {key} after {SEEN_WITHIN_MS} ms; {self._where(queue_name, job)}"
                )
            time.sleep(POLL_SECONDS)

    def _where(self, queue_name: str, job: str) -> str:
        base = self.base(queue_name)
        lists = [name for name in ("wait", "active") if job.encode() in self.redis.lrange(f"{base}:{name}", 0, -1)]
        failed = ["failed"] if self.redis.zscore(f"{base}:failed", job) is not None else []
        return f"it is in {', '.join(lists + failed) or 'none of wait, active, failed'}"


@dataclass(frozen=True, kw_only=True)
class SmokeStep:
    """One smoke step. The driver must declare the operations in `needs` and the `capability` for it to run.

    `hint`: how to implement it. The caller puts "declare …" in front of it if declarations are missing.
    """

    name: str
    run: Callable[[SmokeTest], str]
    hint: str
    needs: tuple[str, ...] = ()
    capability: str = ""

    def not_declared(self, ready: Ready) -> list[str]:
        """The missing declarations of the driver; empty if the step can run."""
        missing = [op for op in self.needs if op not in ready.ops]
        if self.capability and self.capability not in ready.capabilities:
            missing.append(f"the capability {self.capability}")
        return missing


def unknown_operations(test: SmokeTest) -> str:
    """Call operations with random names."""
    probe_unknown_operations(test.connection, seed=test.seed)
    return "it answers `unsupported` to unknown operations"


def opened(test: SmokeTest) -> str:
    """Open and close a queue."""
    test.call(lifecycle.Close(), test.open("queue", "opened"))
    return "a queue handle opens and closes"


def added(test: SmokeTest) -> str:
    """Add a job and check it in Redis."""
    job = test.add(test.open("queue", "added"), "added")
    return f"job {job} is in Redis"


def read_back(test: SmokeTest) -> str:
    """Read a job back, and one that does not exist."""
    handle = test.open("queue", "read")
    job = test.add(handle, "read")
    view = test.call(queue.GetJob(job=job), handle).job
    if view is None or view.id != job or view.name != "check":
        raise SmokeMismatch(f"job {job} is in Redis, but queue.getJob returned {view}")
    if test.call(queue.GetJob(job="no-such-job"), handle).job is not None:
        raise SmokeMismatch("queue.getJob returned a job that does not exist; `job` must be null in this case")
    return "getJob returns the job, and null for an unknown id"


def counted(test: SmokeTest) -> str:
    """Count the jobs of a queue."""
    handle = test.open("queue", "counted")
    test.add(handle, "counted")
    counts = test.call(queue.GetJobCounts(types=["waiting", "completed"]), handle).counts
    if counts.get("waiting") != 1 or counts.get("completed") != 0:
        raise SmokeMismatch(f"one job waits, but queue.getJobCounts returned {counts}")
    return f"counts are {counts}"


def manual_worker(test: SmokeTest) -> str:
    """Claim and complete a job with single calls."""
    job = test.add(test.open("queue", "manual"), "manual")
    handle = test.open("worker", "manual", "manual")
    claimed = test.call(worker.GetNextJob(token=SMOKE_TOKEN), handle).job
    if claimed is None or claimed.id != job:
        raise SmokeMismatch(f"job {job} waits, but worker.getNextJob returned {claimed}")
    test.call(worker.MoveToCompleted(job=job, token=SMOKE_TOKEN, value_raw='"done"'), handle)
    test.wait_until_completed("manual", job)
    return f"job {job} was claimed and completed by single calls"


def managed_worker(test: SmokeTest) -> str:
    """Let the client's own loop complete a job."""
    handle = test.open("worker", "managed", "noop")
    job = test.add(test.open("queue", "managed"), "managed")
    test.wait_until_completed("managed", job)
    try:
        test.connection.wait_event(
            handle, names={"completed"}, deadline_ms=SEEN_WITHIN_MS, where=lambda event: event.args["job"] == job
        )
    except EventTimeout as timeout:
        raise SmokeMismatch(
            f"job {job} is in `completed`, but the driver sent no event `completed` for it: {timeout}",
            hint="send the event `completed` or `failed` with the job's id when a job of a managed worker ends",
        ) from timeout
    test.call(lifecycle.Close(), handle)
    return f"the worker's loop completed job {job} and reported it"


def asking_worker(test: SmokeTest) -> str:
    """Let the client's own loop pass a job to the kit."""
    handle = test.open("worker", "ask", "ask")
    job = test.add(test.open("queue", "ask"), "ask")
    event = test.connection.wait_event(handle, names={"job"}, deadline_ms=SEEN_WITHIN_MS)
    claimed = convert(event.args, JobEvent, "the event `job`")
    if claimed.job.id != job:
        raise SmokeMismatch(f"job {job} was added, but the event `job` has job {claimed.job.id}")
    test.call(worker.Resolve(job=job, outcome="complete", value_raw="42"), handle)
    test.wait_until_completed("ask", job)
    test.call(lifecycle.Close(), handle)
    return f"job {job} was passed to the kit and completed with its value"


def event_reader(test: SmokeTest) -> str:
    """Wait for an event through the client's reader of the stream."""
    # Before the add: a reader starts at the end of the stream and would miss the event.
    reader = test.open("events", "events")
    job = test.add(test.open("queue", "events"), "events")
    event = test.connection.wait_event(
        reader,
        names={"queue-event"},
        deadline_ms=SEEN_WITHIN_MS,
        where=lambda event: event.args["name"] == "waiting",
    )
    if event.args["fields"].get("jobId") != job:
        raise SmokeMismatch(f"the event `waiting` has the fields {event.args['fields']}, expected jobId {job}")
    return f"the event `waiting` of job {job} arrived"


def reset(test: SmokeTest) -> str:
    """Close all handles at once."""
    test.call(lifecycle.Reset())
    return "all handles are closed"


SMOKE_STEPS = (
    SmokeStep(
        name="honesty",
        run=unknown_operations,
        hint="answer `unsupported` to every unknown operation",
    ),
    SmokeStep(
        name="open",
        run=opened,
        needs=("open", "close"),
        hint="create the client's queue object in `open`, keep it under the handle, and close it in `close`",
    ),
    SmokeStep(
        name="add",
        run=added,
        needs=("open", "queue.add"),
        hint="call the client's `add` with name, parsed data and opts; return the job's id",
    ),
    SmokeStep(
        name="getJob",
        run=read_back,
        needs=("open", "queue.add", "queue.getJob"),
        hint="return the job as the client reads it, `job: null` for an unknown id; many comparisons use it",
    ),
    SmokeStep(
        name="counts",
        run=counted,
        needs=("open", "queue.add", "queue.getJobCounts"),
        hint="the types are BullMQ's names; return each count under the same name",
    ),
    SmokeStep(
        name="manual worker",
        run=manual_worker,
        needs=("open", "queue.add", "worker.getNextJob", "worker.moveToCompleted"),
        capability="manual-worker",
        hint="claim and finish jobs by single calls of the client; skip this if the client only has a worker loop",
    ),
    SmokeStep(
        name="managed worker",
        run=managed_worker,
        needs=("open", "close", "queue.add"),
        capability="managed-worker",
        hint="for role worker, start the client's loop immediately; processor `noop` returns null",
    ),
    SmokeStep(
        name="processor ask",
        run=asking_worker,
        needs=("open", "close", "queue.add", "resolve"),
        capability="managed-worker",
        hint="in processor `ask`, send the event `job` and wait for `resolve` without blocking other calls",
    ),
    SmokeStep(
        name=EVENTS_STEP,
        run=event_reader,
        needs=("open", "queue.add"),
        hint="for role events, open the client's event reader and send each entry as the event `queue-event`",
    ),
    SmokeStep(name="reset", run=reset, needs=("reset",), hint="close every handle without waiting for jobs"),
)
"""The steps, in the order in which a driver is usually written."""
