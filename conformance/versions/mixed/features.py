"""The features that are tried while two versions share a queue: one row of the table each, as steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from conformance.driver.ops import flow, job, queue
from conformance.driver.ops import worker as worker_ops
from conformance.participants.clock import FROZEN_START_MS
from conformance.steps.shapes import CallStep, ClockStep, DrainStep, FaultStep, FeatureStep, WaitStep, opening
from conformance.steps.words import FlowWords, QueueWords, WorkerWords
from conformance.versions.mixed.stage import MAIN

WORKING = frozenset({"worker", "holder", "recoverer", "listener"})
"""Roles of the side that works; all others add jobs and change the queue."""

HOUR_MS = 3_600_000
_ADDING = (queue.Add, queue.AddBulk, flow.AddFlow, flow.UpsertJobScheduler)


@dataclass(frozen=True)
class Feature:
    """One row. A handle of its steps is a role, which either version takes.

    `since`: the versions that have the feature, where older ones ignore it. `options`: of all workers.
    """

    name: str
    steps: tuple[FeatureStep, ...]
    since: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles, in the order in which they first act."""
        return tuple(dict.fromkeys(role for step in self.steps for role in _roles_in(step)))

    @property
    def adders(self) -> dict[str, str]:
        """The role that adds each job, by the job's name; the first one, if several add it."""
        calls = [step for step in self.steps if isinstance(step, CallStep) and isinstance(step.op, _ADDING)]
        return {name: step.handle for step in reversed(calls) for name in _names_in(msgspec.to_builtins(step.op))}


def _roles_in(step: FeatureStep) -> Iterable[str]:
    match step:
        case CallStep():
            return (step.handle,)
        case DrainStep():
            return step.drain
        case WaitStep(on=str(role)) if role:
            return (role,)
    return ()


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (name for inner in value for name in _names_in(inner))
    elif isinstance(value, dict):
        if isinstance(value.get("name"), str):
            yield value["name"]
        yield from (name for key in ("jobs", "flow", "children") for name in _names_in(value.get(key)))


def _row(name: str, *phases: FeatureStep | tuple[FeatureStep, ...], since: str = "", **options: Any) -> Feature:
    """A feature; its steps may be in groups, which has no effect."""
    steps = (step for phase in phases for step in (phase if isinstance(phase, tuple) else (phase,)))
    return Feature(name, tuple(steps), since, options)


_adder, _latecomer, _pauser, _resumer, _retrier, _scheduler, _rescheduler = map(
    QueueWords, ("adder", "latecomer", "pauser", "resumer", "retrier", "scheduler", "rescheduler")
)
_worker, _holder, _recoverer = map(WorkerWords, ("worker", "holder", "recoverer"))

_DRAIN, _BOTH = DrainStep(("worker",)), DrainStep(("worker", "holder"))
_RECOVER = DrainStep(("recoverer",))
_PAUSE, _RESUME = _pauser.pause(), _resumer.resume()
_CLAIM, _ONCE = _worker.claim(), (_worker.claim(), _worker.complete())
_LOST = FaultStep("delete-lock", MAIN, _holder.held)
_CHECKS = (FaultStep("delete-stalled-check", MAIN), _recoverer.check_stalled()) * 2
_HOURS = (_DRAIN, ClockStep(HOUR_MS), _DRAIN, ClockStep(HOUR_MS), _DRAIN)
_LOOP = opening("worker", "worker", MAIN, "noop", drainDelay=7)


def _flow(parent: str, *children: dict[str, Any]) -> CallStep:
    nodes = [{"queue": MAIN, **child} for child in children]
    return FlowWords("adder").add({"name": parent, "queue": MAIN, "children": nodes})


def _dedup(**options: Any) -> dict[str, Any]:
    return {"deduplication": {"id": "d", **options}}


def _while_running(job_options: dict[str, Any], *, failed: bool = False) -> tuple[FeatureStep, ...]:
    """Jobs 2 and 3 with the same deduplication are added while job 1 is active."""
    first, second, third = (_adder.add(name, **job_options) for name in ("1", "2", "3"))
    end = _worker.fail() if failed else _worker.complete()
    return first, _CLAIM, second, third, end, _DRAIN, _latecomer.add("4", **job_options), _DRAIN


