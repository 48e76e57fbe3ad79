"""The comparison of two snapshots in tasks, each of which takes a part of both, wherever it runs. No Spark.

1. All rows of a job are in the bucket of its id. In each bucket, digests take out what is certainly the same; the
   gate's rules and comparison explain the rest (`compare_bucket`).
2. Single keys are compared queue by queue, together with the jobs that they name (`compare_groups`). Queues
   with generated ids are compared as a whole; in a large one, such jobs are compared in shares.
3. The order of a list is compared if its members have not all moved by the same number of places.

Each task writes its differences to a file; counts, examples and facts come back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from conformance.observe.differences import severity_of
from conformance.problems import UsageProblem
from reports.diff import snapshot_comparison
from reports.diff.equality import JobDigests, JobEquality
from reports.diff.explanation import (
    GENERATED,
    WHOLE,
    DifferenceRow,
    by_column,
    compare_group,
    differences_between,
    unexplained,
    with_types,
    write_difference_rows,
)
from reports.diff.generated_ids import GeneratedJobs, Shares, generated_jobs, numbers_in, shares_of
from reports.diff.queue_groups import (
    DEDUPLICATIONS,
    SHARED,
    GroupKey,
    Rows,
    SideRows,
    StoreScope,
    deduplication_groups,
    in_order,
    names_generated,
    numbers_of,
    shared_groups,
    with_tables,
)
from reports.diff.representatives import (
    MemberColumns,
    QueueContainer,
    SideFacts,
    StepBack,
    facts_of,
    merged_facts,
    reordered_lists,
    shifts_of,
    step_back,
)
from reports.diff.snapshot_comparison import SnapshotComparison, queues_with_generated_ids, settings_of
from reports.diff.tally import DifferenceTally
from reports.diff.values import DiffSettings, batch_of_rows
from reports.distribution import Distribution, InProcesses, InThreads
from reports.progress import Watch, unwatched
from reports.snapshot.digests.records import Keys
from reports.snapshot.digests.rows import DigestedFolder, in_scope, is_of
from reports.snapshot.folders import Folder, explained_folder
from reports.snapshot.format import bucket_of
from reports.snapshot.rows import as_bytes

JOBS_AT_A_TIME = 10_000
"""Jobs of a bucket whose rows are compared together; it bounds the memory of a task."""

ROWS_OF_A_TASK = 500_000
"""Rows of whole queues, or of jobs with generated ids, that one task compares."""

DEDUPLICATIONS_OF_A_TASK = 20_000

MOST_ROWS_IN_THREADS = 3_000_000
"""Rows of both sides; for more of them, starting processes takes less time than threads lose to each other."""

NO_KEYS: Keys = np.empty(0, np.uint64)
_Sides: TypeAlias = "tuple[SideRows, SideRows]"
_Groups: TypeAlias = "Mapping[GroupKey, tuple[Rows, Rows]]"


@dataclass(frozen=True, kw_only=True)
class ComparisonWork:
    """The part of a comparison that all tasks share. `large`: queues whose jobs with generated ids are separated."""

    folders: tuple[DigestedFolder, DigestedFolder]
    settings: DiffSettings
    scope: StoreScope
    whole: tuple[str, ...]
    large: tuple[str, ...]
    out: Folder


@dataclass(frozen=True, kw_only=True)
class BucketWork:
    """A bucket to compare. `foreign`: types of keys that one side has in the place of a job, by queue and name."""

    work: ComparisonWork
    bucket: int
    foreign: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class BucketOutcome:
    """The outcome of a bucket: its differences, and the facts about it that later steps need."""

    tally: DifferenceTally
    facts: tuple[SideFacts, SideFacts]
    shifts: Mapping[QueueContainer, tuple[float, float]]
    generated: GeneratedJobs | None
    jobs: int


def compare_bucket(task: BucketWork) -> BucketOutcome:
    """Compare the jobs of one bucket. Raises EnvironmentProblem where a folder refuses."""
    work = task.work
    with explained_folder(*(side.folder for side in work.folders), work.out):
        generated = generated_jobs(work.folders, task.bucket, work.large, work.settings) if work.large else None
        equality = _equality(work, task.bucket, NO_KEYS if generated is None else generated.keys)
        tally = DifferenceTally()
        tally.hidden.update(equality.hidden())
        for number, keys in enumerate(_lots(equality.wanted)):
            left, right = (side.rows_of_jobs(task.bucket, keys) for side in work.folders)
            found = differences_between(left, right, work.settings, tally.hidden)
            rows = with_types(map(by_column, found), task.foreign)
            tally.add(rows)
            write_difference_rows(rows, work.out, f"part-jobs-{task.bucket:03d}-{number:05d}")
        sides = (equality.left, equality.right)
        return BucketOutcome(
            tally=tally,
            facts=(facts_of(sides[0], task.bucket), facts_of(sides[1], task.bucket)),
            shifts=shifts_of(sides),
            generated=generated,
            jobs=len(equality.left.keys),
        )


def _equality(work: ComparisonWork, bucket: int, without: Keys) -> JobEquality:
    """The digests of a bucket, of the jobs that are compared by their ids."""
    scope = work.scope
    left, right = (
        JobDigests(in_scope(side.bucket_digests(bucket), scope.queue, scope.left_out, scope.jobs, without), facts)
        for side, facts in zip(work.folders, work.settings.sides, strict=True)
    )
    return JobEquality(left, right, work.settings)


def _lots(keys: Keys) -> Iterator[Keys]:
    for start in range(0, len(keys), JOBS_AT_A_TIME):
        yield keys[start : start + JOBS_AT_A_TIME]


@dataclass(frozen=True, kw_only=True)
class GroupWork:
    """Groups to compare: queues as a whole, the deduplication keys in some buckets, or jobs with generated ids.

    `kind`: `whole`, `deduplications`, `generated` or `shared`. `shares`: of each side, the share of each job.
    """

    work: ComparisonWork
    kind: str
    name: str
    facts: tuple[SideFacts, SideFacts]
    queues: tuple[str, ...] = ()
    buckets: tuple[int, ...] = ()
    keys: Keys = field(default_factory=lambda: NO_KEYS)
    shares: Shares = field(default_factory=lambda: ({}, {}))
    uneven: frozenset[str] = frozenset()
    retyped: frozenset[str] = frozenset()


def compare_groups(task: GroupWork) -> DifferenceTally:
    """Compare groups of rows. Raises EnvironmentProblem where a folder refuses."""
    work = task.work
    with explained_folder(*(side.folder for side in work.folders), work.out):
        groups = _GROUPS[task.kind](task)
        tally = DifferenceTally()
        found: list[DifferenceRow] = []
        for key in sorted(groups):
            left, right = map(in_order, groups[key])
            found += map(by_column, compare_group(key, (left, right), work.settings, tally.hidden))
        rows = unexplained(found, task.uneven, task.retyped)
        tally.add(rows)
        write_difference_rows(rows, work.out, f"part-{task.kind}-{task.name}")
        return tally


def _sides(task: GroupWork) -> _Sides:
    left, right = (
        SideRows(folder, facts, task.work.scope) for folder, facts in zip(task.work.folders, task.facts, strict=True)
    )
    return left, right


def _both(sides: Iterable[Mapping[GroupKey, Rows]]) -> _Groups:
    found: defaultdict[GroupKey, tuple[Rows, Rows]] = defaultdict(lambda: ([], []))
    for number, groups in enumerate(sides):
        for key, rows in groups.items():
            found[key][number].extend(rows)
    return found


def _shared(task: GroupWork) -> _Groups:
    work = task.work
    found = []
    for side in _sides(task):
        groups = shared_groups(side, has_settings=not work.scope.job)
        settings = work.settings
        # The rule about a marker then looks for the job that it announces.
        if settings.has_rule("worker-clock") and not settings.has_rule("worker-traces"):
            for place, first in side.facts.firsts.items():
                if place[1] == "delayed":
                    groups.setdefault((place[0], SHARED), []).extend(side.membership(place, first))
        found.append({key: _by_id(rows, key, work.large) for key, rows in groups.items()})
    return _with_holders(_both(found), task)


def _by_id(rows: Rows, key: GroupKey, large: Sequence[str]) -> Rows:
    """The rows without those that are compared together with jobs that have generated ids."""
    return rows if key[0] not in large else [pair for pair in rows if not names_generated(*pair)]


def _with_holders(groups: _Groups, task: GroupWork) -> _Groups:
    """Each side also with the jobs that only the other side's locks and deduplication keys name."""
    for (queue, name), rows in groups.items():
        if name not in (SHARED, DEDUPLICATIONS):
            continue
        named = [{row.job for table, row in side if table in ("locks", DEDUPLICATIONS)} for side in rows]
        for number, side in enumerate(_sides(task)):
            others = {(queue, job) for job in named[1 - number] - named[number]}
            for added in side.jobs_named(others).values():
                rows[number].extend(added)
    return groups


