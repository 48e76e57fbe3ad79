"""Job schedulers: upserting, iterations, reading, removing."""

from __future__ import annotations

from typing import Any

from tests.reference_impl.corpus.steps import (
    CorpusCase,
    DriverCall,
    Step,
    add,
    case,
    close,
    complete,
    do,
    fail,
    queue,
    rest,
    running,
    take,
    tick,
    wait,
    worker,
)

_READ = (do("queue.getJobScheduler", id="s"), do("queue.getJobs", types=["delayed", "waiting", "prioritized"]))
_HOUR = 3_600_000


def _upsert(
    key: str = "s", *, name: str | None = None, data: str | None = None, opts: Any = None, **repeat: Any
) -> DriverCall:
    return do("queue.upsertJobScheduler", id=key, repeat=repeat, name=name, data_raw=data, opts=opts)


def _first(name: str, *, opts: Any = None, **repeat: Any) -> CorpusCase:
    """Make a scheduler and read it."""
    return case(name, queue(), _upsert(name="n", data='{"x":1.0}', opts=opts, **repeat), *_READ)


def _iterations(name: str, gaps: tuple[int, ...], *, opts: Any = None, **repeat: Any) -> CorpusCase:
    """Claim and complete iterations of a scheduler; each of `gaps` is the time (ms) before a claim."""
    rounds: list[Step] = []
    for number, gap in enumerate(gaps):
        rounds += [tick(gap), take(f"t{number}"), do("queue.getJobs", types=["active", "delayed"])]
    return case(name, queue(), worker(), _upsert(name="n", data="[1]", opts=opts, **repeat), *rounds, *_READ)


_PATTERNS = {
    "every-minute": "* * * * *",
    "every-five-minutes": "*/5 * * * *",
    "with-seconds": "*/10 * * * * *",
    "working-hours": "0 9-17 * * 1-5",
    "named-days": "30 4 1,15 jan-jun MON",
    "last-of-month": "0 0 L * *",
    "month-end": "0 0 31 * *",
    "leap-day": "0 0 29 2 *",
    "sunday-as-seven": "15 10 * * 7",
    "hourly-by-name": "@hourly",
    "yearly-by-name": "@yearly",
}
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland")
_NOT_PATTERNS = ("", "* * *", "61 * * * *", "a b c d e", "* * * * * * *")

