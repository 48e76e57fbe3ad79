"""Ageing: instead of waiting, every time in the keys of a participant moves back, as if that much time had passed.

So do those in events, because they are compared with the jobs that they are about; their stamps, which only Redis sets,
stay. Times to live become shorter. User data is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from redis.cluster import RedisCluster

from conformance.observe.keyspace import RawKey, decode_key
from conformance.observe.reader import AnyRedis, read_keys
from conformance.participants.names import Names
from conformance.protocol import job_fields
from conformance.protocol.keys import ACTIVE, MARKER, REPEAT, STALLED_CHECK
from conformance.protocol.states import DELAY_FACTOR, JOB_CONTAINERS

EARLIEST_MS = 1_400_000_000_000
"""Smaller numbers are not times in ms: a client that stores seconds keeps them."""

TIMED_SCORES = {
    *(container.key for container in JOB_CONTAINERS if container.score in ("time", "due time")),
    REPEAT,
    MARKER,
    "job:unsuccessful",
}
"""Kinds of sorted sets (`observe.keyspace.decode_key`) whose scores are times."""

TIMED_STRINGS = {STALLED_CHECK}

TIME_FIELDS = {
    job_fields.TIMESTAMP,
    job_fields.PROCESSED_ON,
    job_fields.FINISHED_ON,
    "startDate",
    "endDate",
    "prevTS",
}
"""Fields of jobs, schedulers and metrics."""

TIME_OPTIONS = {"timestamp", "prevMillis", "startDate", "endDate"}
"""Options of a job, and of its schedule."""

TEXTS_OF_USERS = {
    job_fields.NAME,
    job_fields.DATA,
    job_fields.PROGRESS,
    job_fields.RETURN_VALUE,
    job_fields.STACKTRACE,
}
"""Fields of a job in which a text that looks like the id of a scheduled job is none."""

KINDS_OF_USERS = {"job:logs", "job:processed"}
"""Keys whose values come from users, in the same way; the fields of `processed` are the keys of jobs."""

_OPTION = re.compile(r'("(\w+)":\s*)(\d{13})(?![\d.eE])')
# As text, because JSON that was parsed and written again would have other bytes.
_SLOT = re.compile(r'(repeat:[^"]*?:)(\d{13})(?!\d)')
"""The id of a scheduled job: it contains the time of its slot."""


def age(redis: AnyRedis, places: Sequence[Names], duration_ms: int, check: Callable[[], None]) -> bool:
    """Move all times under these prefixes back; `check` is called before each try, and may raise.

    Returns False, and changes nothing, if a scheduled job is active: its client knows it by the id with its slot.
    """
    for names in places:
        keys = sorted(set(redis.scan_iter(match=names.pattern, count=1000)))
        if any(_is_held(names.client_prefix, raw) for raw in read_keys(redis, keys)):
            return False
    for names in places:
        _age_prefix(redis, names, duration_ms, check)
    return True


def _age_prefix(redis: AnyRedis, names: Names, duration_ms: int, check: Callable[[], None]) -> None:
    keys = sorted(set(redis.scan_iter(match=names.pattern, count=1000)))

    def queue_changes(pipeline: Any) -> None:
        check()
        before = read_keys(redis, keys)
        if not isinstance(redis, RedisCluster):
            pipeline.multi()
        after = [older(names.client_prefix, raw, duration_ms) for raw in before]
        _queue_changes(pipeline, [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]])

    if isinstance(redis, RedisCluster):
        # Its keys may be in several slots, and no transaction spans these.
        pipeline: Any = redis.pipeline()  # type: ignore[no-untyped-call]
        queue_changes(pipeline)
        pipeline.execute()
    elif keys:
        # A client may write meanwhile: then Redis refuses, and the keys are read again.
        redis.transaction(queue_changes, *keys)


def _is_held(prefix: str, raw: RawKey) -> bool:
    return decode_key(prefix, raw.key, raw.type).kind == ACTIVE and any(map(_SLOT.search, raw.value))


def older(prefix: str, raw: RawKey, duration_ms: int) -> RawKey | None:
    """The key with all its times moved back; None if its time to live is over."""
    if 0 <= raw.ttl_ms <= duration_ms:
        return None
    ttl_ms = raw.ttl_ms if raw.ttl_ms < 0 else raw.ttl_ms - duration_ms
    move = _Move(duration_ms)
    kind = decode_key(prefix, raw.key, raw.type, raw.value if raw.type == "hash" else ()).kind
    return replace(raw, key=move.slots(raw.key), value=move.value(kind, raw.type, raw.value), ttl_ms=ttl_ms)


class _Move:
    """Moves times back by a duration (ms)."""

    def __init__(self, duration_ms: int) -> None:
        self._duration_ms = duration_ms

    def value(self, kind: str, redis_type: str, value: Any) -> Any:
        """The value of a key of this kind (`decode_key`), with all its times moved."""
        match redis_type:
            case "string":
                return self._number(value) if kind in TIMED_STRINGS else self.slots(value)
            case "list" | "set" if kind not in KINDS_OF_USERS:
                return [self.slots(member) for member in value]
            case "zset":
                move = self._score if kind in TIMED_SCORES else float
                return [(self.slots(member), move(score)) for member, score in value]
            case "hash":
                return {self.slots(name): self._field(kind, name, text) for name, text in value.items()}
            case "stream":
                return [(entry, self._event(fields)) for entry, fields in value]
        return value

    def slots(self, text: str) -> str:
        """The text with the slots of all ids in it moved."""
        return _SLOT.sub(lambda found: found[1] + self._number(found[2]), text)

    def _field(self, kind: str, name: str, text: str) -> str:
        if kind in KINDS_OF_USERS:
            return text
        if name in TIME_FIELDS:
            return self._number(text)
        return self._text(name, _OPTION.sub(self._option, text) if name == job_fields.OPTS else text)

    def _text(self, name: str, text: str) -> str:
        return text if name in TEXTS_OF_USERS else self.slots(text)

    def _event(self, fields: dict[str, str]) -> dict[str, str]:
        """Only the event `delayed` has a time: when the job is due."""
        due = {name: self._number(text) for name, text in fields.items() if name == job_fields.DELAY}
        return {**{name: self._text(name, text) for name, text in fields.items()}, **due}

    def _option(self, found: re.Match[str]) -> str:
        return found[1] + (self._number(found[3]) if found[2] in TIME_OPTIONS else found[3])

    def _number(self, text: str) -> str:
        moves = text.isascii() and text.isdigit() and int(text) >= EARLIEST_MS
        return str(int(text) - self._duration_ms) if moves else text

    def _score(self, score: float) -> float:
        if score < EARLIEST_MS:
            return score
        # By its size and not by the key: a client may store ms among the delayed jobs.
        return score - self._duration_ms * (DELAY_FACTOR if score >= EARLIEST_MS * DELAY_FACTOR else 1)


def _queue_changes(pipeline: Any, changes: list[tuple[RawKey, RawKey | None]]) -> None:
    """Queue the commands that turn each key into the older one."""
    # All deletions first: a scheduled job may get the name that another one had.
    for before, after in changes:
        if after is None or (before.key, before.value) != (after.key, after.value):
            pipeline.delete(_stored(before.key))
    for before, after in changes:
        if after is None:
            continue
        if (before.key, before.value) != (after.key, after.value):
            _queue_write(pipeline, after)
        if after.ttl_ms >= 0:
            pipeline.pexpire(_stored(after.key), after.ttl_ms)


def _queue_write(pipeline: Any, raw: RawKey) -> None:
    key, value = _stored(raw.key), raw.value
    match raw.type:
        case "string":
            pipeline.set(key, _stored(value))
        case "list":
            pipeline.rpush(key, *map(_stored, value))
        case "set":
            pipeline.sadd(key, *map(_stored, value))
        case "zset":
            pipeline.zadd(key, {_stored(member): score for member, score in value})
        case "hash":
            pipeline.hset(key, mapping=_stored_fields(value))
        case "stream":
            for entry, fields in value:
                pipeline.xadd(key, _stored_fields(fields), id=entry)


def _stored_fields(fields: dict[str, str]) -> dict[bytes, bytes]:
    return {_stored(name): _stored(text) for name, text in fields.items()}


def _stored(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
