"""Read everything under a key prefix from Redis, standalone or cluster, in three rounds: SCAN, types, values.

The values of one standalone server are read in one MULTI, so they are of one instant; in a cluster they are not, and
the caller has to let the participants come to rest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from redis import Redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisError, ResponseError

from conformance.observe.keyspace import RawKey, assemble
from conformance.observe.tables import Snapshot
from conformance.problems import EnvironmentProblem
from conformance.protocol.keys import glob_escaped

SCAN_COUNT = 1000
"""Hint to SCAN: how many slots of the keyspace to walk per round trip."""

GONE_TTL = -2
"""PTTL of a key that went away between the rounds."""

NO_TYPE = "none"
"""TYPE of a key that does not exist."""

MOST_READS = 10
"""Reads are repeated this often if a key has changed its type between the rounds, such as a throttle that expires and
that a running worker sets again. A key that still changes is shown as last seen."""

AnyRedis: TypeAlias = Redis | RedisCluster


def read_snapshot(redis_client: AnyRedis, prefix: str) -> Snapshot:
    """Everything under `prefix:*`.

    The client should not decode replies (`decode_responses=False`, redis-py's default): then bytes that are not UTF-8
    survive as surrogate escapes. Raises EnvironmentProblem where Redis cannot be read.
    """
    return assemble(prefix, *read_raw(redis_client, prefix))


def read_raw(redis_client: AnyRedis, prefix: str) -> tuple[int, list[RawKey]]:
    """The server's time in Unix ms, and all keys under `prefix:*` with type, value and time to live, sorted by name."""
    return read_matching(redis_client, f"{glob_escaped(prefix)}:*")


def read_matching(redis_client: AnyRedis, pattern: str) -> tuple[int, list[RawKey]]:
    """The same of all keys that match a pattern in Redis' glob language. Raises EnvironmentProblem."""
    try:
        raw = read_keys(redis_client, _keys(redis_client, pattern))
        # After the keys: "not after now" must also hold for times that were written during the reads.
        taken_ms = _now_ms(redis_client)
    except RedisError as error:
        raise EnvironmentProblem(
            f"cannot read the keys {pattern!r}: {type(error).__name__}: {error}",
            hint="is Redis still running, and can this user read all keys?",
        ) from error
    return taken_ms, raw


def read_keys(redis_client: AnyRedis, keys: Sequence[bytes]) -> list[RawKey]:
    """These keys with type, value and time to live, without those that went away meanwhile. Raises redis errors."""
    for _ in range(MOST_READS):
        # Clients may still work: a key that changes its type after it was asked for would be read by the wrong command.
        types = _types(redis_client, keys)
        values, ttls = _values(redis_client, keys, types)
        there = [row for row in zip(keys, types, values, ttls, strict=True) if row[3] != GONE_TTL]
        if not any(kind == NO_TYPE or isinstance(value, ResponseError) for _, kind, value, _ in there):
            break
    return [RawKey(key=_text(key), type=kind, value=_plain(kind, value), ttl_ms=ttl) for key, kind, value, ttl in there]


def _keys(client: Any, pattern: str) -> list[Any]:
    """All keys that match, each once (SCAN may repeat), in a stable order. A cluster scans every primary."""
    return sorted(set(client.scan_iter(match=pattern, count=SCAN_COUNT)))


def _types(client: Any, keys: Sequence[Any]) -> list[str]:
    """The Redis type of every key."""
    pipeline = _pipeline(client)
    for key in keys:
        pipeline.type(key)
    return [_text(reply) for reply in pipeline.execute()] if keys else []


def _values(client: Any, keys: Sequence[Any], types: Sequence[str]) -> tuple[list[Any], list[int]]:
    """The value and the time to live in ms of every key."""
    if not keys:
        return [], []
    pipeline = _pipeline(client)
    for key, kind in zip(keys, types, strict=True):
        _read(pipeline, key, kind)
        # Next to its value in the same MULTI, so that both are of one instant.
        pipeline.pttl(key)
    # WRONGTYPE of a key that has just changed must not lose the values of all others.
    replies = pipeline.execute(raise_on_error=False)
    return replies[0::2], [int(reply) for reply in replies[1::2]]


def _read(pipeline: Any, key: Any, kind: str) -> None:
    """Queue the one command that reads a value of this type; values of module types are not read, only noticed."""
    readers = {
        "string": lambda: pipeline.get(key),
        "hash": lambda: pipeline.hgetall(key),
        "list": lambda: pipeline.lrange(key, 0, -1),
        "set": lambda: pipeline.smembers(key),
        "zset": lambda: pipeline.zrange(key, 0, -1, withscores=True),
        "stream": lambda: pipeline.xrange(key),
    }
    readers.get(kind, lambda: pipeline.exists(key))()


def _pipeline(client: Any) -> Any:
    """One round trip, atomic where the server is one; a cluster pipeline is split by node and cannot be atomic."""
    if isinstance(client, RedisCluster):
        cluster: Any = client  # redis-py leaves its cluster pipeline without types
        return cluster.pipeline()
    return client.pipeline(transaction=True)


def _now_ms(client: Any) -> int:
    """The server's clock, Unix ms."""
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def _plain(kind: str, value: Any) -> Any:
    """A reply as str, list, dict and float, all bytes decoded. A failed read (the type changed meanwhile) is None."""
    if isinstance(value, Exception):
        return None
    if kind == "set":
        return sorted(_text(member) for member in value)
    if kind == "zset":
        return [(_text(member), float(score)) for member, score in value]
    if kind == "stream":
        return [(_text(entry), _text_mapping(fields)) for entry, fields in value]
    if isinstance(value, Mapping):
        return _text_mapping(value)
    if isinstance(value, list):
        return [_text(item) for item in value]
    return None if value is None else _text(value)


def _text_mapping(mapping: Mapping[Any, Any] | None) -> dict[str, str]:
    return {_text(field): _text(value) for field, value in (mapping or {}).items()}


def _text(value: Any) -> str:
    """Bytes as text; what is not UTF-8 becomes surrogate escapes, so that different values stay different."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
