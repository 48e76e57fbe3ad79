"""The checks of one snapshot in tasks, wherever these run. No Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from conformance.checkers.base import InvariantCheck, SnapshotView
from reports.diff.checks import KEY_CHECKS, STORE_CHECKS, broken_jobs, broken_queue, broken_row
from reports.diff.comparison import DEDUPLICATIONS_OF_A_TASK, JOBS_AT_A_TIME, MOST_ROWS_IN_THREADS, NO_KEYS
from reports.diff.difference_rows import by_column
from reports.diff.digest_prefilter import JobDigests
from reports.diff.digested import DigestedFolder, digested, in_scope
from reports.diff.queue_groups import (
    EXAMPLES,
    SHARED,
    Rows,
    SideRows,
    StoreScope,
    deduplication_groups,
    in_order,
    shared_groups,
)
from reports.diff.representatives import NO_FACTS, SideFacts, facts_of, merged_facts
from reports.diff.stored_rows import GroupKey
from reports.diff.tally import DifferenceTally
from reports.diff.values import DiffSide
from reports.distribution import Distribution, InProcesses, InThreads
from reports.progress import Watch, unwatched
from reports.snapshot.folders import explained_folder
from reports.snapshot.format import SnapshotFolder


@dataclass(frozen=True, kw_only=True)
class CheckWork:
    """A part of a store to check: the jobs of a bucket, or (`facts`) what each queue has once."""

    folder: DigestedFolder
    side: DiffSide
    scope: StoreScope
    buckets: tuple[int, ...] = ()
    facts: SideFacts = NO_FACTS


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The outcome of a part: the broken places, and facts about its jobs."""

    tally: DifferenceTally
    facts: SideFacts
    jobs: int


def check_bucket(task: CheckWork) -> CheckOutcome:
    """Check the jobs of one bucket; only those are read that may break a check. Raises EnvironmentProblem."""
    (bucket,) = task.buckets
    scope = task.scope
    with explained_folder(task.folder.folder):
        found = in_scope(task.folder.bucket_digests(bucket), scope.queue, scope.left_out, scope.jobs, NO_KEYS)
        digests = JobDigests(found, task.side)
        unsure = digests.keys[~digests.is_sound]
        tally = DifferenceTally(by="kind")
        for start in range(0, len(unsure), JOBS_AT_A_TIME):
            rows = task.folder.rows_of_jobs(bucket, unsure[start : start + JOBS_AT_A_TIME])
            tally.add([by_column(broken_row(each)) for each in broken_jobs(rows, task.side)])
        return CheckOutcome(tally=tally, facts=facts_of(digests, bucket), jobs=len(digests.keys))


def check_deduplications(task: CheckWork) -> DifferenceTally:
    """Check the deduplication keys in some buckets with their owners. Raises EnvironmentProblem."""
    with explained_folder(task.folder.folder):
        return _judged(deduplication_groups(SideRows(task.folder, task.facts, task.scope), task.buckets), task)


def check_queues(task: CheckWork) -> DifferenceTally:
    """Check what each queue has once. Raises EnvironmentProblem."""
    with explained_folder(task.folder.folder):
        groups = shared_groups(SideRows(task.folder, task.facts, task.scope))
        together: dict[GroupKey, Rows] = {}
        for (queue, name), rows in groups.items():
            # The settings are in both groups.
            own = [pair for pair in rows if name != EXAMPLES or pair[0] in ("jobs", "memberships")]
            together.setdefault((queue, SHARED), []).extend(own)
        return _judged(together, task)


def _judged(groups: Mapping[GroupKey, Rows], task: CheckWork) -> DifferenceTally:
    tally = DifferenceTally(by="kind")
    for (_, name), rows in sorted(groups.items()):
        checks: Iterable[InvariantCheck[SnapshotView]] = STORE_CHECKS if name == SHARED else KEY_CHECKS
        found = broken_queue(in_order(rows), task.side, tuple(checks))
        tally.add([by_column(broken_row(each)) for each in found])
    return tally


def check_snapshot(
    kept: SnapshotFolder, queue: str = "", place: Distribution | None = None, watch: Watch = unwatched
) -> DifferenceTally:
    """Everything that a store breaks by itself. `queue`: only this one. Raises EnvironmentProblem."""
    manifest = kept.manifest
    work = CheckWork(
        folder=digested(kept, manifest.buckets),
        side=DiffSide(prefix=manifest.prefix, taken_ms=manifest.until_ms),
        scope=StoreScope(queue=queue),
    )
    where = place or (InProcesses() if sum(manifest.rows.values()) > MOST_ROWS_IN_THREADS else InThreads())
    tally, facts = DifferenceTally(by="kind"), []
    tasks = [replace(work, buckets=(bucket,)) for bucket in range(manifest.buckets)]
    lots = -(-manifest.rows.get("deduplications", 0) // DEDUPLICATIONS_OF_A_TASK)
    with watch("checking", len(tasks) + lots + 1) as progress:
        for outcome in where.run(check_bucket, tasks):
            tally.merge(outcome.tally)
            facts.append(outcome.facts)
            progress.advance(jobs=outcome.jobs)
        work = replace(work, facts=merged_facts(facts))
        tally.merge(check_queues(work))
        progress.advance()
        shards = [replace(work, buckets=tuple(range(lot, manifest.buckets, lots))) for lot in range(lots)]
        for found in (InThreads() if len(shards) < 2 and place is None else where).run(check_deduplications, shards):
            tally.merge(found)
            progress.advance()
    return tally
