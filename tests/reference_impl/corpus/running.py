"""Workers that run their own loop, and what they say and send while they do."""

from __future__ import annotations

import json

from .steps import PREFIX, Case, Step, add, case, close, do, queue, redis, rest, running, tick, wait

_STEPS = json.dumps(
    {"steps": [{"do": "log", "row": "r"}, {"do": "progress", "value": 5}, {"do": "return", "value": [1]}]}
)
_ENDING_BADLY = json.dumps(
    {"steps": [{"do": "fail", "message": "first", "until_attempt": 1}, {"do": "unrecoverable", "message": "then"}]}
)


def _preset(processor: str, *, data: str = '{"a":[1]}', given: object = None, **opts: object) -> Case:
    """A preset processor works off two jobs that were there before it."""
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


def _asked(name: str, outcome: str, *after: Step, **more: object) -> Case:
    """A worker asks what shall become of its job."""
    resolve = do("resolve", job="1", outcome=outcome, **more)
    return case(name, queue(), add("a", attempts=2), running("ask"), wait("job"), resolve, *after, rest(), close("w"))


_AGAIN = (wait("job"), do("resolve", job="1", outcome="complete"), wait("completed"))

CASES = (
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
    _asked("asked-complete", "complete", wait("completed"), value_raw='{"v":1}'),
    _asked("asked-fail", "fail", wait("failed"), *_AGAIN, message="as told"),
    _asked("asked-unrecoverable", "unrecoverable", wait("failed"), message="never"),
    _asked("asked-wait", "wait", *_AGAIN),
    _asked("asked-delay", "delay", ms=3_600_000),
    _asked("asked-waiting-children", "waiting-children", wait("completed"), value_raw="7"),
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
        # The clock stands still for the worker that waits: another job must wake it.
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
