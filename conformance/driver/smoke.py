"""The smoke set of `driver check`: small trials, in the order in which a driver is usually written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationUnsupported
from conformance.driver.lines import convert
from conformance.driver.messages import Ready, RedisAddress
from conformance.driver.ops import Op, lifecycle, queue, worker
from conformance.driver.ops.events import JobEvent
from conformance.driver.probe import insist_on_job, probe_unknown_operations

DEADLINE_MS = 15_000
SEEN_WITHIN_MS = 10_000
POLL_SECONDS = 0.01
TOKEN = "driver-check"


class NotSeen(Exception):
    """Redis, or a later answer, does not show what the driver said."""


class RoleUnsupported(Exception):
    """The driver opens no handles of a role that a client may well lack."""


@dataclass(frozen=True)
class Bench:
    """What a trial works with: the driver, the Redis that it was given, and the kit's own view of it."""

    connection: DriverConnection
    address: RedisAddress
    redis: Any
    prefix: str
    seed: int

    def call(self, op: Op[Any], handle: str | None = None) -> Any:
        """Call the driver with the deadline of a check."""
        return self.connection.call(op, handle=handle, deadline_ms=DEADLINE_MS)

    def open(self, role: lifecycle.Role, queue_name: str, processor: lifecycle.Processor | None = None) -> str:
        """Open a handle and return its name. Each trial has a queue of its own. Raises RoleUnsupported."""
        handle = f"{role}-{queue_name}"
        opening = lifecycle.Open(
            role=role, queue=queue_name, prefix=self.prefix, redis=self.address, processor=processor
        )
        try:
            self.call(opening, handle)
        except OperationUnsupported as refusal:
            if role == "queue":
                raise
            raise RoleUnsupported(f"role {role} is unsupported: {refusal.reason}") from refusal
        return handle

    def add(self, handle: str, queue_name: str) -> str:
        """Add a job, see that it is in Redis, and return its id. Raises DriverDishonest."""
        job: str = self.call(queue.Add(name="check", data_raw='{"n":1}'), handle).id
        insist_on_job(self.connection, self.redis, self.prefix, queue_name, job)
        return job

    def wait_until_completed(self, queue_name: str, job: str) -> None:
        """Look into Redis until the job is completed. Raises NotSeen with the last thing seen."""
        deadline = time.monotonic() + SEEN_WITHIN_MS / 1000
        key = f"{self.prefix}:{queue_name}:completed"
        while self.redis.zscore(key, job) is None:
            if time.monotonic() > deadline:
                raise NotSeen(f"job {job} is not in {key} after {SEEN_WITHIN_MS} ms; {self._where(queue_name, job)}")
            time.sleep(POLL_SECONDS)

    def _where(self, queue_name: str, job: str) -> str:
        base = f"{self.prefix}:{queue_name}"
        lists = [name for name in ("wait", "active") if job.encode() in self.redis.lrange(f"{base}:{name}", 0, -1)]
        failed = ["failed"] if self.redis.zscore(f"{base}:failed", job) is not None else []
        return f"it is in {', '.join(lists + failed) or 'none of wait, active, failed'}"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One step of the check. `needs` are operations, `capability` is what must be declared for it to be tried."""

    name: str
    run: Callable[[Bench], str]
    hint: str
    needs: tuple[str, ...] = ()
    capability: str = ""

    def not_declared(self, ready: Ready) -> str:
        """Say what is missing in the driver's declaration; empty when it can be tried."""
        missing = [op for op in self.needs if op not in ready.ops]
        if self.capability and self.capability not in ready.capabilities:
            missing.append(f"the capability {self.capability}")
        return f"{', '.join(missing)} not declared" if missing else ""


def unknown_operations(bench: Bench) -> str:
    """Call operations with random names."""
    probe_unknown_operations(bench.connection, seed=bench.seed)
    return "unknown operations are answered with `unsupported`"


def opened(bench: Bench) -> str:
    """Open and close a queue."""
    bench.call(lifecycle.Close(), bench.open("queue", "opened"))
    return "a queue handle opens and closes"


def added(bench: Bench) -> str:
    """Add a job and look for it in Redis."""
    job = bench.add(bench.open("queue", "added"), "added")
    return f"job {job} is in Redis"


def read_back(bench: Bench) -> str:
    """Read a job back, and one that does not exist."""
    handle = bench.open("queue", "read")
    job = bench.add(handle, "read")
    view = bench.call(queue.GetJob(job=job), handle).job
    if view is None or view.id != job or view.name != "check":
        raise NotSeen(f"job {job} is in Redis, but queue.getJob answered {view}")
    if bench.call(queue.GetJob(job="no-such-job"), handle).job is not None:
        raise NotSeen("queue.getJob found a job that does not exist; `job` must be null then")
    return "getJob finds the job, and answers null where there is none"


