"""Defects of renewing locks, and of looking for jobs whose locks nobody renews."""

from __future__ import annotations

from typing import Any

from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers.locks import LockKeeper, StalledChecker

LATE = 0.8
"""The part of a lock's life that is over when it is renewed too late."""


@chaos_mutant("lock.never-renewed", kills="renewals")
def never_renewed(damage: Damage) -> None:
    """A worker does not renew the locks of its running jobs."""
    damage.replace(LockKeeper, "start", lambda _keeper: None)


@chaos_mutant("lock.not-after-reconnect", kills="renewals", under="redis.client-kill")
def not_after_reconnect(damage: Damage) -> None:
    """A worker that had to connect again renews no lock any more."""
    reconnections = Reconnections(damage)

    def broken(renew: Function) -> Function:
        async def renew_until_reconnected(keeper: LockKeeper, jobs: list[Job]) -> None:
            if not reconnections.happened:
                await renew(keeper, jobs)

        return renew_until_reconnected

    damage.around(LockKeeper, "_renew", broken)


@chaos_mutant("lock.renewed-late", kills="renewals")
def renewed_late(damage: Damage) -> None:
    """A lock is renewed when four fifths of its life are over, and not after a quarter or a half."""

    def broken(due: Function) -> Function:
        def due_late(keeper: LockKeeper, _interval_ms: float) -> list[Job]:
            jobs: list[Job] = due(keeper, LATE * vars(keeper)["_worker"].opts["lockDuration"])
            return jobs

        return due_late

    damage.around(LockKeeper, "_due", broken)


@chaos_mutant("stalled.check-ends", kills="progress", under="network.truncate")
def check_ends(damage: Damage) -> None:
    """A worker that had to connect again looks for stalled jobs no more: a claim whose reply was lost stays active."""
    reconnections = Reconnections(damage)

    def broken(check: Function) -> Function:
        async def check_until_reconnected(checker: StalledChecker) -> Any:
            return [] if reconnections.happened else await check(checker)

        return check_until_reconnected

    damage.around(StalledChecker, "check", broken)
