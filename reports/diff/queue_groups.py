"""The rows that checks and rules need together: of a queue its single keys, and the jobs that these name. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.observe.tables import Job
from reports.diff.generated_ids import is_generated
from reports.diff.representatives import FirstMember, QueueContainer, SideFacts
from reports.snapshot.digests.library import keys_of_columns
from reports.snapshot.digests.records import Flags, Keys, flags
from reports.snapshot.digests.rows import JOB_TABLES, DigestedFolder, is_of
from reports.snapshot.format import TYPED, bucket_of
from reports.snapshot.rows import Tables, as_bytes, rows_by_table, texts

GroupKey: TypeAlias = tuple[str, str]
"""Queue and name of the group."""

Rows: TypeAlias = "list[tuple[str, Any]]"
"""Rows with the names of their tables."""

SHARED = "shared"
EXAMPLES = "examples"
"""A group with jobs that represent all others of their queue (`reports.diff.representatives`)."""

DEDUPLICATIONS = "deduplications"
LOOSE_TABLES = tuple(table for table in TYPED if table not in JOB_TABLES)
"""Tables of what a queue has once, and of what belongs to none."""

_ABOUT_SETTINGS = frozenset({"metas", "markers", "limiters", "counters"})
_OF_ONE_JOB = ("jobs", "memberships")
_OF_A_HOLDER = ("locks", DEDUPLICATIONS)


@dataclass(frozen=True, kw_only=True)
class StoreScope:
    """The part of a store that is wanted: one queue, one job of it, or (empty) all. `left_out`: queues that are not."""

    queue: str = ""
    job: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def jobs(self) -> Keys | None:
        """The number of the one job; None: all."""
        return numbers_of([(self.queue, self.job)]) if self.job else None

    def rows(self, rows: pa.Table) -> pa.Table:
        """The rows that are wanted."""
        wanted: Flags = np.ones(len(rows), np.bool_)
        if self.queue:
            wanted &= is_of(rows, [self.queue])
        if self.left_out:
            wanted &= ~is_of(rows, self.left_out)
        if self.job:
            ids = rows.column("id").combine_chunks().view(pa.binary())
            wanted &= flags(pc.equal(ids, as_bytes(self.job)))
        return rows if wanted.all() else rows.filter(pa.array(wanted))

    def buckets(self, buckets: int) -> Sequence[int]:
        """The buckets that have such jobs."""
        return [bucket_of(as_bytes(self.job), buckets)] if self.job else range(buckets)


def numbers_of(jobs: Sequence[tuple[str, str]]) -> Keys:
    """The numbers of some jobs, given by queue and id."""
    queues, ids = (texts([as_bytes(job[part]) for job in jobs]) for part in (0, 1))
    return keys_of_columns(queues, ids)


def with_tables(tables: Tables) -> Rows:
    """All rows of some tables."""
    return [(table, row) for table, rows in rows_by_table(tables).items() for row in rows]


def in_order(rows: Rows) -> Rows:
    """Rows of lists in the order of the lists."""
    return sorted(rows, key=lambda pair: getattr(pair[1], "position", None) or 0)


@dataclass(frozen=True)
class SideRows:
    """The rows of one side that are compared or checked queue by queue. All methods raise OSError."""

    folder: DigestedFolder
    facts: SideFacts
    scope: StoreScope

    def single_keys(self) -> Rows:
        """Rows that a queue has once, without its deduplication keys, and events that belong to no job."""
        found: Rows = []
        for bucket in range(self.folder.buckets):
            tables = [table for table in LOOSE_TABLES if table != DEDUPLICATIONS]
            found += with_tables({table: self.scope.rows(self.folder.rows(table, bucket)) for table in tables})
            if bucket in self.facts.loose:
                loose = self.folder.rows_where("events", bucket, lambda rows: ~flags(rows.column("is_owned")))
                found += with_tables({"events": self.scope.rows(loose)})
        return found

    def deduplications(self, buckets: Iterable[int]) -> Rows:
        """The deduplication keys in some buckets."""
        return with_tables({
            DEDUPLICATIONS: pa.concat_tables(
                [self.scope.rows(self.folder.rows(DEDUPLICATIONS, bucket)) for bucket in buckets]
            )
        })  # fmt: skip

    def of_queues(self, queues: Sequence[str]) -> Rows:
        """All rows of some queues."""
        found: Rows = []
        scope = StoreScope(queue=self.scope.queue, job=self.scope.job)
        for bucket in range(self.folder.buckets):
            tables = {table: self._of_queues(table, bucket, queues) for table in TYPED}
            found += with_tables({table: scope.rows(rows) for table, rows in tables.items()})
        return found

    def _of_queues(self, table: str, bucket: int, queues: Sequence[str]) -> pa.Table:
        if table in JOB_TABLES:
            return self.folder.rows_where(table, bucket, lambda rows: is_of(rows, queues))
        rows = self.folder.rows(table, bucket)
        return rows.filter(pa.array(is_of(rows, queues)))

    def holders(self, rows: Rows) -> Mapping[GroupKey, Rows]:
        """The jobs that locks and deduplication keys name, with their containers, by queue and id."""
        return self.jobs_named({(row.queue, row.job) for table, row in rows if table in _OF_A_HOLDER})

    def jobs_named(self, jobs: Collection[tuple[str, str]]) -> Mapping[GroupKey, Rows]:
        """The hashes of jobs, and their containers."""
        by_bucket: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
        for job in sorted(jobs):
            by_bucket[bucket_of(as_bytes(job[1]), self.folder.buckets)].append(job)
        found: defaultdict[GroupKey, Rows] = defaultdict(list)
        for bucket, listed in by_bucket.items():
            for table, row in with_tables(self.folder.rows_of_jobs(bucket, numbers_of(listed), _OF_ONE_JOB)):
                found[row.queue, row.id if table == "jobs" else row.job].append((table, row))
        return found

    def examples(self) -> Iterator[tuple[str, Rows]]:
        """Jobs that represent all others of their queue, queue by queue."""
        for queue, number in sorted(self.facts.largest.items()):
            yield queue, [("jobs", Job(queue=queue, id=str(number), fields={}))]
        members = self._members(self.facts.firsts.values())
        for place, first in sorted(self.facts.firsts.items()):
            yield place[0], members.get((*place, first.key), [])

    def _members(self, firsts: Iterable[FirstMember]) -> Mapping[tuple[str, str, int], Rows]:
        """The rows of members by queue, container and number; each bucket is read once."""
        by_bucket: defaultdict[int, set[int]] = defaultdict(set)
        for first in firsts:
            by_bucket[first.bucket].add(first.key)
        found: dict[tuple[str, str, int], Rows] = {}
        for bucket, keys in by_bucket.items():
            wanted = np.array(sorted(keys), np.uint64)
            rows = with_tables(self.folder.rows_of_jobs(bucket, wanted, ["memberships"]))
            numbers = numbers_of([(row.queue, row.job) for _, row in rows]).tolist()
            for number, (table, row) in zip(numbers, rows, strict=True):
                # Only a list can hold a job twice: then the first one counts.
                known = found.setdefault((row.queue, row.container, number), [(table, row)])
                if (row.position or 0) < (known[0][1].position or 0):
                    known[:] = [(table, row)]
        return found

    def membership(self, place: QueueContainer, first: FirstMember) -> Rows:
        """The row of a member."""
        return self._members([first]).get((*place, first.key), [])


def shared_groups(side: SideRows, *, has_settings: bool = True) -> dict[GroupKey, Rows]:
    """The single keys of each queue with the jobs that they name, and (`has_settings`) the jobs that represent all."""
    loose = side.single_keys()
    groups: defaultdict[GroupKey, Rows] = defaultdict(list)
    for table, row in loose:
        queue = getattr(row, "queue", None) or ""
        groups[queue, SHARED].append((table, row))
        if table in _ABOUT_SETTINGS and has_settings:
            groups[queue, EXAMPLES].append((table, row))
    for (queue, _), rows in side.holders(loose).items():
        groups[queue, SHARED] += rows
    if has_settings:
        for queue, rows in side.examples():
            groups[queue, EXAMPLES] += rows
    return groups


def deduplication_groups(side: SideRows, buckets: Iterable[int]) -> dict[GroupKey, Rows]:
    """The deduplication keys in some buckets with their owners, queue by queue."""
    keys = side.deduplications(buckets)
    groups: defaultdict[GroupKey, Rows] = defaultdict(list)
    for table, row in keys:
        groups[row.queue, DEDUPLICATIONS].append((table, row))
    for (queue, _), rows in side.holders(keys).items():
        groups[queue, DEDUPLICATIONS] += rows
    return groups


def names_generated(table: str, row: Any) -> bool:
    """Whether a single key belongs to a job with a generated id, or is a scheduler, whose iterations have such ids."""
    return table == "schedulers" or (table in _OF_A_HOLDER and is_generated(row.job))
