"""The checks of one snapshot in tasks, wherever these run. No Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.checkers.base import EARLIEST_MS
from conformance.checkers.production import (
    OVERDUE_MS,
    StoreFacts,
    StoreView,
    is_waiting_iteration,
)
from conformance.checkers.snapshot_checks import checks_of
from conformance.checkers.table import StoreCheck
from conformance.observe.tables import Scheduler, as_number
from conformance.protocol.states import DELAY_FACTOR
from reports.check.families import distinct, jobs_of_ids, lost_children
from reports.check.suspicions import MOST_KEPT, Suspicion, SuspicionTally, suspicions
from reports.diff.checks import JOB_CHECKS, KEY_CHECKS, STORE_CHECKS
from reports.diff.comparison import DEDUPLICATIONS_OF_A_TASK, JOBS_AT_A_TIME, MOST_ROWS_IN_THREADS, NO_KEYS
from reports.diff.equality import JobDigests
from reports.diff.queue_groups import (
    DEDUPLICATIONS,
    EXAMPLES,
    SHARED,
    GroupKey,
    Rows,
    SideRows,
    StoreScope,
    deduplication_groups,
    in_order,
    numbers_of,
    shared_groups,
    with_tables,
)
from reports.diff.representatives import NO_FACTS, SideFacts, facts_of, merged_facts
from reports.diff.values import DiffSide
from reports.distribution import Distribution, InProcesses, InThreads
from reports.progress import Watch, unwatched
from reports.snapshot.digests.library import keys_of_columns
from reports.snapshot.digests.records import Flags, Keys, flags
from reports.snapshot.digests.rows import CONTAINERS, DigestedFolder, DigestTables, digested, in_scope
from reports.snapshot.folders import explained_folder
from reports.snapshot.format import SnapshotFolder
from reports.snapshot.rows import as_text, snapshot_of

_ACTIVE, _DELAYED = (CONTAINERS.index(name) for name in ("active", "delayed"))
QUEUE_STAGE = (*STORE_CHECKS, *checks_of("queue"))
"""Checks of what a queue has once, with the jobs that it names."""

ALL_CHECKS = (*JOB_CHECKS, *QUEUE_STAGE, *checks_of("children", "deduplication", "server"))
"""Every check of `check`."""


@dataclass(frozen=True, kw_only=True)
class CheckWork:
    """A part of a store to check: the jobs of a bucket, or (`facts`) what each queue has once."""

    folder: DigestedFolder
    side: DiffSide
    scope: StoreScope
    buckets: tuple[int, ...] = ()
    facts: SideFacts = NO_FACTS

    @property
    def rows(self) -> SideRows:
        """The rows to read queue by queue."""
        return SideRows(self.folder, self.facts, self.scope)

    def judged(
        self, rows: Iterable[tuple[str, Any]], checks: Iterable[StoreCheck], facts: StoreFacts | None = None
    ) -> Iterable[Suspicion]:
        """The invariants that these rows break."""
        snapshot = snapshot_of(self.side.prefix, self.side.taken_ms, rows)
        return suspicions(StoreView(snapshot, facts or StoreFacts()), tuple(checks))


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The outcome of a part: what is broken, and facts about its jobs.

    `asked`: jobs, and their containers, that can only be judged with what their queue has once. `events`: number of
    entries by queue.
    """

    tally: SuspicionTally
    facts: SideFacts
    jobs: int
    asked: Rows = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)


def check_bucket(task: CheckWork) -> CheckOutcome:
    """Check the jobs of one bucket; only those are read that may break a check. Raises EnvironmentProblem."""
    (bucket,) = task.buckets
    scope = task.scope
    with explained_folder(task.folder.folder):
        found = in_scope(task.folder.bucket_digests(bucket), scope.queue, scope.left_out, scope.jobs, NO_KEYS)
        digests = JobDigests(found, task.side)
        unsure = digests.keys[~digests.is_sound | np.isin(digests.keys, _doubtful(task, bucket))]
        tally, asked = SuspicionTally(), []
        for start in range(0, len(unsure), JOBS_AT_A_TIME):
            rows = with_tables(task.folder.rows_of_jobs(bucket, unsure[start : start + JOBS_AT_A_TIME]))
            tally.add(task.judged(rows, JOB_CHECKS))
            asked += _waiting_iterations(rows)
        stuck = _may_be_stuck(task, bucket, found)
        asked += with_tables(task.folder.rows_of_jobs(bucket, stuck, ("jobs", "memberships")))
        return CheckOutcome(
            tally=tally,
            facts=facts_of(digests, bucket),
            jobs=len(digests.keys),
            asked=asked,
            events=_events_by_queue(found),
        )


