"""Read the parts of a store, as Arrow batches of wide rows: shares of the keyspace, queues, slices of long containers.

What a key means, `conformance.observe` alone knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from redis.exceptions import RedisError

from conformance.observe.keyspace import LISTS, QUEUE_KEYS, RawKey
from conformance.observe.reader import read_keys
from conformance.servers.connection import connect, explain
from reports.failures import ExecutorProblem
from reports.snapshot.plan import Part, Source, key_of
from reports.snapshot.rows import as_bytes, as_text, assembled, batch_with, repeated_text, texts
from reports.snapshot.shares import read_share

_STREAM_PAGE = 5000
_MEMBERS_PAGE = 50_000


def read_part(source: Source, part: Part) -> Iterator[pa.RecordBatch]:
    """All rows of one part. Raises ExecutorProblem where Redis cannot be read."""
    readers = {"scan": read_share, "queue": _read_queue, "slice": _read_slice}
    try:
        yield from readers[part.kind](source, part)
    except (RedisError, OSError) as error:
        problem = explain(error, source.address, part.node or ", ".join(source.address.nodes))
        raise ExecutorProblem(problem) from error


def _read_queue(source: Source, part: Part) -> Iterator[pa.RecordBatch]:
    """The keys that a queue has once, besides long containers, and the records of its schedulers."""
    base = f"{source.prefix}:{part.queue}:"
    with connect(source.address) as client:
        keys = [as_bytes(base + name) for name in QUEUE_KEYS if name not in part.elsewhere]
        raw = [key for key in read_keys(client, keys) if key.type != "none"]
        announced = [f"{base}repeat:{member}" for key in raw if key.key == f"{base}repeat" for member in _members(key)]
        records = read_keys(client, [as_bytes(key) for key in announced])
        raw += [key for key in records if key.type == "hash" and "timestamp" not in key.value]
    yield assembled(source.prefix, part.taken_ms, raw)


def _members(repeat: RawKey) -> list[str]:
    return [member for member, _ in repeat.value] if repeat.type == "zset" else []


def _read_slice(source: Source, part: Part) -> Iterator[pa.RecordBatch]:
    """A range of a long container. Members go straight into columns, events through `assemble`."""
    key = key_of(source, part)
    with connect(source.address) as client:
        if part.name == "events":
            for page in _stream_pages(client, key, part):
                yield assembled(source.prefix, part.taken_ms, [RawKey(key=key, type="stream", value=page)])
        else:
            yield from _member_pages(client, key, part)
        ttl: Any = client.pttl(key)
    if ttl >= 0 and part.start == 0:
        empty = RawKey(key=key, type=QUEUE_KEYS[part.name], value=[], ttl_ms=ttl)
        yield assembled(source.prefix, part.taken_ms, [empty])


def _member_pages(client: Any, key: str, part: Part) -> Iterator[pa.RecordBatch]:
    """The members from the first to the last of the part, a page at a time; an open end is the end of the container."""
    start = part.start
    while part.stop == -1 or start <= part.stop:
        stop = start + _MEMBERS_PAGE - 1 if part.stop == -1 else min(part.stop, start + _MEMBERS_PAGE - 1)
        batch = _member_batch(client, key, replace(part, start=start, stop=stop))
        if batch.num_rows:
            yield batch
        if batch.num_rows <= stop - start:
            return
        start = stop + 1


def _member_batch(client: Any, key: str, part: Part) -> pa.RecordBatch:
    """The members of a list with their positions, or of a sorted set with their scores, as rows of `memberships`."""
    if part.name in LISTS:
        members = client.lrange(key, part.start, part.stop)
        known = {"position": pa.array(range(part.start, part.start + len(members)), pa.int64())}
    else:
        pairs = client.zrange(key, part.start, part.stop, withscores=True)
        members = [member for member, _ in pairs]
        known = {"score": pa.array([score for _, score in pairs], pa.float64())}
    count = len(members)
    shared = {"table": "memberships", "queue": part.queue, "name": part.name}
    repeated = {name: repeated_text(text, count) for name, text in shared.items()}
    return batch_with(count, {**repeated, **known, "id": texts(members)})


def _stream_pages(client: Any, key: str, part: Part) -> Iterator[list[Any]]:
    start, stop = f"{part.start}-0", "+" if part.stop == -1 else f"{part.stop}-18446744073709551615"
    while page := client.xrange(key, start, stop, count=_STREAM_PAGE):
        yield [
            (as_text(entry), {as_text(name): as_text(value) for name, value in fields.items()})
            for entry, fields in page
        ]
        start = f"({as_text(page[-1][0])}"