def _while_waiting(**job_options: Any) -> tuple[FeatureStep, ...]:
    """Jobs 2 and 3 with the same deduplication are added while job 1 waits, and job 4 after its end."""
    first, third = (_adder.add(name, **job_options) for name in ("1", "3"))
    second, fourth = (_latecomer.add(name, **job_options) for name in ("2", "4"))
    return first, second, third, _DRAIN, fourth, _DRAIN


def _ticks(**repeat: Any) -> CallStep:
    return _scheduler.schedule("s", repeat, name="tick")


_TWO, _THREE = tuple(_adder.add(name) for name in "ab"), tuple(_adder.add(name) for name in "abc")
_FAMILY = _flow("parent", {"name": "x"}, {"name": "y"})
_BACKOFFS: Mapping[str, dict[str, Any]] = {
    "fixed": {"type": "fixed", "delay": 2_000},
    "exponential": {"type": "exponential", "delay": 1_000},
    "with jitter 0": {"type": "exponential", "delay": 1_000, "jitter": 0},
}
_CHILD_OPTIONS = (
    *("failParentOnFailure", "ignoreDependencyOnFailure", "removeDependencyOnFailure", "continueParentOnFailure"),
)
_FAILS, _FAILS_FINALLY = (_holder.claim(), _holder.fail()), (_holder.claim(), _holder.fail(unrecoverable=True))
_POSTPONED = _dedup(reschedule=True)

_ADDING_ROWS = (
    _row(
        "plain jobs",
        (*_THREE, _latecomer.add("d"), _holder.claim(), *_ONCE),
        (_holder.complete(fetch_next=True), _holder.complete(), _BOTH),
    ),
    _row(
        "bulk",
        _adder.add_bulk(*((name, {}, {}) for name in "abc")),
        _latecomer.add_bulk(("d", {}, {"delay": 5_000}), ("e", {}, {})),
        _DRAIN,
    ),
    _row("lifo", _adder.add("a"), _latecomer.add("b", lifo=True), _adder.add("c", lifo=True), _DRAIN),
    _row("delay", _adder.add("soon", delay=5_000), _latecomer.add("later", delay=30_000), _CLAIM, _DRAIN),
    _row(
        "delay, changed",
        *(_adder.add(name, delay=60_000) for name in "ab"),
        (_latecomer.call(job.ChangeDelay(job="1", delay_ms=1_000)), _latecomer.promote("2"), _DRAIN),
    ),
    _row(
        "priority",
        (_adder.add("five", priority=5), _latecomer.add("one", priority=1), _adder.add("none")),
        (_latecomer.add("five more", priority=5), _DRAIN),
    ),
    _row(
        "priority, the largest",
        (_adder.add("a", priority=2**21 - 1), _latecomer.add("b", priority=2**21), _DRAIN),
    ),
    _row(
        "priority, changed",
        *(_adder.add(name, priority=3) for name in "abc"),
        _latecomer.call(job.ChangePriority(job="2", priority=1)),
        _latecomer.call(job.ChangePriority(job="3", priority=0)),
        _DRAIN,
    ),
    _row(
        "own and large ids",
        (_adder.add("own", jobId="own-id"), _latecomer.add("own again", jobId="own-id")),
        (_adder.add("large", jobId="n9007199254740993"), _latecomer.add("long", jobId="x" * 300), _DRAIN),
    ),
    _row(
        "retention",
        (_adder.add("a", removeOnComplete=True), _latecomer.add("b", removeOnComplete=1)),
        _adder.add("c", removeOnComplete={"age": 3600, "count": 1}),
        _latecomer.add("d", removeOnFail=True, attempts=1),
        (*_ONCE * 3, _CLAIM, _worker.fail(), _adder.add("e", jobId="a"), _DRAIN),
    ),
)

