"""The steps of `driver check`: each calls the driver, and compares its answers with Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import EventTimeout, OperationUnsupported
from conformance.driver.messages import Ready, convert
from conformance.driver.ops import Op, flow, lifecycle, queue, worker
from conformance.driver.ops.base import JobView
from conformance.driver.ops.lifecycle import JobEvent, RedisAddress
from conformance.driver.probe import added_job, place_for, probe_unknown_operations

DEADLINE_MS = 15_000
SEEN_WITHIN_MS = 10_000
POLL_SECONDS = 0.01
SMOKE_TOKEN = "driver-check"
EVENTS_STEP, FLOW_STEP, LOOP_STEP = "events", "flow", "managed worker"


End = Literal["completed", "failed"]
OTHER_END: Mapping[End, End] = {"completed": "failed", "failed": "completed"}


class SmokeMismatch(Exception):
    """Redis or a later answer contradicts the driver. `hint`: what to do, if the hint of the step does not fit.

    `of_client`: the driver has done its part, so the client must be fixed.
    """

    def __init__(self, what: str, *, hint: str = "", of_client: bool = False) -> None:
        super().__init__(what)
        self.hint = hint
        self.of_client = of_client


class OpeningUnsupported(Exception):
    """The driver does not support a role or a processor; both are optional for clients."""


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

    def open(
        self, role: lifecycle.Role, queue_name: str, processor: lifecycle.Processor | None = None, **settings: Any
    ) -> str:
        """Open a handle and return its name. `settings`: of the processor. Raises OpeningUnsupported.

        Each step uses its own queue.
        """
        handle = f"{role}-{queue_name}"
        prefix, own_queue = place_for(self.connection.ready, self.prefix, queue_name)
        opening = lifecycle.Open(
            role=role,
            queue=own_queue,
            prefix=prefix,
            redis=self.address,
            processor=processor,
            processor_args=settings,
        )
        try:
            self.call(opening, handle)
        except OperationUnsupported as refusal:
            if role == "queue":
                raise
            refused = f"processor {processor}" if processor else f"role {role}"
            raise OpeningUnsupported(f"{refused} is unsupported: {refusal.reason}") from refusal
        return handle

    def add(self, handle: str, queue_name: str, *, data_raw: str = '{"n":1}', **opts: Any) -> str:
        """Add a job, check that it is in Redis, and return its id. Raises DriverDishonest."""
        add = queue.Add(name="check", data_raw=data_raw, opts=opts)
        return added_job(self.connection, add, handle, self.redis, self.base(queue_name))

    def base(self, queue_name: str) -> str:
        """The start of a queue's keys, without the last colon."""
        return ":".join(place_for(self.connection.ready, self.prefix, queue_name))

    def wait_until_ended(self, queue_name: str, job: str, end: End = "completed", worker: str = "") -> None:
        """Poll Redis until the job is completed or failed. Raises SmokeMismatch unless it is in `end`.

        `worker`: the handle whose loop runs the job.
        """
        # Redis is polled although the driver sends an event: the driver is not the witness of state.
        deadline = time.monotonic() + SEEN_WITHIN_MS / 1000
        base = self.base(queue_name)
        while self.redis.zscore(f"{base}:{end}", job) is None:
            if self.redis.zscore(f"{base}:{OTHER_END[end]}", job) is not None:
                what = f"job {job} is in {OTHER_END[end]}, not in {end}{self._reason(base, job)}"
                raise self._unless_reported(what, worker, job, end)
            if time.monotonic() > deadline:
                what = f"job {job} is not in {base}:{end} after {SEEN_WITHIN_MS} ms; {self._where(base, job)}"
                raise self._unless_reported(what, worker, job, end)
            time.sleep(POLL_SECONDS)

    def _unless_reported(self, what: str, worker: str, job: str, end: End) -> SmokeMismatch:
        """Return the mismatch, which is the client's if the worker itself has reported the expected end of the job."""
        events = self.connection.take_events(worker) if worker else []
        errors = [str(event.args.get("message", "")) for event in events if event.name == "error"]
        ended = any(event.name == end and event.args.get("job") == job for event in events)
        if ended or (end == "failed" and any(REASON in error for error in errors)):
            hint = f"its worker has reported that the job is {end}, so the processor did its part; Redis must show it"
            return SmokeMismatch(what, hint=hint, of_client=True)
        return SmokeMismatch("; ".join([what, *(f"its worker reported the error {error!r}" for error in errors[:1])]))

    def _reason(self, base: str, job: str) -> str:
        reason = self.redis.hget(f"{base}:{job}", "failedReason")
        return "" if reason is None else f"; its failedReason is {reason.decode('utf-8', 'replace')!r}"

    def _where(self, base: str, job: str) -> str:
        lists = [name for name in ("wait", "active") if job.encode() in self.redis.lrange(f"{base}:{name}", 0, -1)]
        return f"it is in {', '.join(lists) or 'none of wait, active, completed, failed'}"


