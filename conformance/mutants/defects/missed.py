"""Holes of the gate: defects that violate a row, and that its scenarios do not notice.

A hole that is closed fails the kill matrix, until the row moves to `kills` and the mutant to the module of its area.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import repeat_strategy
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.repeat_strategy import RepeatOptions


@mutant(
    "missed.bulk-without-defaults",
    kills=("add.options.attempts-default",),
    missed=("add.default-options",),
    by=("add/default_job_options_apply_to_a_bulk",),
)
def bulk_without_defaults(damage: Damage) -> None:
    """The queue's default options do not apply to a bulk: noticed, but told of another row."""

    async def add_bulk(queue: Queue, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        await queue.waitUntilReady()
        return await Job.createBulk(queue, jobs)

    damage.replace(Queue, "addBulk", add_bulk)


@mutant(
    "missed.unprioritized-runs-next",
    kills=("lifecycle.claim.oldest-first",),
    missed=("getters.change-priority",),
    by=("getters/changing_a_priority",),
)
def unprioritized_runs_next(damage: Damage) -> None:
    """A job that loses its priority goes before those that wait: noticed, but told of another row."""
    damage.commands("changePriority", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')


@mutant("missed.renewed-together-suspected", missed=("stalled.forgotten",))
def renewed_together_suspected(damage: Damage) -> None:
    """Jobs whose locks are renewed in one call stay marked as possibly stalled."""
    damage.commands("extendLocks", 'if command[1] == "SREM" then return 0 end')


@mutant("missed.parent-runs-last", missed=("flow.release",))
def parent_runs_last(damage: Damage) -> None:
    """A released parent goes behind those that wait."""
    damage.commands("moveToFinished", 'if command[1] == "RPUSH" then command[1] = "LPUSH" end')


@mutant("missed.owner-unknown", kills=("dedup.simple",), missed=("dedup.owner",))
def owner_unknown(damage: Damage) -> None:
    """Nobody is told who owns a deduplication id: noticed, but told of another row."""

    async def nobody(_queue: Queue, _deduplication_id: str) -> None:
        return None

    damage.replace(Queue, "getDeduplicationJobId", nobody)


@mutant("missed.no-seconds", missed=("scheduler.pattern",))
def no_seconds(damage: Damage) -> None:
    """The seconds of a cron pattern have no effect."""

    def broken(reckon: Function) -> Function:
        def next_by_pattern(after: int, repeat: RepeatOptions, clock: Clock) -> int | None:
            due: int | None = reckon(after, {**repeat, "pattern": " ".join(repeat["pattern"].split()[-5:])}, clock)
            return due

        return next_by_pattern

    damage.around(repeat_strategy, "next_by_pattern", broken)


@mutant(
    "missed.upsert-recounts",
    kills=("scheduler.record",),
    missed=("scheduler.upsert.pending",),
    by=("scheduler-changes/an_upsert_while_a_job_runs",),
)
def upsert_recounts(damage: Damage) -> None:
    """An upsert starts the count of iterations anew: noticed, but told of another row."""
    damage.commands("addJobScheduler", 'if command[1] == "HGET" and command[3] == "ic" then return false end')