def counted(bench: Bench) -> str:
    """Count the jobs of a queue."""
    handle = bench.open("queue", "counted")
    bench.add(handle, "counted")
    counts = bench.call(queue.GetJobCounts(types=["waiting", "completed"]), handle).counts
    if counts.get("waiting") != 1 or counts.get("completed") != 0:
        raise NotSeen(f"one job waits, but queue.getJobCounts answered {counts}")
    return f"counts are {counts}"


def manual_worker(bench: Bench) -> str:
    """Claim and complete a job with single calls."""
    job = bench.add(bench.open("queue", "manual"), "manual")
    handle = bench.open("worker", "manual", "manual")
    claimed = bench.call(worker.GetNextJob(token=TOKEN), handle).job
    if claimed is None or claimed.id != job:
        raise NotSeen(f"job {job} waits, but worker.getNextJob answered {claimed}")
    bench.call(worker.MoveToCompleted(job=job, token=TOKEN, value_raw='"done"'), handle)
    bench.wait_until_completed("manual", job)
    return f"job {job} was claimed and completed by single calls"


def managed_worker(bench: Bench) -> str:
    """Let the client's own loop complete a job."""
    handle = bench.open("worker", "managed", "noop")
    job = bench.add(bench.open("queue", "managed"), "managed")
    bench.wait_until_completed("managed", job)
    bench.connection.wait_event(
        handle, names={"completed"}, deadline_ms=SEEN_WITHIN_MS, where=lambda event: event.args["job"] == job
    )
    bench.call(lifecycle.Close(), handle)
    return f"the worker's loop completed job {job} and told about it"


def asking_worker(bench: Bench) -> str:
    """Let the client's own loop hand a job to the kit."""
    handle = bench.open("worker", "ask", "ask")
    job = bench.add(bench.open("queue", "ask"), "ask")
    event = bench.connection.wait_event(handle, names={"job"}, deadline_ms=SEEN_WITHIN_MS)
    asked = convert(event.args, JobEvent, "the event `job`")
    if asked.job.id != job:
        raise NotSeen(f"job {job} was added, but the event `job` brought {asked.job.id}")
    bench.call(worker.Resolve(job=job, outcome="complete", value_raw="42"), handle)
    bench.wait_until_completed("ask", job)
    bench.call(lifecycle.Close(), handle)
    return f"job {job} was handed to the kit and completed with its value"


def event_reader(bench: Bench) -> str:
    """Wait for an event through the client's reader of the stream."""
    reader = bench.open("events", "events")
    job = bench.add(bench.open("queue", "events"), "events")
    event = bench.connection.wait_event(
        reader,
        names={"queue-event"},
        deadline_ms=SEEN_WITHIN_MS,
        where=lambda event: event.args["name"] == "waiting",
    )
    if event.args["fields"].get("jobId") != job:
        raise NotSeen(f"the event `waiting` has the fields {event.args['fields']}, expected jobId {job}")
    return f"the event `waiting` of job {job} arrived"


def reset(bench: Bench) -> str:
    """Close all handles at once."""
    bench.call(lifecycle.Reset())
    return "all handles are closed"


TRIALS = (
    Trial(
        name="honesty",
        run=unknown_operations,
        hint="answer `unsupported` to every operation that you do not know",
    ),
    Trial(
        name="open",
        run=opened,
        needs=("open", "close"),
        hint="create the client's queue object in `open`, keep it under the handle, and close it in `close`",
    ),
    Trial(
        name="add",
        run=added,
        needs=("open", "queue.add"),
        hint="declare queue.add and call the client's `add` with name, parsed data and opts; answer its id",
    ),
    Trial(
        name="getJob",
        run=read_back,
        needs=("open", "queue.add", "queue.getJob"),
        hint="declare queue.getJob; it is the base of most comparisons of what the client reads",
    ),
    Trial(
        name="counts",
        run=counted,
        needs=("open", "queue.add", "queue.getJobCounts"),
        hint="declare queue.getJobCounts; the types are BullMQ's names, and each is answered under the same name",
    ),
    Trial(
        name="manual worker",
        run=manual_worker,
        needs=("open", "queue.add", "worker.getNextJob", "worker.moveToCompleted"),
        capability="manual-worker",
        hint="if the client can claim and finish jobs by hand, declare manual-worker and the worker.* operations",
    ),
    Trial(
        name="managed worker",
        run=managed_worker,
        needs=("open", "close", "queue.add"),
        capability="managed-worker",
        hint="declare managed-worker: role worker starts the client's loop, processor `noop` returns null at once",
    ),
    Trial(
        name="processor ask",
        run=asking_worker,
        needs=("open", "close", "queue.add", "resolve"),
        capability="managed-worker",
        hint="in processor `ask`, send the event `job` and wait, without blocking other calls, for `resolve`",
    ),
    Trial(
        name="events",
        run=event_reader,
        needs=("open", "queue.add"),
        hint="role events opens the client's event reader and sends each entry as the event `queue-event`",
    ),
    Trial(name="reset", run=reset, needs=("reset",), hint="declare reset: close every handle without waiting for jobs"),
)
