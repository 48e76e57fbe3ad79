"""What a driver is tried with: its honesty before every run, and the first operations in `driver check`.

Before every run two things are tried: operations that nobody can have, and one write that the kit then looks for in
Redis by itself. A driver that says `ok` to everything would pass many scenarios.
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
        result = connection.call_raw(op, {}, handle=HONESTY_HANDLE)
        if result.status != "unsupported":
            raise _dishonest(
                connection,
                f"it answered `{result.status}` to the operation {op!r}, which does not exist",
                hint="answer `unsupported` to every operation that you do not know",
            )


def job_in_redis(redis: Any, base: str, job: str) -> bool:
    """Whether Redis holds the hash of a job; `base` is `PREFIX:QUEUE`."""
    found: bytes | str = redis.type(f"{base}:{job}")
    return found in {b"hash", "hash"}


def place_for(ready: Ready, prefix: str, queue_name: str) -> tuple[str, str]:
    """The prefix and the queue to open: a client with a fixed prefix gets a queue that nobody else uses."""
    return (prefix, queue_name) if ready.fixed_prefix is None else (ready.fixed_prefix, f"{queue_name}-{prefix}")


def insist_on_job(connection: DriverConnection, redis: Any, base: str, job: str) -> None:
    """Raise DriverDishonest unless the job that the driver says it added is in Redis; `base` is `PREFIX:QUEUE`."""
    if not job_in_redis(redis, base, job):
        raise _dishonest(
            connection,
            f"it answered `ok` to queue.add with the id {job!r}, but Redis holds no hash {base}:{job}",
            hint="answer when the job is written; take address, prefix, queue and id from the calls and the client",
        )


def _probe_write(connection: DriverConnection, address: RedisAddress, redis: Any, prefix: str, seed: int) -> None:
    own_prefix, own_queue = place_for(connection.ready, prefix, HONESTY_QUEUE)
    opening = lifecycle.Open(role="queue", queue=own_queue, prefix=own_prefix, redis=address)
    connection.call(opening, handle=HONESTY_HANDLE, deadline_ms=DEADLINE_MS)
    add = queue.Add(name="honesty", data_raw=f'{{"seed":{seed}}}')
    added_job(connection, add, HONESTY_HANDLE, redis, f"{own_prefix}:{own_queue}")
    connection.call(lifecycle.Close(), handle=HONESTY_HANDLE, deadline_ms=DEADLINE_MS)


def added_job(connection: DriverConnection, add: queue.Add, handle: str, redis: Any, base: str) -> str:
    """Add a job to the empty queue `base` (`PREFIX:QUEUE`), see that it is in Redis, and return its id.

    Raises DriverDishonest where it is not, and whatever the call raises.
    """
    try:
        job: str = connection.call(add, handle=handle, deadline_ms=DEADLINE_MS).id
    except OperationUnanswered:
        return _only_job(connection, redis, base)
    insist_on_job(connection, redis, base, job)
    return job


def _only_job(connection: DriverConnection, redis: Any, base: str) -> str:
    """The job that must be in the queue, by its hash, where the client has told no id."""
    keys: list[bytes] = sorted(set(redis.scan_iter(match=f"{glob_escaped(base)}:*")))
    names = [key.decode().removeprefix(f"{base}:") for key in keys]
    jobs = [name for name in names if name != META and job_in_redis(redis, base, name)]
    if len(jobs) != 1:
        raise _dishonest(
            connection,
            f"it answered `ok` to queue.add without an id, and Redis holds {len(jobs)} hashes of jobs in {base}",
            hint="answer when the job is written; take address, prefix and queue from the calls",
        )
    return jobs[0]


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


class SmokeMismatch(Exception):
    """Redis, or a later answer, does not show what the driver said. `hint`: what to do, where the step's is not it."""

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class RoleUnsupported(Exception):
    """The driver opens no handles of a role that a client may well lack."""


@dataclass(frozen=True)
class SmokeTest:
    """What the smoke set works with: the driver, the Redis that it was given, and the kit's own view of it."""

    connection: DriverConnection
    address: RedisAddress
    redis: Any
    prefix: str
    seed: int

    def call(self, op: Op[Any], handle: str | None = None) -> Any:
        """Call the driver with the deadline of a check."""
        return self.connection.call(op, handle=handle, deadline_ms=DEADLINE_MS)

    def open(self, role: lifecycle.Role, queue_name: str, processor: lifecycle.Processor | None = None) -> str:
        """Open a handle and return its name. Each step has a queue of its own. Raises RoleUnsupported."""
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
        """Add a job, see that it is in Redis, and return its id. Raises DriverDishonest."""
        add = queue.Add(name="check", data_raw='{"n":1}')
        return added_job(self.connection, add, handle, self.redis, self.base(queue_name))

    def base(self, queue_name: str) -> str:
        """What the keys of a queue begin with, without the last colon."""
        return ":".join(place_for(self.connection.ready, self.prefix, queue_name))

    def wait_until_completed(self, queue_name: str, job: str) -> None:
        """Look into Redis until the job is completed. Raises NotSeen with the last thing seen."""
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
    """One step of the smoke set. `needs` are operations, `capability` is what must be declared for it to be tried.

    `hint`: how it is done. It does not say "declare": what is missing is known only where the driver is.
    """

    name: str
    run: Callable[[SmokeTest], str]
    hint: str
    needs: tuple[str, ...] = ()
    capability: str = ""

    def not_declared(self, ready: Ready) -> list[str]:
        """What is missing in the driver's declaration; empty when the step can be tried."""
        missing = [op for op in self.needs if op not in ready.ops]
        if self.capability and self.capability not in ready.capabilities:
            missing.append(f"the capability {self.capability}")
        return missing


