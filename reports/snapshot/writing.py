"""Write the parts of a store as files of a snapshot, on executors. What is counted is counted on the way. No Spark.

Rows go from the socket through Arrow into Parquet without ever being rows of the JVM.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reports.snapshot.files import buckets_of, file_name, write_file
from reports.snapshot.plan import Part, Source
from reports.snapshot.reading import read_part
from reports.snapshot.rows import as_bytes, as_text, rows_of

ROWS_AT_A_TIME = 250_000
BYTES_AT_A_TIME = 256 * 1024 * 1024
"""Rows of one table, and their bytes, that are held before they are written."""

GENERATED_ID = r"^(repeat:.+:\d{12,14}|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$"
"""Ids of scheduler iterations, and uuids."""

_WITH_JOB_IDS = frozenset({"jobs", "memberships"})


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one table and queue. `generated`: some job id was. `event_limit`: the setting `opts.maxLenEvents`."""

    table: str
    queue: str
    rows: int
    generated: bool = False
    event_limit: float | None = None


class WrittenPart(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt at a part has written: files below the folder of rows, and counts."""

    files: list[str]
    counts: list[Counted]


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What is read, and where it goes."""

    source: Source
    parts: Sequence[Part]
    folder: Path
    buckets: int


def write_part(keeping: Keeping, number: int, attempt: int) -> WrittenPart:
    """Read one part and keep it. Raises ExecutorProblem where Redis cannot be read, OSError where the disk is full."""
    files: list[str] = []
    counts: list[Counted] = []
    for written, (table, rows) in enumerate(_tables(read_part(keeping.source, keeping.parts[number]))):
        counts += counted(table, rows)
        for bucket, share in in_buckets(rows, keeping.buckets):
            files.append(write_file(keeping.folder, table, file_name(bucket, number, attempt, written), share))
    return WrittenPart(files=files, counts=counts)


def _tables(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each table, collected until they are many, or all."""
    held: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
    for batch in batches:
        found = pc.unique(batch.column("table")).to_pylist()
        for table in found:
            held[table].append(batch if len(found) == 1 else batch.filter(pc.equal(batch.column("table"), table)))
            if _is_much(held[table]):
                yield table, pa.Table.from_batches(held.pop(table))
    for table, rows in held.items():
        yield table, pa.Table.from_batches(rows)


def _is_much(batches: Sequence[pa.RecordBatch]) -> bool:
    rows, size = (sum(getattr(batch, what) for batch in batches) for what in ("num_rows", "nbytes"))
    return bool(rows >= ROWS_AT_A_TIME or size >= BYTES_AT_A_TIME)


def in_buckets(rows: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has any. Rows without a job id are in the bucket of the empty id."""
    places = buckets_of(rows.column("id").combine_chunks().view(pa.binary()), buckets)
    order = np.argsort(places, kind="stable")
    ordered = rows.take(pa.array(order))
    ends = np.searchsorted(places[order], np.arange(buckets), side="right")
    start = 0
    for bucket, end in enumerate(ends.tolist()):
        if end > start:
            yield bucket, ordered.slice(start, end - start)
        start = end


def counted(table: str, rows: pa.Table) -> Sequence[Counted]:
    """Counts by queue."""
    queues = rows.column("queue").combine_chunks().view(pa.binary())
    found = pc.value_counts(queues).to_pylist()
    generated = _queues_with_generated_ids(rows, queues) if table in _WITH_JOB_IDS else set()
    limits = _event_limits(rows) if table == "metas" else {}
    return [
        Counted(
            table=table,
            queue=as_text(each["values"] or b""),
            rows=each["counts"],
            generated=each["values"] in generated,
            event_limit=limits.get(each["values"]),
        )
        for each in found
    ]


def _queues_with_generated_ids(rows: pa.Table, queues: pa.Array) -> set[bytes]:
    ids = rows.column("id").combine_chunks().view(pa.binary())
    return set(pc.unique(queues.filter(pc.match_substring_regex(ids, GENERATED_ID))).to_pylist())


def _event_limits(rows: pa.Table) -> dict[bytes, float]:
    """`opts.maxLenEvents` of each queue that has it as a number."""
    found: dict[bytes, float] = {}
    for batch in rows.to_batches():
        for wide in rows_of(batch):
            limit = dict(wide["fields"] or ()).get("opts.maxLenEvents", "")
            if limit.replace(".", "", 1).isdigit():
                found[as_bytes(wide["queue"])] = float(limit)
    return found
