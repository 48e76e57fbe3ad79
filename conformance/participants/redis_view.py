"""What a scenario may see and touch in Redis: one queue's keys, by their name after the prefix.

The kit reads Redis itself, because a driver is never the witness of state. Values are text; bytes that are not UTF-8
are kept as surrogate escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from conformance.participants.expect import Mismatch
from conformance.protocol.states import LIST_CONTAINERS, ZSET_CONTAINERS

_TIME_AND_TTL = """
local now = redis.call("TIME")
return {now[1], now[2], redis.call("PTTL", KEYS[1])}
"""
"""In one script, so that no time passes between the two."""


def text(value: Any) -> str:
    """A reply of Redis as text."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _literally(prefix: str) -> str:
    """The prefix as a pattern that matches nothing else."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", prefix)


class RedisView:
    """The keys of one queue. Every `name` is what follows `PREFIX:QUEUE:`, for example `wait` or `1:lock`.

    `on_change` is told the words of each command that changes a key.
    """

    def __init__(self, redis: Any, prefix: str, queue: str, *, on_change: Callable[..., None] | None = None) -> None:
        self._redis = redis
        self.base = f"{prefix}:{queue}:"
        self._on_change = on_change

    def key(self, name: str) -> str:
        """The full key."""
        return self.base + name

    def type(self, name: str) -> str:
        """Redis type of a key: `none`, `string`, `list`, `hash`, `set`, `zset`, `stream`."""
        return text(self._redis.type(self.key(name)))

    def types(self) -> dict[str, str]:
        """Every key of the queue with its type, in order of the names."""
        keys = self._redis.scan_iter(match=_literally(self.base) + "*", count=1000)
        names = sorted(text(key).removeprefix(self.base) for key in keys)
        return {name: self.type(name) for name in names}

    def exists(self, name: str) -> bool:
        """Whether the key exists."""
        return bool(self._redis.exists(self.key(name)))

    def string(self, name: str) -> str | None:
        """GET; None where there is no key."""
        value = self._redis.get(self.key(name))
        return None if value is None else text(value)

    def ttl_ms(self, name: str) -> int:
        """PTTL in ms: -1 without expiry, -2 without key."""
        return int(self._redis.pttl(self.key(name)))

    def expires_at_ms(self, name: str) -> int:
        """When the key expires, on the clock of Redis itself (Unix ms). Raises Mismatch where it never does."""
        now_ms, ttl_ms = self._time_and_ttl_ms(name)
        if ttl_ms < 0:
            raise Mismatch(f"{name} expires", expected="a time to live", actual="none" if ttl_ms == -1 else "no key")
        return now_ms + ttl_ms

    def now_ms(self) -> int:
        """The clock of the Redis that has this queue (Unix ms)."""
        return self._time_and_ttl_ms("meta")[0]

    def _time_and_ttl_ms(self, name: str) -> tuple[int, int]:
        seconds, microseconds, ttl_ms = map(int, self._redis.eval(_TIME_AND_TTL, 1, self.key(name)))
        return seconds * 1000 + microseconds // 1000, ttl_ms

    def hash(self, name: str) -> dict[str, str]:
        """HGETALL."""
        return {text(field): text(value) for field, value in self._redis.hgetall(self.key(name)).items()}

    def field(self, name: str, field: str) -> str | None:
        """HGET; None where there is no field."""
        value = self._redis.hget(self.key(name), field)
        return None if value is None else text(value)

    def json(self, name: str, field: str) -> Any:
        """A field of a hash as a JSON value. Raises Mismatch where it is missing or is not JSON."""
        value = self.field(name, field)
        try:
            return json.loads(value or "")
        except ValueError as error:
            what = f"the field `{field}` of {name} is JSON text"
            raise Mismatch(what, expected="JSON", actual=value, where=f"job.{field}") from error

    def elements(self, name: str) -> list[str]:
        """LRANGE from left to right."""
        return [text(item) for item in self._redis.lrange(self.key(name), 0, -1)]

    def zset(self, name: str) -> list[tuple[str, float]]:
        """Members with scores, in order of score."""
        found = self._redis.zrange(self.key(name), 0, -1, withscores=True)
        return [(text(member), float(score)) for member, score in found]

    def members(self, name: str) -> list[str]:
        """Members of a sorted set, in order of score."""
        return [member for member, _ in self.zset(name)]

    def score(self, name: str, member: str) -> float | None:
        """ZSCORE; None where there is no such member."""
        value = self._redis.zscore(self.key(name), member)
        return None if value is None else float(value)

    def set_members(self, name: str) -> list[str]:
        """SMEMBERS, sorted."""
        return sorted(text(member) for member in self._redis.smembers(self.key(name)))

    def events(self) -> list[dict[str, str]]:
        """The event stream, oldest first, each entry as its fields in order."""
        entries = self._redis.xrange(self.key("events"))
        return [{text(field): text(value) for field, value in fields.items()} for _, fields in entries]

    def stamped_events(self) -> list[tuple[int, dict[str, str]]]:
        """The event stream, oldest first, each entry with the time at which Redis wrote it (Unix ms)."""
        entries = self._redis.xrange(self.key("events"))
        return [
            (int(text(stamp).partition("-")[0]), {text(field): text(value) for field, value in fields.items()})
            for stamp, fields in entries
        ]

    def event_names(self) -> list[str]:
        """Names of the stream's entries, oldest first."""
        return [entry.get("event", "") for entry in self.events()]

    def state(self, job: str) -> list[str]:
        """Every container that holds the id (conforming: exactly one)."""
        lists = [name for name in LIST_CONTAINERS if job in self.elements(name)]
        return lists + [name for name in ZSET_CONTAINERS if self.score(name, job) is not None]

    def has_work(self) -> bool:
        """Whether a worker that asks now can be given a job: one waits, and no limit holds it back."""
        held_back = self.exists("limiter") or "concurrency" in self.hash("meta")
        return not held_back and bool(self.elements("wait") or self.members("prioritized"))

    # What the kit does to Redis on purpose, as an operator or an expiry would.

    def delete(self, name: str) -> None:
        """DEL, as an eviction or an expiry would."""
        self._change("DEL", self.key(name))

    def set_string(self, name: str, value: str, *, ttl_ms: int | None = None) -> None:
        """SET, for example another worker's lock."""
        self._change("SET", self.key(name), value, *(() if ttl_ms is None else ("PX", str(ttl_ms))))

    def set_field(self, name: str, field: str, value: str | bytes) -> None:
        """HSET of one field; bytes need not be UTF-8."""
        self._change("HSET", self.key(name), field, value)

    def append_event(self, **fields: str | bytes) -> None:
        """XADD of an entry that another client wrote; bytes need not be UTF-8."""
        words = [word for pair in fields.items() for word in pair]
        self._change("XADD", self.key("events"), "*", *words)

    def _change(self, *words: str | bytes) -> None:
        if self._on_change is not None:
            self._on_change(*(text(word) for word in words))
        self._redis.execute_command(*words)