def unknown_operations(test: SmokeTest) -> str:
    """Call operations with random names."""
    probe_unknown_operations(test.connection, seed=test.seed)
    return "unknown operations are answered with `unsupported`"


def opened(test: SmokeTest) -> str:
    """Open and close a queue."""
    test.call(lifecycle.Close(), test.open("queue", "opened"))
    return "a queue handle opens and closes"


def added(test: SmokeTest) -> str:
    """Add a job and look for it in Redis."""
    job = test.add(test.open("queue", "added"), "added")
    return f"job {job} is in Redis"


def read_back(test: SmokeTest) -> str:
    """Read a job back, and one that does not exist."""
    handle = test.open("queue", "read")
    job = test.add(handle, "read")
    view = test.call(queue.GetJob(job=job), handle).job
    if view is None or view.id != job or view.name != "check":
        raise SmokeMismatch(f"job {job} is in Redis, but queue.getJob answered {view}")
    if test.call(queue.GetJob(job="no-such-job"), handle).job is not None:
        raise SmokeMismatch("queue.getJob found a job that does not exist; `job` must be null then")
    return "getJob finds the job, and answers null where there is none"


def counted(test: SmokeTest) -> str:
    """Count the jobs of a queue."""
    handle = test.open("queue", "counted")
    test.add(handle, "counted")
    counts = test.call(queue.GetJobCounts(types=["waiting", "completed"]), handle).counts
    if counts.get("waiting") != 1 or counts.get("completed") != 0:
        raise SmokeMismatch(f"one job waits, but queue.getJobCounts answered {counts}")
    return f"counts are {counts}"


def manual_worker(test: SmokeTest) -> str:
    """Claim and complete a job with single calls."""
    job = test.add(test.open("queue", "manual"), "manual")
    handle = test.open("worker", "manual", "manual")
    claimed = test.call(worker.GetNextJob(token=SMOKE_TOKEN), handle).job
    if claimed is None or claimed.id != job:
        raise SmokeMismatch(f"job {job} waits, but worker.getNextJob answered {claimed}")
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
            f"job {job} is in `completed`, but the driver sent no event `completed` of it: {timeout}",
            hint="when a job of a managed worker has ended, send the event `completed` (or `failed`) with the job's id",
        ) from timeout
    test.call(lifecycle.Close(), handle)
    return f"the worker's loop completed job {job} and told about it"


def asking_worker(test: SmokeTest) -> str:
    """Let the client's own loop hand a job to the kit."""
    handle = test.open("worker", "ask", "ask")
    job = test.add(test.open("queue", "ask"), "ask")
    event = test.connection.wait_event(handle, names={"job"}, deadline_ms=SEEN_WITHIN_MS)
    asked = convert(event.args, JobEvent, "the event `job`")
    if asked.job.id != job:
        raise SmokeMismatch(f"job {job} was added, but the event `job` brought {asked.job.id}")
    test.call(worker.Resolve(job=job, outcome="complete", value_raw="42"), handle)
    test.wait_until_completed("ask", job)
    test.call(lifecycle.Close(), handle)
    return f"job {job} was handed to the kit and completed with its value"


def event_reader(test: SmokeTest) -> str:
    """Wait for an event through the client's reader of the stream."""
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
        hint="answer `unsupported` to every operation that you do not know",
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
        hint="call the client's `add` with name, parsed data and opts; answer its id",
    ),
    SmokeStep(
        name="getJob",
        run=read_back,
        needs=("open", "queue.add", "queue.getJob"),
        hint="answer the job as the client reads it, `job: null` where there is none; most comparisons begin here",
    ),
    SmokeStep(
        name="counts",
        run=counted,
        needs=("open", "queue.add", "queue.getJobCounts"),
        hint="the types are BullMQ's names, and each is answered under the same name",
    ),
    SmokeStep(
        name="manual worker",
        run=manual_worker,
        needs=("open", "queue.add", "worker.getNextJob", "worker.moveToCompleted"),
        capability="manual-worker",
        hint="claim and finish jobs by single calls of the client; one that only has a loop lacks this",
    ),
    SmokeStep(
        name="managed worker",
        run=managed_worker,
        needs=("open", "close", "queue.add"),
        capability="managed-worker",
        hint="role worker starts the client's loop at once; processor `noop` returns null",
    ),
    SmokeStep(
        name="processor ask",
        run=asking_worker,
        needs=("open", "close", "queue.add", "resolve"),
        capability="managed-worker",
        hint="in processor `ask`, send the event `job` and wait, without blocking other calls, for `resolve`",
    ),
    SmokeStep(
        name=EVENTS_STEP,
        run=event_reader,
        needs=("open", "queue.add"),
        hint="role events opens the client's event reader and sends each entry as the event `queue-event`",
    ),
    SmokeStep(name="reset", run=reset, needs=("reset",), hint="close every handle without waiting for jobs"),
)
"""In the order in which a driver is usually written."""