@dataclass(frozen=True, kw_only=True)
class SmokeStep:
    """One smoke step. The driver must declare the operations in `needs` and the `capability` for it to run.

    `after`: the step that must have passed, because this one could only repeat its failure. `hint`: how to implement
    it. The caller puts "declare …" in front of it if declarations are missing.
    """

    name: str
    run: Callable[[SmokeTest], str]
    hint: str
    needs: tuple[str, ...] = ()
    capability: str = ""
    after: str = ""

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
    return f"getJob returns the job, and null for an unknown id{_left_out(view)}"


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
    test.wait_until_ended("manual", job)
    return f"job {job} was claimed and completed by single calls{_left_out(claimed)}"


def managed_worker(test: SmokeTest) -> str:
    """Let the client's own loop complete a job."""
    handle = test.open("worker", "managed", "noop")
    job = test.add(test.open("queue", "managed"), "managed")
    test.wait_until_ended("managed", job, worker=handle)
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
    test.wait_until_ended("ask", job, worker=handle)
    test.call(lifecycle.Close(), handle)
    return f"job {job} was passed to the kit and completed with its value{_left_out(claimed.job)}"


def _left_out(job: JobView) -> str:
    """The fields that the driver does not return, as the end of a sentence; empty if there are none."""
    there = msgspec.to_builtins(job)
    names = [item.name for item in msgspec.structs.fields(job) if item.name not in there]
    return f"; it has no {', '.join(names)}, so these are not compared (null: the client has no value)" if names else ""


@dataclass(frozen=True, kw_only=True)
class PresetJob:
    """A job for a processor that runs inside the driver, and what the processor must leave in Redis.

    `settings`: of the processor. `fields`: values in the job's hash. `log`: a row in its log. `takes_ms`: the least
    time from before the job is added until it has ended.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Any = field(default_factory=lambda: {"n": 1})
    attempts: int = 1
    ends: End = "completed"
    fields: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    takes_ms: int = 0


REASON = "failed by driver check"

PRESETS: Mapping[lifecycle.Processor, tuple[PresetJob, ...]] = {
    "echo": (
        PresetJob(data={"text": "é", "list": [1, None]}, fields={"returnvalue": {"text": "é", "list": [1, None]}}),
    ),
    "sleep": (PresetJob(settings={"ms": 150}, takes_ms=150, fields={"returnvalue": None}),),
    "fail": (
        # With one attempt, a processor that never throws is noticed; with two, one that always does.
        PresetJob(settings={"times": 1, "message": REASON}, ends="failed", fields={"failedReason": REASON}),
        PresetJob(settings={"times": 1, "message": REASON}, attempts=2, fields={"returnvalue": None}),
    ),
    "throw": (PresetJob(settings={"message": REASON}, ends="failed", fields={"failedReason": REASON}),),
    "progress": (PresetJob(settings={"values": [10, {"share": 0.5}]}, fields={"progress": {"share": 0.5}}),),
    "steps": (
        PresetJob(
            data={
                "steps": [
                    {"do": "fail", "message": REASON, "until_attempt": 1},
                    {"do": "progress", "value": 7},
                    {"do": "log", "row": "checked"},
                    {"do": "sleep", "ms": 1},
                    {"do": "return", "value": "done"},
                ]
            },
            attempts=2,
            fields={"returnvalue": "done", "progress": 7},
            log="checked",
        ),
        PresetJob(
            data={"steps": [{"do": "unrecoverable", "message": REASON}]}, ends="failed", fields={"failedReason": REASON}
        ),
    ),
}
"""The processors that `managed-worker` promises besides `ask` and `noop`."""

PRESET_HINTS: Mapping[lifecycle.Processor, str] = {
    "echo": "return the job's data",
    "sleep": "wait `processor_args.ms`, then return null",
    "fail": "throw an error on the first `processor_args.times` attempts, then return null",
    "throw": "throw an error with `processor_args.message`",
    "progress": "update the job's progress to each of `processor_args.values`, then return null",
    "steps": "follow the list `steps` in the job's data: progress, log, sleep, fail, unrecoverable, return",
}


def preset_processor(name: lifecycle.Processor, test: SmokeTest) -> str:
    """Let the client's own loop run jobs with a processor of the driver."""
    for number, job in enumerate(PRESETS[name]):
        _run_preset(test, name, f"{name}-{number}", job)
    return f"processor {name} does what the protocol says"


