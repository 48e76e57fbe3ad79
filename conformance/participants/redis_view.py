"""The keys of one queue in Redis, for scenarios to read and change, by their name after the prefix.

The kit reads Redis itself, because a driver is never the witness of state. Values are text; bytes that are not UTF-8
become surrogate escapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis import RedisCluster

from conformance.driver.errors import OperationUnsupported
from conformance.participants.expect import Mismatch
from conformance.participants.key_translation import job_in, key_to_client, rest_to_scenario, value_to_scenario
from conformance.participants.names import Names
from conformance.participants.tokens import TokenNames
from conformance.protocol.keys import (
    DEDUPLICATION,
    ID_COUNTER,
    MARKER,
    META,
    PRIORITY_COUNTER,
    REPEAT,
    glob_escaped,
)
from conformance.protocol.states import DELAY_FACTOR, JOB_CONTAINERS

CONCURRENCY = "concurrency"
"""The field of `meta` with the queue's global concurrency."""

_BLOCKS_FOR_ONE_MS = 0x070008
"""The first version of Redis that can block for 1 ms, as its scripts see it; before 7.0 they see none."""
_TIME_AND_TTL = """
local now = redis.call("TIME")
return {now[1], now[2], redis.call("PTTL", KEYS[1])}
"""
"""One script, so that no time passes between TIME and PTTL."""


_CONTAINERS_OF_A_JOB = """
local found = {}
for number, key in ipairs(KEYS) do
  local kind = redis.call("TYPE", key).ok
  if kind == "list" and redis.call("LPOS", key, ARGV[1]) or kind == "zset" and redis.call("ZSCORE", key, ARGV[1]) then
    table.insert(found, number)
  end
end
return found
"""
"""One script, because a job that moves between two commands would seem to be in two containers, or in none."""


