"""Defects of renewing locks, and of the check for stalled jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import IO, Any

import msgpack

from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.defects.limits import PACKED
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.packing import pack
from conformance.reference_impl.scripts.runner import EvalCommand
from conformance.reference_impl.workers.locks import LockKeeper, StalledChecker

DEFAULT_LOCK_MS = 30_000
LATE = 0.8
"""The share of a lock's life after which the late renewal comes."""


@chaos_mutant("lock.never-renewed", kills="renewals")
def never_renewed(damage: Damage) -> None:
    """A worker does not renew the locks of its running jobs."""
    damage.replace(LockKeeper, "start", lambda _keeper: None)


@chaos_mutant("lock.not-after-reconnect", kills="renewals", under="redis.client-kill")
def not_after_reconnect(damage: Damage) -> None:
    """A worker that has reconnected no longer renews locks."""
    reconnections = Reconnections(damage)

    def broken(renew: Function) -> Function:
        async def renew_until_reconnected(keeper: LockKeeper, jobs: list[Job]) -> None:
            if not reconnections.happened:
                await renew(keeper, jobs)

        return renew_until_reconnected

    damage.around(LockKeeper, "_renew", broken)


@chaos_mutant("lock.renewed-late", kills="renewals")
def renewed_late(damage: Damage) -> None:
    """A lock is renewed after four fifths of its life, instead of a quarter or a half."""

    def broken(due: Function) -> Function:
        def due_late(keeper: LockKeeper, _interval_ms: float) -> list[Job]:
            jobs: list[Job] = due(keeper, LATE * vars(keeper)["_worker"].opts["lockDuration"])
            return jobs

        return due_late

    damage.around(LockKeeper, "_due", broken)


@chaos_mutant("stalled.check-ends", kills="progress", under="network.truncate")
def check_ends(damage: Damage) -> None:
    """A worker that has reconnected no longer checks for stalled jobs: a claim whose reply was lost stays active."""
    reconnections = Reconnections(damage)

    def broken(check: Function) -> Function:
        async def check_until_reconnected(checker: StalledChecker) -> Any:
            return [] if reconnections.happened else await check(checker)

        return check_until_reconnected

    damage.around(StalledChecker, "check", broken)


@chaos_mutant("stalled.takes-all", kills="duplicate-runs", under="worker.freeze")
def takes_all(damage: Damage) -> None:
    """A stalled check that finds one expired lock recovers all active jobs, also those of healthy workers."""
    damage.commands(
        "moveStalledJobsToWait",
        """
        if command[1] == "SMEMBERS" then
          local marked = send(unpack(command))
          for _, job in ipairs(marked) do
            if send("EXISTS", ARGV[2] .. job .. ":lock") == 0 then memory.expired = true end
          end
          return memory.expired and send("LRANGE", KEYS[3], 0, -1) or marked
        end
        if command[1] == "EXISTS" and on(command, "lock") and memory.expired then return 0 end
        """,
    )


@chaos_mutant("lock.child-outlives", kills="progress", under="worker.kill")
def child_outlives(damage: Damage) -> None:
    """A child process also renews the locks of its worker, and outlives it: the jobs of a dead worker never stall."""

    @cache
    def orders(host: str, port: int, lock_ms: int) -> IO[str]:
        words = [sys.executable, "-m", "chaos.mutants.lock_child", host, str(port), str(lock_ms)]
        # In a session of its own, so that a signal to the worker's group does not reach it.
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert child.stdin is not None
        return child.stdin

    def telling(order: str) -> Callable[[Function], Function]:
        def broken(act: Function) -> Function:
            def act_and_tell(keeper: LockKeeper, job: Job) -> None:
                act(keeper, job)
                worker = vars(keeper)["_worker"]
                [(host, port), *_] = worker.opts["connection"].nodes
                pipe = orders(host, port, worker.opts["lockDuration"])
                print(order, worker.keys.key(f"{job.known_id}:lock"), job.token, file=pipe, flush=True)

            return act_and_tell

        return broken

    damage.around(LockKeeper, "hold", telling("hold"))
    damage.around(LockKeeper, "release", telling("release"))


@chaos_mutant("lock.default-after-reconnect", kills="renewals", under="redis.client-kill")
def default_after_reconnect(damage: Damage) -> None:
    """A worker that has reconnected claims jobs for BullMQ's default of 30 s instead of its `lockDuration`."""
    reconnections = Reconnections(damage)

    def broken(script: str) -> Callable[[EvalCommand], EvalCommand]:
        def edit(call: EvalCommand) -> EvalCommand:
            if not reconnections.happened:
                return call
            arguments, index = list(call.arguments), PACKED[script]
            options = msgpack.unpackb(bytes(arguments[index]), raw=False)  # type: ignore[arg-type]
            arguments[index] = pack({**options, "lockDuration": DEFAULT_LOCK_MS})
            return EvalCommand(call.name, call.keys, arguments)

        return edit

    for script in PACKED:
        damage.calls(script, broken(script))
