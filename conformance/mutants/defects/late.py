"""Defects that the gate once did not notice, or blamed on another row: each stands for a hole that was closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.schedules import repeat_strategy
from conformance.reference_impl.schedules.repeat_strategy import RepeatOptions


@mutant(
    "late.bulk-without-defaults",
    kills=("add.default-options",),
    by=("add/default_job_options_apply_to_a_bulk",),
)
def bulk_without_defaults(damage: Damage) -> None:
    """The queue's default options do not apply to a bulk."""

    async def add_bulk(queue: Queue, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        await queue.waitUntilReady()
        return await Job.createBulk(queue, jobs)

    damage.replace(Queue, "addBulk", add_bulk)


@mutant(
    "late.unprioritized-runs-next",
    kills=("getters.change-priority",),
    by=("getters/changing_a_priority",),
)
def unprioritized_runs_next(damage: Damage) -> None:
    """A job that loses its priority goes before those that wait."""
    damage.commands("changePriority", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')


@mutant("late.renewed-together-suspected", kills=("stalled.forgotten",))
def renewed_together_suspected(damage: Damage) -> None:
    """Jobs whose locks are renewed in one call stay marked as possibly stalled."""
    damage.commands("extendLocks", 'if command[1] == "SREM" then return 0 end')


@mutant("late.parent-runs-last", kills=("flow.release",))
def parent_runs_last(damage: Damage) -> None:
    """A released parent goes behind those that wait."""
    damage.commands("moveToFinished", 'if command[1] == "RPUSH" then command[1] = "LPUSH" end')


@mutant("late.owner-unknown", kills=("dedup.owner",))
def owner_unknown(damage: Damage) -> None:
    """Nobody is told who owns a deduplication id."""

    async def nobody(_queue: Queue, _deduplication_id: str) -> None:
        return None

    damage.replace(Queue, "getDeduplicationJobId", nobody)


@mutant("late.no-seconds", kills=("scheduler.pattern",))
def no_seconds(damage: Damage) -> None:
    """The seconds of a cron pattern have no effect."""

    def broken(reckon: Function) -> Function:
        def next_by_pattern(after: int, repeat: RepeatOptions, clock: Clock) -> int | None:
            due: int | None = reckon(after, {**repeat, "pattern": " ".join(repeat["pattern"].split()[-5:])}, clock)
            return due

        return next_by_pattern

    damage.around(repeat_strategy, "next_by_pattern", broken)


@mutant(
    "late.upsert-recounts",
    kills=("scheduler.upsert.pending",),
    by=("scheduler-changes/an_upsert_while_a_job_runs",),
)
def upsert_recounts(damage: Damage) -> None:
    """An upsert starts the count of iterations anew."""
    damage.commands("addJobScheduler", 'if command[1] == "HGET" and command[3] == "ic" then return false end')