def _run_preset(test: SmokeTest, name: lifecycle.Processor, queue_name: str, job: PresetJob) -> None:
    handle = test.open("worker", queue_name, name, **job.settings)
    # Before the add, so that a job that ends too early is certain on a machine of any speed.
    started = time.monotonic()
    attempts = {"attempts": job.attempts} if job.attempts > 1 else {}
    added = test.add(test.open("queue", queue_name), queue_name, data_raw=json.dumps(job.data), **attempts)
    test.wait_until_ended(queue_name, added, job.ends, handle)
    took_ms = (time.monotonic() - started) * 1000
    test.call(lifecycle.Close(), handle)
    if took_ms < job.takes_ms:
        raise SmokeMismatch(
            f"job {added} ended {took_ms:.0f} ms after it was added, expected {job.takes_ms} ms or more"
        )
    key = f"{test.base(queue_name)}:{added}"
    for field_name, expected in job.fields.items():
        stored = test.redis.hget(key, field_name)
        actual = None if stored is None else stored.decode("utf-8", "replace")
        # `failedReason` is stored as it is, the other fields as JSON.
        wanted = expected if field_name == "failedReason" else json.dumps(expected, ensure_ascii=False)
        if actual is None or not _same(actual, wanted):
            raise SmokeMismatch(f"job {added} has {field_name} {actual!r}, expected {wanted!r}")
    rows = test.redis.lrange(f"{key}:logs", 0, -1)
    if job.log and not any(job.log in row.decode("utf-8", "replace") for row in rows):
        raise SmokeMismatch(f"job {added} has {len(rows)} rows in its log, expected {job.log!r}")


def _same(actual: str, expected: str) -> bool:
    """Whether two texts are equal, or the same JSON value."""
    try:
        return actual == expected or bool(json.loads(actual) == json.loads(expected))
    except ValueError:
        return False


def flow_producer(test: SmokeTest) -> str:
    """Add a parent with one child."""
    handle = test.open("flow", "flow")
    _prefix, own_queue = place_for(test.connection.ready, test.prefix, "flow")
    child = flow.FlowJob(name="child", queue=own_queue)
    test.call(flow.AddFlow(flow=flow.FlowJob(name="parent", queue=own_queue, children=[child])), handle)
    base = test.base("flow")
    parents, children = test.redis.zcard(f"{base}:waiting-children"), test.redis.llen(f"{base}:wait")
    if (parents, children) != (1, 1):
        places = f"{base}:waiting-children has {parents} and {base}:wait has {children} jobs"
        raise SmokeMismatch(f"a parent with one child was added, but {places}")
    test.call(lifecycle.Close(), handle)
    return "a parent waits for its child"


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
        name=LOOP_STEP,
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
    *(
        SmokeStep(
            name=f"processor {name}",
            run=partial(preset_processor, name),
            needs=("open", "close", "queue.add"),
            capability="managed-worker",
            after=LOOP_STEP,
            hint=f"in processor `{name}`, {PRESET_HINTS[name]}",
        )
        for name in PRESETS
    ),
    SmokeStep(
        name=FLOW_STEP,
        run=flow_producer,
        needs=("open", "close", "flow.add"),
        hint="for role flow, open the client's flow producer; in `flow.add`, add the root job with all its children",
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
