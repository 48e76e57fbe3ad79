"""Short pieces of work that together make a client call all of its scripts: what crash points are tried on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from chaos.workload import MAIN, NARROW, Orders
from conformance.checkers.histories.lines import PlannedJob
from conformance.driver.ops import flow, job, queue
from conformance.driver.ops.base import Op

FAR_MS = 60_000
"""A delay that nobody waits for: the segment itself brings the job on."""


@dataclass(frozen=True)
class Step:
    """A call on the queue (or flow) handle. `jobs`: what it adds. Others are repeated until their end is known."""

    op: Op[Any]
    handle: str = "queue"
    jobs: tuple[PlannedJob, ...] = ()


@dataclass(frozen=True)
class Await:
    """Wait until a job is in a container, brought there by the worker."""

    job: str
    container: str


Piece: TypeAlias = Step | Await


@dataclass(frozen=True)
class Segment:
    """Steps, and the scripts that they (and the worker, which then does the jobs) call: each is a crash point thrice.

    `worker_first`: the worker runs from the beginning. `killed`: also kill the process at these points, and not only
    cut its connection.
    """

    name: str
    scripts: tuple[str, ...]
    pieces: tuple[Piece, ...]
    worker_first: bool = False
    killed: bool = True


def _add(name: str, orders: Orders | None = None, *, planned: Mapping[str, Any] | None = None, **opts: Any) -> Step:
    data = msgspec.json.encode(orders or Orders()).decode()
    made = PlannedJob(name=name, queue=MAIN, **(planned or {}))
    return Step(queue.Add(name=name, data_raw=data, opts=opts), jobs=(made,))


def _moved(name: str, **opts: Any) -> Step:
    """A job whose place or time somebody changes later; its id is its name."""
    return _add(name, planned={"kind": "moved"}, jobId=name, **opts)


def _bulk(*names: str) -> Step:
    jobs = [queue.NewJob(name=name) for name in names]
    return Step(queue.AddBulk(jobs=jobs), jobs=tuple(PlannedJob(name=name, queue=MAIN) for name in names))


def _family(parent: str, child: str, **child_opts: Any) -> Step:
    node = flow.FlowJob(name=child, queue=NARROW, opts={"jobId": child, **child_opts})
    tree = flow.FlowJob(name=parent, queue=MAIN, opts={"jobId": parent}, children=[node])
    planned = (
        PlannedJob(name=parent, queue=MAIN),
        PlannedJob(
            name=child, queue=NARROW, parent="" if child_opts else parent, kind="moved" if child_opts else "plain"
        ),
    )
    return Step(flow.AddFlow(flow=tree), "flow", planned)


SEGMENTS: tuple[Segment, ...] = (
    Segment("add", ("addStandardJob", "moveToActive", "moveToFinished"), (_add("a"), _bulk("b", "c"), _add("d"))),
    Segment("start", ("moveStalledJobsToWait",), (_add("a"),)),
    Segment("delayed", ("addDelayedJob",), (_add("a", planned={"delay_ms": 150}, delay=150), _add("b"))),
    Segment(
        "prioritized", ("addPrioritizedJob",), (_add("a", planned={"priority": 3}, priority=3), _add("b"), _add("c"))
    ),
    Segment("flow", ("addParentJob",), (_family("parent", "child"),)),
    Segment(
        "retries", ("retryJob",), (_add("a", Orders(kind="retries", fails=2), planned={"attempts": 3}, attempts=3),)
    ),
    Segment(
        "backs-off",
        ("moveToDelayed",),
        (
            _add(
                "a",
                Orders(kind="retries", fails=1),
                planned={"attempts": 3},
                attempts=3,
                backoff={"type": "fixed", "delay": 80},
            ),
        ),
    ),
    Segment("waits", ("moveJobFromActiveToWait",), (_add("a", Orders(kind="waits"), planned={"kind": "waits"}),)),
    Segment("children", ("moveToWaitingChildren",), (_add("a", Orders(kind="asks-children")),)),
    Segment("slow", ("extendLocks",), (_add("a", Orders(work_ms=1500)), _add("b"))),
    Segment(
        "schedule",
        ("addJobScheduler", "updateJobScheduler", "removeJobScheduler"),
        (
            Step(queue.Pause()),
            Step(flow.UpsertJobScheduler(id="tick", repeat={"every": 120, "limit": 2}, name="tick")),
            Step(queue.Resume()),
            Step(flow.UpsertJobScheduler(id="tock", repeat={"every": FAR_MS}, name="tock")),
            Step(flow.RemoveJobScheduler(id="tock")),
        ),
        worker_first=True,
    ),
    Segment("pause", ("pause",), (Step(queue.Pause()), _add("a"), Step(queue.Resume()))),
    Segment("promote", ("promote",), (_moved("a", delay=FAR_MS), Step(job.Promote(job="a")))),
    Segment(
        "change-delay", ("changeDelay",), (_moved("a", delay=FAR_MS), Step(job.ChangeDelay(job="a", delay_ms=100)))
    ),
    Segment(
        "edit",
        ("changePriority", "updateData", "updateProgress", "addLog"),
        (
            _moved("a", priority=9),
            Step(job.ChangePriority(job="a", priority=2)),
            Step(job.UpdateData(job="a", data_raw='{"kind":"plain"}')),
            Step(job.UpdateProgress(job="a", value_raw="50")),
            Step(job.Log(job="a", row="a row")),
        ),
        killed=False,
    ),
    Segment("remove", ("removeJob",), (_moved("a"), _add("b"), Step(queue.Remove(job="a")))),
    Segment("drain", ("drain",), (_moved("a"), _moved("b"), Step(queue.Drain(delayed=True)))),
    Segment("clean", ("cleanJobsInSet",), (_moved("a"), Step(queue.Clean(grace_ms=0, limit=0, type="wait")))),
    Segment(
        "retry",
        ("reprocessJob",),
        (
            _add("a", Orders(kind="fails"), jobId="a"),
            Await("a", "failed"),
            Step(job.Retry(job="a")),
        ),
        worker_first=True,
    ),
    Segment(
        "retry-all",
        ("moveJobsToWait",),
        (_moved("a", delay=FAR_MS), _moved("b", delay=FAR_MS), Step(queue.PromoteJobs())),
    ),
    Segment("obliterate", ("obliterate",), (_moved("a"), _moved("b"), Step(queue.Obliterate(force=True)))),
    Segment(
        "orphan",
        ("removeChildDependency",),
        (_family("parent", "child", delay=300), Step(job.RemoveChildDependency(job="child"), "children")),
    ),
    Segment(
        "childless",
        ("removeUnprocessedChildren",),
        (_family("parent", "child", delay=FAR_MS), Step(job.RemoveUnprocessedChildren(job="parent"))),
    ),
    Segment(
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
            Step(queue.GetJobCounts(types=["waiting"])),
            Step(queue.GetCountsPerPriority(priorities=[0, 1])),
            Step(job.GetDependenciesCount(job="a")),
            Step(flow.GetJobScheduler(id="none")),
            Step(queue.GetMetrics(type="completed")),
            Step(queue.GetJobs(types=["waiting"])),
            Step(queue.GetRateLimitTtl()),
            Step(queue.GetJobState(job="a")),
            Step(queue.IsMaxed()),
        ),
        killed=False,
    ),
)
