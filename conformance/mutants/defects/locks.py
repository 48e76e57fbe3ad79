"""Locks that stop no worker or the wrong one, and stalled jobs recovered at the wrong time, wrongly or never."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.scripts.runner import EvalCommand
from conformance.reference_impl.workers.locks import LockKeeper, StalledChecker
from conformance.reference_impl.workers.loop import WorkerLoop
from conformance.reference_impl.workers.worker import Worker

_STALLED_CHECK = "moveStalledJobsToWait"


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


@mutant("lock.lost-for-good", kills=("lock.lost.handler-goes-on",))
def lost_after_one_failure(damage: Damage) -> None:
    """A worker that could not renew a lock once never tries again."""

    def emit_and_forget(keeper: LockKeeper, job_ids: list[str], _error: Exception) -> None:
        held: dict[tuple[str, str | None], Any] = vars(keeper)["_held"]
        for run in [run for run in held if run[0] in job_ids]:
            del held[run]

    damage.replace(LockKeeper, "_emit_failure", emit_and_forget)


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


@mutant("stalled.forgiven-for-ever", kills=("stalled.limit",))
def forgiven_for_ever(damage: Damage) -> None:
    """`maxStalledCount` has no effect."""
    damage.argument(_STALLED_CHECK, 0, lambda _limit: 1_000_000)


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
