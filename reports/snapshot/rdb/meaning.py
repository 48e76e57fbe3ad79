"""Pages of an RDB file as rows: the same rows that reading the live store gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from conformance.observe.keyspace import SCHEDULER, RawKey
from conformance.protocol.states import LIST_CONTAINERS, QUEUE_KEYS, ZSET_CONTAINERS
from reports.snapshot.rdb.library import RdbPage
from reports.snapshot.reading import may_be_an_id
from reports.snapshot.rows import as_bytes, as_text, assembled, batch_with, repeated_text, texts
from reports.snapshot.streams import StreamEntries, event_batch

TYPES = ("string", "list", "set", "zset", "hash", "stream", "module")
"""Redis' names of the types, by the number that a page has for them."""

_HASH, _MODULE = TYPES.index("hash"), "module"
_LONG_CONTAINERS = frozenset({*LIST_CONTAINERS, *ZSET_CONTAINERS, "events"})

SECOND_MS = 1000
TICK_MS = 10
"""`time()` reads a clock that Linux sets forward at its ticks only: a second may start that much later there."""


class RowsOfKeys:
    """Turns pages into batches of wide rows.

    Job hashes, members of containers and events stay in the columns in which they come; every other key is given its
    meaning by the gate's own code. Schedulers and metrics are rows of several keys, and come at the end (`rest`).
    A key that had expired by `taken_ms` is none.
    """

    def __init__(self, prefix: str, taken_ms: int) -> None:
        self._prefix = prefix
        self._taken_ms = taken_ms
        self._start = len(as_bytes(prefix)) + 1
        self._pieces: list[Any] = []
        self._joined: list[RawKey] = []
        self.trimmed: dict[str, bool] = {}
        """Whether the event stream of a queue was trimmed, if the file says it."""

    def batches(self, page: RdbPage) -> Iterator[pa.RecordBatch]:
        """The rows of one page, without those that are for the end."""
        plain = (page.records["expires_ms"] < 0) & (page.records["is_whole"] == 1) & (page.records["before"] == 0)
        may_be_jobs = (plain & (page.records["kind"] == _HASH)).tolist()
        places: list[int] = []
        queues: list[bytes] = []
        ids: list[bytes] = []
        others: list[RawKey] = []
        for place, key in enumerate(page.keys.view(pa.binary()).to_pylist()):
            queue, _, rest = key[self._start :].partition(b":")
            if may_be_jobs[place] and (rest.isdigit() or may_be_an_id(rest)):
                places.append(place)
                queues.append(queue)
                ids.append(rest)
            else:
                yield from self._of_container(page, place, (key, queue, rest), others)
        if places:
            yield _job_batch(page, places, queues, ids)
        if others:
            yield assembled(self._prefix, self._taken_ms, others)

    def rest(self) -> pa.RecordBatch:
        """The rows that are made of several keys."""
        return assembled(self._prefix, self._taken_ms, self._joined)

    def _of_container(
        self, page: RdbPage, place: int, names: tuple[bytes, bytes, bytes], others: list[RawKey]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a long container; any other key is kept for later."""
        key, queue, rest = names
        record = page.records[place]
        expires_ms, kind, name = int(record["expires_ms"]), TYPES[record["kind"]], as_text(rest)
        if 0 <= expires_ms <= self._taken_ms:
            return
        if name == "events" and record["is_whole"] and int(record["trimmed"]) >= 0:
            self.trimmed[as_text(queue)] = bool(record["trimmed"])
        if name in _LONG_CONTAINERS and QUEUE_KEYS[name] == kind:
            yield _container_batch(page, record, as_text(queue), name)
            if record["is_whole"] and expires_ms >= 0:
                others.append(self._expiring(RawKey(key=as_text(key), type=kind, value=[]), expires_ms))
            return
        self._pieces += _elements(page, record, kind)
        if record["is_whole"]:
            raw = self._expiring(_raw_key(as_text(key), kind, self._pieces), expires_ms)
            self._pieces = []
            (self._joined if _is_joined(name, raw) else others).append(raw)

    def _expiring(self, key: RawKey, expires_ms: int) -> RawKey:
        """The key with the moment at which it ends; negative: never."""
        if expires_ms < 0:
            return key
        # The file only names the second in which it was started. With its beginning, a key that was set within it would
        # live longer than its owner asked for.
        ttl_ms = max(1, expires_ms - self._taken_ms - (SECOND_MS - 1) - TICK_MS)
        return replace(key, ttl_ms=ttl_ms, expires_ms=expires_ms)


def _is_joined(name: str, raw: RawKey) -> bool:
    """Whether the key means something only together with others of its queue.

    An iteration of a scheduler is a job for itself, and has a timestamp, which the record of a scheduler has not.
    """
    if name.startswith(SCHEDULER):
        return not (raw.type == "hash" and "timestamp" in raw.value)
    return name == "repeat" or name.startswith("metrics:")


def _job_batch(page: RdbPage, places: Sequence[int], queues: list[bytes], ids: list[bytes]) -> pa.RecordBatch:
    # Keys follow each other in the columns as they do in the file, so each ends where the next one starts.
    offsets = np.append(page.records["first"], len(page.values))
    fields = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), page.names, page.values)
    count = len(places)
    if count < len(page.records):
        fields = fields.take(pa.array(places))
    columns = {"table": repeated_text("jobs", count), "queue": texts(queues), "id": texts(ids)}
    return batch_with(count, {**columns, "fields": fields})


def _container_batch(page: RdbPage, record: Any, queue: str, name: str) -> pa.RecordBatch:
    first, count = int(record["first"]), int(record["count"])
    if name == "events":
        return event_batch(queue, _entries(page, record))
    if name in LIST_CONTAINERS:
        before = int(record["before"])
        known = {"position": pa.array(np.arange(before, before + count), pa.int64())}
    else:
        first_score = int(record["first_score"])
        known = {"score": pa.array(page.scores[first_score : first_score + count], pa.float64())}
    shared = {"table": "memberships", "queue": queue, "name": name}
    repeated = {column: repeated_text(text, count) for column, text in shared.items()}
    return batch_with(count, {**repeated, **known, "id": page.values.slice(first, count)})


def _entries(page: RdbPage, record: Any) -> StreamEntries:
    first, count, first_entry, entries = (int(record[name]) for name in ("first", "count", "first_entry", "entries"))
    return StreamEntries(
        page.entry_ids.slice(first_entry, entries),
        page.entry_sizes[first_entry : first_entry + entries],
        page.names.slice(first, count),
        page.values.slice(first, count),
    )


def _elements(page: RdbPage, record: Any, kind: str) -> list[Any]:
    """The elements of a piece of a key as Python values: texts, pairs of a hash or sorted set, entries of a stream."""
    first, count = int(record["first"]), int(record["count"])
    names, values = (_plain_texts(column.slice(first, count)) for column in (page.names, page.values))
    if kind == "hash":
        return list(zip(names, values, strict=True))
    if kind == "zset":
        first_score = int(record["first_score"])
        return list(zip(values, page.scores[first_score : first_score + count].tolist(), strict=True))
    if kind == "stream":
        entries = _entries(page, record)
        pairs = iter(zip(names, values, strict=True))
        sizes = entries.sizes.tolist()
        return [
            (entry, dict(next(pairs) for _ in range(size)))
            for entry, size in zip(_plain_texts(entries.ids), sizes, strict=True)
        ]
    return values


def _plain_texts(column: pa.Array) -> list[str]:
    return [as_text(value) for value in column.view(pa.binary()).to_pylist()]


def _raw_key(key: str, kind: str, elements: list[Any]) -> RawKey:
    """A key as `conformance.observe.reader` reads it."""
    if kind == _MODULE:
        return RawKey(key=key, type=elements[0], value="1")
    return RawKey(key=key, type=kind, value=_value(kind, elements))


def _value(kind: str, elements: list[Any]) -> Any:
    if kind == "string":
        return elements[0]
    if kind == "hash":
        return dict(elements)
    if kind == "set":
        return sorted(elements)
    if kind == "zset":  # it may be written from its end
        return sorted(elements, key=lambda pair: (pair[1], as_bytes(pair[0])))
    return elements
