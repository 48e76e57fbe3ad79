"""A manual worker claims, completes and fails jobs: values, keeping, metrics, fetching the next."""

from __future__ import annotations

from typing import Any

from .steps import PREFIX, Case, Step, add, case, complete, do, fail, queue, redis, take, tick, worker

_METRICS = tuple(do("queue.getMetrics", type=kind) for kind in ("completed", "failed"))
_NAMED = worker(name="n", metrics={"maxDataPoints": 3})


def _five(name: str, *, on_failure: bool = False, worker_keeps: Any = None, **opts: Any) -> Case:
    """Finish five jobs, one second apart, under a rule about what to keep."""
    option = "removeOnFail" if on_failure else "removeOnComplete"
    options: dict[str, Any] = {} if worker_keeps is None else {option: worker_keeps}
    finish = fail if on_failure else complete
    life = [step for n in range(1, 6) for step in (take(f"t{n}"), finish(str(n), token=f"t{n}"), tick(1000))]
    return case(name, queue(), worker(**options), *[add(f"n{n}", **opts) for n in range(5)], *life)


def _value(name: str, text: str) -> Case:
    return case(f"value-{name}", queue(), worker(), add(), take(), complete("1", text), do("queue.getJob", job="1"))


_MINUTES: tuple[Step, ...] = tuple(
    step
    for n, gap in enumerate((0, 61_000, 1000, 240_000, 3_600_000), 1)
    for step in (tick(gap), take(), complete(str(n)))
)

CASES = (
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
