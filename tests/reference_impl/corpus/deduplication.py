"""Deduplication and its old name debounce: modes, ttl, replacing, and what ends it."""

from __future__ import annotations

from typing import Any

from .steps import PREFIX, Step, add, case, complete, do, fail, queue, redis, take, tick, worker

_OWNER = do("queue.getDeduplicationJobId", id="d")
_MINUTE = {"id": "d", "ttl": 60_000}


def _thrice(**dedup: Any) -> tuple[Step, ...]:
    return tuple(add(f"n{number}", str(number), deduplication={"id": "d", **dedup}) for number in range(3))


CASES = (
    case("simple", queue(), *_thrice(), _OWNER),
    case("ttl", queue(), *_thrice(ttl=60_000), _OWNER),
    case("ttl-zero", queue(), *_thrice(ttl=0), _OWNER),
    case("extend", queue(), *_thrice(ttl=60_000, extend=True), _OWNER),
    case("replace-without-delay", queue(), *_thrice(replace=True), _OWNER),
    case(
        "replace",
        queue(),
        *[add(f"n{n}", delay=500, deduplication={"id": "d", "replace": True}) for n in range(3)],
        _OWNER,
    ),
    case(
        "throttle-and-replace",
        queue(),
        *[add(f"n{n}", delay=500, deduplication={**_MINUTE, "replace": True}) for n in range(3)],
    ),
    case(
        "debounce-in-full",
        queue(),
        *[add(f"n{n}", delay=500, deduplication={**_MINUTE, "replace": True, "extend": True}) for n in range(3)],
        _OWNER,
    ),
    case(
        "old-name", queue(), add("a", debounce=_MINUTE), add("b", debounce=_MINUTE), do("queue.getJob", job="1"), _OWNER
    ),
    case(
        "both-names", queue(), add("a", debounce={"id": "x"}, deduplication={"id": "y"}), add("b", debounce={"id": "x"})
    ),
    case("prioritized", queue(), *[add(f"n{n}", priority=2, deduplication={"id": "d"}) for n in range(2)]),
    case("id-with-colons", queue(), *[add(f"n{n}", deduplication={"id": "a:b:é"}) for n in range(2)]),
    case("duplicate-id-comes-first", queue(), *[add("n", jobId="j", deduplication={"id": "d"}) for _ in range(2)]),
    case("ends-with-completion", queue(), worker(), *_thrice(), take(), complete("1"), _OWNER, *_thrice()),
    case("ends-with-failure", queue(), worker(), *_thrice(), take(), fail("1"), _OWNER, *_thrice()),
    case(
        "outlives-completion-with-ttl",
        queue(),
        worker(),
        *_thrice(ttl=60_000),
        take(),
        complete("1"),
        *_thrice(ttl=60_000),
    ),
    case("ends-with-removal", queue(), *_thrice(), do("job.remove", job="1"), _OWNER, *_thrice()),
    case("ends-with-its-key", queue(), *_thrice(), do("queue.removeDeduplicationKey", id="d"), _OWNER, *_thrice()),
    case("no-such-key", queue(), do("queue.removeDeduplicationKey", id="x"), do("queue.getDeduplicationJobId", id="x")),
    case("expired", queue(), *_thrice(ttl=60_000), redis("DEL", f"{PREFIX}:q:de:d"), *_thrice(ttl=60_000)),
    case(
        "retried-job-keeps-it",
        queue(),
        worker(),
        *[add(f"n{n}", attempts=3, deduplication={"id": "d"}) for n in range(2)],
        take(),
        fail("1"),
        tick(1),
        add("x", deduplication={"id": "d"}),
    ),
)