_RETRYING_ROWS = (
    *(
        _row(
            f"retry, back-off {kind}",
            (_adder.add("a", attempts=3, backoff=backoff), *_FAILS, _CLAIM, ClockStep(2_000)),
            DrainStep(("worker", "holder"), "fail"),
        )
        for kind, backoff in _BACKOFFS.items()
    ),
    _row(
        "retry without back-off",
        (_adder.add("a", attempts=3), _adder.add("b", attempts=2, priority=2)),
        DrainStep(("holder", "worker"), "fail"),
    ),
    _row(
        "retry by hand",
        (_adder.add("a"), _adder.add("b", priority=2), *_FAILS * 2),
        (_retrier.retry("1"), _retrier.retry("2"), _DRAIN),
    ),
    _row("retry all", *_TWO, *_FAILS_FINALLY * 2, _retrier.call(queue.RetryJobs()), _DRAIN),
    _row(
        "put back by the worker",
        (*_THREE, _holder.claim()),
        _holder.call(
            worker_ops.MoveToDelayed(job=_holder.held, token=_holder.token, timestamp=FROZEN_START_MS + 5_000)
        ),
        (_holder.claim(), _holder.call(worker_ops.MoveToWait(job=_holder.held, token=_holder.token)), _DRAIN),
    ),
    _row(
        "stalled",
        (_adder.add("a"), _adder.add("b", priority=2)),
        ((_holder.claim(), _LOST) * 2),
        (*_CHECKS, _RECOVER),
    ),
    _row(
        "stalled check of a running job",
        (_adder.add("a"), _holder.claim(), *_CHECKS, _recoverer.claim()),
        (_holder.complete(), _recoverer.complete(), _RECOVER),
    ),
)

_LIMITING_ROWS = (
    _row(
        "rate limit of the queue",
        _adder.call(queue.SetGlobalRateLimit(max=1, duration_ms=20_000)),
        (*_THREE, _holder.claim(), _holder.complete(), _CLAIM, ClockStep(20_000), *_ONCE, ClockStep(20_000), _BOTH),
    ),
    _row(
        "rate limit of the workers",
        (*_THREE, _holder.claim(), _holder.complete(), _CLAIM, ClockStep(20_000), *_ONCE, ClockStep(20_000), _BOTH),
        limiter={"max": 1, "duration": 20_000},
    ),
    _row(
        "concurrency of the queue",
        _adder.call(queue.SetGlobalConcurrency(concurrency=1)),
        (*_THREE, _holder.claim(), _CLAIM, _holder.complete(), _BOTH),
    ),
)

_PAUSING_ROWS = (
    _row("pause", _adder.add("a"), _PAUSE, _CLAIM, _latecomer.add("b"), _CLAIM, _RESUME, _DRAIN),
    _row(
        "pause, priorities",
        (_adder.add("a", priority=2), _PAUSE, _latecomer.add("b", priority=1), _CLAIM, _RESUME, _DRAIN),
    ),
    _row("pause while jobs get due", _adder.add("a", delay=5_000), _PAUSE, ClockStep(6_000), _CLAIM, _RESUME, _DRAIN),
    _row(
        "pause while a job runs and fails",
        (_adder.add("a", attempts=2), _CLAIM, _PAUSE, _worker.fail(), _CLAIM, _RESUME, _DRAIN),
    ),
    _row("pause while a job stalls", _adder.add("a"), _holder.claim(), _PAUSE, _LOST, *_CHECKS, _RESUME, _RECOVER),
    _row(
        "pause, promote and retry",
        (_adder.add("a", delay=60_000), _adder.add("b"), _CLAIM, _worker.fail(), _PAUSE),
        (_latecomer.promote("1"), _latecomer.retry("2"), _RESUME, _DRAIN),
    ),
    _row(
        "drain while paused",
        (_adder.add("a"), _PAUSE, _latecomer.call(queue.Drain()), _adder.add("b"), _RESUME, _DRAIN),
    ),
)

_FAMILY_ROWS = (
    _row("flow", _FAMILY, _holder.claim(), *_ONCE, _holder.complete(), _BOTH),
    _row("flow while paused", _FAMILY, _PAUSE, _CLAIM, _RESUME, _DRAIN),
    *(
        _row(
            f"flow, {option}",
            _flow("parent", {"name": "x", "opts": {option: True}}, {"name": "y", "opts": {"delay": 30_000}}),
            (*_FAILS_FINALLY, _BOTH),
        )
        for option in _CHILD_OPTIONS
    ),
    _row(
        "flow, a worker waits for children",
        (_adder.add("parent", jobId="parent"), _holder.claim()),
        _latecomer.add("x", parent={"id": "parent", "queue": "<prefix>:q"}),
        (_holder.wait_for_children(), _BOTH),
    ),
    _row(
        "flow, a child is removed",
        _flow("parent", {"name": "x", "opts": {"jobId": "x"}}, {"name": "y"}),
        (_latecomer.call(job.RemoveChildDependency(job="x")), _BOTH),
    ),
)

