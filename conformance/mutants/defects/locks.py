"""Locks that stop no worker or the wrong one, and stalled jobs recovered at the wrong time, wrongly or never."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import STALLED_CHECK
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.scripts.runner import EvalCommand
from conformance.reference_impl.workers.locks import LockKeeper, StalledChecker
from conformance.reference_impl.workers.loop import WorkerLoop
from conformance.reference_impl.workers.worker import Worker

_FOREIGN_LOCK_IS_OWN = (
    'if command[1] == "GET" and on(command, "lock") then local token = send(unpack(command)) return %s end'
)
_OWN_TOKEN = 'cmsgpack.unpack(ARGV[8])["token"]'
_STALLED_CHECK = "moveStalledJobsToWait"
_MARKS_STAY = 'if command[1] == "SREM" then return 0 end'


@mutant("lock.constant-token", kills=("lock.token",))
def constant_token(damage: Damage) -> None:
    """Every lock holds the same text."""
    damage.commands("moveToActive", 'if command[1] == "SET" and on(command, "lock") then command[3] = "1" end')


@mutant("lock.everlasting", kills=("lock.duration",))
def everlasting(damage: Damage) -> None:
    """The lock never expires."""
    damage.commands("moveToActive", 'if command[1] == "SET" and on(command, "lock") then drop(command, "PX") end')


@mutant("lock.in-seconds", kills=("lock.duration",))
def in_seconds(damage: Damage) -> None:
    """The lock lives for a thousandth of its time."""
    damage.commands(
        "moveToActive",
        'if command[1] == "SET" and on(command, "lock") then change(command, "PX", math.ceil(command[5] / 1000)) end',
    )


@mutant("lock.extension-keeps-end", kills=("lock.extend", "lock.extend-many"))
def extension_keeps_end(damage: Damage) -> None:
    """Extending a lock does not change when it expires."""
    damage.commands(
        "extendLock*", 'if command[1] == "SET" then drop(command, "PX") command[#command + 1] = "KEEPTTL" end'
    )


@mutant("lock.anyone-extends", kills=("lock.extend.stale-token-refused",))
def anyone_extends(damage: Damage) -> None:
    """Any token can extend a lock, and make one that is gone."""
    damage.commands("extendLock", 'if command[1] == "GET" then return ARGV[1] end')


@mutant("lock.revived", kills=("lock.extend.stale-token-refused",))
def revived(damage: Damage) -> None:
    """Extending a lock that is gone creates it again."""
    damage.commands("extendLock", 'if command[1] == "GET" then return send(unpack(command)) or ARGV[1] end')


@mutant("lock.losses-untold", kills=("lock.extend-many",))
def losses_untold(damage: Damage) -> None:
    """Renewing several locks never returns the lost ones."""

    def broken(extend: Function) -> Function:
        async def extend_locks(
            scripts: MoveScripts, job_ids: list[str], tokens: list[str], duration: float
        ) -> list[str]:
            await extend(scripts, job_ids, tokens, duration)
            return []

        return extend_locks

    damage.around(MoveScripts, "extend_locks", broken)


@mutant("lock.foreign-accepted", kills=("lock.stale-token-refused", "lock.lost.runs-twice"))
def foreign_accepted(damage: Damage) -> None:
    """A worker can finish a job that another one holds."""
    damage.commands("moveToFinished", _FOREIGN_LOCK_IS_OWN % f"token and {_OWN_TOKEN}")


@mutant("lock.missing-accepted", kills=("lock.missing-refused",))
def missing_accepted(damage: Damage) -> None:
    """A worker can finish a job whose lock is gone."""
    damage.commands("moveToFinished", _FOREIGN_LOCK_IS_OWN % f"token or {_OWN_TOKEN}")


@mutant("lock.kept", kills=("lock.released",))
def kept(damage: Damage) -> None:
    """A finished job stays locked."""
    damage.commands("moveToFinished", 'if command[1] == "DEL" and on(command, "lock") then return 1 end')


@mutant("lock.kept-by-retry", kills=("lock.released",))
def kept_by_retry(damage: Damage) -> None:
    """A job that waits for its next attempt stays locked."""
    damage.commands("retryJob", 'if command[1] == "DEL" and on(command, "lock") then return 1 end')


@mutant("lock.never-renewed", kills=("lock.renewed-by-worker",))
def never_renewed(damage: Damage) -> None:
    """A worker does not renew the locks of its running jobs."""
    damage.replace(LockKeeper, "start", lambda _keeper: None)


@mutant("lock.holds-one-more", kills=("lock.renewed-by-worker", "liveness.concurrency"))
def holds_one_more(damage: Damage) -> None:
    """A worker claims one job more than it can run, and does not renew its lock before it runs it."""

    def may_fetch(loop: WorkerLoop) -> bool:
        worker, fetcher = vars(loop)["_worker"], vars(loop)["_fetcher"]
        has_room = vars(WorkerLoop)["_in_hand"].fget(loop) <= worker.concurrency
        return bool(worker.is_open and has_room and vars(loop)["_waiting"] is None and not fetcher.rate_limit_ms)

    def broken(start_fetched: Function) -> Function:
        def start_some(loop: WorkerLoop) -> bool:
            fetched, worker = vars(loop)["_fetched"], vars(loop)["_worker"]
            free = worker.concurrency - len(vars(loop)["_running"])
            kept = [fetched.pop() for _ in range(len(fetched) - max(free, 0))]
            started: bool = start_fetched(loop)
            fetched.extend(reversed(kept))
            return started

        return start_some

    damage.replace(WorkerLoop, "_may_fetch", may_fetch)
    damage.around(WorkerLoop, "_start_fetched", broken)


@mutant("late.renewed-together-suspected", kills=("stalled.forgotten",))
def renewed_together_suspected(damage: Damage) -> None:
    """Jobs whose locks are renewed in one call stay marked as possibly stalled."""
    damage.commands("extendLocks", 'if command[1] == "SREM" then return 0 end')


@mutant("lock.renewal-interval-ignored", kills=("lock.renewal.interval",))
def renewal_interval_ignored(damage: Damage) -> None:
    """A worker ignores `lockRenewTime`, and renews its locks when a quarter of their life has passed."""

    def broken(start: Function) -> Function:
        def start_slowly(keeper: LockKeeper) -> None:
            worker: Worker = vars(keeper)["_worker"]
            vars(worker)["_opts"]["lockRenewTime"] = worker.opts["lockDuration"] / 2
            damage.witness.note()
            start(keeper)

        return start_slowly

    damage.around(LockKeeper, "start", broken)


@mutant("lock.renewed-late", kills=("lock.renewal.in-time",))
def renewed_late(damage: Damage) -> None:
    """A worker renews a lock only when most of its time has passed."""

    def broken(due: Function) -> Function:
        def due_late(keeper: LockKeeper, interval_ms: float) -> Any:
            return due(keeper, interval_ms * 2.6)

        return due_late

    damage.around(LockKeeper, "_due", broken)


@mutant("lock.renewed-every-half", kills=("lock.renewal.in-time",))
def renewed_every_half(damage: Damage) -> None:
    """After the first time, a lock is renewed when half of it has passed: if one renewal fails, it is lost."""

    def broken(due: Function) -> Function:
        first = set[tuple[str, str | None]]()

        def due_by_half(keeper: LockKeeper, interval_ms: float) -> Any:
            held: dict[tuple[str, str | None], Any] = vars(keeper)["_held"]
            renewed = due(keeper, interval_ms * 1.5 if first & held.keys() else interval_ms)
            first.update((job.known_id, job.token) for job in renewed)
            return renewed

        return due_by_half

    damage.around(LockKeeper, "_due", broken)


@mutant("lock.lost-for-good", kills=("lock.lost.handler-goes-on",))
def lost_after_one_failure(damage: Damage) -> None:
    """A worker that could not renew a lock once never tries again."""

    def emit_and_forget(keeper: LockKeeper, job_ids: list[str], _error: Exception) -> None:
        held: dict[tuple[str, str | None], Any] = vars(keeper)["_held"]
        for run in [run for run in held if run[0] in job_ids]:
            del held[run]

    damage.replace(LockKeeper, "_emit_failure", emit_and_forget)


@mutant("lock.lost-stops-worker", kills=("lock.lost.worker-goes-on",))
def lost_stops_worker(damage: Damage) -> None:
    """A worker that could not renew a lock takes no other job."""

    def emit_and_stop(keeper: LockKeeper, _job_ids: list[str], _error: Exception) -> None:
        worker: Worker = vars(keeper)["_worker"]
        worker.lifecycle.apply("pause")

    damage.replace(LockKeeper, "_emit_failure", emit_and_stop)


@mutant("lock.renewal-revives", kills=("lock.lost.worker-goes-on",))
def renewal_revives(damage: Damage) -> None:
    """A worker creates a lock again that is gone."""
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
            worker: Worker = vars(checker)["_worker"]
            await asyncio.sleep(worker.opts["stalledInterval"] * 6 / 1000)
            damage.witness.note()
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


@mutant("stalled.first-check", kills=("stalled.two-checks", "stalled.race.one-outcome", "chaos.eviction"))
def first_check(damage: Damage) -> None:
    """The first check that sees a job without lock recovers it."""
    damage.commands(
        _STALLED_CHECK,
        'if command[1] == "SMEMBERS" then '
        'for _, job in ipairs(send("LRANGE", KEYS[3], 0, -1)) do send("SADD", KEYS[1], job) end end',
    )


@mutant("stalled.check-always-fails", kills=("stalled.two-checks",))
def check_always_fails(damage: Damage) -> None:
    """Each check fails in the script, because its arguments are swapped, and the client hides the error."""

    def swapped(call: EvalCommand) -> EvalCommand:
        most, base, *others = call.arguments
        return EvalCommand(call.name, call.keys, [base, most, *others[:-1]])

    def broken(check: Function) -> Function:
        async def check_quietly(scripts: MoveScripts) -> list[str]:
            with contextlib.suppress(Exception):
                recovered: list[str] = await check(scripts)
                return recovered
            return []

        return check_quietly

    damage.calls(_STALLED_CHECK, swapped)
    damage.around(MoveScripts, "move_stalled_jobs_to_wait", broken)


@mutant("stalled.never-marked", kills=("stalled.two-checks",))
def never_marked(damage: Damage) -> None:
    """A check does not remember what was active."""
    damage.commands(_STALLED_CHECK, 'if command[1] == "SADD" then return 0 end')


@mutant("stalled.locks-ignored", kills=("stalled.locked-is-left", "stalled.race.one-outcome"))
def locks_ignored(damage: Damage) -> None:
    """A check recovers jobs that a worker still holds."""
    damage.commands(_STALLED_CHECK, 'if command[1] == "EXISTS" and on(command, "lock") then return 0 end')


@mutant(
    "stalled.wakes-no-worker",
    kills=("order.marker.base",),
    by=("order/a_job_that_waits_again_sets_the_base_marker",),
)
def wakes_no_worker(damage: Damage) -> None:
    """A recovered job leaves no marker, so that an idle worker sleeps on."""
    damage.commands(_STALLED_CHECK, 'if command[1] == "ZADD" and on(command, "marker") then return 0 end')


@mutant(
    "stalled.orphan-ends-check",
    kills=("stalled.limit",),
    by=("stalled/a_check_that_meets_an_option_for_children_goes_on",),
)
def orphan_ends_check(damage: Damage) -> None:
    """A check fails at a job that has an option for its parent, and no parent."""
    damage.commands(
        _STALLED_CHECK,
        'if command[1] == "HINCRBY" and command[3] == "stc" and not send("HGET", command[2], "parentKey") '
        'and string.find(send("HGET", command[2], "opts") or "", "idof") then error("no parent") end',
    )


@mutant("stalled.runs-last", kills=("stalled.runs-next",))
def runs_last(damage: Damage) -> None:
    """A recovered job goes behind those that wait."""
    damage.commands(_STALLED_CHECK, 'if command[1] == "RPUSH" then command[1] = "LPUSH" end')


@mutant("stalled.uncounted", kills=("stalled.counter",))
def uncounted(damage: Damage) -> None:
    """A recovery is not counted."""
    damage.commands(_STALLED_CHECK, 'if command[1] == "HINCRBY" then return 1 end')


@mutant("stalled.counts-as-attempt", kills=("job.hash.attempts-made",), by=("stalled/a_recovered_job_runs_next",))
def counts_as_attempt(damage: Damage) -> None:
    """A recovery counts as an attempt too."""
    damage.commands(_STALLED_CHECK, 'if command[1] == "HINCRBY" then send("HINCRBY", command[2], "atm", 1) end')


@mutant("stalled.silent", kills=("stalled.events",))
def silent(damage: Damage) -> None:
    """There is no event `stalled`."""
    damage.commands(_STALLED_CHECK, 'if event(command) == "stalled" then return "0-0" end')


@mutant("stalled.no-prev", kills=("event.waiting",), by=("stalled/a_recovered_job_runs_next",))
def no_prev(damage: Damage) -> None:
    """Event `waiting` of a recovered job lacks `prev` active."""
    damage.commands(_STALLED_CHECK, 'if event(command) == "waiting" then drop(command, "prev") end')


@mutant("stalled.unthrottled", kills=("stalled.throttle",))
def unthrottled(damage: Damage) -> None:
    """Every check works, also right after the last one."""
    damage.commands(_STALLED_CHECK, f'if command[1] == "EXISTS" and on(command, "{STALLED_CHECK}") then return 0 end')


@mutant("stalled.throttled-for-good", kills=("stalled.throttle",))
def throttled_forever(damage: Damage) -> None:
    """The throttle does not expire, so that only one check is ever made."""
    damage.commands(
        _STALLED_CHECK, f'if command[1] == "SET" and on(command, "{STALLED_CHECK}") then drop(command, "PX") end'
    )


@mutant("stalled.forgiven-for-ever", kills=("stalled.limit",))
def forgiven_for_ever(damage: Damage) -> None:
    """`maxStalledCount` has no effect."""
    damage.argument(_STALLED_CHECK, 0, lambda _limit: 1_000_000)


@mutant(
    "stalled.parent-forgotten", kills=("stalled.limit",), by=("flow-failures/a_child_that_stalls_too_often_has_failed",)
)
def parent_forgotten(damage: Damage) -> None:
    """A child that fails because it stalled too often is not reported to its parent."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "HMGET" and at(command, "parentKey") and send("HEXISTS", command[2], "defa") == 1 then '
        "return {false, false, send(unpack(command))[3]} end",
    )


