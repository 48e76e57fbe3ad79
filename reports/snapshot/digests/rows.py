"""The digests of rows: for each row that belongs to a job a few numbers, written next to the rows in the same order.

A diff reads these first, and the rows themselves only for jobs that may differ (`reports.diff.equality`). Facts
about one row are computed here, when the store is read; facts that need all rows of a job are computed by the diff.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.protocol.states import JOB_CONTAINERS
from reports.snapshot.digests.library import event_records, fingerprint_here, job_records, keys_of_columns
from reports.snapshot.digests.records import Flags, Keys, flags
from reports.snapshot.folders import Folder
from reports.snapshot.format import ROWS, SnapshotFolder, files_of, no_rows, read_digests, read_rows
from reports.snapshot.rows import as_bytes

CONTAINERS = (*(container.key for container in JOB_CONTAINERS), "stalled")
"""Containers by the number that a digest has for them."""

OTHER_CONTAINER = 255

_JOB = (
    *("key", "texts", "opts", "stacktrace", "timestamp", "processed", "finished", "number", "delay", "priority"),
    "flags",
)
_EVENT = ("key", "content", "added_ms", "flags")

_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
"""An odd number: multiplied by it, different numbers stay different."""


def digests_of(table: str, rows: pa.Table, prefix: bytes) -> pa.Table:
    """The digests of rows of a table that belongs to jobs, with the column `queue`."""
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    numbers = _MAKERS[table](columns, prefix)
    return pa.table({"queue": columns["queue"], **numbers})


def _of_jobs(columns: Mapping[str, pa.Array], prefix: bytes) -> dict[str, pa.Array]:
    found = job_records(columns["queue"], columns["id"], columns["fields"], prefix)
    return {name: pa.array(np.ascontiguousarray(found[name])) for name in _JOB}


def _of_events(columns: Mapping[str, pa.Array], prefix: bytes) -> dict[str, pa.Array]:
    texts = [columns["queue"], _known(columns["id"]), columns["name"], columns["key"]]
    found = event_records(texts, columns["fields"], prefix)
    numbers = {name: pa.array(np.ascontiguousarray(found[name])) for name in _EVENT}
    return {**numbers, "is_owned": _is_owned(columns["id"])}


def _of_members(columns: Mapping[str, pa.Array], _: bytes) -> dict[str, pa.Array]:
    codes = pc.index_in(columns["name"], value_set=pa.array(CONTAINERS))
    return {
        "key": pa.array(keys_of_columns(columns["queue"], columns["id"])),
        "container": pc.fill_null(codes, OTHER_CONTAINER).cast(pa.uint8()),
        "score": columns["score"],
        "position": columns["position"],
    }


def _of_children(columns: Mapping[str, pa.Array], _: bytes) -> dict[str, pa.Array]:
    names = keys_of_columns(columns["name"], columns["key"]) ^ _ODD * keys_of_columns(columns["id"], columns["value"])
    return {**_owner(columns), "content": pa.array(names ^ _bits(columns["score"].cast(pa.float64())))}


def _of_logs(columns: Mapping[str, pa.Array], _: bytes) -> dict[str, pa.Array]:
    lines = keys_of_columns(columns["id"], columns["value"])
    return {**_owner(columns), "content": pa.array(lines ^ _bits(columns["position"].cast(pa.float64())))}


def _owner(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    return {"key": pa.array(keys_of_columns(columns["queue"], columns["id"])), "is_owned": _is_owned(columns["id"])}


def _bits(numbers: pa.Array) -> Keys:
    """Different bits for different numbers, all of them changed by each."""
    found: Keys = numbers.to_numpy(zero_copy_only=False).view(np.uint64) * _ODD
    return found


def _known(ids: pa.Array) -> pa.Array:
    """The ids, empty where there is none."""
    return pc.fill_null(ids, "") if ids.null_count else ids


def _is_owned(ids: pa.Array) -> pa.Array:
    """Whether a row belongs to a job at all."""
    return pc.fill_null(pc.greater(pc.binary_length(ids), 0), fill_value=False)


_MAKERS: Mapping[str, Callable[[Mapping[str, pa.Array], bytes], dict[str, pa.Array]]] = {
    "jobs": _of_jobs,
    "memberships": _of_members,
    "dependencies": _of_children,
    "logs": _of_logs,
    "events": _of_events,
}

DIGESTED = frozenset(_MAKERS)
"""Tables whose rows have digests."""

JOB_TABLES = ("jobs", "memberships", "dependencies", "logs", "events")
"""Tables whose rows belong to the job named in the column `id`."""

DigestTables = Mapping[str, pa.Table]
"""Digests by table."""


@dataclass(frozen=True, kw_only=True)
class DigestedFolder:
    """A snapshot that is read in `buckets` buckets. `digests`: the kind of its digests, `prefix`: of all keys."""

    folder: Folder
    buckets: int
    prefix: str
    digests: str

    def digests_in(self, table: str, name: str) -> pa.Table:
        """The digests of the rows in one file; made if there are none of this kind. Raises OSError."""
        if self.digests == fingerprint_here():
            return read_digests(self.folder, table, name)
        made = digests_of(table, read_rows(self.folder, table, name), as_bytes(self.prefix))
        return made.set_column(0, "queue", made.column("queue").dictionary_encode())

    def files(self, table: str, bucket: int) -> list[str]:
        """Names of the files of a table in a bucket."""
        return files_of(self.folder / ROWS, table, bucket, self.buckets)

    def bucket_digests(self, bucket: int) -> dict[str, pa.Table]:
        """The digests of a bucket, by table; tables without rows are left out. Raises OSError."""
        names = {table: self.files(table, bucket) for table in sorted(DIGESTED)}
        return {
            table: pa.concat_tables([self.digests_in(table, name) for name in listed], promote_options="permissive")
            for table, listed in names.items()
            if listed
        }

    def rows(self, table: str, bucket: int) -> pa.Table:
        """All rows of a table in a bucket. Raises OSError."""
        return pa.concat_tables([
            no_rows(), *(read_rows(self.folder, table, name) for name in self.files(table, bucket))
        ])  # fmt: skip

    def rows_where(self, table: str, bucket: int, choose: Callable[[pa.Table], Flags]) -> pa.Table:
        """The rows that are chosen by their digests; files without any are not read. Raises OSError."""
        found = [no_rows()]
        for name in self.files(table, bucket):
            chosen = choose(self.digests_in(table, name))
            if chosen.any():
                found.append(read_rows(self.folder, table, name).filter(pa.array(chosen)))
        return pa.concat_tables(found)

    def rows_of_jobs(self, bucket: int, wanted: Keys, tables: Iterable[str] = JOB_TABLES) -> dict[str, pa.Table]:
        """The rows of these jobs, by table. Raises OSError."""

        def is_wanted(digests: pa.Table) -> Flags:
            found: Flags = np.isin(digests.column("key").to_numpy(), wanted)
            return found & flags(digests.column("is_owned")) if "is_owned" in digests.column_names else found

        if not len(wanted):
            return {table: no_rows() for table in tables}
        return {table: self.rows_where(table, bucket, is_wanted) for table in tables}


def digested(kept: SnapshotFolder, buckets: int) -> DigestedFolder:
    """A snapshot, to be read in this many buckets."""
    return DigestedFolder(
        folder=kept.folder.absolute(), buckets=buckets, prefix=kept.manifest.prefix, digests=kept.manifest.digests
    )


def is_of(rows: pa.Table, queues: Collection[str]) -> Flags:
    """Which rows or digests are of some queues."""
    names = pa.array([as_bytes(queue) for queue in queues], pa.binary()).view(pa.string())
    return flags(pc.is_in(rows.column("queue").cast(pa.string()), value_set=names))


def in_scope(
    tables: DigestTables, queue: str, left_out: Collection[str], jobs: Keys | None, without: Keys
) -> DigestTables:
    """The digests that are asked for: of one queue (if not empty), not of others, and of some jobs (None: all)."""
    return {
        table: rows.filter(pa.array(_scope(rows, queue, left_out, jobs, without))) for table, rows in tables.items()
    }


def _scope(rows: pa.Table, queue: str, left_out: Collection[str], jobs: Keys | None, without: Keys) -> Flags:
    wanted = np.ones(len(rows), np.bool_)
    if queue:
        wanted &= is_of(rows, [queue])
    if left_out:
        wanted &= ~is_of(rows, left_out)
    if jobs is not None or len(without):
        keys = rows.column("key").to_numpy()
        wanted &= ~np.isin(keys, without)
        if jobs is not None:
            wanted &= np.isin(keys, jobs)
    return wanted