def _deduplications(task: GroupWork) -> _Groups:
    found = [deduplication_groups(side, task.buckets) for side in _sides(task)]
    return _with_holders(
        _both({key: _by_id(rows, key, task.work.large) for key, rows in groups.items()} for groups in found), task
    )


def _whole(task: GroupWork) -> _Groups:
    found: defaultdict[GroupKey, tuple[Rows, Rows]] = defaultdict(lambda: ([], []))
    for number, side in enumerate(_sides(task)):
        for table, row in side.of_queues(task.queues):
            found[row.queue, WHOLE][number].append((table, row))
    return found


def _generated(task: GroupWork) -> _Groups:
    """Jobs with generated ids; those without a share together with everything that names them."""
    found: defaultdict[GroupKey, tuple[Rows, Rows]] = defaultdict(lambda: ([], []))
    for number, side in enumerate(_sides(task)):
        shares = task.shares[number]
        for bucket in range(side.folder.buckets):
            tables = side.folder.rows_of_jobs(bucket, task.keys)
            for table, rows in tables.items():
                for (_, row), key in zip(with_tables({table: rows}), numbers_in(rows).tolist(), strict=True):
                    name = f"{GENERATED}-{shares[key]}" if key in shares else GENERATED
                    found[row.queue, name][number].append((table, row))
        if task.name == _UNSHARED:
            loose = [*side.single_keys(), *side.deduplications(range(side.folder.buckets))]
            for table, row in loose:
                if getattr(row, "queue", None) in task.work.large and names_generated(table, row):
                    found[row.queue, GENERATED][number].append((table, row))
    for (queue, name), sides in found.items():
        count = sum(map(len, sides))
        if name == GENERATED and count > snapshot_comparison.MOST_ROWS_OF_A_WHOLE_QUEUE:
            raise UsageProblem(
                f"queue {queue!r} has {count} rows of jobs with generated ids that belong to flows or have no equal "
                "on the other side",
                hint="give the jobs ids of your own: jobs of two stores can then be matched by id",
            )
    return found


