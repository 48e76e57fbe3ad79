"""The work of clients: in a run an endless workload that depends only on the seed, at crash points short segments."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from conformance.checkers.histories.history import PlannedJob, StartLimit
from conformance.driver.ops import flow, job, queue
from conformance.driver.ops.base import Op
from conformance.driver.ops.flow import AddFlow, FlowJob, UpsertJobScheduler
from conformance.driver.ops.queue import Add, AddBulk, NewJob

MAIN, LIMITED, NARROW, LONG = "main", "limited", "narrow", "long"
"""Queues: one for everything, one with a rate limit, one with a global concurrency, one with jobs longer than locks."""
QUEUES = (MAIN, LIMITED, NARROW, LONG)
RATE = StartLimit(most=5, duration_ms=200)
NARROW_CONCURRENCY = 2
EVENTS_KEPT = 1_000_000
"""Long enough that the streams are not trimmed while the kit reads them."""
FAR_MS = 60_000
"""A delay that never passes: the segment itself moves the job on."""
LONG_MS = 4300
"""Longer than the lives of two locks: only a worker that renews the lock finishes such a job."""
BACKOFF_MS = 100
TICK_MS, TICKS = 300, 5
"""A scheduler: its interval (ms), and its number of iterations."""
SAME_MS = 200
"""How long a deduplicated job runs (ms): further jobs of its id are added in this time."""
OPENING = ("schedule", "longs", "rush", "crowd", "squeeze", "deep", "same", "same", "same", "backs-off", "backs-off")
"""The first kinds of call of a producer: they reach every limit at once, not by chance."""
WITHOUT_DUE_TIMES = ("longs", "rush", "crowd", "squeeze")
"""Those of them without due times."""
CALM = ("crowd", "rush", "brief", "deep", "same", "same", "same", "backs-off")
"""The kinds of call after the last fault: enough for every worker.

`brief`: short jobs of the long queue. After a loss they get the ids of the long jobs that still run.
"""
LAST_CHILD_MS = 1500
"""How long the child of the last flow runs: all other work is done by then, so its parent must wake up a worker."""


class ProcessorBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for the processor, in a job's data: the kind, how long to work (ms), how often to fail first."""

    kind: str = "plain"
    work_ms: float = 2
    fails: int = 0


@dataclass(frozen=True)
class PlannedCall:
    """A call of a producer: the operation, the kind of handle, the queue, and the jobs that it adds.

    `deduplication`: the id under which it adds a job, unless one exists; in that case the job's name is unknown.
    """

    op: Op[Any]
    role: str
    queue: str
    jobs: tuple[PlannedJob, ...]
    deduplication: str = ""

    @property
    def about(self) -> dict[str, Any]:
        """Its arguments in the history, besides its jobs."""
        found: dict[str, Any] = {"queue": self.queue}
        if self.deduplication:
            found["deduplication"] = self.deduplication
        if isinstance(self.op, UpsertJobScheduler):
            found |= {"scheduler": self.op.id, "times": self.op.repeat["limit"]}
        return found

    def singles(self) -> Iterator[PlannedCall]:
        """The same jobs with one call for each; only for a bulk call."""
        if isinstance(self.op, AddBulk):
            for new, planned in zip(self.op.jobs, self.jobs, strict=True):
                op = Add(name=new.name, data_raw=new.data_raw, opts=new.opts)
                yield PlannedCall(op, self.role, self.queue, (planned,))


@dataclass(frozen=True, kw_only=True)
class WorkloadMix:
    """The composition of the workload.

    `weights`: of the kinds of call. `slow_ms`: how long slow jobs work; `narrow_ms`: how long jobs of the narrow queue
    work at most. `opening`: the first kinds of call.
    """

    weights: Mapping[str, int] = field(
        default_factory=lambda: {
            "plain": 30,
            "lifo": 5,
            "prioritized": 10,
            "delayed": 10,
            "retries": 8,
            "backs-off": 6,
            "fails": 4,
            "waits": 3,
            "delays": 3,
            "unkept": 5,
            "slow": 2,
            "bulk": 5,
            "deep": 5,
            "limited": 4,
            "rush": 2,
            "narrow": 8,
            "same": 5,
            "long": 1,
        }
    )
    slow_ms: float = 300
    narrow_ms: float = 30
    opening: tuple[str, ...] = OPENING