_DEDUPLICATING_ROWS = (
    _row("deduplication", _while_waiting(**_dedup())),
    _row("deduplication while active", _while_running(_dedup())),
    _row("deduplication for a time", _while_waiting(**_dedup(ttl=10_000))),
    _row("deduplication, extend", _while_waiting(**_dedup(ttl=10_000, extend=True))),
    _row("deduplication, replace", _while_waiting(delay=5_000, **_dedup(ttl=5_000, extend=True, replace=True))),
    _row("deduplication, keepLastIfActive", _while_running(_dedup(keepLastIfActive=True)), since=">=5.72"),
    _row(
        "deduplication, keepLastIfActive, a failed job",
        _while_running(_dedup(keepLastIfActive=True), failed=True),
        since=">=5.72",
    ),
    _row(
        "deduplication, reschedule",
        (_adder.add("1", delay=60_000, **_POSTPONED), _latecomer.add("2", delay=1_000, **_POSTPONED)),
        (_DRAIN, _adder.add("3", **_POSTPONED), _DRAIN),
        since=">=6.7",
    ),
    _row("deduplication by its former name", _while_waiting(debounce={"id": "d"})),
)

_SCHEDULING_ROWS = (
    _row("scheduler, interval", _ticks(every=HOUR_MS), _HOURS),
    _row("scheduler, interval with offset", _ticks(every=HOUR_MS, offset=600_000), _HOURS),
    _row("scheduler, pattern", _ticks(pattern="0 0 * * * *"), ClockStep(HOUR_MS), _HOURS),
    _row("scheduler, limit", _ticks(every=HOUR_MS, limit=2), _HOURS),
    _row(
        "scheduler, changed",
        _scheduler.schedule("s", {"every": HOUR_MS}, name="before"),
        (_rescheduler.schedule("s", {"every": 2 * HOUR_MS}, name="after"), *_HOURS),
    ),
    _row(
        "scheduler, changed while its job runs",
        (_scheduler.schedule("s", {"every": HOUR_MS}, name="before"), _CLAIM),
        (_rescheduler.schedule("s", {"every": HOUR_MS}, name="after"), _worker.complete(), *_HOURS),
    ),
    _row("scheduler, removed", _ticks(every=HOUR_MS), _DRAIN, _rescheduler.unschedule("s"), _HOURS),
    _row("scheduler, paused", _ticks(every=HOUR_MS), _PAUSE, ClockStep(HOUR_MS), _RESUME, _HOURS),
    _row("repeat, the former schedulers", _adder.add("tick", repeat={"every": HOUR_MS}), ClockStep(HOUR_MS), _HOURS),
)

# A worker with its own loop must notice work from the other version.
_IDLE_ROWS = (
    _row("idle worker, plain jobs", _LOOP, _adder.add("a"), WaitStep(1), _latecomer.add("b"), WaitStep(2)),
    _row(
        "idle worker, delay and priority",
        (_LOOP, _adder.add("a", delay=300), WaitStep(1), _adder.add("b", priority=1), WaitStep(2)),
    ),
    _row("idle worker, resume", _PAUSE, _LOOP, _adder.add("a"), _RESUME, WaitStep(1)),
    _row("idle worker, parent", _LOOP, _flow("parent", {"name": "x"}), WaitStep(2)),
    _row(
        "event reader",
        (opening("listener", "events", MAIN), _LOOP, _adder.add("a")),
        (WaitStep(event="added", on="listener"), WaitStep(event="completed", on="listener"), WaitStep(1)),
    ),
)

FEATURES: Sequence[Feature] = (
    *(*_ADDING_ROWS, *_RETRYING_ROWS, *_LIMITING_ROWS, *_PAUSING_ROWS, *_FAMILY_ROWS),
    *(*_DEDUPLICATING_ROWS, *_SCHEDULING_ROWS, *_IDLE_ROWS),
)
"""Every row, in the order of the table."""