_UNSHARED = "unshared"
_GROUPS = {"shared": _shared, "deduplications": _deduplications, "whole": _whole, "generated": _generated}


def compare_snapshots(
    comparison: SnapshotComparison, place: Distribution | None = None, watch: Watch = unwatched
) -> DifferenceTally:
    """Compare, and store all differences in the folder.

    `place`: where the tasks run; None: on this machine. Raises UsageProblem for an unknown rule, and where jobs with
    generated ids that have no equal, or belong to flows, are too many for one piece; EnvironmentProblem where a folder
    refuses.
    """
    settings = settings_of(comparison)
    whole, large = queues_with_generated_ids(comparison)
    work = ComparisonWork(
        folders=comparison.folders,
        settings=settings,
        scope=StoreScope(queue=comparison.queue, job=comparison.job, left_out=tuple(whole)),
        whole=tuple(whole),
        large=tuple(large),
        out=comparison.folder.absolute(),
    )
    with explained_folder(work.out):
        work.out.clear()
    rows = sum(sum(side.manifest.rows.values()) for side in comparison.sides)
    where = place or (InProcesses() if rows > MOST_ROWS_IN_THREADS else InThreads())
    buckets = _buckets(work, where, watch)
    facts = tuple(merged_facts(bucket.facts[side] for bucket in buckets) for side in (0, 1))
    tally = DifferenceTally()
    for bucket in buckets:
        tally.merge(bucket.tally)
    groups = list(_group_tasks(comparison, work, (facts[0], facts[1]), buckets, tally))
    small = place is None and len(groups) <= 2
    with watch("comparing queues", len(groups)) as progress:
        for found in (InThreads() if small else where).run(compare_groups, groups):
            tally.merge(found)
            progress.advance()
    if not comparison.job:
        with explained_folder(*(side.folder for side in work.folders), work.out):
            steps = list(_steps_back(work, reordered_lists(bucket.shifts for bucket in buckets), tally))
            tally.add(steps)
            write_difference_rows(steps, work.out, "part-order")
            if not tally.total:
                _write_nothing(work.out)
    return tally


def _write_nothing(out: Folder) -> None:
    """A file without rows: the folder is then as readable as any other."""
    out.write_table("part-none.zstd.parquet", pa.Table.from_batches([batch_of_rows([])]), compression="zstd")


def _buckets(work: ComparisonWork, where: Distribution, watch: Watch) -> list[BucketOutcome]:
    buckets = work.folders[0].buckets
    foreign = _foreign_types(work)
    tasks = [
        BucketWork(work=work, bucket=bucket, foreign=foreign.get(bucket, {})) for bucket in work.scope.buckets(buckets)
    ]
    found = []
    with watch("comparing jobs", len(tasks)) as progress:
        for outcome in where.run(compare_bucket, tasks):
            found.append(outcome)
            progress.advance(jobs=outcome.jobs)
    return found


