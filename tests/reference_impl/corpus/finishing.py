"""A manual worker: it claims jobs, renews their locks, puts them back, and completes, fails and retries them."""

from __future__ import annotations

from typing import Any

from tests.reference_impl.corpus.steps import (
    PREFIX,
    CorpusCase,
    Step,
    add,
    case,
    complete,
    do,
    fail,
    queue,
    redis,
    take,
    tick,
    worker,
)

_METRICS = tuple(do("queue.getMetrics", type=kind) for kind in ("completed", "failed"))
_NAMED = worker(name="n", metrics={"maxDataPoints": 3})


def _five(name: str, *, on_failure: bool = False, worker_keeps: Any = None, **opts: Any) -> CorpusCase:
    """Finish five jobs, one second apart, with a retention rule."""
    option = "removeOnFail" if on_failure else "removeOnComplete"
    options: dict[str, Any] = {} if worker_keeps is None else {option: worker_keeps}
    finish = fail if on_failure else complete
    life = [step for n in range(1, 6) for step in (take(f"t{n}"), finish(str(n), token=f"t{n}"), tick(1000))]
    return case(name, queue(), worker(**options), *[add(f"n{n}", **opts) for n in range(5)], *life)


def _value(name: str, text: str) -> CorpusCase:
    return case(f"value-{name}", queue(), worker(), add(), take(), complete("1", text), do("queue.getJob", job="1"))


_MINUTES: tuple[Step, ...] = tuple(
    step
    for n, gap in enumerate((0, 61_000, 1000, 240_000, 3_600_000), 1)
    for step in (tick(gap), take(), complete(str(n)))
)

FINISH_CASES = (
    case("nothing-to-claim", queue(), worker(), take()),
    case("claim", queue(), worker(), add("a", "[1]"), take(), do("queue.getJobState", job="1")),
    case("claim-by-a-named-worker", queue(), _NAMED, add(), take(), do("queue.getJob", job="1")),
    case(
        "claim-order",
        queue(),
        worker(),
        add("a"),
        add("b", priority=2),
        add("c", lifo=True),
        add("d", priority=1),
        *[take(f"t{n}") for n in range(5)],
    ),
    case(
        "claim-due-jobs",
        queue(),
        worker(),
        add(delay=100),
        add(delay=50, priority=3),
        add(delay=500),
        take(),
        tick(100),
        take("u"),
        take("v"),
        take("x"),
    ),
    case("claim-in-a-paused-queue", queue(), worker(), do("queue.pause"), add(), take(), do("queue.resume"), take()),
    case(
        "claim-a-job-without-hash",
        queue(),
        worker(),
        redis("LPUSH", f"{PREFIX}:q:wait", "ghost"),
        take(),
        complete("ghost"),
    ),
    case("lock-duration", queue(), worker(lockDuration=9000), add(), take(), complete("1"), lock_duration_ms=9000),
    case(
        "complete",
        queue(),
        worker(),
        add(),
        take(),
        tick(7),
        complete("1", '"v"'),
        do("queue.getJobs", types=["completed"]),
    ),
    case(
        "complete-and-fetch",
        queue(),
        worker(),
        add("a"),
        add("b"),
        take(),
        complete("1", fetch=True),
        complete("2", fetch=True),
    ),
    case(
        "complete-and-fetch-delayed", queue(), worker(), add("a"), add("b", delay=99), take(), complete("1", fetch=True)
    ),
    case(
        "complete-and-fetch-paused",
        queue(),
        worker(),
        add("a"),
        add("b"),
        take(),
        do("queue.pause"),
        complete("1", fetch=True),
    ),
    _value("null", "null"),
    _value("number", "1.50"),
    _value("text", '"é\\u0000"'),
    _value("object", '{"10":1,"9":[2, 3]}'),
    _value("large", '"' + "v" * 100_000 + '"'),
    case("fail", queue(), worker(), add(), take(), tick(7), fail("1", "broken é"), do("queue.getJob", job="1")),
    case("fail-without-words", queue(), worker(), add(), take(), fail("1", ""), do("queue.getJob", job="1")),
    case(
        "fail-and-fetch",
        queue(),
        worker(),
        add("a"),
        add("b"),
        take(),
        fail("1", fetch_next=True),
        fail("2", fetch_next=True),
    ),
    case("fail-unrecoverable", queue(), worker(), add(attempts=5), take(), fail("1", unrecoverable=True)),
    case(
        "stack-trace-limit",
        queue(),
        worker(),
        add(attempts=4, stackTraceLimit=2),
        *[step for _ in range(4) for step in (take(), fail("1"))],
    ),
    case(
        "stack-trace-limit-zero",
        queue(),
        worker(),
        add(attempts=2, stackTraceLimit=0),
        take(),
        fail("1"),
        take(),
        fail("1"),
    ),
    case("no-such-job", queue(), worker(), complete("404"), fail("404")),
    case("not-claimed", queue(), worker(), add(), complete("1"), fail("1")),
    case("claimed-by-another", queue(), worker(), add(), take("a"), complete("1", token="b"), fail("1", token="b")),
    case(
        "lock-expired", queue(), worker(), add(), take(), redis("DEL", f"{PREFIX}:q:1:lock"), complete("1"), fail("1")
    ),
    case("no-longer-active", queue(), worker(), add(), take(), redis("DEL", f"{PREFIX}:q:active"), complete("1")),
    case("without-lock", queue(), worker(), add(), take("0"), complete("1", token="0")),
    case("hash-gone", queue(), worker(), add(), take(), redis("DEL", f"{PREFIX}:q:1"), complete("1"), fail("1")),
    _five("keep-all"),
    _five("keep-none", removeOnComplete=True),
    _five("keep-two", removeOnComplete=2),
    _five("keep-by-age", removeOnComplete={"age": 2}),
    _five("keep-by-age-and-count", removeOnComplete={"age": 3, "count": 2}),
    _five("keep-age-zero", removeOnComplete={"age": 0}),
    _five("keep-with-limit", removeOnComplete={"age": 1, "limit": 1}),
    _five("keep-as-the-worker-says", worker_keeps={"count": 2}),
    _five("keep-job-before-worker", worker_keeps={"count": 0}, removeOnComplete=3),
    _five("keep-false-before-worker", worker_keeps={"count": 0}, removeOnComplete=False),
    _five("keep-failed-none", on_failure=True, removeOnFail=True),
    _five("keep-failed-two", on_failure=True, removeOnFail=2),
    _five("keep-failed-by-age", on_failure=True, removeOnFail={"age": 2}),
    _five("keep-failed-as-the-worker-says", on_failure=True, worker_keeps={"age": 3, "count": 1}),
    case(
        "metrics",
        queue(),
        _NAMED,
        *[add() for _ in range(5)],
        *_MINUTES,
        *_METRICS,
        do("queue.getMetrics", type="completed", start=0, end=1),
    ),
    case(
        "metrics-of-failures",
        queue(),
        _NAMED,
        add(),
        add(),
        take(),
        fail("1"),
        tick(61_000),
        take(),
        fail("2"),
        *_METRICS,
    ),
    case("metrics-without-any", queue(), *_METRICS),
)


