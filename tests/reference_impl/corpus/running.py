"""Workers that run their own loop: stalled jobs, rate limits, concurrency."""

from __future__ import annotations

import json

from tests.reference_impl.corpus.steps import (
    PREFIX,
    CorpusCase,
    Step,
    add,
    case,
    close,
    complete,
    connected,
    do,
    fail,
    on,
    queue,
    redis,
    rest,
    running,
    take,
    tick,
    wait,
    worker,
)

_STEPS = json.dumps(
    {"steps": [{"do": "log", "row": "r"}, {"do": "progress", "value": 5}, {"do": "return", "value": [1]}]}
)
_ENDING_BADLY = json.dumps(
    {"steps": [{"do": "fail", "message": "first", "until_attempt": 1}, {"do": "unrecoverable", "message": "then"}]}
)


def _preset(processor: str, *, data: str = '{"a":[1]}', given: object = None, **opts: object) -> CorpusCase:
    """A preset processor runs two jobs that were added before it."""
    return case(
        f"preset-{processor}",
        *(
            queue(),
            add("a", data, **opts),
            add("b", data, **opts),
            running(processor, given=given),
            wait("drained"),
            rest(),
        ),
        *(close("w"), do("queue.getJobs", types=["completed", "failed"])),
    )


def _ask(name: str, outcome: str, *after: Step, **more: object) -> CorpusCase:
    """A worker with processor `ask`."""
    resolve = do("resolve", job="1", outcome=outcome, **more)
    return case(name, queue(), add("a", attempts=2), running("ask"), wait("job"), resolve, *after, rest(), close("w"))


_AGAIN = (wait("job"), do("resolve", job="1", outcome="complete"), wait("completed"))

RUN_CASES = (
    _preset("noop"),
    _preset("echo", data='{"a":1.50,"9":1,"10":2}'),
    _preset("sleep", given={"ms": 5}),
    _preset("fail", given={"times": 1, "message": "once"}, attempts=3),
    _preset("throw", given={"message": "thrown é"}),
    _preset("progress", given={"values": [1, {"x": 2}]}),
    _preset("steps", data=_STEPS),
    case(
        "steps-that-fail",
        queue(),
        add("a", _ENDING_BADLY, attempts=5),
        running("steps"),
        wait("failed"),
        wait("failed"),
        rest(),
        close("w"),
    ),
    _ask("asked-complete", "complete", wait("completed"), value_raw='{"v":1}'),
    _ask("asked-fail", "fail", wait("failed"), *_AGAIN, message="as told"),
    _ask("asked-unrecoverable", "unrecoverable", wait("failed"), message="never"),
    _ask("asked-wait", "wait", *_AGAIN),
    _ask("asked-delay", "delay", ms=3_600_000),
    _ask("asked-waiting-children", "waiting-children", wait("completed"), value_raw="7"),
    case(
        "asked-twice",
        queue(),
        running("ask"),
        rest(),
        add("a"),
        wait("job"),
        do("resolve", job="1", outcome="complete"),
        wait("completed"),
        rest(),
        add("b"),
        wait("job"),
        do("resolve", job="2", outcome="complete"),
        wait("completed"),
        rest(),
        close("w"),
    ),
    case(
        "two-at-a-time",
        queue(),
        running("ask", concurrency=2),
        rest(),
        add("a"),
        wait("job"),
        rest(active=1),
        add("b"),
        wait("job"),
        do("resolve", job="2", outcome="complete"),
        wait("completed"),
        rest(active=1),
        do("resolve", job="1", outcome="complete"),
        wait("completed"),
        rest(),
        close("w"),
    ),
    case(
        "paused-worker",
        queue(),
        running("noop"),
        rest(),
        do("worker.isRunning"),
        do("worker.pause"),
        do("worker.isPaused"),
        add("a"),
        do("worker.resume"),
        wait("completed"),
        rest(),
        close("w"),
    ),
    case("not-started", queue(), add("a"), running("noop", autorun=False), do("worker.isRunning"), close("w")),
    case(
        "options-of-its-own",
        queue(),
        add("a"),
        running("noop", name="n", lockDuration=9000, drainDelay=1, stalledInterval=7000, removeOnComplete={"count": 0}),
        wait("drained"),
        rest(),
        close("w"),
        stalled_interval_ms=7000,
    ),
    case(
        "no-stalled-check",
        queue(),
        add("a"),
        running("noop", skipStalledCheck=True, skipLockRenewal=True),
        wait("drained"),
        rest(),
        close("w"),
    ),
    case(
        "started-too-often",
        queue(),
        add("a", attempts=5),
        running("throw", maxStartedAttempts=2),
        wait("failed"),
        wait("failed"),
        wait("failed"),
        rest(),
        close("w"),
    ),
    case(
        "delayed-job",
        *(queue(), add("a", delay=60_000), running("noop"), rest(), tick(60_000)),
        # The waiting worker's clock is fixed, so another job must wake it.
        *(add("wake"), wait("completed"), wait("completed"), rest(), close("w")),
    ),
    case(
        "limited",
        *(queue(), add("a"), add("b"), running("noop", limiter={"max": 1, "duration": 500}), wait("completed")),
        # The clock stands still, so the worker waits until it has been moved beyond the limit.
        *(redis("DEL", f"{PREFIX}:q:limiter"), tick(1000), do("queue.count"), wait("completed"), close("w")),
        redis("DEL", f"{PREFIX}:q:limiter"),
    ),
    case(
        "closed-by-force",
        queue(),
        add("a"),
        running("ask"),
        wait("job"),
        close("w", force=True),
        do("queue.getJobState", job="1"),
    ),
    case(
        "metrics",
        queue(),
        add("a"),
        running("noop", metrics={"maxDataPoints": 5}),
        wait("completed"),
        rest(),
        close("w"),
        do("queue.getMetrics", type="completed"),
    ),
)


