"""Clients broken on purpose, each with the invariant that gives it away and the fault (if any) that brings it to light.

@chaos_mutant("pop.two-steps", kills="conservation", under="worker.kill")
def pop_in_two_steps(damage: Damage) -> None:
    \"\"\"A job is taken off its queue in one command and claimed in another.\"\"\"
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chaos.crash_points import CrashPoint
from chaos.workload import WorkloadMix
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.environment.clients import Launch
from conformance.mutants.damage import Damage, Function
from conformance.problems import UsageProblem
from conformance.protocol.keys import WAIT
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.locks import LockKeeper
from conformance.reference_impl.workers.worker import Worker

Inflict = Callable[[Damage], None]

_MUTANTS: dict[str, ChaosMutant] = {}


@dataclass(frozen=True)
class ChaosMutant:
    """A broken client. `kills`: the invariant that must be found violated; `under`: the fault, or the crash point."""

    name: str
    what: str
    kills: str
    inflict: Inflict
    under: str | CrashPoint = ""
    mix: WorkloadMix | None = None

    @property
    def launch(self) -> Launch:
        """The command of its driver."""
        return Launch(f"mutant {self.name}", [sys.executable, "-m", "chaos.mutants.driver", self.name])


def chaos_mutant(
    name: str, *, kills: str, under: str | CrashPoint = "", mix: WorkloadMix | None = None
) -> Callable[[Inflict], Inflict]:
    """Declare a mutant. Raises ValueError for a name that is taken, an unknown invariant, or without docstring."""

    def declare(inflict: Inflict) -> Inflict:
        what = inspect.getdoc(inflict) or ""
        if name in _MUTANTS or not what or kills not in {check.name for check in ALL_CHECKS}:
            raise ValueError(f"mutant {name}: the name must be new, the invariant known, and it needs a docstring")
        _MUTANTS[name] = ChaosMutant(name, what, kills, inflict, under, mix)
        return inflict

    return declare


def all_mutants() -> Mapping[str, ChaosMutant]:
    """Every mutant by name."""
    return dict(_MUTANTS)


def find_mutant(name: str) -> ChaosMutant:
    """One mutant. Raises UsageProblem for an unknown name."""
    found = all_mutants().get(name)
    if found is None:
        raise UsageProblem(f"there is no mutant {name!r}", hint=f"use one of {', '.join(sorted(all_mutants()))}")
    return found


LONG_JOBS = WorkloadMix(weights={"slow": 1, "plain": 40}, slow_ms=4500)
"""Longer than two locks live."""
LATE_CHILDREN = WorkloadMix(weights={"flow": 1, "limited": 2}, narrow_ms=300)
"""The last child of a flow ends long after everything else, in another queue than that of its parent."""
AHEAD_MS = 5000
LONG_S = 3600.0


@chaos_mutant("lock.never-renewed", kills="duplicate-runs", mix=LONG_JOBS)
def never_renewed(damage: Damage) -> None:
    """A worker does not renew the locks of its running jobs."""
    damage.replace(LockKeeper, "start", lambda _keeper: None)


@chaos_mutant("lock.foreign-accepted", kills="tokens", under="worker.freeze", mix=LONG_JOBS)
def foreign_accepted(damage: Damage) -> None:
    """Whoever finishes a job may do so, whatever its lock says."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "GET" and on(command, "lock") then return cmsgpack.unpack(ARGV[8])["token"] end',
    )


@chaos_mutant("stalled.dropped", kills="conservation", under="worker.kill", mix=LONG_JOBS)
def dropped(damage: Damage) -> None:
    """The stalled check takes a job out of active and puts it nowhere."""
    damage.commands("moveStalledJobsToWait", 'if command[1] == "RPUSH" then return 1 end')


@chaos_mutant("stalled.locks-ignored", kills="duplicate-runs", mix=LONG_JOBS)
def locks_ignored(damage: Damage) -> None:
    """The stalled check recovers jobs whose workers are well: neither renewals nor locks count."""
    damage.commands("extendLocks", 'if command[1] == "SREM" then return 0 end')
    damage.commands("moveStalledJobsToWait", 'if command[1] == "EXISTS" and on(command, "lock") then return 0 end')


@chaos_mutant("stalled.uncounted", kills="counters", under="worker.kill", mix=LONG_JOBS)
def uncounted(damage: Damage) -> None:
    """A recovery is not counted."""
    damage.commands("moveStalledJobsToWait", 'if command[1] == "HINCRBY" then return 1 end')


@chaos_mutant("stalled.silent", kills="events", under="worker.kill", mix=LONG_JOBS)
def silent(damage: Damage) -> None:
    """A recovery is not told: the job just runs again."""
    damage.commands("moveStalledJobsToWait", 'if event(command) then return "0-0" end')


@chaos_mutant("pop.two-steps", kills="conservation", under="worker.kill-all")
def pop_in_two_steps(damage: Damage) -> None:
    """A job is taken off its queue by one command and claimed by the next: whoever dies in between loses it."""

    def broken(claim: Function) -> Function:
        async def move_to_active(scripts: MoveScripts, token: str) -> Any:
            runner: ScriptRunner = vars(scripts)["_runner"]
            wait: str = vars(scripts)["_owner"].keys.key(WAIT)
            job = await runner.connection.command("RPOP", wait)
            await asyncio.sleep(0.05)
            if job is not None:
                await runner.connection.command("RPUSH", wait, job)
            return await claim(scripts, token)

        return move_to_active

    damage.around(MoveScripts, "move_to_active", broken)


@chaos_mutant("reconnect.never", kills="progress", under="network.outage-all")
def never_reconnects(damage: Damage) -> None:
    """A worker that has lost its connection waits for ever."""

    async def rest_for_ever(worker: Worker, _seconds: float) -> None:
        await worker.close_called.wait()

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
    """A completed job is deleted, although nobody asked for that."""
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


@chaos_mutant("rate.ignored", kills="rate", mix=WorkloadMix(weights={"limited": 10, "plain": 3}))
def rate_ignored(damage: Damage) -> None:
    """The rate limit's counter is not looked at."""
    damage.commands("moveTo*", 'if command[1] == "GET" and on(command, "limiter") then return false end')


@chaos_mutant(
    "concurrency.ignored", kills="concurrency", mix=WorkloadMix(weights={"narrow": 10, "plain": 3}, narrow_ms=200)
)
def concurrency_ignored(damage: Damage) -> None:
    """The global concurrency is not looked at."""
    damage.commands("moveTo*", 'if command[1] == "LLEN" and on(command, "active") then return 0 end')


@chaos_mutant("parent.first-child", kills="parents", mix=WorkloadMix(weights={"flow": 5, "plain": 5}))
def released_early(damage: Damage) -> None:
    """A parent goes on when its first child has completed."""
    damage.commands("moveToFinished", 'if command[1] == "SCARD" and on(command, "dependencies") then return 0 end')


@chaos_mutant("marker.not-set", kills="markers", mix=LATE_CHILDREN)
def marker_not_set(damage: Damage) -> None:
    """A parent is released without a marker, and workers look for jobs only when one wakes them."""
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
def told_twice(damage: Damage) -> None:
    """The end of a job is told twice."""
    damage.commands("moveToFinished", 'if event(command) == "completed" then send(unpack(command)) end')