class ChaosWorkload:
    """An endless series of calls: the opening of the mix, then kinds by their weights."""

    def __init__(self, seed: int, mix: WorkloadMix, *, label: str = "j") -> None:
        self._random = random.Random(seed)
        self._mix = mix
        self._label = label
        self._made = 0
        self._kinds: Mapping[str, Callable[[], PlannedCall]] = {
            "bulk": self._bulk,
            "deep": self._flow,
            "flow": self._flow,
            "schedule": self._schedule,
            "same": self._same,
            "longs": lambda: self._burst("long", 6),
            "rush": lambda: self._burst(LIMITED, 4 * RATE.most),
            "crowd": lambda: self._burst("slow", 24),
            "brief": lambda: self._burst("brief", 6),
            "squeeze": lambda: self._burst(NARROW, 4 * NARROW_CONCURRENCY),
        }

    def __iter__(self) -> Iterator[PlannedCall]:
        yield from map(self._call, self._mix.opening)
        kinds, weights = zip(*self._mix.weights.items(), strict=True)
        while True:
            yield self._call(self._random.choices(kinds, weights)[0])

    def calm(self) -> Iterator[PlannedCall]:
        """The calls after the last fault."""
        for kind in CALM:
            if self._mix.opening == OPENING or kind in {*self._mix.opening, "brief"}:
                yield self._call(kind)

    def farewell(self) -> PlannedCall:
        """The last call: a parent whose workers are idle when the end of a child in another queue releases it."""
        # In another queue, so that no worker of the parent's queue is awake when the child ends.
        parent, _, behaviour = self._job("plain")
        child, _, _ = self._job(NARROW, parent=parent.name)
        late = FlowJob(name=child.name, queue=child.queue, data_raw=_data(ProcessorBehaviour(work_ms=LAST_CHILD_MS)))
        flow = FlowJob(name=parent.name, queue=parent.queue, data_raw=_data(behaviour), children=[late])
        return PlannedCall(AddFlow(flow=flow), "flow", parent.queue, (parent, child))

    def _call(self, kind: str) -> PlannedCall:
        return self._kinds[kind]() if kind in self._kinds else self._single(kind)

    def _single(self, kind: str) -> PlannedCall:
        planned, opts, behaviour = self._job(kind)
        op = Add(name=planned.name, data_raw=_data(behaviour), opts=opts)
        return PlannedCall(op, "queue", planned.queue, (planned,))

    def _bulk(self) -> PlannedCall:
        return self._together(self._random.choice(("plain", "delayed", "prioritized")) for _ in range(5))

    def _burst(self, kind: str, size: int) -> PlannedCall:
        """Enough jobs of one kind to reach a limit."""
        return self._together(kind for _ in range(size))

    def _together(self, kinds: Iterable[str]) -> PlannedCall:
        bulk = [self._job(kind) for kind in kinds]
        jobs = [NewJob(name=planned.name, data_raw=_data(behaviour), opts=opts) for planned, opts, behaviour in bulk]
        return PlannedCall(AddBulk(jobs=jobs), "queue", bulk[0][0].queue, tuple(planned for planned, _, _ in bulk))

    def _flow(self) -> PlannedCall:
        """Three levels over two queues: the middle one is a child and a parent."""
        planned: list[PlannedJob] = []

        def node(kind: str, parent: str, *below: tuple[str, tuple[str, ...]]) -> FlowJob:
            job_planned, opts, behaviour = self._job(kind, parent=parent)
            planned.append(job_planned)
            children = [node(child, job_planned.name, *((leaf, ()) for leaf in leaves)) for child, leaves in below]
            return FlowJob(
                name=job_planned.name,
                queue=job_planned.queue,
                data_raw=_data(behaviour),
                opts=opts,
                children=children,
            )

        root = node("plain", "", ("plain", ("plain", "narrow")), ("delayed", ()), ("narrow", ()))
        return PlannedCall(AddFlow(flow=root), "flow", planned[0].queue, tuple(planned))

    def _schedule(self) -> PlannedCall:
        """Some iterations of a scheduler, which ends by itself."""
        self._made += 1
        name = f"{self._label}{self._made}"
        repeat = {"every": TICK_MS, "limit": TICKS}
        op = UpsertJobScheduler(id=name, repeat=repeat, name=name, data_raw=_data(ProcessorBehaviour()))
        return PlannedCall(op, "queue", MAIN, ())

    def _same(self) -> PlannedCall:
        """A job that exists at most once: its id is added several times in a row."""
        # The same name for 40 jobs in a row: its repetitions fall into the life of one job.
        name = f"{self._label}same-{self._made // 40}"
        behaviour = ProcessorBehaviour(work_ms=SAME_MS)
        op = Add(name=name, data_raw=_data(behaviour), opts={"deduplication": {"id": name}})
        return PlannedCall(op, "queue", MAIN, (), deduplication=name)

    def _job(self, kind: str, *, parent: str = "") -> tuple[PlannedJob, dict[str, Any], ProcessorBehaviour]:
        """A job of a kind: its plan, its options, and the instructions for its processor."""
        self._made += 1
        work_ms = round(self._random.uniform(2, 10), 1)
        planned, opts = self._planned_and_opts(kind)
        behaviour = self._behaviour(kind, work_ms)
        queue_name = LONG if kind == "brief" else kind if kind in QUEUES else MAIN
        name = f"{self._label}{self._made}"
        return PlannedJob(name=name, queue=queue_name, parent=parent, **planned), opts, behaviour

    def _planned_and_opts(self, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The particulars of the kind: for the checks, and for BullMQ."""
        if kind == "lifo":
            return {"lifo": True}, {"lifo": True}
        if kind == "prioritized":
            priority = self._random.randint(1, 5)
            return {"priority": priority}, {"priority": priority}
        if kind == "delayed":
            delay_ms = self._random.randint(50, 800)
            return {"delay_ms": delay_ms}, {"delay": delay_ms}
        if kind == "retries":
            return {"attempts": 4}, {"attempts": 4}
        if kind == "backs-off":
            backoff = {"type": "fixed", "delay": BACKOFF_MS}
            return {"attempts": 4, "backoff_ms": BACKOFF_MS}, {"attempts": 4, "backoff": backoff}
        if kind == "unkept":
            return {"kept": False}, {"removeOnComplete": True}
        return {"kind": kind} if kind in {"waits", "delays"} else {}, {}

    def _behaviour(self, kind: str, work_ms: float) -> ProcessorBehaviour:
        if kind in {"retries", "backs-off"}:
            return ProcessorBehaviour(kind="retries", work_ms=work_ms, fails=self._random.randint(1, 2))
        if kind in {"fails", "waits", "delays"}:
            return ProcessorBehaviour(kind=kind, work_ms=work_ms)
        if kind == "slow":
            return ProcessorBehaviour(work_ms=self._mix.slow_ms)
        if kind == LONG:
            return ProcessorBehaviour(work_ms=LONG_MS)
        if kind == NARROW:
            return ProcessorBehaviour(work_ms=round(self._random.uniform(5, self._mix.narrow_ms), 1))
        return ProcessorBehaviour(work_ms=work_ms)


def _data(behaviour: ProcessorBehaviour) -> str:
    return msgspec.json.encode(behaviour).decode()


@dataclass(frozen=True)
class SegmentCall:
    """A call on the queue (or flow) handle. `jobs`: those that it adds. Other calls are repeated until they end.

    `only_for`: the only script that needs this call.
    """

    op: Op[Any]
    handle: str = "queue"
    jobs: tuple[PlannedJob, ...] = ()
    only_for: str = ""


@dataclass(frozen=True)
class SegmentWait:
    """Wait until the worker has moved a job to a container."""

    job: str
    container: str


SegmentStep: TypeAlias = SegmentCall | SegmentWait


@dataclass(frozen=True)
class CrashSegment:
    """Steps, and the scripts that the steps and the worker call. Each script has three crash points.

    `worker_first`: the worker runs from the start. `killed`: also kill the process at these points, instead of only
    cutting its connection.
    """

    name: str
    scripts: tuple[str, ...]
    steps: tuple[SegmentStep, ...]
    worker_first: bool = False
    killed: bool = True


def _add(
    name: str, behaviour: ProcessorBehaviour | None = None, *, planned: Mapping[str, Any] | None = None, **opts: Any
) -> SegmentCall:
    data = msgspec.json.encode(behaviour or ProcessorBehaviour()).decode()
    job_planned = PlannedJob(name=name, queue=MAIN, **(planned or {}))
    return SegmentCall(Add(name=name, data_raw=data, opts=opts), jobs=(job_planned,))


def _moved(name: str, **opts: Any) -> SegmentCall:
    """A job whose place or time a later step changes; its id is its name."""
    return _add(name, planned={"kind": "moved"}, jobId=name, **opts)


def _bulk(*names: str) -> SegmentCall:
    jobs = [NewJob(name=name) for name in names]
    return SegmentCall(AddBulk(jobs=jobs), jobs=tuple(PlannedJob(name=name, queue=MAIN) for name in names))


def _family(parent: str, child: str, **child_opts: Any) -> SegmentCall:
    node = FlowJob(name=child, queue=NARROW, opts={"jobId": child, **child_opts})
    tree = FlowJob(name=parent, queue=MAIN, opts={"jobId": parent}, children=[node])
    planned = (
        PlannedJob(name=parent, queue=MAIN),
        PlannedJob(
            name=child, queue=NARROW, parent="" if child_opts else parent, kind="moved" if child_opts else "plain"
        ),
    )
    return SegmentCall(AddFlow(flow=tree), "flow", planned)


SEGMENTS: tuple[CrashSegment, ...] = (
    CrashSegment("add", ("addStandardJob", "moveToActive", "moveToFinished"), (_add("a"), _bulk("b", "c"), _add("d"))),
    CrashSegment("start", ("moveStalledJobsToWait",), (_add("a"),)),
    CrashSegment("delayed", ("addDelayedJob",), (_add("a", planned={"delay_ms": 150}, delay=150), _add("b"))),
    CrashSegment(
        "prioritized", ("addPrioritizedJob",), (_add("a", planned={"priority": 3}, priority=3), _add("b"), _add("c"))
    ),
    CrashSegment("flow", ("addParentJob",), (_family("parent", "child"),)),
    CrashSegment(
        "retries",
        ("retryJob",),
        (_add("a", ProcessorBehaviour(kind="retries", fails=2), planned={"attempts": 3}, attempts=3),),
    ),
    CrashSegment(
        "backs-off",
        ("moveToDelayed",),
        (
            _add(
                "a",
                ProcessorBehaviour(kind="retries", fails=1),
                planned={"attempts": 3},
                attempts=3,
                backoff={"type": "fixed", "delay": 80},
            ),
        ),
    ),
    CrashSegment(
        "waits", ("moveJobFromActiveToWait",), (_add("a", ProcessorBehaviour(kind="waits"), planned={"kind": "waits"}),)
    ),
    CrashSegment("children", ("moveToWaitingChildren",), (_add("a", ProcessorBehaviour(kind="asks-children")),)),
    CrashSegment("slow", ("extendLocks",), (_add("a", ProcessorBehaviour(work_ms=1500)), _add("b"))),
    CrashSegment(
        "schedule",
        ("addJobScheduler", "updateJobScheduler", "removeJobScheduler"),
        (
            # Paused, so that no worker takes the first iteration before the crash point.
            SegmentCall(queue.Pause()),
            # Two iterations: the second one is made by `updateJobScheduler`.
            SegmentCall(flow.UpsertJobScheduler(id="tick", repeat={"every": 120, "limit": 2}, name="tick")),
            SegmentCall(queue.Resume()),
            SegmentCall(flow.UpsertJobScheduler(id="tock", repeat={"every": FAR_MS}, name="tock")),
            SegmentCall(flow.RemoveJobScheduler(id="tock")),
        ),
        # The worker has to run while the steps are taken, because it makes the next iteration.
        worker_first=True,
    ),
    CrashSegment("pause", ("pause",), (SegmentCall(queue.Pause()), _add("a"), SegmentCall(queue.Resume()))),
    CrashSegment("promote", ("promote",), (_moved("a", delay=FAR_MS), SegmentCall(job.Promote(job="a")))),
    CrashSegment(
        "change-delay",
        ("changeDelay",),
        (_moved("a", delay=FAR_MS), SegmentCall(job.ChangeDelay(job="a", delay_ms=100))),
    ),
    CrashSegment(
        "edit",
        ("changePriority", "updateData", "updateProgress", "addLog"),
        (
            _moved("a", priority=9),
            SegmentCall(job.ChangePriority(job="a", priority=2), only_for="changePriority"),
            SegmentCall(job.UpdateData(job="a", data_raw='{"kind":"plain"}'), only_for="updateData"),
            SegmentCall(job.UpdateProgress(job="a", value_raw="50"), only_for="updateProgress"),
            SegmentCall(job.Log(job="a", row="a row"), only_for="addLog"),
        ),
        killed=False,
    ),
    CrashSegment("remove", ("removeJob",), (_moved("a"), _add("b"), SegmentCall(queue.Remove(job="a")))),
    CrashSegment("drain", ("drain",), (_moved("a"), _moved("b"), SegmentCall(queue.Drain(delayed=True)))),
    CrashSegment(
        "clean", ("cleanJobsInSet",), (_moved("a"), SegmentCall(queue.Clean(grace_ms=0, limit=0, type="wait")))
    ),
    CrashSegment(
        "retry",
        ("reprocessJob",),
        (
            _add("a", ProcessorBehaviour(kind="fails"), jobId="a"),
            SegmentWait("a", "failed"),
            SegmentCall(job.Retry(job="a")),
        ),
        worker_first=True,
    ),
    CrashSegment(
        "retry-all",
        ("moveJobsToWait",),
        (_moved("a", delay=FAR_MS), _moved("b", delay=FAR_MS), SegmentCall(queue.PromoteJobs())),
    ),
    CrashSegment("obliterate", ("obliterate",), (_moved("a"), _moved("b"), SegmentCall(queue.Obliterate(force=True)))),
    CrashSegment(
        "orphan",
        ("removeChildDependency",),
        (_family("parent", "child", delay=300), SegmentCall(job.RemoveChildDependency(job="child"), "children")),
    ),
    CrashSegment(
        "childless",
        ("removeUnprocessedChildren",),
        (_family("parent", "child", delay=FAR_MS), SegmentCall(job.RemoveUnprocessedChildren(job="parent"))),
    ),
    CrashSegment(
        "read",
        (
            "getCounts",
            "getCountsPerPriority",
            "getDependencyCounts",
            "getJobScheduler",
            "getMetrics",
            "getRanges",
            "getRateLimitTtl",
            "getStateV2",
            "isMaxed",
        ),
        (
            _moved("a"),
            SegmentCall(queue.GetJobCounts(types=["waiting"]), only_for="getCounts"),
            SegmentCall(queue.GetCountsPerPriority(priorities=[0, 1]), only_for="getCountsPerPriority"),
            SegmentCall(job.GetDependenciesCount(job="a"), only_for="getDependencyCounts"),
            SegmentCall(flow.GetJobScheduler(id="none"), only_for="getJobScheduler"),
            SegmentCall(queue.GetMetrics(type="completed"), only_for="getMetrics"),
            SegmentCall(queue.GetJobs(types=["waiting"]), only_for="getRanges"),
            SegmentCall(queue.GetRateLimitTtl(), only_for="getRateLimitTtl"),
            SegmentCall(queue.GetJobState(job="a"), only_for="getStateV2"),
            SegmentCall(queue.IsMaxed(), only_for="isMaxed"),
        ),
        killed=False,
    ),
)