@mutant("stalled.limit-off-by-one", kills=("stalled.limit",))
def limit_off_by_one(damage: Damage) -> None:
    """A job is given up when it has stalled as often as `maxStalledCount` says."""
    damage.argument(_STALLED_CHECK, 0, lambda limit: limit - 1)


@mutant("stalled.check-late", kills=("stalled.check-at-start",))
def check_late(damage: Damage) -> None:
    """A worker does its first check an interval after its start."""

    def broken(start: Function) -> Function:
        async def start_later(checker: StalledChecker) -> None:
            worker: Worker = vars(checker)["_worker"]

            async def sleep_first() -> None:
                await asyncio.sleep(worker.opts["stalledInterval"] / 1000)
                await start(checker)

            vars(checker)["_task"] = asyncio.create_task(sleep_first())

        return start_later

    damage.around(StalledChecker, "start", broken)


@mutant("stalled.answers-nothing", kills=("stalled.two-checks",))
def answers_nothing(damage: Damage) -> None:
    """A check recovers jobs but does not return their ids."""

    def broken(check: Function) -> Function:
        async def move_stalled(scripts: MoveScripts) -> list[str]:
            await check(scripts)
            return []

        return move_stalled

    damage.around(MoveScripts, "move_stalled_jobs_to_wait", broken)


@mutant("stalled.finished-suspected", kills=("stalled.forgotten",))
def finished_suspected(damage: Damage) -> None:
    """A finished job stays marked as possibly stalled."""
    damage.commands("moveToFinished", _MARKS_STAY)


@mutant("stalled.retried-suspected", kills=("stalled.forgotten",))
def retried_suspected(damage: Damage) -> None:
    """A job that waits for its next attempt stays marked as possibly stalled."""
    damage.commands("retryJob", _MARKS_STAY)


@mutant("stalled.renewed-suspected", kills=("stalled.forgotten", "race.extend-and-stalled"))
def renewed_suspected(damage: Damage) -> None:
    """A job whose lock is renewed stays marked as possibly stalled."""
    damage.commands("extendLock", _MARKS_STAY)


@mutant("lock.never-let-go", kills=("liveness.no-errors",), by=("liveness/the_lock_of_a_finished_job_is_let_go",))
def never_let_go(damage: Damage) -> None:
    """A worker goes on renewing the locks of jobs that it has finished."""
    damage.replace(LockKeeper, "release", lambda _keeper, _job: None)