def text(value: Any) -> str:
    """A reply of Redis as text."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


class Fields(dict[str, str]):
    """The fields of a hash."""

    def __missing__(self, field: str) -> str:
        raise Mismatch(f"the hash has the field {field}", expected="a value", actual=None, where=f"job.{field}")


class RedisView:
    """The keys of one queue. Every `name` is what follows `PREFIX:QUEUE:`, for example `wait` or `1:lock`.

    Names and values are the scenario's, even if the clients use others (`conformance.participants.names`). `on_change`
    is called with the words of each command that changes a key.
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
        """The full key, in the scenario's names."""
        return self.base + name

    def _at(self, name: str) -> str:
        """The full key in Redis."""
        return self._names.client_base(self._queue) + key_to_client(self._names, self._queue, name)

    def _seen(self, name: str, kind: str, value: Any) -> Any:
        """A value read from the key, translated to the scenario's names."""
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
        # SCAN, not KEYS, which would block the clients meanwhile.
        keys = self._redis.scan_iter(match=f"{glob_escaped(base)}*", count=1000)
        # A set: SCAN may return a key more than once.
        rests = {text(key).removeprefix(base) for key in keys}
        return {
            name: self.type(name) for name in sorted(rest_to_scenario(self._names, self._queue, rest) for rest in rests)
        }

    def exists(self, name: str) -> bool:
        """Whether the key exists."""
        # Not `exists`: redis-py sorts its keys by slot on a cluster, which costs five times as much.
        return bool(self._redis.execute_command("EXISTS", self._at(name)))

    def value(self, name: str) -> Any:
        """The whole value of a key as a JSON value; None if there is no key."""
        read: dict[str, Callable[[str], Any]] = {
            "string": self.string,
            "list": self.elements,
            "hash": self.hash,
            "set": self.set_members,
            "zset": self.zset,
            "stream": self.stamped_events,
        }
        kind = self.type(name)
        return read[kind](name) if kind in read else None

    def string(self, name: str) -> str | None:
        """GET; None if there is no key. For a lock: the scenario's name of the token."""
        value = self._redis.get(self._at(name))
        seen: str | None = self._seen(name, "string", None if value is None else text(value))
        return None if seen is None else self._tokens.name(seen)

    def ttl_ms(self, name: str) -> int:
        """PTTL in ms: -1 without expiry, -2 without key."""
        return int(self._redis.pttl(self._at(name)))

    def expires_at_ms(self, name: str) -> int:
        """When the key expires, on the clock of Redis (Unix ms). Raises Mismatch if it has no expiry."""
        # The clock of Redis, not of this machine: expiry is decided there.
        now_ms, ttl_ms = self._time_and_ttl_ms(name)
        if ttl_ms < 0:
            raise Mismatch(f"{name} expires", expected="a time to live", actual="none" if ttl_ms == -1 else "no key")
        return now_ms + ttl_ms

    def now_ms(self) -> int:
        """The clock of the Redis that has this queue (Unix ms)."""
        return self._time_and_ttl_ms("meta")[0]

    @property
    def least_block_s(self) -> float:
        """The shortest time (s) for which this Redis can block; before 7.0.8 it rounds 1 ms down to 0, without end."""
        # From the script's own environment, because INFO is per node in a cluster.
        version = int(self._redis.eval("return redis.REDIS_VERSION_NUM or 0", 1, self._at("meta")))
        return 0.001 if version >= _BLOCKS_FOR_ONE_MS else 0.002

    def _time_and_ttl_ms(self, name: str) -> tuple[int, int]:
        seconds, microseconds, ttl_ms = map(int, self._redis.eval(_TIME_AND_TTL, 1, self._at(name)))
        return seconds * 1000 + microseconds // 1000, ttl_ms

    def hash(self, name: str) -> dict[str, str]:
        """HGETALL. A field that is missing raises Mismatch at its locator."""
        fields = self._redis.hgetall(self._at(name))
        return Fields(self._seen(name, "hash", {text(field): text(value) for field, value in fields.items()}))

    def runs(self, job: str) -> int:
        """How often the job was handed to a worker, by its events `active`."""
        return sum((entry.get("event"), entry.get("jobId")) == ("active", job) for entry in self.events())

    def field(self, name: str, field: str) -> str | None:
        """HGET; None if there is no field."""
        own_field = self._names.to_client(field)
        value = self._redis.hget(self._at(name), own_field)
        return None if value is None else next(iter(self._seen(name, "hash", {own_field: text(value)}).values()))

    def json(self, name: str, field: str) -> Any:
        """A field of a hash as a JSON value. Raises Mismatch if it is missing or is not JSON."""
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
        scored = self._redis.zrange(self._at(name), 0, -1, withscores=True)
        seen: list[tuple[str, float]] = self._seen(
            name, "zset", [(text(member), float(score)) for member, score in scored]
        )
        return seen

    def members(self, name: str) -> list[str]:
        """Members of a sorted set, in order of score."""
        return [member for member, _ in self.zset(name)]

    def score(self, name: str, member: str) -> float | None:
        """ZSCORE; None if there is no such member."""
        value = self._redis.zscore(self._at(name), self._names.to_client(self._job(member)))
        return None if value is None else float(value)

    def set_members(self, name: str) -> list[str]:
        """SMEMBERS, sorted."""
        seen: list[str] = self._seen(name, "set", [text(member) for member in self._redis.smembers(self._at(name))])
        return sorted(seen)

    def events(self) -> list[dict[str, str]]:
        """The event stream, oldest first, each entry as its fields in order."""
        return [fields for _, fields in self.stamped_events()]

    def stamped_events(self, name: str = "events") -> list[tuple[int, dict[str, str]]]:
        """A stream, oldest first, each entry with the time at which Redis wrote it (Unix ms)."""
        entries = self._redis.xrange(self._at(name))
        read = [
            (text(stamp), {text(field): text(value) for field, value in fields.items()}) for stamp, fields in entries
        ]
        return [(int(stamp.partition("-")[0]), fields) for stamp, fields in self._seen(name, "stream", read)]

    def event_names(self) -> list[str]:
        """Names of the stream's entries, oldest first."""
        return [entry.get("event", "") for entry in self.events()]

    def state(self, job: str) -> list[str]:
        """Every container that holds the id (conforming: exactly one), all at the same instant."""
        keys = [self._at(container.key) for container in JOB_CONTAINERS]
        member = self._names.to_client(self._job(job))
        found = self._redis.eval(_CONTAINERS_OF_A_JOB, len(keys), *keys, member)
        return [JOB_CONTAINERS[number - 1].key for number in found]

    def has_work(self) -> bool:
        """Whether a worker that asks now could get a job: a job waits, and no limit applies."""
        held_back = self.exists("limiter") or "concurrency" in self.hash("meta")
        return not held_back and bool(self.elements("wait") or self.members("prioritized"))

    # Changes by the kit, like those of an operator or an expiry.

    def delete(self, name: str) -> None:
        """DEL, as an eviction or an expiry would.

        Raises OperationUnsupported for a counter if the client's ids do not come from one: the consequences depend on
        the ids (some are given twice; equal scores are sorted by id).
        """
        if name in {ID_COUNTER, PRIORITY_COUNTER} and self._names.ids(self._queue).differ:
            raise OperationUnsupported(f"a lost counter {name}", "this client's ids do not come from Redis' counter")
        self._report("DEL", self.key(name))
        self._redis.delete(self._at(name))

    def rename(self, name: str, to: str) -> None:
        """RENAME, for example to the key name of an older version. Replaces the key `to`."""
        self._report("RENAME", self.key(name), self.key(to))
        self._redis.rename(self._at(name), self._at(to))

    def set_string(self, name: str, value: str, *, ttl_ms: int | None = None) -> None:
        """SET, for example another worker's lock."""
        self._report("SET", self.key(name), value, *(() if ttl_ms is None else ("PX", str(ttl_ms))))
        job, _, kind = name.rpartition(":")
        value = self._tokens.real(job, value) if kind == "lock" else value
        self._redis.set(self._at(name), self._job(value) if name.startswith(DEDUPLICATION) else value, px=ttl_ms)

    def set_field(self, name: str, field: str, value: str | bytes, *, of_lost_job: bool = False) -> None:
        """HSET of one field; bytes need not be UTF-8.

        Raises Mismatch if the job that the key belongs to does not exist, unless it is meant to be lost: the kit would
        leave remains of a job that the client never added.
        """
        job = job_in(name)
        if job and not of_lost_job and not self.exists(job):
            raise Mismatch(f"job {job} exists", expected="a hash", actual="no key")
        self._report("HSET", self.key(name), field, value)
        self._redis.hset(self._at(name), field, value)

    def set_score(self, name: str, member: str, score: int) -> None:
        """ZADD, for example to put a job where it would be after earlier jobs."""
        self._report("ZADD", self.key(name), str(score), member)
        self._redis.zadd(self._at(name), {member if name == REPEAT else self._job(member): score})

    def expire_in(self, name: str, ttl_ms: int) -> None:
        """PEXPIRE, as the owner of a key that ends with it would."""
        self._report("PEXPIRE", self.key(name), str(ttl_ms))
        self._redis.pexpire(self._at(name), ttl_ms)

    @contextmanager
    def claiming_nothing(self) -> Iterator[None]:
        """The block in which the queue's concurrency is 0: jobs can end, and no worker gets another one.

        After the block, jobs that wait have the marker that their scripts leave out meanwhile.
        """
        before = self.field(META, CONCURRENCY)
        self._redis.hset(self._at(META), CONCURRENCY, "0")
        try:
            yield
        finally:
            if before is None:
                self._redis.hdel(self._at(META), CONCURRENCY)
            else:
                self._redis.hset(self._at(META), CONCURRENCY, before)
            self._restore_marker()

    def _restore_marker(self) -> None:
        if self.has_work() and not self.field(META, "paused"):
            self._redis.zadd(self._at(MARKER), {"0": 0})
        elif (due := self.zset("delayed")) and not self.exists(MARKER):
            self._redis.zadd(self._at(MARKER), {"1": due[0][1] // DELAY_FACTOR})

    def key_in_redis(self, name: str) -> str:
        """The full key, in the client's names."""
        return self._at(name)

    def push_left(self, name: str, element: str) -> None:
        """LPUSH of an element that is not a job, as older versions left them."""
        self._report("LPUSH", self.key(name), element)
        self._redis.lpush(self._at(name), element)

    def append_event(self, **fields: str | bytes) -> None:
        """XADD of an entry, as if another client wrote it; bytes need not be UTF-8."""
        self._report("XADD", self.key("events"), "*", *(word for pair in fields.items() for word in pair))
        plain = {name: text(value) for name, value in fields.items()}
        named = self._names.event_to_client(self._queue, plain)
        changed = {name: value for name, value in named.items() if value != plain[name]}
        self._redis.xadd(self._at("events"), {**fields, **changed})

    def on_every_node(self, *words: str) -> None:
        """Send a command that is not about keys to Redis, in a cluster to all its nodes."""
        everywhere = {"target_nodes": "all"} if isinstance(self._redis, RedisCluster) else {}
        self._redis.execute_command(*words, **everywhere)

    def _report(self, *words: str | bytes) -> None:
        if self._on_change is not None:
            self._on_change(*(text(word) for word in words))
