"""What a scenario may see and touch in Redis: one queue's keys, by their name after the prefix.

The kit reads Redis itself, because a driver is never the witness of state. Values are text; bytes that are not UTF-8
are kept as surrogate escapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from conformance.driver.errors import OperationUnsupported
from conformance.participants.expect import Mismatch
from conformance.participants.key_translation import key_to_client, rest_to_scenario, value_to_scenario
from conformance.participants.names import Names
from conformance.participants.tokens import TokenNames
from conformance.protocol.keys import DEDUPLICATION, ID_COUNTER, PRIORITY_COUNTER, REPEAT, glob_escaped
from conformance.protocol.states import LIST_CONTAINERS, ZSET_CONTAINERS

_TIME_AND_TTL = """
local now = redis.call("TIME")
return {now[1], now[2], redis.call("PTTL", KEYS[1])}
"""
"""In one script, so that no time passes between the two."""


def text(value: Any) -> str:
    """A reply of Redis as text."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


class RedisView:
    """The keys of one queue. Every `name` is what follows `PREFIX:QUEUE:`, for example `wait` or `1:lock`.

    Names and values are the scenario's, also where the clients have others (`conformance.participants.names`).
    `on_change` is told the words of each command that changes a key.
    """

    def __init__(
        self,
        redis: Any,
        names: Names,
        queue: str,
        tokens: TokenNames | None = None,
        *,
        on_change: Callable[..., None] | None = None,
    ) -> None:
        self._redis = redis
        self._names = names
        self._queue = queue
        self._tokens = tokens or TokenNames()
        self.base = f"{names.prefix}:{queue}:"
        self._on_change = on_change

    def key(self, name: str) -> str:
        """The full key, as the scenario knows it."""
        return self.base + name

    def _at(self, name: str) -> str:
        """The full key that Redis has for it."""
        return self._names.client_base(self._queue) + key_to_client(self._names, self._queue, name)

    def _seen(self, name: str, kind: str, value: Any) -> Any:
        """What was read from the key, in the scenario's names."""
        return value_to_scenario(self._names, self._queue, name, kind, value)

    def _job(self, job: str) -> str:
        """The client's id of a job."""
        return self._names.ids(self._queue).to_client(job)

    def type(self, name: str) -> str:
        """Redis type of a key: `none`, `string`, `list`, `hash`, `set`, `zset`, `stream`."""
        return text(self._redis.type(self._at(name)))

    def types(self) -> dict[str, str]:
        """Every key of the queue with its type, in order of the names."""
        base = self._names.client_base(self._queue)
        keys = self._redis.scan_iter(match=f"{glob_escaped(base)}*", count=1000)
        found = {text(key).removeprefix(base) for key in keys}
        return {
            name: self.type(name) for name in sorted(rest_to_scenario(self._names, self._queue, key) for key in found)
        }

    def exists(self, name: str) -> bool:
        """Whether the key exists."""
        # Not `exists`: redis-py sorts its keys by slot on a cluster, which costs five times as much.
        return bool(self._redis.execute_command("EXISTS", self._at(name)))

    def value(self, name: str) -> Any:
        """All that a key holds, as a JSON value; None where there is no key."""
        read: dict[str, Callable[[str], Any]] = {
            "string": self.string,
            "list": self.elements,
            "hash": self.hash,
            "set": self.set_members,
            "zset": self.zset,
            "stream": lambda _name: self.stamped_events(),
        }
        kind = self.type(name)
        return read[kind](name) if kind in read else None

    def string(self, name: str) -> str | None:
        """GET; None where there is no key. A lock shows what the scenario calls its token."""
        value = self._redis.get(self._at(name))
        seen: str | None = self._seen(name, "string", None if value is None else text(value))
        return None if seen is None else self._tokens.name(seen)

    def ttl_ms(self, name: str) -> int:
        """PTTL in ms: -1 without expiry, -2 without key."""
        return int(self._redis.pttl(self._at(name)))

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
        seconds, microseconds, ttl_ms = map(int, self._redis.eval(_TIME_AND_TTL, 1, self._at(name)))
        return seconds * 1000 + microseconds // 1000, ttl_ms

    def hash(self, name: str) -> dict[str, str]:
        """HGETALL."""
        found = self._redis.hgetall(self._at(name))
        seen: dict[str, str] = self._seen(name, "hash", {text(field): text(value) for field, value in found.items()})
        return seen

    def field(self, name: str, field: str) -> str | None:
        """HGET; None where there is no field."""
        own_field = self._names.to_client(field)
        value = self._redis.hget(self._at(name), own_field)
        return None if value is None else next(iter(self._seen(name, "hash", {own_field: text(value)}).values()))

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
        seen: list[str] = self._seen(name, "list", [text(item) for item in self._redis.lrange(self._at(name), 0, -1)])
        return seen

    def zset(self, name: str) -> list[tuple[str, float]]:
        """Members with scores, in order of score."""
        found = self._redis.zrange(self._at(name), 0, -1, withscores=True)
        seen: list[tuple[str, float]] = self._seen(
            name, "zset", [(text(member), float(score)) for member, score in found]
        )
        return seen

    def members(self, name: str) -> list[str]:
        """Members of a sorted set, in order of score."""
        return [member for member, _ in self.zset(name)]

    def score(self, name: str, member: str) -> float | None:
        """ZSCORE; None where there is no such member."""
        value = self._redis.zscore(self._at(name), self._names.to_client(self._job(member)))
        return None if value is None else float(value)

    def set_members(self, name: str) -> list[str]:
        """SMEMBERS, sorted."""
        seen: list[str] = self._seen(name, "set", [text(member) for member in self._redis.smembers(self._at(name))])
        return sorted(seen)

    def events(self) -> list[dict[str, str]]:
        """The event stream, oldest first, each entry as its fields in order."""
        return [fields for _, fields in self.stamped_events()]

    def stamped_events(self) -> list[tuple[int, dict[str, str]]]:
        """The event stream, oldest first, each entry with the time at which Redis wrote it (Unix ms)."""
        entries = self._redis.xrange(self._at("events"))
        read = [
            (text(stamp), {text(field): text(value) for field, value in fields.items()}) for stamp, fields in entries
        ]
        return [(int(stamp.partition("-")[0]), fields) for stamp, fields in self._seen("events", "stream", read)]

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
        """DEL, as an eviction or an expiry would.

        Raises OperationUnsupported for a counter, where the client's ids do not come from one: what happens then hangs
        on them (ids are given twice; equal scores are ordered by id).
        """
        if name in {ID_COUNTER, PRIORITY_COUNTER} and self._names.ids(self._queue).differ:
            raise OperationUnsupported(f"a lost counter {name}", "this client's ids do not come from Redis' counter")
        self._tell("DEL", self.key(name))
        self._redis.delete(self._at(name))

    def rename(self, name: str, to: str) -> None:
        """Give a key another name, as an older version would have left it: what was under that name is gone."""
        self._tell("RENAME", self.key(name), self.key(to))
        self._redis.rename(self._at(name), self._at(to))

    def set_string(self, name: str, value: str, *, ttl_ms: int | None = None) -> None:
        """SET, for example another worker's lock."""
        self._tell("SET", self.key(name), value, *(() if ttl_ms is None else ("PX", str(ttl_ms))))
        job, _, kind = name.rpartition(":")
        value = self._tokens.real(job, value) if kind == "lock" else value
        self._redis.set(self._at(name), self._job(value) if name.startswith(DEDUPLICATION) else value, px=ttl_ms)

    def set_field(self, name: str, field: str, value: str | bytes) -> None:
        """HSET of one field; bytes need not be UTF-8."""
        self._tell("HSET", self.key(name), field, value)
        self._redis.hset(self._at(name), field, value)

    def set_score(self, name: str, member: str, score: int) -> None:
        """ZADD, for example of a job to the place that others before it would have left to it."""
        self._tell("ZADD", self.key(name), str(score), member)
        self._redis.zadd(self._at(name), {member if name == REPEAT else self._job(member): score})

    def push_left(self, name: str, element: str) -> None:
        """LPUSH of something that is no job, as an older version would have left it."""
        self._tell("LPUSH", self.key(name), element)
        self._redis.lpush(self._at(name), element)

    def append_event(self, **fields: str | bytes) -> None:
        """XADD of an entry that another client wrote; bytes need not be UTF-8."""
        self._tell("XADD", self.key("events"), "*", *(word for pair in fields.items() for word in pair))
        plain = {name: text(value) for name, value in fields.items()}
        named = self._names.event_to_client(self._queue, plain)
        changed = {name: value for name, value in named.items() if value != plain[name]}
        self._redis.xadd(self._at("events"), {**fields, **changed})

    def _tell(self, *words: str | bytes) -> None:
        if self._on_change is not None:
            self._on_change(*(text(word) for word in words))
