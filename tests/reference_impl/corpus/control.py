"""The queue as a whole: pausing, limits, draining, cleaning, obliterating, promoting, trimming."""

from __future__ import annotations

from .steps import PREFIX, Step, add, case, complete, do, fail, queue, redis, take, tick, worker

_EVERY_STATE: tuple[Step, ...] = (
    *(queue(), worker(), add("done"), add("bad"), add("held"), take("a"), take("b"), take("c")),
    *(complete("1", token="a"), tick(10), fail("2", token="b"), tick(10)),
    *(
        add("w1"),
        add("w2"),
        add("late", delay=1000),
        add("later", delay=2000),
        add("p1", priority=1),
        add("p9", priority=9),
    ),
    *(add("child", parent={"id": "3", "queue": f"{PREFIX}:q"}), tick(1000)),
)
_COUNTS = do("queue.getJobCounts", types=[])
_ALL_TYPES = ("completed", "wait", "active", "paused", "prioritized", "delayed", "failed")

CASES = (
    case("open", queue()),
    case(
        "open-again-with-other-settings",
        queue(),
        queue("r", name="q", streams={"events": {"maxLen": 50}}),
        do("queue.getVersion"),
    ),
    case("open-without-meta", queue(skipMetasUpdate=True), do("queue.getVersion"), add()),
    case("pause", *_EVERY_STATE, do("queue.pause"), do("queue.isPaused"), do("queue.pause"), _COUNTS),
    case(
        "pause-when-empty", queue(), do("queue.isPaused"), do("queue.pause"), do("queue.isPaused"), do("queue.resume")
    ),
    case(
        "resume",
        *_EVERY_STATE,
        do("queue.pause"),
        do("queue.resume"),
        do("queue.isPaused"),
        do("queue.resume"),
        _COUNTS,
    ),
    case("resume-with-delayed-only", queue(), add(delay=500), do("queue.pause"), do("queue.resume")),
    case("drain", *_EVERY_STATE, do("queue.drain"), _COUNTS),
    case("drain-delayed-too", *_EVERY_STATE, do("queue.drain", delayed=True), _COUNTS),
    case("drain-when-empty", queue(), do("queue.drain", delayed=True)),
    *(
        case(f"clean-{kind}", *_EVERY_STATE, do("queue.clean", grace_ms=0, limit=0, type=kind), _COUNTS)
        for kind in _ALL_TYPES
    ),
    case(
        "clean-some",
        *_EVERY_STATE,
        *[do("queue.clean", grace_ms=0, limit=1, type=kind) for kind in _ALL_TYPES],
        _COUNTS,
    ),
    case(
        "clean-with-grace",
        *_EVERY_STATE,
        *[do("queue.clean", grace_ms=1005, limit=0, type=kind) for kind in _ALL_TYPES],
    ),
    case(
        "clean-while-paused",
        *_EVERY_STATE,
        do("queue.pause"),
        do("queue.clean", grace_ms=0, limit=0, type="paused"),
        _COUNTS,
    ),
    case(
        "clean-frees-deduplication",
        queue(),
        add(deduplication={"id": "d"}),
        tick(5),
        do("queue.clean", grace_ms=0, limit=9, type="wait"),
    ),
    case("obliterate-refused", *_EVERY_STATE, do("queue.obliterate"), do("queue.isPaused")),
    case("obliterate", queue(), add(), add(delay=5), add(priority=1), do("queue.obliterate")),
    case("obliterate-forced", *_EVERY_STATE, do("queue.obliterate", force=True)),
    case("obliterate-in-batches", *_EVERY_STATE, do("queue.obliterate", force=True, count=2)),
    case("obliterate-when-empty", queue(), do("queue.obliterate"), do("queue.getVersion")),
    case(
        "remove",
        *_EVERY_STATE,
        *[do("queue.remove", job=job) for job in ("1", "2", "3", "4", "6", "8", "10", "404")],
        _COUNTS,
    ),
    case(
        "remove-by-job",
        *_EVERY_STATE,
        *[do("job.remove", job=job) for job in ("1", "2", "3", "4", "6", "8", "404")],
        _COUNTS,
    ),
    case("remove-paused-job", queue(), add(), do("queue.pause"), do("job.remove", job="1")),
    case("promote-all", *_EVERY_STATE, do("queue.promoteJobs"), _COUNTS),
    case("promote-in-batches", *_EVERY_STATE, do("queue.promoteJobs", count=1), _COUNTS),
    case("promote-paused", queue(), add(delay=5), add(delay=9, priority=1), do("queue.pause"), do("queue.promoteJobs")),
    case("promote-none", queue(), do("queue.promoteJobs")),
    case("trim-events", *_EVERY_STATE, do("queue.trimEvents", max_length=0), do("queue.trimEvents", max_length=5)),
    case("trim-events-when-empty", queue(), do("queue.trimEvents", max_length=0)),
    case(
        "global-concurrency",
        queue(),
        do("queue.getGlobalConcurrency"),
        do("queue.setGlobalConcurrency", concurrency=2),
        do("queue.getGlobalConcurrency"),
        do("queue.isMaxed"),
        do("queue.removeGlobalConcurrency"),
        do("queue.getGlobalConcurrency"),
    ),
    case(
        "global-rate-limit",
        queue(),
        do("queue.getGlobalRateLimit"),
        do("queue.setGlobalRateLimit", max=3, duration_ms=1000),
        do("queue.getGlobalRateLimit"),
        do("queue.removeGlobalRateLimit"),
        do("queue.getGlobalRateLimit"),
    ),
    case(
        "rate-limit-ttl",
        queue(),
        do("queue.getRateLimitTtl"),
        do("queue.getRateLimitTtl", max_jobs=1),
        redis("SET", f"{PREFIX}:q:limiter", "3"),
        do("queue.getRateLimitTtl"),
        do("queue.getRateLimitTtl", max_jobs=1),
        do("queue.getRateLimitTtl", max_jobs=5),
    ),
    case(
        "meta-lost",
        queue(),
        do("queue.pause"),
        redis("DEL", f"{PREFIX}:q:meta"),
        do("queue.isPaused"),
        do("queue.getVersion"),
        add(),
    ),
)
