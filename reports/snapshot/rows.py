"""Between the rows of `conformance.observe.tables`, as rules and checks take them, and wide rows. No I/O, no Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from conformance.observe import tables
from conformance.observe.keyspace import RawKey, assemble
from conformance.observe.tables import TABLES, Snapshot
from reports.snapshot.format import ARROW, TYPED

WideRow: TypeAlias = dict[str, Any]
"""A wide row: column name to str, int, float, list of pairs (`fields`) or None."""

Tables = Mapping[str, pa.Table]
"""Wide rows by table."""

JobRows: TypeAlias = dict[str, list[Any]]
"""The rows of one job, or of several, by table."""

_CLASSES: Mapping[str, type[Any]] = {
    "jobs": tables.Job,
    "memberships": tables.Membership,
    "locks": tables.Lock,
    "dependencies": tables.Dependency,
    "logs": tables.LogRow,
    "events": tables.Event,
    "schedulers": tables.Scheduler,
    "deduplications": tables.Deduplication,
    "metas": tables.Meta,
    "markers": tables.Marker,
    "limiters": tables.Expiring,
    "stalled_checks": tables.Expiring,
    "counters": tables.Counter,
    "metrics": tables.Metrics,
    "expiries": tables.Expiry,
    "unknown": tables.Unknown,
}
_JSON_TEXTS = frozenset({("metrics", "points"), ("unknown", "value")})
_TEXTS = tuple(name for name in ARROW.names if ARROW.field(name).type == pa.string())


def wide_rows(snapshot: Snapshot) -> Iterator[WideRow]:
    """Every row of every table as a wide row."""
    for table in TABLES:
        for row in getattr(snapshot, table):
            yield widened(table, row)


def widened(table: str, row: Any) -> WideRow:
    """One row as a wide row. The job of an event gets a column of its own: work is grouped by it."""
    wide: WideRow = {"table": table}
    if table == "events":
        return {**wide, "queue": row.queue, "key": row.id, "name": row.name, "id": row.job, "fields": list(row.fields)}
    for column, place in TYPED[table].items():
        value = getattr(row, column)
        if (table, column) in _JSON_TEXTS:
            value = json.dumps(value)
        elif isinstance(value, Mapping):
            value = list(value.items())
        wide[place] = value
    return wide


def narrowed(wide: Mapping[str, Any]) -> Any:
    """The row that was widened. `fields` of the wide row are pairs."""
    table = wide["table"]
    if table == "events":
        pairs = tuple((name, value) for name, value in wide["fields"])
        return tables.Event(queue=wide["queue"], id=wide["key"], fields=pairs)
    return _CLASSES[table](**{column: _value(table, column, wide[place]) for column, place in TYPED[table].items()})


def _value(table: str, column: str, value: Any) -> Any:
    if (table, column) in _JSON_TEXTS:
        parsed = json.loads(value)
        return tuple(parsed) if column == "points" else parsed
    if TYPED[table][column] == "fields":
        return None if value is None else dict(value)
    return value


def snapshot_of(prefix: str, taken_ms: int, rows: Iterable[tuple[str, Any]]) -> Snapshot:
    """A snapshot from pairs of table name and row, in the order in which they come."""
    found: dict[str, list[Any]] = {}
    for table, row in rows:
        found.setdefault(table, []).append(row)
    return Snapshot(prefix=prefix, taken_ms=taken_ms, **{table: tuple(rows) for table, rows in found.items()})


def assembled(prefix: str, taken_ms: int, raw: Sequence[RawKey]) -> pa.RecordBatch:
    """The decoded keys as one Arrow batch of wide rows."""
    return batch_of(wide_rows(assemble(prefix, taken_ms, raw)))


def batch_of(rows: Iterable[WideRow]) -> pa.RecordBatch:
    """Wide rows as one Arrow batch."""
    listed = list(rows)
    columns: list[pa.Array] = []
    for name in ARROW.names:
        values = [row.get(name) for row in listed]
        columns.append(_array(name, values))
    return pa.RecordBatch.from_arrays(columns, schema=ARROW)


def _array(name: str, values: list[Any]) -> pa.Array:
    if name in _TEXTS:
        return texts([None if value is None else as_bytes(value) for value in values])
    if name == "fields":
        return maps([None if value is None else [(as_bytes(k), as_bytes(v)) for k, v in value] for value in values])
    return pa.array(values, ARROW.field(name).type)


def batch_with(count: int, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Columns as a batch of wide rows; the other columns are null."""
    arrays = [columns[name] if name in columns else pa.nulls(count, ARROW.field(name).type) for name in ARROW.names]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def repeated_text(text: str, count: int) -> pa.Array:
    """A column that holds the same text in every row."""
    return texts([as_bytes(text)] * count)


