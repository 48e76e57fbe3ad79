"""Workers that make the wrong thing of a lock that is lost, and checks that come too late."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.workers.base import WorkerBase
from conformance.reference_impl.workers.locks import LockKeeper
from conformance.reference_impl.workers.stalled import StalledChecker


@mutant("lock.renewed-late", kills=("lock.renewal.in-time",))
def renewed_late(damage: Damage) -> None:
    """A worker renews a lock only when most of its time has passed."""

    def broken(due: Function) -> Function:
        def due_late(keeper: LockKeeper, interval_ms: float) -> Any:
            return due(keeper, interval_ms * 2.6)

        return due_late

    damage.around(LockKeeper, "_due", broken)


@mutant("lock.lost-for-good", kills=("lock.lost.handler-goes-on",))
def lost_for_good(damage: Damage) -> None:
    """A worker that could not renew a lock once never tries again."""

    def tell_and_forget(keeper: LockKeeper, job_ids: list[str], _error: Exception) -> None:
        for job_id in job_ids:
            vars(keeper)["_held"].pop(job_id, None)

    damage.replace(LockKeeper, "_tell_failure", tell_and_forget)


@mutant("lock.lost-stops-worker", kills=("lock.lost.handler-goes-on",))
def lost_stops_worker(damage: Damage) -> None:
    """A worker that could not renew a lock takes no other job."""

    def tell_and_stop(keeper: LockKeeper, _job_ids: list[str], _error: Exception) -> None:
        worker: WorkerBase = vars(keeper)["_worker"]
        worker.paused = True

    damage.replace(LockKeeper, "_tell_failure", tell_and_stop)


@mutant("lock.renewal-revives", kills=("lock.lost.handler-goes-on",))
def renewal_revives(damage: Damage) -> None:
    """A worker makes a lock anew that is gone."""
    damage.commands(
        "extendLocks", 'if command[1] == "GET" then return send(unpack(command)) or cmsgpack.unpack(ARGV[2])[1] end'
    )


@mutant("stalled.busy-unchecked", kills=("stalled.independent",))
def busy_unchecked(damage: Damage) -> None:
    """A worker does no stalled check while it runs a job."""

    def broken(check: Function) -> Function:
        async def check_when_idle(checker: StalledChecker) -> list[str]:
            keeper: LockKeeper = vars(vars(checker)["_worker"])["_locks"]
            recovered: list[str] = [] if vars(keeper)["_held"] else await check(checker)
            return recovered

        return check_when_idle

    damage.around(StalledChecker, "check", broken)


@mutant("stalled.checked-rarely", kills=("stalled.recovery-time",))
def checked_rarely(damage: Damage) -> None:
    """A worker leaves out most of its stalled checks."""

    def broken(run: Function) -> Function:
        async def run_after_a_while(checker: StalledChecker) -> None:
            worker: WorkerBase = vars(checker)["_worker"]
            await asyncio.sleep(worker.opts["stalledInterval"] * 6 / 1000)
            await run(checker)

        return run_after_a_while

    damage.around(StalledChecker, "_run", broken)


@mutant("stalled.third-check", kills=("stalled.recovery-time",))
def third_check(damage: Damage) -> None:
    """A check only puts back what two checks before it have marked."""
    damage.commands(
        "moveStalledJobsToWait",
        'if command[1] == "SMEMBERS" then local found = {} '
        "for _, job in ipairs(send(unpack(command))) do "
        'if send("HINCRBY", KEYS[4] .. ":seen", job, 1) > 1 then found[#found + 1] = job end end return found end',
    )
