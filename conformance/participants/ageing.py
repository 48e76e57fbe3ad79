"""Ageing: instead of waiting, every time in the keys of a participant moves back, as if that much time had passed.

So do those in events, because they are compared with the jobs that they are about; their stamps, which only Redis sets,
stay. Times to live become shorter. User data is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.cluster import RedisCluster

from conformance.observe.keyspace import RawKey, decode_key
from conformance.observe.reader import AnyRedis, read_keys
from conformance.participants.names import Names
from conformance.protocol.keys import ACTIVE, MARKER, REPEAT, STALLED_CHECK
from conformance.protocol.states import DELAY_FACTOR, JOB_CONTAINERS

EARLIEST_MS = 1_400_000_000_000
"""Smaller numbers are not times in ms: a client that stores seconds keeps them."""

TIMED_CONTAINERS = {container.key for container in JOB_CONTAINERS if container.score in ("time", "due time")}
TIMED_KINDS = {*TIMED_CONTAINERS, REPEAT, MARKER, STALLED_CHECK, "job:unsuccessful"}
"""Kinds of keys (`observe.keyspace.decode_key`) whose scores, or whose only value, are times."""
TIMES = {"timestamp", "processedOn", "finishedOn", "startDate", "endDate", "prevTS", "prevMillis"}
"""Fields of jobs, schedulers and metrics, and options of a job and of its schedule."""
USER_FIELDS = {"name", "data", "progress", "returnvalue", "stacktrace"}
USER_KINDS = {"job:logs", "job:processed"}
"""Kinds of keys whose values come from users; the fields of `processed` are the keys of jobs."""

# In the text, because JSON that was parsed and written again would have other bytes.
_OPTION = re.compile(r'("(\w+)":\s*)(\d{13})(?![\d.eE])')
_SLOT = re.compile(r'(repeat:[^"]*?:)(\d{13})(?!\d)')
"""The id of a scheduled job: it contains the time of its slot."""


def age(redis: AnyRedis, places: Sequence[Names], duration_ms: int, check: Callable[[], None]) -> bool:
    """Move all times under these prefixes back; `check` is called before each try, and may raise.

    Returns False, and changes nothing, if a scheduled job is active: its client knows it by the id with its slot.
    """
    keys = {names.client_prefix: sorted(set(redis.scan_iter(match=names.pattern, count=1000))) for names in places}
    if any(_is_held(prefix, raw) for prefix, found in keys.items() for raw in read_keys(redis, found)):
        return False
    for prefix, found in keys.items():
        _age_keys(redis, prefix, found, duration_ms, check)
    return True


def _is_held(prefix: str, raw: RawKey) -> bool:
    return decode_key(prefix, raw.key, raw.type).kind == ACTIVE and any(map(_SLOT.search, raw.value))


def _age_keys(redis: AnyRedis, prefix: str, keys: Sequence[bytes], duration_ms: int, check: Callable[[], None]) -> None:
    def queue_changes(pipeline: Any) -> None:
        check()
        before = read_keys(redis, keys)
        if not isinstance(redis, RedisCluster):
            pipeline.multi()
        after = [older(prefix, raw, duration_ms) for raw in before]
        # All deletions first: a scheduled job may get the name that another one had.
        for old, new in zip(before, after, strict=True):
            if new is None or (new.key, new.value) != (old.key, old.value):
                pipeline.delete(_bytes(old.key))
        for old, new in zip(before, after, strict=True):
            if new is not None and (new.key, new.value) != (old.key, old.value):
                _queue_write(pipeline, _bytes(new.key), new.type, new.value)
            if new is not None and new.ttl_ms >= 0:
                pipeline.pexpire(_bytes(new.key), new.ttl_ms)

    if isinstance(redis, RedisCluster):
        # No transaction spans several slots, in which keys may be.
        pipeline: Any = redis.pipeline()  # type: ignore[no-untyped-call]
        queue_changes(pipeline)
        pipeline.execute()
    elif keys:
        # Repeated if a client writes to them meanwhile.
        redis.transaction(queue_changes, *keys)


def older(prefix: str, raw: RawKey, duration_ms: int) -> RawKey | None:
    """The key with all its times moved back; None if its time to live is over."""
    if 0 <= raw.ttl_ms <= duration_ms:
        return None
    kind = decode_key(prefix, raw.key, raw.type, raw.value if raw.type == "hash" else ()).kind
    move = _Move(duration_ms, kind)
    ttl_ms = raw.ttl_ms if raw.ttl_ms < 0 else raw.ttl_ms - duration_ms
    return replace(raw, key=move.slots(raw.key), value=move.value(raw.type, raw.value), ttl_ms=ttl_ms)


@dataclass(frozen=True)
class _Move:
    """Moves the times of a key of some kind back."""

    duration_ms: int
    kind: str

    def value(self, redis_type: str, value: Any) -> Any:
        match redis_type:
            case "string":
                return self._number(value) if self.kind in TIMED_KINDS else self.slots(value)
            case "list" | "set" if self.kind not in USER_KINDS:
                return [self.slots(member) for member in value]
            case "zset":
                return [(self.slots(member), self._score(score)) for member, score in value]
            case "hash":
                return {self.slots(name): self._field(name, text) for name, text in value.items()}
            case "stream":
                # Only the event `delayed` has a time: when the job is due.
                return [
                    (entry, {name: self._in_event(name, fields[name]) for name in fields}) for entry, fields in value
                ]
        return value

    def slots(self, text: str) -> str:
        """The text with the slots of all ids in it moved."""
        return _SLOT.sub(lambda found: found[1] + self._number(found[2]), text)

    def _field(self, name: str, text: str) -> str:
        if name in USER_FIELDS or self.kind in USER_KINDS:
            return text
        if name in TIMES:
            return self._number(text)
        return self.slots(_OPTION.sub(self._option, text) if name == "opts" else text)

    def _in_event(self, name: str, text: str) -> str:
        return self._number(text) if name == "delay" else text if name in USER_FIELDS else self.slots(text)

    def _option(self, found: re.Match[str]) -> str:
        return found[1] + (self._number(found[3]) if found[2] in TIMES else found[3])

    def _number(self, text: str) -> str:
        moves = text.isascii() and text.isdigit() and int(text) >= EARLIEST_MS
        return str(int(text) - self.duration_ms) if moves else text

    def _score(self, score: float) -> float:
        if self.kind not in TIMED_KINDS or score < EARLIEST_MS:
            return score
        # By its size and not by the key: a client may store ms among the delayed jobs.
        return score - self.duration_ms * (DELAY_FACTOR if score >= EARLIEST_MS * DELAY_FACTOR else 1)


def _queue_write(pipeline: Any, key: bytes, redis_type: str, value: Any) -> None:
    match redis_type:
        case "string":
            pipeline.set(key, _bytes(value))
        case "list":
            pipeline.rpush(key, *map(_bytes, value))
        case "set":
            pipeline.sadd(key, *map(_bytes, value))
        case "zset":
            pipeline.zadd(key, {_bytes(member): score for member, score in value})
        case "hash":
            pipeline.hset(key, mapping=_pairs(value.items()))
        case "stream":
            for entry, fields in value:
                pipeline.xadd(key, _pairs(fields.items()), id=entry)


def _pairs(fields: Iterable[tuple[str, str]]) -> dict[bytes, bytes]:
    return {_bytes(name): _bytes(text) for name, text in fields}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