def _foreign_types(work: ComparisonWork) -> Mapping[int, Mapping[str, str]]:
    """The types of keys of another type that only one side has, by the bucket of the job whose place they take."""
    sides: list[dict[str, str]] = []
    with explained_folder(*(side.folder for side in work.folders)):
        for folder in work.folders:
            tables = [folder.rows("unknown", bucket) for bucket in range(folder.buckets)]
            rows = with_tables({"unknown": pa.concat_tables(tables)})
            sides.append({row.key.removeprefix(f"{folder.prefix}:"): row.type for _, row in rows})
    found: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for key in sides[0].keys() ^ sides[1].keys():
        bucket = bucket_of(as_bytes(key.partition(":")[2]), work.folders[0].buckets)
        found[bucket][key] = sides[0].get(key) or sides[1][key]
    return found


def _group_tasks(
    comparison: SnapshotComparison,
    work: ComparisonWork,
    facts: tuple[SideFacts, SideFacts],
    buckets: Sequence[BucketOutcome],
    tally: DifferenceTally,
) -> Iterator[GroupWork]:
    task = GroupWork(
        work=work,
        kind="shared",
        name="0",
        facts=facts,
        uneven=frozenset(tally.uneven),
        retyped=frozenset(tally.retyped),
    )
    yield task
    lots = -(-comparison.rows("deduplications") // DEDUPLICATIONS_OF_A_TASK)
    for number in range(lots):
        chosen = tuple(range(number, work.folders[0].buckets, lots))
        yield replace(task, kind="deduplications", name=str(number), buckets=chosen)
    for number, queues in enumerate(_lots_of_queues(comparison, work.whole)):
        yield replace(task, kind="whole", name=str(number), queues=queues)
    if work.large:
        yield from _generated_tasks(comparison, work, task, [b.generated for b in buckets if b.generated is not None])


def _lots_of_queues(comparison: SnapshotComparison, queues: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Queues that are compared in one task."""
    lot: list[str] = []
    rows = 0
    for queue in queues:
        count = sum(side.manifest.queues[queue].rows for side in comparison.sides if queue in side.manifest.queues)
        if lot and rows + count > ROWS_OF_A_TASK:
            yield tuple(lot)
            lot, rows = [], 0
        lot.append(queue)
        rows += count
    if lot:
        yield tuple(lot)


def _generated_tasks(
    comparison: SnapshotComparison, work: ComparisonWork, task: GroupWork, found: Sequence[GeneratedJobs]
) -> Iterator[GroupWork]:
    sides = [side.manifest.queues for side in comparison.sides]
    rows = sum(side[queue].rows for side in sides for queue in work.large if queue in side)
    shares = shares_of(found, rows)
    keys = np.unique(np.concatenate([NO_KEYS, *(jobs.keys for jobs in found)]))
    shared = np.array(sorted({*shares[0], *shares[1]}), np.uint64)
    yield replace(task, kind="generated", name=_UNSHARED, keys=np.setdiff1d(keys, shared))
    lots: defaultdict[int, tuple[dict[int, int], dict[int, int]]] = defaultdict(lambda: ({}, {}))
    at_once = rows // ROWS_OF_A_TASK + 1
    for side in (0, 1):
        for key, share in shares[side].items():
            lots[share % at_once][side][key] = share
    for number, lot in sorted(lots.items()):
        wanted = np.array(sorted({*lot[0], *lot[1]}), np.uint64)
        yield replace(task, kind="generated", name=str(number), keys=wanted, shares=lot)


def _steps_back(
    work: ComparisonWork, places: Sequence[QueueContainer], tally: DifferenceTally
) -> Iterator[DifferenceRow]:
    """One difference per list in which the common jobs have another order on each side."""
    if not places:
        return
    queues = sorted({queue for queue, _ in places})
    sides = []
    for folder in work.folders:
        parts = []
        for bucket in range(folder.buckets):
            for name in folder.files("memberships", bucket):
                digests = folder.digests_in("memberships", name)
                parts.append(digests.filter(pa.array(is_of(digests, queues))))
        sides.append(MemberColumns(parts))
    moved = set(numbers_of(sorted(tally.moved)).tolist())
    for place in places:
        step = step_back(place, sides[0], sides[1], moved)
        if step is not None:
            yield _order_difference(work, step)


def _order_difference(work: ComparisonWork, step: StepBack) -> DifferenceRow:
    queue, container = step.place
    keys = np.array(step.first, np.uint64)
    ids: dict[int, str] = {}
    for bucket in range(work.folders[0].buckets):
        rows = with_tables(work.folders[0].rows_of_jobs(bucket, keys, ["memberships"]))
        ids |= {int(numbers_of([(row.queue, row.job)])[0]): row.job for _, row in rows}
    before, job = (ids[key] for key in step.first)
    return {
        "class": "order",
        "kind": "wrong-order",
        "severity": severity_of("membership.wait.order", "wrong-order"),
        "locator": f"membership.{container}.order",
        "queue": queue,
        "state": container,
        "key": f"{queue}:{container}",
        "field": "",
        "expected": f"{before} before {job}",
        "actual": f"{job} before {before} ({step.steps} such steps back in this list)",
    }