def texts(values: Sequence[bytes | None]) -> pa.Array:
    """Bytes as an Arrow array of strings, without a check for UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


def maps(values: list[list[tuple[bytes, bytes]] | None]) -> pa.Array:
    """Pairs as an Arrow array of maps."""
    offsets: list[int | None] = []
    names: list[bytes | None] = []
    items: list[bytes | None] = []
    for value in values:
        offsets.append(None if value is None else len(names))
        for key, item in value or ():
            names.append(key)
            items.append(item)
    offsets.append(len(names))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), texts(names), texts(items))


def as_bytes(text: str) -> bytes:
    """The bytes that Redis held."""
    return text.encode("utf-8", "surrogateescape")


def as_text(value: bytes) -> str:
    """Bytes as `conformance.observe` writes them."""
    return value.decode("utf-8", "surrogateescape")


def rows_of(batch: pa.RecordBatch) -> Iterator[WideRow]:
    """The wide rows of an Arrow batch; other columns are ignored."""
    columns = {name: decoded(batch.column(name)) for name in ARROW.names}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def rows_by_table(stored: Tables) -> JobRows:
    """The rows of each table, narrowed."""
    found: JobRows = defaultdict(list)
    for table, rows in stored.items():
        for batch in rows.to_batches():
            columns = {name: decoded(batch.column(name)) for name in batch.schema.names}
            for values in zip(*columns.values(), strict=True):
                found[table].append(_narrowed({"table": table, **dict(zip(columns, values, strict=True))}))
    return found


def _narrowed(wide: Mapping[str, Any]) -> Any:
    """As `narrowed`, with a short way for the two tables that are nearly everything."""
    queue, name, job = wide["queue"], wide["name"], wide["id"]
    if wide["table"] == "jobs":
        return tables.Job(queue=queue, id=job, fields=dict(wide["fields"]))
    if wide["table"] == "memberships":
        position, score = wide["position"], wide["score"]
        return tables.Membership(queue=queue, container=name, job=job, position=position, score=score)
    return narrowed(wide)


def decoded(column: pa.Array) -> list[Any]:
    """A column as Python values; maps become lists of pairs."""
    if pa.types.is_map(column.type):
        return _decoded_maps(column)
    if pa.types.is_string(column.type):
        return _decoded_texts(column)
    return list(column.to_pylist())


def _decoded_texts(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        return [None if value is None else as_text(value) for value in column.view(pa.binary()).to_pylist()]


def _decoded_maps(column: pa.MapArray) -> list[Any]:
    offsets = column.offsets.to_pylist()
    start, end = offsets[0], offsets[-1]
    names, items = (_decoded_texts(flat.slice(start, end - start)) for flat in (column.keys, column.items))
    valid = column.is_valid().to_pylist()
    return [
        list(zip(names[left - start : right - start], items[left - start : right - start], strict=True)) if ok else None
        for left, right, ok in zip(offsets, offsets[1:], valid, strict=False)
    ]


assert set(TYPED) == set(TABLES) == set(_CLASSES), "a table of the snapshot is not stored"
