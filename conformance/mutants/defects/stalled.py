"""Stalled jobs recovered too early, too late, wrongly or never."""

from __future__ import annotations

import asyncio

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import STALLED_CHECK
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.workers.base import WorkerBase
from conformance.reference_impl.workers.stalled import StalledChecker

_SCRIPT = "moveStalledJobsToWait"
_NOBODY_IS_CLEARED = 'if command[1] == "SREM" then return 0 end'


@mutant("stalled.first-check", kills=("stalled.two-checks", "stalled.race.one-outcome"))
def first_check(damage: Damage) -> None:
    """The first check that sees a job without lock recovers it."""
    damage.commands(
        _SCRIPT,
        'if command[1] == "SMEMBERS" then '
        'for _, job in ipairs(send("LRANGE", KEYS[3], 0, -1)) do send("SADD", KEYS[1], job) end end',
    )


@mutant("stalled.never-marked", kills=("stalled.two-checks",))
def never_marked(damage: Damage) -> None:
    """A check does not remember what was active."""
    damage.commands(_SCRIPT, 'if command[1] == "SADD" then return 0 end')


@mutant("stalled.locks-ignored", kills=("stalled.locked-is-left", "stalled.race.one-outcome"))
def locks_ignored(damage: Damage) -> None:
    """A check recovers jobs that a worker still holds."""
    damage.commands(_SCRIPT, 'if command[1] == "EXISTS" and on(command, "lock") then return 0 end')


@mutant("stalled.runs-last", kills=("stalled.runs-next",))
def runs_last(damage: Damage) -> None:
    """A recovered job goes behind those that wait."""
    damage.commands(_SCRIPT, 'if command[1] == "RPUSH" then command[1] = "LPUSH" end')


@mutant("stalled.uncounted", kills=("stalled.counter", "interop.stalled"))
def uncounted(damage: Damage) -> None:
    """A recovery is not counted."""
    damage.commands(_SCRIPT, 'if command[1] == "HINCRBY" then return 1 end')


@mutant("stalled.counts-as-attempt", kills=("job.hash.attempts-made",), by=("stalled/a_recovered_job_runs_next",))
def counts_as_attempt(damage: Damage) -> None:
    """A recovery counts as an attempt too."""
    damage.commands(_SCRIPT, 'if command[1] == "HINCRBY" then send("HINCRBY", command[2], "atm", 1) end')


@mutant("stalled.silent", kills=("stalled.events",))
def silent(damage: Damage) -> None:
    """There is no event `stalled`."""
    damage.commands(_SCRIPT, 'if event(command) == "stalled" then return "0-0" end')


@mutant("stalled.no-prev", kills=("event.waiting",), by=("stalled/a_recovered_job_runs_next",))
def no_prev(damage: Damage) -> None:
    """Event `waiting` of a recovered job does not tell that it was active."""
    damage.commands(_SCRIPT, 'if event(command) == "waiting" then drop(command, "prev") end')


@mutant("stalled.unthrottled", kills=("stalled.throttle",))
def unthrottled(damage: Damage) -> None:
    """Every check works, however short ago the last one was."""
    damage.commands(_SCRIPT, f'if command[1] == "EXISTS" and on(command, "{STALLED_CHECK}") then return 0 end')


@mutant("stalled.throttled-for-good", kills=("stalled.throttle",))
def throttled_for_good(damage: Damage) -> None:
    """The throttle does not expire, so that only one check is ever made."""
    damage.commands(_SCRIPT, f'if command[1] == "SET" and on(command, "{STALLED_CHECK}") then drop(command, "PX") end')


@mutant("stalled.forgiven-for-ever", kills=("stalled.limit",))
def forgiven_for_ever(damage: Damage) -> None:
    """`maxStalledCount` has no effect."""
    damage.argument(_SCRIPT, 0, lambda _limit: 1_000_000)


@mutant("stalled.limit-off-by-one", kills=("stalled.limit",))
def limit_off_by_one(damage: Damage) -> None:
    """A job is given up when it has stalled as often as `maxStalledCount` says."""
    damage.argument(_SCRIPT, 0, lambda limit: limit - 1)


@mutant("stalled.check-late", kills=("stalled.check-at-start",))
def check_late(damage: Damage) -> None:
    """A worker does its first check an interval after its start."""

    def broken(start: Function) -> Function:
        async def start_later(checker: StalledChecker) -> None:
            worker: WorkerBase = vars(checker)["_worker"]

            async def sleep_first() -> None:
                await asyncio.sleep(worker.opts["stalledInterval"] / 1000)
                await start(checker)

            vars(checker)["_task"] = asyncio.create_task(sleep_first())

        return start_later

    damage.around(StalledChecker, "start", broken)


@mutant("stalled.answers-nothing", kills=("stalled.two-checks",))
def answers_nothing(damage: Damage) -> None:
    """A check recovers jobs but does not tell which."""

    def broken(check: Function) -> Function:
        async def move_stalled(scripts: MoveScripts) -> list[str]:
            await check(scripts)
            return []

        return move_stalled

    damage.around(MoveScripts, "move_stalled_jobs_to_wait", broken)


@mutant("stalled.finished-suspected", kills=("stalled.forgotten",))
def finished_suspected(damage: Damage) -> None:
    """A finished job stays marked as possibly stalled."""
    damage.commands("moveToFinished", _NOBODY_IS_CLEARED)


@mutant("stalled.retried-suspected", kills=("stalled.forgotten",))
def retried_suspected(damage: Damage) -> None:
    """A job that waits for its next attempt stays marked as possibly stalled."""
    damage.commands("retryJob", _NOBODY_IS_CLEARED)


@mutant("stalled.renewed-suspected", kills=("stalled.forgotten",))
def renewed_suspected(damage: Damage) -> None:
    """A job whose lock is renewed stays marked as possibly stalled."""
    damage.commands("extendLock", _NOBODY_IS_CLEARED)
