"""Manual changes in a store, each with the expected findings of a diff, and a way to undo it.

Every class of differences is covered, and each rule that hides values has one change inside its bounds and one
outside. Not planted: locks and checks of stalled jobs that are about to end, which would be gone before a million jobs
are read (`tests/reports` has them), and another prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from benchmarks.stores import FIRST_MS, HOUR_MS, IDLE, LIVE, QUEUE, UUID_JOB
from conformance.servers import RedisInstance

Found: TypeAlias = "tuple[str, str]"
"""Class and key of a difference."""

TEN_YEARS_MS: Final = 10 * 365 * 24 * HOUR_MS


@dataclass(frozen=True)
class PlantedChange:
    """A change of a queue. `keys`: all keys that it touches, without prefix and queue.

    `finds`: the differences that a diff must report. `hides`: the values that rules hide, by rule.
    """

    what: str
    queue: str
    keys: Sequence[str]
    do: Callable[[Any, str], object]
    finds: Sequence[Found] = ()
    hides: dict[str, int] = field(default_factory=dict)


def expected_differences(changes: Sequence[PlantedChange]) -> set[Found]:
    """Class and key of all expected findings."""
    return {finding for change in changes for finding in change.finds}


def expected_hidden(changes: Sequence[PlantedChange]) -> Counter[str]:
    """Expected number of hidden values, by rule."""
    return sum((Counter(change.hides) for change in changes), Counter[str]())


@contextmanager
def planted(server: RedisInstance, prefix: str, changes: Sequence[PlantedChange]) -> Iterator[None]:
    """Make these changes for the duration of the block, and undo them afterwards."""
    touched = {f"{prefix}:{change.queue}:{key}" for change in changes for key in change.keys}
    with server.connect() as client:
        untyped: Any = client
        before = {key: _content_and_expiry(untyped, key) for key in touched}
        try:
            for change in changes:
                change.do(untyped, f"{prefix}:{change.queue}:")
            yield
        finally:
            for key, (content, expires_ms) in before.items():
                _put_back(untyped, key, content, expires_ms)


def _content_and_expiry(client: Any, key: str) -> tuple[bytes | None, int]:
    """What DUMP returns, and when the key expires (Unix time in ms; 0: never).

    PEXPIRETIME would say it in one command, but only from Redis 7.0 on.
    """
    content, (seconds, microseconds), left_ms = client.pipeline().dump(key).time().pttl(key).execute()
    return content, seconds * 1000 + microseconds // 1000 + left_ms if left_ms > 0 else 0


def _put_back(client: Any, key: str, content: bytes | None, expires_ms: int) -> None:
    if content is None:
        client.delete(key)
    else:
        client.restore(key, expires_ms, content, replace=True, absttl=expires_ms > 0)


def _set(job: str, **fields: Any) -> Callable[[Any, str], object]:
    return lambda client, base: client.hset(f"{base}{job}", mapping=fields)


def _text(key: str) -> Callable[[Any, str], object]:
    def replace(client: Any, base: str) -> None:
        client.delete(f"{base}{key}")
        client.set(f"{base}{key}", "a text")

    return replace


def _remove(key: str) -> Callable[[Any, str], object]:
    return lambda client, base: client.delete(f"{base}{key}")


def _ends_in(key: str, ms: int) -> Callable[[Any, str], object]:
    return lambda client, base: client.pexpire(f"{base}{key}", ms)


def _leaves(container: str, job: str) -> Callable[[Any, str], object]:
    return lambda client, base: client.zrem(f"{base}{container}", job)


def _missing(client: Any, base: str) -> None:
    client.delete(f"{base}101")
    client.zrem(f"{base}completed", "101")


def _extra(client: Any, base: str) -> None:
    own = {"name": "job", "data": "{}", "opts": "{}", "timestamp": FIRST_MS, "finishedOn": FIRST_MS, "returnvalue": "1"}
    client.hset(f"{base}extra", mapping=own)
    client.zadd(f"{base}completed", {"extra": FIRST_MS})


def _wrong_state(client: Any, base: str) -> None:
    client.zrem(f"{base}completed", "105")
    client.zadd(f"{base}failed", {"105": FIRST_MS})


def _out_of_order(client: Any, base: str) -> None:
    client.lrem(f"{base}wait", 1, "2")
    client.linsert(f"{base}wait", "AFTER", "3", "2")


def _last_event_gone(client: Any, base: str) -> None:
    client.xdel(f"{base}events", client.xrevrange(f"{base}events", count=1)[0][0])


def _all_later(client: Any, base: str) -> None:
    """A job that was processed 5 ms later, in all places that store the time."""
    active, finished = (int(text) + 5 for text in client.hmget(f"{base}20", "processedOn", "finishedOn"))
    client.hset(f"{base}20", mapping={"processedOn": active, "finishedOn": finished})
    client.zadd(f"{base}failed", {"20": finished})


CHANGES: Final = (
    PlantedChange("a job is gone", QUEUE, ["101", "completed"], _missing, [("missing", "q:101")]),
    PlantedChange("a job too many", QUEUE, ["extra", "completed"], _extra, [("extra", "q:extra")]),
    PlantedChange("a hash is gone, its id is not", QUEUE, ["102"], _remove("102"), [("dangling", "q:102")]),
    PlantedChange("a lock without a job", QUEUE, ["gone:lock"], _text("gone:lock"), [("orphan", "q:gone")]),
    PlantedChange("in no state", QUEUE, ["completed"], _leaves("completed", "103"), [("no-state", "q:103")]),
    PlantedChange(
        "in two states",
        QUEUE,
        ["failed"],
        lambda client, base: client.zadd(f"{base}failed", {"104": FIRST_MS}),
        [("two-states", "q:104")],
    ),
    PlantedChange("in another state", QUEUE, ["completed", "failed"], _wrong_state, [("wrong-state", "q:105")]),
    PlantedChange("other data", QUEUE, ["106"], _set("106", data='{"i":0}'), [("field", "q:106")]),
    PlantedChange("a priority that is not a number", QUEUE, ["107"], _set("107", priority="high"), [("type", "q:107")]),
    PlantedChange("a job that ends", QUEUE, ["108"], _ends_in("108", 900_000_000), [("ttl", "<prefix>:q:108")]),
    PlantedChange("a lock on a finished job", QUEUE, ["109:lock"], _text("109:lock"), [("stale-lock", "q:109")]),
    PlantedChange("a text in a job's place", QUEUE, ["111"], _text("111"), [("type", "q:111")]),
    PlantedChange(
        "added ten years ago",
        QUEUE,
        ["112"],
        _set("112", timestamp=FIRST_MS - TEN_YEARS_MS),
        [("field", "q:112")],
    ),
    PlantedChange("no library's version", QUEUE, ["meta"], _set("meta", version="new"), [("field", "q:meta")]),
    PlantedChange(
        "an event too few", LIVE, ["events"], _last_event_gone, [("transition-without-event", "live:parent")]
    ),
    PlantedChange(
        "an event too many",
        LIVE,
        ["events"],
        lambda client, base: client.xadd(f"{base}events", {"event": "completed", "jobId": "4", "returnvalue": "null"}),
        [("event-without-transition", "live:4")],
    ),
    PlantedChange("another order of what waits", LIVE, ["wait"], _out_of_order, [("order", "live:wait")]),
    PlantedChange("a lock is gone", LIVE, ["14:lock"], _remove("14:lock"), [("lock", "live:14")]),
    PlantedChange("a lock ends earlier", LIVE, ["13:lock"], _ends_in("13:lock", HOUR_MS), [("ttl", "live:13")]),
    PlantedChange(
        "a lock of another worker",
        LIVE,
        ["12:lock"],
        lambda client, base: client.set(f"{base}12:lock", "worker:9", keepttl=True),
        [("lock", "live:12")],
    ),
    PlantedChange(
        "a child less",
        LIVE,
        ["parent:dependencies"],
        lambda client, base: client.srem(f"{base}parent:dependencies", f"{base}2"),
        [("member", "live:parent")],
    ),
    PlantedChange("other options", LIVE, ["2"], _set("2", opts='{"attempts":3,"sizeLimit":9}'), [("field", "live:2")]),
    PlantedChange("other data of a uuid", LIVE, [UUID_JOB], _set(UUID_JOB, data="[]"), [("type", f"live:{UUID_JOB}")]),
    PlantedChange(
        "two stack traces for one",
        LIVE,
        ["21"],
        _set("21", stacktrace='["Error: no","Error: no"]'),
        [("field", "live:21")],
    ),
    PlantedChange(
        "no marker", IDLE, ["marker"], _remove("marker"), [("broken", "idle:marker")], hides={"worker-traces": 1}
    ),
    PlantedChange(
        "a deduplication for a month",
        LIVE,
        ["de:once-16"],
        _ends_in("de:once-16", 720 * HOUR_MS),
        [("ttl", "live:de:once-16")],
    ),
    PlantedChange(
        "options in another order",
        LIVE,
        ["1"],
        _set("1", opts='{"sizeLimit":9,"attempts":2}'),
        hides={"opts-parsed-json": 1},
    ),
    PlantedChange(
        "both locks of a worker with another token",
        LIVE,
        ["5:lock", "6:lock"],
        lambda client, base: [client.set(f"{base}{job}:lock", "worker:8", keepttl=True) for job in (5, 6)],
        hides={"lock-token": 2},
    ),
    PlantedChange(
        "a deduplication ends in half the time",
        LIVE,
        ["de:once-15"],
        _ends_in("de:once-15", HOUR_MS),
        hides={"dedup-ttl": 1},
    ),
    PlantedChange(
        "the limiter ends earlier", LIVE, ["limiter"], _ends_in("limiter", HOUR_MS // 2), hides={"limiter-ttl": 1}
    ),
    PlantedChange("another stack trace", LIVE, ["20"], _set("20", stacktrace='["at"]'), hides={"stack-trace-text": 1}),
    PlantedChange("another library", LIVE, ["meta"], _set("meta", version="py:1.0"), hides={"library-version": 1}),
    PlantedChange("all of it 5 ms later", LIVE, ["20", "failed"], _all_later, hides={"worker-clock": 3}),
    PlantedChange(
        "a delayed job's score is one higher",
        LIVE,
        ["delayed"],
        lambda client, base: client.zincrby(f"{base}delayed", 1, "30"),
        hides={"worker-clock": 1},
    ),
)
"""In the order in which they are made. Each changes another job, so that each is found on its own."""
