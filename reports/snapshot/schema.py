"""The columns of a stored snapshot: one wide row for every row of `conformance.observe.tables`. No I/O, no Spark.

One schema for all tables lets one pass over the store fill them all. What each table uses of it is `TYPED`, which is
also how it is shown to users. Texts are the bytes that Redis holds, also where these are not UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

SCHEMA_VERSION = 2
"""Written into every manifest; a reader refuses what it does not know."""

DDL = (
    "table string, queue string, id string, name string, key string, position bigint, score double, value string, "
    "ttl_ms bigint, fields map<string,string>"
)
"""The wide row, as Spark spells it."""

ARROW = pa.schema(
    [
        ("table", pa.string()),
        ("queue", pa.string()),
        ("id", pa.string()),
        ("name", pa.string()),
        ("key", pa.string()),
        ("position", pa.int64()),
        ("score", pa.float64()),
        ("value", pa.string()),
        ("ttl_ms", pa.int64()),
        ("fields", pa.map_(pa.string(), pa.string())),
    ]
)
"""The wide row, as Arrow spells it."""

TYPED: Mapping[str, Mapping[str, str]] = {
    "jobs": {"queue": "queue", "id": "id", "fields": "fields"},
    "memberships": {"queue": "queue", "container": "name", "job": "id", "position": "position", "score": "score"},
    "locks": {"queue": "queue", "job": "id", "token": "value", "ttl_ms": "ttl_ms"},
    "dependencies": {
        "queue": "queue",
        "parent": "id",
        "kind": "name",
        "child": "key",
        "value": "value",
        "score": "score",
    },
    "logs": {"queue": "queue", "job": "id", "position": "position", "text": "value"},
    "events": {"queue": "queue", "id": "key", "event": "name", "job": "id", "fields": "fields"},
    "schedulers": {"queue": "queue", "id": "id", "next": "score", "fields": "fields"},
    "deduplications": {"queue": "queue", "id": "id", "job": "value", "ttl_ms": "ttl_ms"},
    "metas": {"queue": "queue", "fields": "fields"},
    "markers": {"queue": "queue", "member": "name", "score": "score"},
    "limiters": {"queue": "queue", "name": "name", "value": "value", "ttl_ms": "ttl_ms"},
    "stalled_checks": {"queue": "queue", "name": "name", "value": "value", "ttl_ms": "ttl_ms"},
    "counters": {"queue": "queue", "name": "name", "value": "value"},
    "metrics": {"queue": "queue", "kind": "name", "fields": "fields", "points": "value"},
    "expiries": {"key": "key", "kind": "name", "ttl_ms": "ttl_ms"},
    "unknown": {"key": "key", "type": "name", "value": "value", "ttl_ms": "ttl_ms"},
}
"""For each table its columns, and where in the wide row each of them stands.

`points` and the value of an unknown key are JSON; everything else is as `conformance.observe.tables` describes it.
"""
