"""Snapshots written by hand, which pass through the same code as real ones, and the recordings of real BullMQ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conformance.observe.keyspace import RawKey, assemble
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


RECORDINGS = Path(__file__).parent / "recordings"


def busy_queue(prefix: str = "p", **changes: Any) -> dict[str, Any]:
    """The keys of a queue in which nearly every table has a row; `changes` by the name after the queue."""
    child, parent = f"{prefix}:q:5", f"{prefix}:q:4"
    keys: dict[str, Any] = {
        "meta": {"opts.maxLenEvents": "10000", "version": "bullmq:5.62.0"},
        "id": "8",
        "pc": "1",
        "wait": ["5", "1"],
        "active": ["2"],
        "delayed": Zset({"3": (ADDED + 5000) * 4096}),
        "prioritized": Zset({"6": 2 * 2**32 + 1}),
        "completed": Zset({"7": ADDED + 20}),
        "failed": Zset({"8": ADDED + 30}),
        "waiting-children": Zset({"4": ADDED}),
        "stalled": {"2"},
        "marker": Zset({"0": 0, "1": ADDED + 5000}),
        "1": job(deid="d"),
        "2": job(processedOn=str(ADDED + 10), ats="1"),
        "3": job(delay="5000", opts='{"attempts":0,"delay":5000}'),
        "4": job(name="parent"),
        "5": job(parentKey=parent, parent=json.dumps({"id": "4", "queueKey": f"{prefix}:q"})),
        "6": job(priority="2", opts='{"attempts":0,"priority":2}'),
        "7": job(processedOn=str(ADDED + 10), finishedOn=str(ADDED + 20), returnvalue="1", ats="1", atm="1"),
        "8": job(
            processedOn=str(ADDED + 10),
            finishedOn=str(ADDED + 30),
            failedReason="boom",
            stacktrace='["Error: boom"]',
            ats="1",
            atm="1",
        ),
        "2:lock": "token",
        "7:logs": ["row 1", "row 2"],
        "4:dependencies": {child},
        "de:d": "1",
        "dn:d": {"name": "n", "data": "1"},
        "limiter": "3",
        "stalled-check": str(ADDED),
        "repeat": Zset({"s": ADDED + 60000}),
        "repeat:s": {"name": "s", "every": "60000", "offset": "17", "ic": "1", "opts": '{"attempts":2}'},
        "metrics:completed": {"count": "1", "prevTS": str(ADDED), "prevCount": "0"},
        "metrics:completed:data": ["0"],
        "events": Stream(
            [
                *[event("added", jobId=str(number), name="n") for number in range(1, 9)],
                event("waiting", jobId="1"),
                event("delayed", jobId="3", delay=str(ADDED + 5000)),
                event("active", jobId="2", prev="waiting"),
                event("completed", jobId="7", returnvalue="1", prev="active"),
                event("failed", jobId="8", failedReason="boom", prev="active"),
            ]
        ),
    }
    keys.update(changes)
    return {f"q:{name}": value for name, value in keys.items() if value is not None}


BUSY_TTLS = {"q:2:lock": 29_000, "q:limiter": 900, "q:stalled-check": 20_000}


def busy(prefix: Any = "p", ttls: Any = None, **changes: Any) -> Snapshot:
    return snapshot(busy_queue(prefix, **changes), prefix, {**BUSY_TTLS, **(ttls or {})})


def recorded(name: str) -> Snapshot:
    """A recording of real BullMQ 5.62.0: `real_a`, `real_b`, `frozen_a` or `frozen_b`."""
    recording = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="ascii"))
    return assemble(recording["prefix"], recording["taken_ms"], [RawKey(**key) for key in recording["keys"]])
