"""Snapshots written by hand, for tests and examples: raw keys that pass through the same code as real ones. No I/O."""

from __future__ import annotations

from typing import Any

from conformance.observe.assemble import RawKey, assemble
from conformance.observe.tables import Snapshot

ADDED = 1_700_000_000_000
"""When jobs made here were added, Unix ms."""
NOW = 1_700_000_100_000
"""When snapshots made here are taken, Unix ms."""

_TYPES: dict[type[Any], str] = {dict: "hash", list: "list", set: "set", str: "string"}


class Zset(dict[str, float]):
    """Members and scores of a sorted set."""


class Stream(list[dict[str, str]]):
    """Entries of a stream, without their ids."""


def job(**fields: str) -> dict[str, str]:
    """A job hash as adding writes it."""
    defaults = {"name": "n", "data": "{}", "opts": '{"attempts":0}', "timestamp": str(ADDED), "delay": "0"}
    return {**defaults, "priority": "0", **fields}


def event(kind: str, **fields: str) -> dict[str, str]:
    """An entry of the event stream."""
    return {"event": kind, **fields}


def snapshot(keys: dict[str, Any], prefix: str = "p", ttls: dict[str, int] | None = None, now: int = NOW) -> Snapshot:
    """A snapshot of the keys; their names stand after the prefix, `q:wait`."""
    lifetimes = ttls or {}
    raw = [_raw(f"{prefix}:{name}", value, lifetimes.get(name, -1)) for name, value in keys.items()]
    return assemble(prefix, now, raw)


def _raw(key: str, value: Any, ttl_ms: int) -> RawKey:
    if isinstance(value, Zset):
        members = sorted(value.items(), key=lambda pair: (pair[1], pair[0]))
        return RawKey(key=key, type="zset", value=members, ttl_ms=ttl_ms)
    if isinstance(value, Stream):
        entries = [(f"1700000000000-{number}", fields) for number, fields in enumerate(value)]
        return RawKey(key=key, type="stream", value=entries, ttl_ms=ttl_ms)
    kind = _TYPES[type(value)]
    return RawKey(key=key, type=kind, value=sorted(value) if kind == "set" else value, ttl_ms=ttl_ms)
