"""The features that are tried while two versions share a queue: one row of the table each, as steps of roles. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.versions.mixed.steps import (
    Ask,
    Await,
    Claim,
    Finish,
    Hear,
    Listen,
    Loop,
    Pass,
    StalledCheck,
    Step,
    Vanish,
    WorkUntilIdle,
)

WORKING = frozenset({"worker", "holder", "recoverer", "listener"})
"""Roles of the side that works; all others add jobs and change the queue."""

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Feature:
    """One row. `since`: the versions that have the feature, where older ones ignore it. `options`: of all workers."""

    name: str
    steps: tuple[Step, ...]
    since: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def _add(role: str, job: str, **opts: Any) -> Ask:
    return Ask(role, "queue.add", {"name": job, "opts": opts} if opts else {"name": job})


def _flow(role: str, parent: str, *children: dict[str, Any]) -> Ask:
    nodes = [{"queue": "q", **child} for child in children]
    return Ask(role, "flow.add", {"flow": {"name": parent, "queue": "q", "children": nodes}})


def _schedule(role: str, name: str, **repeat: Any) -> Ask:
    return Ask(role, "queue.upsertJobScheduler", {"id": "s", "repeat": repeat, "name": name})


def _once(role: str) -> tuple[Step, Step]:
    return Claim(role), Finish(role)


_DRAIN = WorkUntilIdle(["worker"])
_BOTH = WorkUntilIdle(["worker", "holder"])
_PAUSE, _RESUME = Ask("pauser", "queue.pause"), Ask("resumer", "queue.resume")


def _dedup(**options: Any) -> dict[str, Any]:
    return {"deduplication": {"id": "d", **options}}


def _while_running(job: Mapping[str, Any]) -> tuple[Step, ...]:
    """Jobs 2 and 3 with the same deduplication are added while job 1 is active."""
    first, second, third = (_add("adder", name, **job) for name in ("1", "2", "3"))
    return first, Claim("worker"), second, third, Finish("worker"), _DRAIN, _add("latecomer", "4", **job), _DRAIN


def _while_waiting(job: Mapping[str, Any]) -> tuple[Step, ...]:
    """Jobs 2 and 3 with the same deduplication are added while job 1 waits, and job 4 after its end."""
    first, third = (_add("adder", name, **job) for name in ("1", "3"))
    second, fourth = (_add("latecomer", name, **job) for name in ("2", "4"))
    return first, second, third, _DRAIN, fourth, _DRAIN


def _adding() -> Iterator[Feature]:
    yield Feature(
        "plain jobs",
        (
            *(_add("adder", job) for job in "abc"),
            _add("latecomer", "d"),
            Claim("holder"),
            *_once("worker"),
            Finish("holder", fetch_next=True),
            Finish("holder"),
            _BOTH,
        ),
    )
    yield Feature(
        "bulk",
        (
            Ask("adder", "queue.addBulk", {"jobs": [{"name": job} for job in "abc"]}),
            Ask("latecomer", "queue.addBulk", {"jobs": [{"name": "d", "opts": {"delay": 5000}}, {"name": "e"}]}),
            _DRAIN,
        ),
    )
    yield Feature(
        "lifo", (_add("adder", "a"), _add("latecomer", "b", lifo=True), _add("adder", "c", lifo=True), _DRAIN)
    )
    yield Feature(
        "delay",
        (_add("adder", "soon", delay=5_000), _add("latecomer", "later", delay=30_000), Claim("worker"), _DRAIN),
    )
    yield Feature(
        "delay, changed",
        (
            *(_add("adder", job, delay=60_000) for job in "ab"),
            Ask("latecomer", "job.changeDelay", {"job": "$a", "delay_ms": 1_000}),
            Ask("latecomer", "job.promote", {"job": "$b"}),
            _DRAIN,
        ),
    )
    yield Feature(
        "priority",
        (
            _add("adder", "five", priority=5),
            _add("latecomer", "one", priority=1),
            _add("adder", "none"),
            _add("latecomer", "five more", priority=5),
            _DRAIN,
        ),
    )
    yield Feature(
        "priority, the largest",
        (_add("adder", "a", priority=2**21 - 1), _add("latecomer", "b", priority=2**21), _DRAIN),
    )
    yield Feature(
        "priority, changed",
        (
            *(_add("adder", job, priority=3) for job in "abc"),
            Ask("latecomer", "job.changePriority", {"job": "$b", "priority": 1}),
            Ask("latecomer", "job.changePriority", {"job": "$c", "priority": 0}),
            _DRAIN,
        ),
    )
    yield Feature(
        "own and large ids",
        (
            _add("adder", "own", jobId="own-id"),
            _add("latecomer", "own again", jobId="own-id"),
            _add("adder", "large", jobId="n9007199254740993"),
            _add("latecomer", "long", jobId="x" * 300),
            _DRAIN,
        ),
    )
    yield Feature(
        "retention",
        (
            _add("adder", "a", removeOnComplete=True),
            _add("latecomer", "b", removeOnComplete=1),
            _add("adder", "c", removeOnComplete={"age": 3600, "count": 1}),
            _add("latecomer", "d", removeOnFail=True, attempts=1),
            *(step for _ in "abc" for step in _once("worker")),
            Claim("worker"),
            Finish("worker", "fail"),
            _add("adder", "e", jobId="a"),
            _DRAIN,
        ),
    )


def _retrying() -> Iterator[Feature]:
    for kind, opts in {
        "fixed": {"type": "fixed", "delay": 2_000},
        "exponential": {"type": "exponential", "delay": 1_000},
        "with jitter 0": {"type": "exponential", "delay": 1_000, "jitter": 0},
    }.items():
        fails: tuple[Step, ...] = (Claim("holder"), Finish("holder", "fail"), Claim("worker"), Pass(2_000))
        yield Feature(
            f"retry, back-off {kind}",
            (_add("adder", "a", attempts=3, backoff=opts), *fails, WorkUntilIdle(["worker", "holder"], "fail")),
        )
    yield Feature(
        "retry without back-off",
        (
            _add("adder", "a", attempts=3),
            _add("adder", "b", attempts=2, priority=2),
            WorkUntilIdle(["holder", "worker"], "fail"),
        ),
    )
    yield Feature(
        "retry by hand",
        (
            _add("adder", "a"),
            _add("adder", "b", priority=2),
            *(step for _ in "ab" for step in (Claim("holder"), Finish("holder", "fail"))),
            Ask("retrier", "job.retry", {"job": "$a"}),
            Ask("retrier", "job.retry", {"job": "$b"}),
            _DRAIN,
        ),
    )
    yield Feature(
        "retry all",
        (
            *(_add("adder", job) for job in "ab"),
            *(step for _ in "ab" for step in (Claim("holder"), Finish("holder", "unrecoverable"))),
            Ask("retrier", "queue.retryJobs"),
            _DRAIN,
        ),
    )
    yield Feature(
        "put back by the worker",
        (
            *(_add("adder", job) for job in "abc"),
            Claim("holder"),
            Finish("holder", "delay", ms=5_000),
            Claim("holder"),
            Finish("holder", "wait"),
            _DRAIN,
        ),
    )
    yield Feature(
        "stalled",
        (
            _add("adder", "a"),
            _add("adder", "b", priority=2),
            *(step for _ in "ab" for step in (Claim("holder"), Vanish("holder"))),
            StalledCheck("recoverer"),
            StalledCheck("recoverer"),
            WorkUntilIdle(["recoverer"]),
        ),
    )
    yield Feature(
        "stalled check of a running job",
        (
            _add("adder", "a"),
            Claim("holder"),
            StalledCheck("recoverer"),
            StalledCheck("recoverer"),
            Claim("recoverer"),
            Finish("holder"),
            Finish("recoverer"),
            WorkUntilIdle(["recoverer"]),
        ),
    )


def _limiting() -> Iterator[Feature]:
    three = tuple(_add("adder", job) for job in "abc")
    yield Feature(
        "rate limit of the queue",
        (
            Ask("adder", "queue.setGlobalRateLimit", {"max": 1, "duration_ms": 20_000}),
            *three,
            *_once("holder"),
            Claim("worker"),
            Pass(20_000),
            *_once("worker"),
            Pass(20_000),
            _BOTH,
        ),
    )
    yield Feature(
        "rate limit of the workers",
        (*three, *_once("holder"), Claim("worker"), Pass(20_000), *_once("worker"), Pass(20_000), _BOTH),
        options={"limiter": {"max": 1, "duration": 20_000}},
    )
    yield Feature(
        "concurrency of the queue",
        (
            Ask("adder", "queue.setGlobalConcurrency", {"concurrency": 1}),
            *three,
            Claim("holder"),
            Claim("worker"),
            Finish("holder"),
            _BOTH,
        ),
    )


def _pausing() -> Iterator[Feature]:
    yield Feature(
        "pause",
        (_add("adder", "a"), _PAUSE, Claim("worker"), _add("latecomer", "b"), Claim("worker"), _RESUME, _DRAIN),
    )
    yield Feature(
        "pause, priorities",
        (
            _add("adder", "a", priority=2),
            _PAUSE,
            _add("latecomer", "b", priority=1),
            Claim("worker"),
            _RESUME,
            _DRAIN,
        ),
    )
    yield Feature(
        "pause while jobs get due",
        (_add("adder", "a", delay=5_000), _PAUSE, Pass(6_000), Claim("worker"), _RESUME, _DRAIN),
    )
    yield Feature(
        "pause while a job runs and fails",
        (
            _add("adder", "a", attempts=2),
            Claim("worker"),
            _PAUSE,
            Finish("worker", "fail"),
            Claim("worker"),
            _RESUME,
            _DRAIN,
        ),
    )
    yield Feature(
        "pause while a job stalls",
        (
            _add("adder", "a"),
            Claim("holder"),
            _PAUSE,
            Vanish("holder"),
            StalledCheck("recoverer"),
            StalledCheck("recoverer"),
            _RESUME,
            WorkUntilIdle(["recoverer"]),
        ),
    )
    yield Feature(
        "pause, promote and retry",
        (
            _add("adder", "a", delay=60_000),
            _add("adder", "b"),
            Claim("worker"),
            Finish("worker", "fail"),
            _PAUSE,
            Ask("latecomer", "job.promote", {"job": "$a"}),
            Ask("latecomer", "job.retry", {"job": "$b"}),
            _RESUME,
            _DRAIN,
        ),
    )
    yield Feature(
        "drain while paused",
        (_add("adder", "a"), _PAUSE, Ask("latecomer", "queue.drain"), _add("adder", "b"), _RESUME, _DRAIN),
    )


def _families() -> Iterator[Feature]:
    two = _flow("adder", "parent", {"name": "x"}, {"name": "y"})
    yield Feature("flow", (two, Claim("holder"), *_once("worker"), Finish("holder"), _BOTH))
    yield Feature("flow while paused", (two, _PAUSE, Claim("worker"), _RESUME, _DRAIN))
    for option in (
        *("failParentOnFailure", "ignoreDependencyOnFailure", "removeDependencyOnFailure", "continueParentOnFailure"),
    ):
        child = {"name": "x", "opts": {option: True}}
        yield Feature(
            f"flow, {option}",
            (
                _flow("adder", "parent", child, {"name": "y", "opts": {"delay": 30_000}}),
                Claim("holder"),
                Finish("holder", "unrecoverable"),
                _BOTH,
            ),
        )
    yield Feature(
        "flow, a worker waits for children",
        (
            _add("adder", "parent", jobId="parent"),
            Claim("holder"),
            Ask(
                "latecomer",
                "queue.add",
                {"name": "x", "opts": {"parent": {"id": "parent", "queue": "<prefix>:q"}}},
            ),
            Finish("holder", "children"),
            _BOTH,
        ),
    )
    yield Feature(
        "flow, a child is removed",
        (two, Ask("latecomer", "job.removeChildDependency", {"job": "$x"}), _BOTH),
    )


def _deduplicating() -> Iterator[Feature]:
    yield Feature("deduplication", _while_waiting(_dedup()))
    yield Feature("deduplication while active", _while_running(_dedup()))
    yield Feature("deduplication for a time", _while_waiting(_dedup(ttl=10_000)))
    yield Feature("deduplication, extend", _while_waiting(_dedup(ttl=10_000, extend=True)))
    debounced = {"delay": 5_000, **_dedup(ttl=5_000, extend=True, replace=True)}
    yield Feature("deduplication, replace", _while_waiting(debounced))
    yield Feature("deduplication, keepLastIfActive", _while_running(_dedup(keepLastIfActive=True)), ">=5.72")
    failing = list(_while_running(_dedup(keepLastIfActive=True)))
    failing[4] = Finish("worker", "fail")
    yield Feature("deduplication, keepLastIfActive, a failed job", tuple(failing), ">=5.72")
    postponed = _dedup(reschedule=True)
    yield Feature(
        "deduplication, reschedule",
        (
            _add("adder", "1", delay=60_000, **postponed),
            _add("latecomer", "2", delay=1_000, **postponed),
            _DRAIN,
            _add("adder", "3", **postponed),
            _DRAIN,
        ),
        ">=6.7",
    )
    yield Feature("deduplication by its former name", _while_waiting({"debounce": {"id": "d"}}))


def _scheduling() -> Iterator[Feature]:
    hours: tuple[Step, ...] = (_DRAIN, Pass(HOUR_MS), _DRAIN, Pass(HOUR_MS), _DRAIN)
    yield Feature("scheduler, interval", (_schedule("scheduler", "tick", every=HOUR_MS), *hours))
    yield Feature(
        "scheduler, interval with offset", (_schedule("scheduler", "tick", every=HOUR_MS, offset=600_000), *hours)
    )
    yield Feature("scheduler, pattern", (_schedule("scheduler", "tick", pattern="0 0 * * * *"), Pass(HOUR_MS), *hours))
    yield Feature("scheduler, limit", (_schedule("scheduler", "tick", every=HOUR_MS, limit=2), *hours))
    yield Feature(
        "scheduler, changed",
        (
            _schedule("scheduler", "before", every=HOUR_MS),
            _schedule("rescheduler", "after", every=2 * HOUR_MS),
            *hours,
        ),
    )
    yield Feature(
        "scheduler, changed while its job runs",
        (
            _schedule("scheduler", "before", every=HOUR_MS),
            Claim("worker"),
            _schedule("rescheduler", "after", every=HOUR_MS),
            Finish("worker"),
            *hours,
        ),
    )
    yield Feature(
        "scheduler, removed",
        (
            _schedule("scheduler", "tick", every=HOUR_MS),
            _DRAIN,
            Ask("rescheduler", "queue.removeJobScheduler", {"id": "s"}),
            *hours,
        ),
    )
    yield Feature(
        "scheduler, paused",
        (_schedule("scheduler", "tick", every=HOUR_MS), _PAUSE, Pass(HOUR_MS), _RESUME, *hours),
    )
    yield Feature(
        "repeat, the former schedulers",
        (_add("adder", "tick", repeat={"every": HOUR_MS}), Pass(HOUR_MS), *hours),
    )


def _idle_workers() -> Iterator[Feature]:
    """A worker with its own loop must hear of work from the other version."""
    loop = Loop("worker", {"drainDelay": 7})
    yield Feature("idle worker, plain jobs", (loop, _add("adder", "a"), Await(1), _add("latecomer", "b"), Await(2)))
    yield Feature(
        "idle worker, delay and priority",
        (loop, _add("adder", "a", delay=300), Await(1), _add("adder", "b", priority=1), Await(2)),
    )
    yield Feature("idle worker, resume", (_PAUSE, loop, _add("adder", "a"), _RESUME, Await(1)))
    yield Feature("idle worker, parent", (loop, _flow("adder", "parent", {"name": "x"}), Await(2)))
    yield Feature(
        "event reader",
        (
            Listen("listener"),
            loop,
            _add("adder", "a"),
            Hear("listener", "added"),
            Hear("listener", "completed"),
            Await(1),
        ),
    )


def all_features() -> Sequence[Feature]:
    """Every row, in the order of the table."""
    return [
        *_adding(),
        *_retrying(),
        *_limiting(),
        *_pausing(),
        *_families(),
        *_deduplicating(),
        *_scheduling(),
        *_idle_workers(),
    ]