_FAILED = (add("a"), add("b"), take(), fail("1"), tick(10), take(), fail("2"), tick(10))
_COMPLETED = (add("a"), add("b"), take(), complete("1", "1"), tick(10), take(), complete("2", "2"), tick(10))


def _attempts(name: str, count: int, wait_ms: int = 0, **opts: Any) -> CorpusCase:
    """Fail every attempt; wait `wait_ms` before the next one."""
    rounds: list[Step] = [
        step for n in range(count) for step in (take(f"t{n}"), fail("1", f"no {n}", token=f"t{n}"), tick(wait_ms))
    ]
    return case(name, queue(), worker(), add("a", attempts=count, **opts), *rounds, do("queue.getJob", job="1"))


RETRY_CASES = (
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


_HELD = (queue(), worker(), add(), take())
_LATER = 1_700_000_005_000

HOLD_CASES = (
    case(
        "extend-lock", *_HELD, do("worker.extendLock", job="1", token="t", duration_ms=60_000), lock_duration_ms=60_000
    ),
    case("extend-foreign-lock", *_HELD, do("worker.extendLock", job="1", token="x", duration_ms=9)),
    case(
        "extend-no-lock",
        queue(),
        worker(),
        add(),
        do("worker.extendLock", job="1", token="t", duration_ms=9),
        do("worker.extendLock", job="404", token="t", duration_ms=9),
    ),
    case(
        "extend-locks",
        queue(),
        worker(),
        add(),
        add(),
        take("a"),
        take("b"),
        do("worker.extendLocks", jobs=["1", "2", "9"], tokens=["a", "x", "y"], duration_ms=5000),
    ),
    case("extend-no-locks", queue(), worker(), do("worker.extendLocks", jobs=[], tokens=[], duration_ms=5000)),
    case(
        "to-delayed",
        *_HELD,
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
        take("u"),
        tick(5000),
        take("v"),
    ),
    case("to-delayed-in-the-past", *_HELD, do("worker.moveToDelayed", job="1", token="t", timestamp=5), take("u")),
    case(
        "to-delayed-prioritized",
        queue(),
        worker(),
        add(priority=4),
        take(),
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
        tick(5000),
        take("v"),
    ),
    case("to-delayed-foreign-lock", *_HELD, do("worker.moveToDelayed", job="1", token="x", timestamp=_LATER)),
    case(
        "to-delayed-not-claimed",
        queue(),
        worker(),
        add(),
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
        do("worker.moveToDelayed", job="404", token="t", timestamp=_LATER),
    ),
    case(
        "to-delayed-no-longer-active",
        *_HELD,
        redis("DEL", f"{PREFIX}:q:active"),
        do("worker.moveToDelayed", job="1", token="t", timestamp=_LATER),
    ),
    case(
        "to-wait", queue(), worker(), add("a"), add("b"), take(), do("worker.moveToWait", job="1", token="t"), take("u")
    ),
    case(
        "to-wait-prioritized",
        queue(),
        worker(),
        add(priority=4),
        add(priority=4),
        take(),
        do("worker.moveToWait", job="1", token="t"),
        take("u"),
    ),
    case("to-wait-paused", *_HELD, do("queue.pause"), do("worker.moveToWait", job="1", token="t")),
    case("to-wait-foreign-lock", *_HELD, do("worker.moveToWait", job="1", token="x")),
    case(
        "to-wait-not-claimed",
        queue(),
        worker(),
        add(),
        do("worker.moveToWait", job="1", token="t"),
        do("worker.moveToWait", job="404", token="t"),
    ),
    case(
        "to-wait-no-longer-active",
        *_HELD,
        redis("DEL", f"{PREFIX}:q:active"),
        do("worker.moveToWait", job="1", token="t"),
    ),
    case(
        "to-waiting-children-refused",
        *_HELD,
        do("worker.moveToWaitingChildren", job="1", token="x"),
        do("worker.moveToWaitingChildren", job="404", token="t"),
    ),
)