SCHEDULE_CASES = (
    _first("every", every=5000),
    _first("every-with-options", every=5000, opts={"attempts": 3, "backoff": 7, "priority": 2, "removeOnComplete": 5}),
    _first("every-limit", every=5000, limit=3),
    _first("every-start-date", every=5000, startDate=1_700_000_600_123),
    _first("every-start-date-past", every=5000, startDate=1_600_000_000_000),
    _first("every-end-date", every=5000, endDate=1_700_000_600_000),
    _first("every-end-date-past", every=5000, endDate=1_600_000_000_000),
    _first("every-offset", every=5000, offset=1234),
    _first("every-immediately", every=5000, immediately=True),
    _first("every-timezone", every=5000, tz="Europe/Berlin"),
    *(_first(f"pattern-{name}", pattern=pattern) for name, pattern in _PATTERNS.items()),
    *(_first(f"pattern-in-{zone}", pattern="30 2 * * *", tz=zone) for zone in _ZONES),
    _first("pattern-immediately", pattern="0 0 1 * *", immediately=True),
    _first("pattern-start-date", pattern="0 * * * *", startDate=1_800_000_000_000),
    _first("pattern-start-date-as-text", pattern="0 * * * *", startDate="2030-01-01T00:00:00.000Z"),
    _first("pattern-end-date", pattern="0 * * * *", endDate=1_800_000_000_000),
    _first("pattern-limit", pattern="0 * * * *", limit=2),
    _first("pattern-offset", pattern="0 * * * *", offset=1000),
    _first("pattern-with-options", pattern="0 * * * *", opts={"attempts": 2, "lifo": True, "keepLogs": 1}),
    *(_first(f"no-pattern-{number}", pattern=pattern) for number, pattern in enumerate(_NOT_PATTERNS)),
    _first("neither-pattern-nor-every", limit=3),
    _first("both-pattern-and-every", pattern="* * * * *", every=1000),
    _first("both-immediately-and-start-date", every=1000, immediately=True, startDate=1_800_000_000_000),
    _first("limit-of-zero", every=1000, limit=0),
    _first("count-at-its-limit", every=1000, limit=2, count=2),
    _first("unknown-zone", pattern="* * * * *", tz="Nowhere/Land"),
    _first("job-id-option", every=1000, jobId="mine"),
    _first("template-jobId", every=1000, opts={"jobId": "mine"}),
    _first("template-delay", every=1000, opts={"delay": 50}),
    _first("template-deduplication", every=1000, opts={"deduplication": {"id": "d"}}),
    case("without-template", queue(), _upsert(every=1000), *_READ),
    case(
        "key-with-colons",
        queue(),
        _upsert("a:b:c", every=1000),
        do("queue.getJobScheduler", id="a:b:c"),
        do("queue.getJobSchedulers"),
    ),
    case("key-beyond-ascii", queue(), _upsert("é", every=1000), do("queue.getJobScheduler", id="é")),
    case("in-a-paused-queue", queue(), do("queue.pause"), _upsert(every=1000), _upsert("p", pattern="* * * * *")),
    case("default-job-options", queue(defaultJobOptions={"attempts": 4}), _upsert(every=1000), *_READ),
    case("upsert-again", queue(), _upsert(every=5000), tick(100), _upsert(every=5000, data='{"y":2}'), *_READ),
    case("upsert-another-every", queue(), _upsert(every=5000), tick(100), _upsert(every=7000), *_READ),
    case(
        "upsert-another-pattern",
        queue(),
        _upsert(pattern="0 * * * *"),
        tick(100),
        _upsert(pattern="30 * * * *"),
        *_READ,
    ),
    case("upsert-pattern-after-every", queue(), _upsert(every=5000), _upsert(pattern="0 * * * *"), *_READ),
    case(
        "upsert-while-active",
        queue(),
        worker(),
        _upsert(every=5000),
        take(),
        tick(100),
        _upsert(every=5000, name="new"),
        *_READ,
    ),
    case("upsert-after-a-long-time", queue(), _upsert(every=5000), tick(60_001), _upsert(every=5000), *_READ),
    case(
        "collision-of-every",
        queue(),
        worker(),
        _upsert(every=5000),
        take(),
        complete("repeat:s:1700000000000"),
        do("queue.removeJobScheduler", id="s"),
        _upsert(every=5000),
        *_READ,
    ),
    case("collision-of-pattern", queue(), add(jobId="repeat:s:1700002800000"), _upsert(pattern="0 * * * *"), *_READ),
    case(
        "collision-of-two-slots",
        queue(),
        add(jobId="repeat:s:1700000000000"),
        add(jobId="repeat:s:1700000005000"),
        _upsert(every=5000),
        *_READ,
    ),
    _iterations("next-every", (0, 5000, 5000), every=5000),
    _iterations("next-every-late", (0, 12_345, 5000), every=5000),
    _iterations("next-every-early", (0, 10, 4990), every=5000),
    _iterations("next-every-start-date", (10_000, 5000, 5000), every=5000, startDate=1_700_000_001_234),
    _iterations("next-every-limit", (0, 5000, 5000, 5000), every=5000, limit=2),
    _iterations("next-every-end-date", (0, 5000, 5000, 5000), every=5000, endDate=1_700_000_007_000),
    _iterations("next-every-offset", (0, 5000, 5000), every=5000, offset=321),
    _iterations("next-pattern", (2_800_000, _HOUR, _HOUR), pattern="0 * * * *"),
    _iterations("next-pattern-late", (2_800_000, 3 * _HOUR, _HOUR), pattern="0 * * * *"),
    _iterations("next-pattern-limit", (2_800_000, _HOUR, _HOUR), pattern="0 * * * *", limit=2),
    _iterations("next-pattern-in-a-zone", (0, 24 * _HOUR, 24 * _HOUR), pattern="30 2 * * *", tz="Europe/Berlin"),
    _iterations(
        "next-with-options", (0, 5000), every=5000, opts={"attempts": 2, "priority": 3, "removeOnComplete": True}
    ),
    case(
        "iteration-fails",
        queue(),
        worker(),
        _upsert(every=5000, opts={"attempts": 2}),
        take(),
        fail("repeat:s:1700000000000"),
        take(),
        *_READ,
    ),
    case(
        "iteration-cannot-be-removed",
        queue(),
        _upsert(every=5000),
        do("job.remove", job="repeat:s:1700000000000"),
        do("queue.remove", job="repeat:s:1700000000000"),
    ),
    case(
        "iteration-promoted",
        queue(),
        worker(),
        _upsert(pattern="0 * * * *"),
        do("job.promote", job="repeat:s:1700002800000"),
        take(),
        *_READ,
    ),
    case(
        "iterations-survive-cleaning",
        queue(),
        _upsert(every=5000),
        _upsert("p", pattern="0 * * * *"),
        add(),
        add(delay=9),
        tick(5),
        do("queue.clean", grace_ms=0, limit=0, type="wait"),
        do("queue.clean", grace_ms=0, limit=0, type="delayed"),
        do("queue.drain", delayed=True),
    ),
    case(
        "obliterated",
        queue(),
        _upsert(every=5000),
        _upsert("p", pattern="0 * * * *"),
        do("queue.obliterate", force=True),
        *_READ,
    ),
    case(
        "many",
        queue(),
        *[_upsert(f"s{n}", every=1000 * n, startDate=1_700_000_000_000 + n) for n in range(1, 5)],
        do("queue.getJobSchedulers"),
        do("queue.getJobSchedulers", asc=True),
        do("queue.getJobSchedulers", start=1, end=2, asc=True),
        do("queue.getJobSchedulersCount"),
    ),
    case(
        "none",
        queue(),
        do("queue.getJobScheduler", id="s"),
        do("queue.getJobSchedulers"),
        do("queue.getJobSchedulersCount"),
        do("queue.removeJobScheduler", id="s"),
    ),
    case(
        "removed",
        queue(),
        _upsert(pattern="0 * * * *"),
        do("queue.removeJobScheduler", id="s"),
        do("queue.removeJobScheduler", id="s"),
        *_READ,
    ),
    case(
        "removed-while-waiting",
        queue(),
        worker(),
        _upsert(every=5000),
        do("queue.removeJobScheduler", id="s"),
        take(),
        *_READ,
    ),
    case(
        "removed-while-active",
        queue(),
        worker(),
        _upsert(every=5000),
        take(),
        do("queue.removeJobScheduler", id="s"),
        complete("repeat:s:1700000000000"),
        *_READ,
    ),
    case(
        "run-by-a-worker",
        *(queue(), _upsert(every=60_000, name="n"), running("noop"), wait("completed"), rest(), tick(60_000)),
        # The waiting worker's clock is fixed, so another job must wake it.
        *(add("wake"), wait("completed"), wait("completed"), rest(), close("w"), *_READ),
    ),
    case("legacy-repeat-every", queue(), add("n", repeat={"every": 5000}), do("queue.getJobs", types=["delayed"])),
    case(
        "legacy-repeat-pattern",
        queue(),
        add("n", repeat={"pattern": "0 * * * *", "key": "k"}),
        do("queue.getJobs", types=["delayed"]),
    ),
)
