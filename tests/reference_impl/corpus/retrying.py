"""Failing with attempts left, back-off, and retrying by hand."""

from __future__ import annotations

from typing import Any

from .steps import Case, Step, add, case, complete, do, fail, queue, take, tick, worker

_FAILED = (add("a"), add("b"), take(), fail("1"), tick(10), take(), fail("2"), tick(10))
_COMPLETED = (add("a"), add("b"), take(), complete("1", "1"), tick(10), take(), complete("2", "2"), tick(10))


def _attempts(name: str, count: int, wait_ms: int = 0, **opts: Any) -> Case:
    """Fail as often as there are attempts, waiting so long (ms) before each further one."""
    rounds: list[Step] = [
        step for n in range(count) for step in (take(f"t{n}"), fail("1", f"no {n}", token=f"t{n}"), tick(wait_ms))
    ]
    return case(name, queue(), worker(), add("a", attempts=count, **opts), *rounds, do("queue.getJob", job="1"))


CASES = (
    _attempts("at-once", 3),
    _attempts("at-once-lifo", 2, lifo=True),
    _attempts("at-once-prioritized", 2, priority=5),
    _attempts("backoff-number", 3, 100, backoff=100),
    _attempts("backoff-fixed", 3, 100, backoff={"type": "fixed", "delay": 100}),
    _attempts("backoff-exponential", 4, 10_000, backoff={"type": "exponential", "delay": 1000}),
    _attempts("backoff-exponential-fraction", 3, 10_000, backoff={"type": "exponential", "delay": 0.7}),
    _attempts("backoff-without-jitter", 3, 100, backoff={"type": "fixed", "delay": 100, "jitter": 0}),
    _attempts("backoff-of-zero", 2, backoff=0),
    _attempts("backoff-prioritized", 2, 50, backoff=50, priority=3),
    _attempts("backoff-negative", 2, backoff=-5),
    case(
        "backoff-unknown",
        queue(),
        worker(),
        add(attempts=2, backoff={"type": "odd"}),
        take(),
        fail("1"),
        do("queue.getJobState", job="1"),
    ),
    case("and-fetch-next", queue(), worker(), add(attempts=2), add("b"), take(), fail("1", fetch_next=True), take("u")),
    case(
        "delayed-and-fetch-next",
        queue(),
        worker(),
        add(attempts=2, backoff=9),
        add("b"),
        take(),
        fail("1", fetch_next=True),
    ),
    case("in-a-paused-queue", queue(), worker(), add(attempts=2), take(), do("queue.pause"), fail("1")),
    case(
        "and-then-success",
        queue(),
        worker(),
        add(attempts=2),
        take(),
        fail("1"),
        take(),
        complete("1"),
        do("queue.getJob", job="1"),
    ),
    case("lost-lock-at-once", queue(), worker(), add(attempts=2), take(), fail("1", token="x")),
    case("lost-lock-delayed", queue(), worker(), add(attempts=2, backoff=5), take(), fail("1", token="x")),
    case("by-hand", queue(), worker(), *_FAILED, do("job.retry", job="1"), do("queue.getJob", job="1"), take()),
    case(
        "by-hand-lifo", queue(), worker(), add(lifo=True), take(), fail("1"), add("b"), do("job.retry", job="1"), take()
    ),
    case("by-hand-completed", queue(), worker(), *_COMPLETED, do("job.retry", job="1", state="completed")),
    case("by-hand-twice", queue(), worker(), *_FAILED, do("job.retry", job="1"), do("job.retry", job="1")),
    case("by-hand-wrong-state", queue(), worker(), *_FAILED, do("job.retry", job="1", state="completed")),
    case("by-hand-never-run", queue(), add(), do("job.retry", job="1"), do("job.retry", job="404")),
    case("by-hand-paused", queue(), worker(), *_FAILED, do("queue.pause"), do("job.retry", job="1")),
    case("all-failed", queue(), worker(), *_FAILED, do("queue.retryJobs")),
    case("all-failed-in-batches", queue(), worker(), *_FAILED, do("queue.retryJobs", count=1)),
    case("all-completed", queue(), worker(), *_COMPLETED, do("queue.retryJobs", state="completed")),
    case("all-before-a-time", queue(), worker(), *_FAILED, do("queue.retryJobs", timestamp=1_700_000_000_005)),
    case("all-of-none", queue(), do("queue.retryJobs"), do("queue.retryJobs", state="completed")),
    case(
        "all-paused-with-priorities",
        queue(),
        worker(),
        add(priority=3),
        take(),
        fail("1"),
        do("queue.pause"),
        do("queue.retryJobs"),
    ),
)