def _doubtful(task: CheckWork, bucket: int) -> Keys:
    """Jobs with values that a check must see, although they look sound by their digests."""
    doubts = [doubt for check in JOB_CHECKS for doubt in check.doubt.items()]
    if not doubts:
        return NO_KEYS
    rows = task.folder.rows("jobs", bucket)
    fields = rows.column("fields").combine_chunks()
    wanted: Flags = np.zeros(len(rows), np.bool_)
    for name, pattern in doubts:
        values = pc.map_lookup(fields, pa.scalar(name), "first").view(pa.binary())
        wanted |= flags(pc.match_substring_regex(values, pattern))
    chosen = rows.filter(pa.array(wanted))
    return keys_of_columns(chosen.column("queue").combine_chunks(), chosen.column("id").combine_chunks())


def _waiting_iterations(rows: Rows) -> Rows:
    """Delayed iterations of schedulers, with their containers."""
    delayed = {(row.queue, row.job) for table, row in rows if table == "memberships" and row.container == "delayed"}
    names = {
        (row.queue, row.id)
        for table, row in rows
        if table == "jobs" and (row.queue, row.id) in delayed and is_waiting_iteration(row)
    }
    return [
        (table, row)
        for table, row in rows
        if (table == "jobs" and (row.queue, row.id) in names)
        or (table == "memberships" and (row.queue, row.job) in names)
    ]


def _may_be_stuck(task: CheckWork, bucket: int, found: DigestTables) -> Keys:
    """Jobs that are overdue, and active ones without a lock; some of each."""
    members = found.get("memberships")
    if members is None:
        return NO_KEYS
    keys, containers, scores = (members.column(name).to_numpy() for name in ("key", "container", "score"))
    late_before = (task.side.taken_ms - OVERDUE_MS) * DELAY_FACTOR
    late = (containers == _DELAYED) & (scores >= EARLIEST_MS * DELAY_FACTOR) & (scores < late_before)
    active = keys[containers == _ACTIVE]
    if len(active):
        locks = with_tables({"locks": task.scope.rows(task.folder.rows("locks", bucket))})
        active = active[~np.isin(active, numbers_of([(row.queue, row.job) for _, row in locks]))]
    both: Keys = np.concatenate([keys[late][:MOST_KEPT], active[:MOST_KEPT]])
    return both


def _events_by_queue(found: DigestTables) -> Counter[str]:
    events = found.get("events")
    if events is None:
        return Counter()
    counts = pc.value_counts(events.column("queue").cast("string").combine_chunks().view("binary")).to_pylist()
    return Counter({as_text(counted["values"]): counted["counts"] for counted in counts})


def check_deduplications(task: CheckWork) -> SuspicionTally:
    """Check the deduplication keys in some buckets with their owners. Raises EnvironmentProblem."""
    tally = SuspicionTally()
    with explained_folder(task.folder.folder):
        groups = deduplication_groups(task.rows, task.buckets)
        for _, rows in sorted(groups.items()):
            tally.add(task.judged(in_order(rows), KEY_CHECKS))
        kept_back = {
            (row.queue, row.id) for rows in groups.values() for table, row in rows if _is_kept_back(table, row)
        }
        others = jobs_of_ids(task.rows, kept_back)
        keys = [pair for rows in groups.values() for pair in rows if _is_kept_back(*pair)]
        tally.add(task.judged([*keys, *others], checks_of("deduplication")))
    return tally


def _is_kept_back(table: str, row: Any) -> bool:
    return table == DEDUPLICATIONS and row.next is not None


def check_families(task: CheckWork) -> SuspicionTally:
    """Check which children parents wait for. Raises EnvironmentProblem."""
    tally = SuspicionTally()
    with explained_folder(task.folder.folder):
        rows, more = lost_children(task.rows, MOST_KEPT)
        tally.add(task.judged(distinct(rows), checks_of("children")))
    if more and tally.counts:
        tally.counts[tally.counts.most_common(1)[0][0]] += more
    return tally