_CLAIMED = (queue(), worker(), add(), take())
_STALL = (
    do("worker.checkStalled"),
    redis("DEL", f"{PREFIX}:q:1:lock"),
    redis("DEL", f"{PREFIX}:q:stalled-check"),
    do("worker.checkStalled"),
)
_STALL_AGAIN = (redis("DEL", f"{PREFIX}:q:stalled-check"), *_STALL)

LIMIT_CASES = (
    case("stalled-once", *_CLAIMED, *_STALL, take("u"), complete("1", token="u")),
    case("stalled-too-often", *_CLAIMED, *_STALL, take("u"), *_STALL_AGAIN, take("v"), do("queue.getJob", job="1")),
    case(
        "stalled-never-allowed",
        queue(),
        worker(maxStalledCount=0),
        add(attempts=3),
        take(),
        *_STALL,
        take("u"),
        fail("1", token="u"),
    ),
    case("stalled-prioritized-and-paused", queue(), worker(), add(priority=3), take(), do("queue.pause"), *_STALL),
    case(
        "stalled-check-throttled",
        queue(),
        worker(stalledInterval=7000),
        do("worker.checkStalled"),
        do("worker.checkStalled"),
        stalled_interval_ms=7000,
    ),
    case(
        "stalled-but-locked",
        *_CLAIMED,
        do("worker.checkStalled"),
        redis("DEL", f"{PREFIX}:q:stalled-check"),
        do("worker.checkStalled"),
    ),
    case(
        "limiter",
        queue(),
        worker(limiter={"max": 2, "duration": 60_000}),
        *[add() for _ in range(3)],
        take("a"),
        take("b"),
        take("c"),
        do("queue.getRateLimitTtl", max_jobs=5),
        limiter_duration_ms=60_000,
    ),
    case(
        "limiter-of-the-queue",
        queue(),
        worker(),
        do("queue.setGlobalRateLimit", max=1, duration_ms=60_000),
        add(),
        add(),
        take("a"),
        complete("1", token="a", fetch=True),
        do("queue.getJobCounts", types=["waiting"]),
        limiter_duration_ms=60_000,
    ),
    case(
        "limiter-of-both",
        queue(),
        worker(limiter={"max": 5, "duration": 10_000}),
        do("queue.setGlobalRateLimit", max=1, duration_ms=60_000),
        add(),
        add(),
        take("a"),
        take("b"),
        limiter_duration_ms=10_000,
    ),
    case(
        "worker-rate-limit",
        queue(),
        worker(limiter={"max": 5, "duration": 1000}),
        add(),
        do("worker.rateLimit", expire_ms=60_000),
        take(),
        limiter_duration_ms=60_000,
    ),
    case(
        "queue-rate-limit",
        queue(),
        worker(limiter={"max": 5, "duration": 1000}),
        add(),
        do("queue.rateLimit", expire_ms=60_000),
        take(),
        do("queue.removeRateLimitKey"),
        take(),
        do("queue.removeRateLimitKey"),
        limiter_duration_ms=60_000,
    ),
    case(
        "queue-rate-limit-without-limiter",
        queue(),
        worker(),
        add(),
        do("queue.rateLimit", expire_ms=60_000),
        take(),
        limiter_duration_ms=60_000,
    ),
    case(
        "global-concurrency",
        queue(),
        worker(),
        do("queue.setGlobalConcurrency", concurrency=1),
        add(),
        add(),
        take("a"),
        do("queue.isMaxed"),
        take("b"),
        complete("1", token="a", fetch=True),
    ),
    case(
        "manual-worker-knows-itself",
        queue(),
        worker(),
        do("worker.isPaused"),
        do("worker.isRunning"),
        do("worker.pause"),
        do("worker.isPaused"),
        do("worker.resume"),
        do("worker.isPaused"),
    ),
    case(
        "workers-by-name",
        queue(),
        worker("a", name="first"),
        worker("b"),
        worker("c", of="other", name="foreign"),
        connected(3),
        do("queue.getWorkers"),
        do("queue.getWorkersCount"),
        close("a"),
        connected(2),
        do("queue.getWorkers"),
    ),
    case("closed-with-a-job", *_CLAIMED, close("w"), do("queue.getJobState", job="1"), on("w", "worker.isRunning")),
    case(
        "options-out-of-range",
        worker("a", concurrency=0),
        worker("b", drainDelay=0),
        worker("c", stalledInterval=0),
        worker("d", maxStalledCount=-1),
        worker("e", maxStartedAttempts=-1),
    ),
)
