"""The queue as a whole: controlling it, reading it with jobs in every state, and listening to its events."""

from __future__ import annotations

from tests.reference_impl.corpus.steps import (
    PREFIX,
    CorpusCase,
    Step,
    add,
    case,
    close,
    complete,
    do,
    events,
    fail,
    queue,
    redis,
    take,
    tick,
    wait,
    worker,
)

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

CONTROL_CASES = (
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
    case("publish-event", queue(), do("queue.publishEvent", event_name="greeting", fields={"to": "all"}, max_length=5)),
    case("prometheus", *_EVERY_STATE, do("queue.exportPrometheusMetrics", variables={"region": "north"})),
    case("prometheus-when-empty", queue(), do("queue.exportPrometheusMetrics")),
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


_STATES = ("wait", "waiting", "active", "completed", "failed", "delayed", "prioritized", "paused", "waiting-children")
_FULL: tuple[Step, ...] = (
    *(queue(), worker(name="n"), *[add(f"n{number}", str(number)) for number in range(6)]),
    *(take("a"), complete("1", '{"v":1}', token="a"), tick(3), take("b"), complete("2", token="b"), tick(3)),
    *(take("c"), fail("3", "é", token="c"), tick(3), take("d")),
    *(
        add("d1", delay=100),
        add("d2", delay=50),
        add("p2", priority=2),
        add("p1", priority=1, deduplication={"id": "x"}),
    ),
)

GET_CASES = (
    case("jobs-of-each-state", *_FULL, *[do("queue.getJobs", types=[state]) for state in _STATES]),
    case("jobs-ascending", *_FULL, *[do("queue.getJobs", types=[state], asc=True) for state in _STATES]),
    case("jobs-in-part", *_FULL, *[do("queue.getJobs", types=[state], start=0, end=0) for state in _STATES]),
    case(
        "jobs-in-part-ascending",
        *_FULL,
        *[do("queue.getJobs", types=[state], start=1, end=2, asc=True) for state in _STATES],
    ),
    case(
        "jobs-of-many-states",
        *_FULL,
        do("queue.getJobs", types=["waiting", "delayed", "completed"], asc=True),
        do("queue.getJobs", types=["failed", "active"], start=0, end=0),
    ),
    case("jobs-of-all-states", *_FULL, do("queue.getJobs", types=[])),
    case("jobs-of-a-doubled-state", *_FULL, do("queue.getJobs", types=["completed", "completed"])),
    case(
        "jobs-without-hash",
        queue(),
        add(),
        add(),
        redis("DEL", f"{PREFIX}:q:1"),
        do("queue.getJobs", types=["waiting"]),
    ),
    case("jobs-of-an-unknown-state", *_FULL, do("queue.getJobs", types=["odd"])),
    case(
        "jobs-paused",
        *_FULL,
        do("queue.pause"),
        do("queue.getJobs", types=["waiting"]),
        do("queue.getJobs", types=["paused"], asc=True),
    ),
    case("jobs-of-an-empty-queue", queue(), do("queue.getJobs", types=["waiting"]), do("queue.getJobs", types=[])),
    case("job", *_FULL, *[do("queue.getJob", job=job) for job in ("1", "3", "4", "5", "7", "9", "10", "404")]),
    case(
        "job-with-a-foreign-hash",
        queue(),
        redis(
            "HSET",
            f"{PREFIX}:q:x",
            "name",
            "n",
            "data",
            "{}",
            "opts",
            "{}",
            "timestamp",
            "1",
            "atm",
            "2",
            "ats",
            "3",
            "stc",
            "4",
            "pb",
            "w",
            "progress",
            '{"a":1}',
        ),
        do("queue.getJob", job="x"),
    ),
    case(
        "job-with-old-names",
        queue(),
        redis(
            "HSET",
            f"{PREFIX}:q:x",
            "name",
            "n",
            "data",
            "[1]",
            "opts",
            '{"kl":5,"fpof":true,"tm":"m"}',
            "timestamp",
            "1",
            "attemptsMade",
            "2",
            "returnvalue",
            "7",
        ),
        do("queue.getJob", job="x"),
    ),
    case("job-with-little", queue(), redis("HSET", f"{PREFIX}:q:x", "name", "n"), do("queue.getJob", job="x")),
    case(
        "counts",
        *_FULL,
        do("queue.getJobCounts", types=[]),
        *[do("queue.getJobCounts", types=[state]) for state in _STATES],
    ),
    case(
        "counts-of-types",
        *_FULL,
        do("queue.getJobCountByTypes", types=["waiting", "active"]),
        do("queue.getJobCountByTypes", types=[]),
        do("queue.count"),
    ),
    case(
        "counts-when-paused",
        *_FULL,
        do("queue.pause"),
        do("queue.getJobCounts", types=["waiting"]),
        do("queue.getJobCounts", types=["waiting", "paused"]),
        do("queue.count"),
    ),
    case("counts-per-priority", *_FULL, do("queue.getCountsPerPriority", priorities=[0, 1, 2, 2, 3])),
    case("counts-per-priority-paused", *_FULL, do("queue.pause"), do("queue.getCountsPerPriority", priorities=[0, 1])),
    case("counts-per-no-priority", queue(), do("queue.getCountsPerPriority", priorities=[])),
    case(
        "version",
        queue(),
        do("queue.getVersion"),
        redis("HSET", f"{PREFIX}:q:meta", "version", "other:1"),
        do("queue.getVersion"),
    ),
    case(
        "settings-of-another-client",
        queue(),
        redis("HSET", f"{PREFIX}:q:meta", "concurrency", "3", "max", "5", "duration", "1000", "paused", "1"),
        do("queue.getGlobalConcurrency"),
        do("queue.getGlobalRateLimit"),
        do("queue.isPaused"),
    ),
)


_EVENT = wait("queue-event", at="e")


def _recorded(name: str, count: int, *steps: Step) -> CorpusCase:
    return case(name, queue(), worker(), events(), *steps, *[_EVENT] * count, close("e"))


LISTEN_CASES = (
    _recorded("added", 4, add("a"), add("b", delay=5)),
    _recorded("life-of-a-job", 5, add(), take(), complete("1", '{"v":[1]}')),
    _recorded("failure", 7, add(attempts=2), take(), fail("1", "é"), take(), fail("1")),
    _recorded("progress", 3, add(), do("job.updateProgress", job="1", value_raw='{"p":1.5}')),
    _recorded(
        "control", 4, do("queue.pause"), do("queue.resume"), do("queue.clean", grace_ms=0, limit=0, type="wait"), add()
    ),
    _recorded("duplicates", 5, add(jobId="x"), add(jobId="x"), add(jobId="y", deduplication={"id": "d"})),
    _recorded(
        "of-another-client",
        1,
        redis("XADD", f"{PREFIX}:q:events", "*", "event", "custom", "some", "field", "data", "{}"),
    ),
    case("from-the-start", queue(), add("a"), events(lastEventId="0-0"), _EVENT, _EVENT, close("e")),
    case("not-started", queue(), events(autorun=False), add("a"), close("e")),
    case(
        "finished-before",
        queue(),
        worker(),
        events(),
        add(),
        take(),
        complete("1", '{"v":1}'),
        do("job.waitUntilFinished", job="1", events="e"),
    ),
    case(
        "failed-before",
        queue(),
        worker(),
        events(),
        add(),
        take(),
        fail("1", "why"),
        do("job.waitUntilFinished", job="1", events="e"),
    ),
    case("not-in-time", queue(), events(), add(), do("job.waitUntilFinished", job="1", events="e", ttl_ms=20)),
    case("no-such-job", queue(), events(), do("job.waitUntilFinished", job="404", events="e", ttl_ms=20)),
)
