"""A stored snapshot, of which rows are chosen by their digests. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reports.diff.columns import Flags, flags
from reports.snapshot.digests.library import fingerprint_here
from reports.snapshot.digests.records import Keys
from reports.snapshot.digests.rows import DIGESTED, digests_of
from reports.snapshot.folders import Folder
from reports.snapshot.format import ROWS, SnapshotFolder, files_of, no_rows, read_digests, read_rows
from reports.snapshot.rows import as_bytes

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
