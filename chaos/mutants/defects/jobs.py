"""Defects of scripts and of the worker's loop: claiming, moving and finishing jobs, and their remains."""

from __future__ import annotations

import asyncio
from typing import Any

from chaos.crash_points import CrashPoint
from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.protocol.keys import WAIT
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.worker import Worker

AHEAD_MS = 5000
LONG_S = 3600.0


@chaos_mutant("lock.foreign-accepted", kills="tokens", under="worker.freeze")
def foreign_accepted(damage: Damage) -> None:
    """A job can be finished without its lock."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "GET" and on(command, "lock") then return cmsgpack.unpack(ARGV[8])["token"] end',
    )


@chaos_mutant("stalled.dropped", kills="conservation", under="worker.kill")
def dropped(damage: Damage) -> None:
    """The stalled check removes a job from active and does not put it anywhere."""
    damage.commands("moveStalledJobsToWait", 'if command[1] == "RPUSH" then return 1 end')


@chaos_mutant("stalled.locks-ignored", kills="duplicate-runs")
def locks_ignored(damage: Damage) -> None:
    """The stalled check recovers jobs of healthy workers: it ignores renewals and locks."""
    damage.commands("extendLocks", 'if command[1] == "SREM" then return 0 end')
    damage.commands("moveStalledJobsToWait", 'if command[1] == "EXISTS" and on(command, "lock") then return 0 end')


@chaos_mutant("stalled.uncounted", kills="counters", under="worker.kill")
def uncounted(damage: Damage) -> None:
    """A recovery is not counted."""
    damage.commands("moveStalledJobsToWait", 'if command[1] == "HINCRBY" then return 1 end')


@chaos_mutant("stalled.silent", kills="events", under="worker.kill")
def silent(damage: Damage) -> None:
    """A recovery emits no event: the job just runs again."""
    damage.commands("moveStalledJobsToWait", 'if event(command) then return "0-0" end')


@chaos_mutant("pop.two-steps", kills="conservation", under="worker.kill-all")
def pop_in_two_steps(damage: Damage) -> None:
    """A job is taken off its queue by one command and claimed by the next: a worker that dies in between loses it."""

    def broken(claim: Function) -> Function:
        async def move_to_active(scripts: MoveScripts, token: str) -> Any:
            return await _claim_in_two_steps(scripts, token, claim)

        return move_to_active

    damage.around(MoveScripts, "move_to_active", broken)


@chaos_mutant("pop.two-steps-reconnected", kills="conservation", under="worker.kill-reconnected")
def pop_in_two_steps_after_reconnect(damage: Damage) -> None:
    """A worker that has reconnected takes a job off its queue by one command and claims it by the next."""
    reconnections = Reconnections(damage)

    def broken(claim: Function) -> Function:
        async def move_to_active(scripts: MoveScripts, token: str) -> Any:
            if not reconnections.happened:
                return await claim(scripts, token)
            return await _claim_in_two_steps(scripts, token, claim)

        return move_to_active

    damage.around(MoveScripts, "move_to_active", broken)


async def _claim_in_two_steps(scripts: MoveScripts, token: str, claim: Function) -> Any:
    runner: ScriptRunner = vars(scripts)["_runner"]
    wait: str = vars(scripts)["_owner"].keys.key(WAIT)
    job = await runner.connection.command("RPOP", wait)
    await asyncio.sleep(0.05)
    if job is not None:
        await runner.connection.command("RPUSH", wait, job)
    return await claim(scripts, token)


@chaos_mutant("reconnect.never", kills="progress", under="network.outage-all")
def never_reconnects(damage: Damage) -> None:
    """A worker that has lost its connection waits for ever."""

    async def rest_for_ever(worker: Worker, _seconds: float) -> None:
        await worker.lifecycle.close_called.wait()

    damage.replace(Worker, "rest", rest_for_ever)


@chaos_mutant(
    "add.repeated",
    kills="indeterminate",
    under=CrashPoint(segment="add", script="addStandardJob", point="after-execute", hurt="cut"),
)
def repeated(damage: Damage) -> None:
    """An add whose reply is lost is sent again, although it may have happened."""

    def broken(run: Function) -> Function:
        async def run_again(runner: ScriptRunner, call: EvalCommand) -> Any:
            try:
                return await run(runner, call)
            except Exception as error:
                if is_connection_problem(error) and call.name.startswith("add"):
                    return await run(runner, call)
                raise

        return run_again

    damage.around(ScriptRunner, "run", broken)


@chaos_mutant("add.forgotten", kills="durability")
def forgotten(damage: Damage) -> None:
    """A completed job is deleted, although its options do not ask for that."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "ZADD" and on(command, "completed") then send("DEL", KEYS[12]) return 1 end',
    )


@chaos_mutant("promote.early", kills="timing")
def early(damage: Damage) -> None:
    """Delayed jobs are promoted seconds before they are due."""
    damage.argument("moveToActive", 1, lambda now: int(now) + AHEAD_MS)


@chaos_mutant("order.last-first", kills="order")
def last_first(damage: Damage) -> None:
    """The newest job runs first."""
    damage.commands(
        "moveTo*",
        'if command[1] == "RPOPLPUSH" then return send("LMOVE", command[2], command[3], "LEFT", "LEFT") end',
    )


@chaos_mutant("rate.ignored", kills="rate")
def rate_ignored(damage: Damage) -> None:
    """The counter of the rate limit is ignored."""
    damage.commands("moveTo*", 'if command[1] == "GET" and on(command, "limiter") then return false end')


@chaos_mutant("concurrency.ignored", kills="concurrency")
def concurrency_ignored(damage: Damage) -> None:
    """The global concurrency is ignored."""
    damage.commands("moveTo*", 'if command[1] == "LLEN" and on(command, "active") then return 0 end')


@chaos_mutant("parent.first-child", kills="parents")
def released_early(damage: Damage) -> None:
    """A parent is released when its first child has completed."""
    damage.commands("moveToFinished", 'if command[1] == "SCARD" and on(command, "dependencies") then return 0 end')


@chaos_mutant("marker.not-set", kills="markers")
def marker_not_set(damage: Damage) -> None:
    """A parent is released without a marker, and workers only look for jobs when a marker wakes them."""
    damage.commands("moveToFinished", 'if command[1] == "ZADD" and on(command, "marker") then return 1 end')

    def broken(timeout: Function) -> Function:
        def block_timeout(fetcher: JobFetcher, block_until: float) -> float:
            due: float = timeout(fetcher, block_until)
            return due if block_until else LONG_S

        return block_timeout

    damage.around(JobFetcher, "_block_timeout", broken)


@chaos_mutant("finish.lock-kept", kills="orphans")
def lock_kept(damage: Damage) -> None:
    """A finished job stays locked."""
    damage.commands("moveToFinished", 'if command[1] == "DEL" and on(command, "lock") then return 1 end')


@chaos_mutant("finish.told-twice", kills="events")
def emitted_twice(damage: Damage) -> None:
    """The end of a job is emitted twice."""
    damage.commands("moveToFinished", 'if event(command) == "completed" then send(unpack(command)) end')