def check_queues(task: CheckWork, asked: Rows, facts: StoreFacts) -> SuspicionTally:
    """Check what each queue has once. `asked`: rows of jobs that need it. Raises EnvironmentProblem."""
    tally = SuspicionTally()
    with explained_folder(task.folder.folder):
        groups = shared_groups(task.rows)
        together: dict[str, Rows] = {}
        for (queue, name), rows in groups.items():
            # The settings are in both groups.
            own = [pair for pair in rows if name != EXAMPLES or pair[0] in ("jobs", "memberships")]
            together.setdefault(queue, []).extend(own)
        for table, row in asked:
            together.setdefault(row.queue, []).append((table, row))
        for (queue, _), rows in _named_by_queues(task.rows, together).items():
            together[queue] += rows
        for queue, rows in sorted(together.items()):
            own_facts = replace(facts, events={queue: facts.events.get(queue, 0)})
            tally.add(task.judged(in_order(distinct(rows)), QUEUE_STAGE, own_facts))
        settings = [pair for (_, name), rows in groups.items() if name == SHARED for pair in rows if pair[0] == "metas"]
        tally.add(task.judged(settings, checks_of("server"), facts))
    return tally


def _named_by_queues(side: SideRows, together: Mapping[str, Rows]) -> Mapping[GroupKey, Rows]:
    """The next iterations of schedulers, and the active jobs among the rows."""
    rows = [pair for listed in together.values() for pair in listed]
    named = {(row.queue, iteration_of(row)) for table, row in rows if table == "schedulers" and row.next is not None}
    named |= {(row.queue, row.job) for table, row in rows if table == "memberships" and row.container == "active"}
    return side.jobs_named(named)


def iteration_of(row: Scheduler) -> str:
    """The id of a scheduler's next iteration."""
    return f"repeat:{row.id}:{as_number(row.next) or 0:.0f}"


@dataclass(frozen=True, kw_only=True)
class CheckedSnapshot:
    """The suspicions about a snapshot. `queues`: all of them. `largest`: the largest generated id of each."""

    tally: SuspicionTally
    queues: Sequence[str]
    largest: Mapping[str, int]


def check_snapshot(
    kept: SnapshotFolder,
    queue: str = "",
    place: Distribution | None = None,
    watch: Watch = unwatched,
    facts: StoreFacts | None = None,
) -> CheckedSnapshot:
    """Everything that a store breaks by itself. `queue`: only this one. Raises EnvironmentProblem."""
    manifest = kept.manifest
    work = CheckWork(
        folder=digested(kept, manifest.buckets),
        side=DiffSide(prefix=manifest.prefix, taken_ms=manifest.until_ms),
        scope=StoreScope(queue=queue),
    )
    where = place or (
        InProcesses(last=facts is not None) if sum(manifest.rows.values()) > MOST_ROWS_IN_THREADS else InThreads()
    )
    outcomes = []
    tally = SuspicionTally()
    tasks = [replace(work, buckets=(bucket,)) for bucket in range(manifest.buckets)]
    lots = -(-manifest.rows.get("deduplications", 0) // DEDUPLICATIONS_OF_A_TASK)
    with watch("checking", len(tasks) + lots + 2) as progress:
        for outcome in where.run(check_bucket, tasks):
            tally.merge(outcome.tally)
            outcomes.append(outcome)
            progress.advance(jobs=outcome.jobs)
        work = replace(work, facts=merged_facts(outcome.facts for outcome in outcomes))
        events = sum((outcome.events for outcome in outcomes), Counter[str]())
        asked = [pair for outcome in outcomes for pair in outcome.asked]
        judge_queues = partial(check_queues, asked=asked, facts=replace(facts or facts_in(kept), events=events))
        for judge in (judge_queues, check_families):
            for found in where.run(judge, [work]):
                tally.merge(found)
                progress.advance()
        shards = [replace(work, buckets=tuple(range(lot, manifest.buckets, lots))) for lot in range(lots)]
        for found in (InThreads() if len(shards) < 2 and place is None else where).run(check_deduplications, shards):
            tally.merge(found)
            progress.advance()
    return CheckedSnapshot(tally=tally, queues=list(manifest.queues), largest=work.facts.largest)


def facts_in(kept: SnapshotFolder) -> StoreFacts:
    """The facts of a snapshot about its server."""
    settings = kept.manifest.redis_settings
    return StoreFacts(
        policy=settings.get("maxmemory-policy", ""),
        most_bytes=int(as_number(settings.get("maxmemory")) or 0),
        is_cluster=kept.manifest.source.startswith(("redis+cluster://", "rediss+cluster://")),
    )
