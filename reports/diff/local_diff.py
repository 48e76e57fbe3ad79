"""The diff of two snapshots without Spark, for stores whose digests leave few rows to compare. The rules are the same.

Digests show that nearly all jobs of two equal stores are the same (`reports.diff.digest_prefilter`). This process reads
the other rows, which takes less time than Spark needs to start. If many rows remain, or if there are no usable digests,
`compare_locally` returns None, and `reports.diff.plan` does the same with Spark. A test compares their results.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa

from conformance.observe.differences import severity_of
from conformance.observe.tables import Job
from reports.diff import bulk_comparison
from reports.diff.columns import Flags, flags
from reports.diff.difference_rows import DifferenceRow, by_column, unexplained, write_difference_rows
from reports.diff.digest_prefilter import JobDigests, is_of, prefilter_bucket, rows_where, tables_of_jobs
from reports.diff.hidden_values import HiddenCounts
from reports.diff.representatives import (
    FirstMember,
    RepresentativeMembers,
    StepBack,
    representative_members,
    steps_back,
)
from reports.diff.snapshot_comparison import (
    DEDUPLICATIONS_PER_GROUP,
    SnapshotComparison,
    digests_of_both,
    queues_with_generated_ids,
    settings_of,
)
from reports.diff.stored_rows import GroupKey, rows_by_table
from reports.diff.values import DiffSettings
from reports.snapshot.digests.library import Keys, fingerprint_here, keys_of_columns
from reports.snapshot.folders import Folder
from reports.snapshot.format import (
    TYPED,
    SnapshotFolder,
    bucket_of,
    no_rows,
    read_bucket,
)
from reports.snapshot.rows import as_bytes, as_text, texts

MOST_JOBS = 20_000
"""Jobs of a bucket that this process compares; for more of them, the many processes of Spark are faster."""

MOST_LOOSE_ROWS = 100_000
"""Rows of both sides that belong to no job."""

_Rows: TypeAlias = "list[tuple[str, Any]]"
"""Rows with the names of their tables."""

_Groups: TypeAlias = "defaultdict[GroupKey, tuple[_Rows, _Rows]]"

_LOOSE_TABLES = tuple(table for table in TYPED if table not in bulk_comparison.JOB_TABLES)
_ABOUT_SETTINGS = frozenset({"metas", "markers", "limiters", "counters"})
_OF_ONE_JOB = ("jobs", "memberships")


@dataclass(frozen=True, kw_only=True)
class LocalDiff:
    """The differences of two snapshots, and how many values each rule hides."""

    found: Sequence[DifferenceRow]
    hidden: dict[str, int]


def compare_locally(comparison: SnapshotComparison[SnapshotFolder]) -> LocalDiff | None:
    """Compare, and store all differences in the folder; None if Spark has to do it. Raises OSError."""
    settings = settings_of(comparison)
    whole, large = queues_with_generated_ids(comparison)
    kind = digests_of_both(comparison, settings)
    loose = sum(side.manifest.rows.get(table, 0) for side in comparison.sides for table in _LOOSE_TABLES)
    if large or not kind or kind != fingerprint_here() or loose > MOST_LOOSE_ROWS:
        return None
    nearby = _LocalComparison(comparison, settings, whole)
    return nearby.compared() if nearby.is_little else None


@dataclass(frozen=True, kw_only=True)
class _Bucket:
    """The rest of a bucket after the digests: jobs to compare, and the representative members of each side.

    `hidden`: values that rules hide in all other jobs. `largest`: the largest generated id of each queue.
    """

    number: int
    wanted: Keys
    hidden: Counter[str]
    largest: Sequence[Mapping[str, int]]
    members: Sequence[pa.Table | None]
    loose_events: Sequence[bool]


@dataclass(frozen=True)
class _LocalComparison:
    comparison: SnapshotComparison[SnapshotFolder]
    settings: DiffSettings
    whole: Sequence[str]
    hidden: HiddenCounts = field(default_factory=Counter)

    @cached_property
    def _buckets(self) -> Sequence[_Bucket]:
        """All buckets, some at a time: numpy and Arrow let other threads run meanwhile."""
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return list(pool.map(self._bucket, range(self.comparison.buckets)))

    def _bucket(self, number: int) -> _Bucket:
        prefilter = prefilter_bucket(
            self.comparison.folders, number, self.comparison.buckets, self.settings, self.whole
        )
        sides = (prefilter.left, prefilter.right)
        return _Bucket(
            number=number,
            wanted=prefilter.wanted,
            hidden=prefilter.hidden(),
            largest=[_largest_ids(side) for side in sides],
            members=[representative_members(side.tables.get("memberships")) for side in sides],
            loose_events=[side.has_loose_events for side in sides],
        )

    @property
    def is_little(self) -> bool:
        """Whether the digests leave few enough jobs to compare them in this process."""
        return all(len(bucket.wanted) <= MOST_JOBS for bucket in self._buckets)

    def compared(self) -> LocalDiff:
        """Everything that differs."""
        for bucket in self._buckets:
            self.hidden.update(bucket.hidden)
        by_job = [by_column(row) for bucket in self._buckets for row in self._differences_of_jobs(bucket)]
        groups = self._groups()
        by_queue = [
            by_column(row)
            for key in sorted(groups)
            for row in bulk_comparison.compare_group(key, _in_order(groups[key]), self.settings, self.hidden)
        ]
        found = unexplained(by_queue, by_job)
        found += [self._order_difference(step) for step in steps_back(*self._representatives, self._moved(found))]
        write_difference_rows(found, self.comparison.folder)
        counted = sorted(self.hidden.items(), key=lambda item: (-item[1], item[0]))
        return LocalDiff(found=found, hidden={rule: count for rule, count in counted if count})

    def _differences_of_jobs(self, bucket: _Bucket) -> Iterator[tuple[str, ...]]:
        left, right = (
            self._rows_of(folder, bucket.number, bucket.wanted, bulk_comparison.JOB_TABLES)
            for folder in self.comparison.folders
        )
        yield from bulk_comparison.differences_between(left, right, self.settings, self.hidden)

    def _rows_of(self, folder: Folder, bucket: int, keys: Keys, tables: Iterable[str]) -> dict[str, pa.Table]:
        return tables_of_jobs(folder, bucket, self.comparison.buckets, keys, tables)

    @cached_property
    def _representatives(self) -> tuple[RepresentativeMembers, RepresentativeMembers]:
        parts = [[bucket.members[side] for bucket in self._buckets] for side in (0, 1)]
        expected, actual = (RepresentativeMembers([part for part in side if part is not None]) for side in parts)
        return expected, actual

    def _groups(self) -> _Groups:
        """The groups that are compared queue by queue, as in `reports.diff.plan`."""
        groups: _Groups = defaultdict(lambda: ([], []))
        asked: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for side in (0, 1):
            self._add_loose(groups, asked, side)
            self._add_examples(groups, side)
        for (queue, job), names in sorted(asked.items()):
            for side, rows in enumerate(self._rows_of_job(queue, job)):
                for name in sorted(names):
                    groups[queue, name][side].extend(rows)
        return groups

    def _add_loose(self, groups: _Groups, asked: defaultdict[tuple[str, str], set[str]], side: int) -> None:
        """Rows that belong to no job, whole queues, and the jobs that locks and deduplication keys name."""
        shards = max(1, self.comparison.rows("deduplications") // DEDUPLICATIONS_PER_GROUP)
        for table, row in self._loose_rows(side):
            queue = getattr(row, "queue", None) or ""
            if queue in self.whole:
                groups[queue, bulk_comparison.WHOLE][side].append((table, row))
                continue
            name = bulk_comparison.SHARED
            if table == "deduplications":
                name = f"dedup-{crc32(as_bytes(row.id)) % shards}"
            groups[queue, name][side].append((table, row))
            if table in ("locks", "deduplications"):
                asked[queue, row.job].add(name)
            if table in _ABOUT_SETTINGS:
                groups[queue, bulk_comparison.EXAMPLES][side].append((table, row))

    def _loose_rows(self, side: int) -> Iterator[tuple[str, Any]]:
        folder, buckets = self.comparison.folders[side], self.comparison.buckets
        for bucket in range(buckets):
            tables = {table: read_bucket(folder, table, bucket, buckets) for table in _LOOSE_TABLES}
            if self.whole:
                tables |= {
                    table: rows_where(folder, table, bucket, buckets, self._is_whole)
                    for table in bulk_comparison.JOB_TABLES
                }
            if self._buckets[bucket].loose_events[side]:
                loose = rows_where(folder, "events", bucket, buckets, self._is_loose)
                tables["events"] = pa.concat_tables([tables.get("events", no_rows()), loose])
            for table, rows in rows_by_table(tables).items():
                yield from ((table, row) for row in rows)

    def _is_whole(self, digests: pa.Table) -> Flags:
        """Which rows are of queues that are compared as a whole."""
        return flags(is_of(digests, self.whole))

    def _is_loose(self, digests: pa.Table) -> Flags:
        """Which rows belong to no job, in all other queues."""
        return ~flags(digests.column("is_owned")) & ~self._is_whole(digests)

    def _add_examples(self, groups: _Groups, side: int) -> None:
        """Jobs that represent all others of their queue."""
        largest: dict[str, int] = {}
        for bucket in self._buckets:
            for queue, number in bucket.largest[side].items():
                largest[queue] = max(number, largest.get(queue, 0))
        for queue, number in largest.items():
            groups[queue, bulk_comparison.EXAMPLES][side].append(("jobs", Job(queue=queue, id=str(number), fields={})))
        for first in self._representatives[side].firsts():
            groups[first.queue, bulk_comparison.EXAMPLES][side].append(("memberships", self._membership(side, first)))

    def _membership(self, side: int, first: FirstMember) -> Any:
        rows = self._memberships(side, np.array([first.key], np.uint64))
        here = [row for row in rows if (row.queue, row.container) == (first.queue, first.container)]
        return min(here, key=lambda row: row.position or 0)

    def _memberships(self, side: int, keys: Keys) -> list[Any]:
        folder = self.comparison.folders[side]
        return [
            row
            for bucket in range(self.comparison.buckets)
            for row in rows_by_table(self._rows_of(folder, bucket, keys, ["memberships"])).get("memberships", [])
        ]

    def _rows_of_job(self, queue: str, job: str) -> tuple[_Rows, _Rows]:
        """The hash of a job, and its containers, on both sides."""
        bucket = bucket_of(as_bytes(job), self.comparison.buckets)
        found = [
            rows_by_table(self._rows_of(folder, bucket, _keys_of([(queue, job)]), _OF_ONE_JOB))
            for folder in self.comparison.folders
        ]
        left, right = ([(table, row) for table, rows in tables.items() for row in rows] for tables in found)
        return left, right

    def _moved(self, found: Sequence[DifferenceRow]) -> set[int]:
        """The jobs whose presence or state differs."""
        moved = [
            (each["queue"], each["key"].removeprefix(f"{each['queue']}:"))
            for each in found
            if each["locator"] in ("job", "membership.state")
        ]
        return set(_keys_of(moved).tolist())

    def _order_difference(self, step: StepBack) -> DifferenceRow:
        keys = np.array(step.first, np.uint64)
        ids = {int(key): row.job for row in self._memberships(0, keys) for key in _keys_of([(row.queue, row.job)])}
        before, job = (ids[key] for key in step.first)
        return {
            "class": "order",
            "kind": "wrong-order",
            "severity": severity_of("membership.wait.order", "wrong-order"),
            "locator": f"membership.{step.container}.order",
            "queue": step.queue,
            "state": step.container,
            "key": f"{step.queue}:{step.container}",
            "field": "",
            "expected": f"{before} before {job}",
            "actual": f"{job} before {before} ({step.steps} such steps back in this list)",
        }


def _keys_of(jobs: Sequence[tuple[str, str]]) -> Keys:
    """The numbers of some jobs, given by queue and id."""
    queues, ids = (texts([as_bytes(job[part]) for job in jobs]) for part in (0, 1))
    return keys_of_columns(queues, ids)


def _largest_ids(side: JobDigests) -> dict[str, int]:
    jobs = side.tables.get("jobs")
    if jobs is None:
        return {}
    counted = jobs.select(["queue", "number"]).set_column(0, "queue", jobs.column("queue").cast(pa.string()))
    largest = counted.group_by("queue").aggregate([("number", "max")])
    names = largest.column("queue").combine_chunks().view(pa.binary()).to_pylist()
    numbers = largest.column("number_max").to_pylist()
    return {as_text(name): number for name, number in zip(names, numbers, strict=True) if number > 0}


def _in_order(sides: tuple[_Rows, _Rows]) -> tuple[_Rows, _Rows]:
    """Rows of lists in the order of the lists."""
    left, right = (sorted(rows, key=lambda pair: getattr(pair[1], "position", None) or 0) for rows in sides)
    return left, right
