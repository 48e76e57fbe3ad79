"""Children that parents wait for, and jobs that deduplication ids name: checks of jobs in several buckets. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.observe.keyspace import split_key
from conformance.protocol.states import JOB_CONTAINERS
from reports.diff.queue_groups import Rows, SideRows, with_tables
from reports.snapshot.digests.library import keys_of_columns
from reports.snapshot.digests.records import Flags, flags
from reports.snapshot.digests.rows import CONTAINERS, DigestedFolder, DigestTables
from reports.snapshot.format import buckets_of
from reports.snapshot.rows import as_bytes, as_text, texts

_FINISHED = [CONTAINERS.index(container.key) for container in JOB_CONTAINERS if container.finished]


def lost_children(side: SideRows, most: int) -> tuple[Rows, int]:
    """Pending children that are gone or have ended, with their hashes and containers; at most that many.

    The number is that of those left out. Raises OSError.
    """
    pending = _pending(side)
    if not len(pending):
        return [], 0
    doubtful = pending.filter(pa.array(_in_doubt(side.folder, pending)))
    rows: Rows = []
    children: set[tuple[str, str]] = set()
    for table, row in with_tables({"dependencies": doubtful.slice(0, most).drop(["number", "bucket"])}):
        rows.append((table, row))
        children.add(split_key(side.folder.prefix, row.child))
    for named in side.jobs_named(children).values():
        rows += named
    return rows, max(0, len(doubtful) - most)


def _pending(side: SideRows) -> pa.Table:
    """The rows of all pending children under the prefix, with the number of the child and its bucket."""
    start = as_bytes(f"{side.folder.prefix}:")
    found = []
    for bucket in range(side.folder.buckets):
        rows = side.scope.rows(side.folder.rows("dependencies", bucket))
        keys = rows.column("key").combine_chunks().view(pa.binary())
        ours = flags(pc.equal(rows.column("name"), "pending")) & flags(pc.starts_with(keys, pattern=start))
        found.append(rows.filter(pa.array(ours)))
    rows = pa.concat_tables(found)
    places = [key[len(start) :].partition(b":") for key in rows.column("key").cast(pa.binary()).to_pylist()]
    queues, ids = (texts([place[part] for place in places]) for part in (0, 2))
    numbers = pa.array(keys_of_columns(queues, ids), pa.uint64())
    buckets = pa.array(buckets_of(ids.view(pa.binary()), side.folder.buckets))
    return rows.append_column("number", numbers).append_column("bucket", buckets)


def _in_doubt(folder: DigestedFolder, pending: pa.Table) -> Flags:
    numbers, buckets = pending.column("number").to_numpy(), pending.column("bucket").to_numpy()
    found: Flags = np.zeros(len(numbers), np.bool_)
    for bucket in np.unique(buckets).tolist():
        here = buckets == bucket
        digests = folder.bucket_digests(bucket)
        found[here] = ~np.isin(numbers[here], _column(digests, "jobs", "key"))
        members = _column(digests, "memberships", "key")
        ended = members[np.isin(_column(digests, "memberships", "container"), _FINISHED)]
        found[here] |= np.isin(numbers[here], ended)
    return found


def _column(digests: DigestTables, table: str, name: str) -> Any:
    return digests[table].column(name).to_numpy() if table in digests else np.empty(0, np.uint64)


def jobs_of_ids(side: SideRows, ids: Collection[tuple[str, str]]) -> Rows:
    """The hashes and containers of all jobs with these deduplication ids, given by queue and id. Raises OSError."""
    if not ids:
        return []
    wanted = pa.array([as_bytes(name) for _, name in ids], pa.binary())
    jobs: set[tuple[str, str]] = set()
    for bucket in range(side.folder.buckets):
        rows = side.folder.rows("jobs", bucket)
        values = pc.map_lookup(rows.column("fields").combine_chunks(), pa.scalar("deid"), "first").view(pa.binary())
        jobs.update(_names(rows.filter(pc.fill_null(pc.is_in(values, value_set=wanted), fill_value=False))))
    return [row for named in side.jobs_named(jobs).values() for row in named]


def _names(rows: pa.Table) -> Iterator[tuple[str, str]]:
    columns = [rows.column(name).cast(pa.binary()).to_pylist() for name in ("queue", "id")]
    yield from ((as_text(queue), as_text(job)) for queue, job in zip(*columns, strict=True))


def distinct(rows: Iterable[tuple[str, Any]]) -> Rows:
    """Rows of jobs and containers once each; they may be read for several reasons."""
    found: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for table, row in rows:
        found.setdefault(_place(table, row), (table, row))
    return list(found.values())


def _place(table: str, row: Any) -> tuple[Any, ...]:
    if table == "jobs":
        return table, row.queue, row.id
    if table == "memberships":
        return table, row.queue, row.container, row.job, row.position
    return table, id(row)
