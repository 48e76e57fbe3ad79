"""Clients that are right alone and wrong together with another: only one assignment of roles loses or repeats a job.

Like two versions that store something in two places, or a port that remembers what it should read. Each of these
clients remembers its own calls, and goes wrong with jobs of another client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol import keys
from conformance.reference_impl.connection.connection import text
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner

_FORGETFUL = "forgetful"
"""The argument, behind all others, that lets a script go wrong."""

_ADDS = frozenset({"addStandardJob", "addDelayedJob", "addPrioritizedJob"})


@dataclass
class _OwnCalls:
    """The calls of this client in one queue: the ids of jobs, the ids of schedulers."""

    added: set[str] = field(default_factory=set)
    claimed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    schedulers: set[str] = field(default_factory=set)
    paused: bool = False

    def note(self, call: EvalCommand, reply: Any) -> None:
        """Remember what a script has done."""
        if call.name in _ADDS and isinstance(reply, bytes):
            self.added.add(text(reply))
        elif call.name == "pause":
            self.paused = call.arguments[0] == "paused"
        elif call.name == "addJobScheduler":
            self.schedulers.add(str(call.arguments[2]))
        elif call.name in ("moveToActive", "moveToFinished"):
            if "failed" in call.arguments:
                self.failed.add(str(call.arguments[0]))
            if isinstance(reply, list) and reply[0]:
                self.claimed.add(text(reply[1]))


Run = Callable[[EvalCommand], Awaitable[Any]]
"""Runs a script by the book."""
Skewed = Callable[[ScriptRunner, EvalCommand, _OwnCalls, Run], Awaitable[Any]]
"""Runs a script, knowing what the client has done itself."""


def _remembers(damage: Damage, script: str, skewed: Skewed) -> None:
    """Let a client that remembers only its own calls run one script."""
    deeds: defaultdict[str, _OwnCalls] = defaultdict(_OwnCalls)

    def broken(healthy: Function) -> Function:
        async def run(runner: ScriptRunner, call: EvalCommand) -> Any:
            own = deeds[_queue_of(call)]

            async def by_the_book(sent: EvalCommand) -> Any:
                return await healthy(runner, sent)

            reply = await (skewed(runner, call, own, by_the_book) if call.name == script else by_the_book(call))
            own.note(call, reply)
            return reply

        return run

    damage.around(ScriptRunner, "run", broken)


def _forgetful(call: EvalCommand) -> EvalCommand:
    return EvalCommand(call.name, call.keys, [*call.arguments, _FORGETFUL])


def _if_forgetful(body: str) -> str:
    return f'if ARGV[#ARGV] == "{_FORGETFUL}" then {body} end'


def _queue_of(call: EvalCommand) -> str:
    """`PREFIX:QUEUE:`; a call has at least one key of its queue itself, and those of jobs are longer."""
    return min((str(key).rpartition(":")[0] + ":" for key in call.keys if key), key=len)


async def _redis(runner: ScriptRunner, *command: Any) -> Any:
    return await runner.connection.command(*command)


@mutant("skew.adds-beside-a-foreign-pause", kills=("interop.no-job-lost",))
def adds_during_a_foreign_pause(damage: Damage) -> None:
    """It adds to `wait` while another has the queue paused; when it resumes itself, it tidies that up before.

    Lost where the other pauses, this one adds, and the other resumes: RENAME puts `paused` in the place of `wait`.
    """
    damage.commands(
        "addStandardJob",
        _if_forgetful(
            'if command[1] == "HMGET" and on(command, "meta") then '
            "local found = send(unpack(command)) found[1] = false return found end"
        ),
    )

    async def add(_runner: ScriptRunner, call: EvalCommand, own: _OwnCalls, run: Run) -> Any:
        return await run(call if own.paused else _forgetful(call))

    _remembers(damage, "addStandardJob", add)
    damage.commands(
        "pause",
        _if_forgetful(
            'if command[1] == "RENAME" then while send("LMOVE", command[3], command[2], "RIGHT", "LEFT") do end end'
        ),
    )

    async def resume(_runner: ScriptRunner, call: EvalCommand, _own: _OwnCalls, run: Run) -> Any:
        return await run(_forgetful(call) if call.arguments[0] == "resumed" else call)

    _remembers(damage, "pause", resume)


@mutant("skew.resume-leaves-foreign-jobs", kills=("interop.no-job-lost",))
def resume_leaves_foreign_jobs(damage: Damage) -> None:
    """It resumes the queue that another has paused, and leaves the jobs in `paused` if none of them is its own.

    Lost where the other pauses and adds, and this one resumes.
    """
    damage.commands("pause", _if_forgetful('if command[1] == "RENAME" then return 0 end'))

    async def resume(runner: ScriptRunner, call: EvalCommand, own: _OwnCalls, run: Run) -> Any:
        if call.arguments[0] == "paused" or own.paused:
            return await run(call)
        parked = [text(job) for job in await _redis(runner, "LRANGE", _queue_of(call) + keys.PAUSED, 0, -1)]
        return await run(call if own.added & {*parked} else _forgetful(call))

    _remembers(damage, "pause", resume)


@mutant("skew.recovers-twice", kills=("interop.run-once",))
def recovers_twice(damage: Damage) -> None:
    """It puts back twice what it added itself and another was working on.

    Run twice where this one adds, the other holds the job and goes away, and this one recovers it.
    """
    damage.commands("moveStalledJobsToWait", _if_forgetful('if command[1] == "RPUSH" then send(unpack(command)) end'))

    async def recover(runner: ScriptRunner, call: EvalCommand, own: _OwnCalls, run: Run) -> Any:
        suspected = {text(job) for job in await _redis(runner, "SMEMBERS", _queue_of(call) + keys.STALLED)}
        return await run(_forgetful(call) if suspected & (own.added - own.claimed) else call)

    _remembers(damage, "moveStalledJobsToWait", recover)


@mutant("skew.scheduler-keeps-foreign-job", kills=("interop.scheduler",))
def scheduler_keeps_foreign_job(damage: Damage) -> None:
    """It changes a scheduler that another has made, and does not replace the job that this one has ahead.

    Two jobs for one iteration where the other makes the scheduler and this one changes it.
    """
    damage.commands(
        "addJobScheduler",
        _if_forgetful(
            'if command[1] == "ZSCORE" and not on(command, "repeat") then return false end '
            'if command[1] == "LREM" then return 0 end'
        ),
    )

    async def change(runner: ScriptRunner, call: EvalCommand, own: _OwnCalls, run: Run) -> Any:
        scheduler = str(call.arguments[2])
        known = await _redis(runner, "ZSCORE", _queue_of(call) + keys.REPEAT, scheduler)
        return await run(call if scheduler in own.schedulers or not known else _forgetful(call))

    _remembers(damage, "addJobScheduler", change)


@mutant("skew.retry-drops-foreign-job", kills=("interop.no-job-lost",))
def retry_drops_foreign_job(damage: Damage) -> None:
    """It takes a job from `failed` to retry it, and puts it nowhere, if another has added it and has failed in it.

    Lost where the other adds and works, and this one retries.
    """
    damage.commands("reprocessJob", _if_forgetful('if command[1] == "LPUSH" then return 1 end'))

    async def retry(_runner: ScriptRunner, call: EvalCommand, own: _OwnCalls, run: Run) -> Any:
        job = str(call.arguments[0])
        return await run(call if job in own.added | own.failed else _forgetful(call))

    _remembers(damage, "reprocessJob", retry)


@mutant("retry.refuses-foreign-job", kills=("interop.retried.by-hand",))
def retry_refuses_foreign_job(damage: Damage) -> None:
    """It takes a job that another has added for one that cannot be retried."""
    not_in_that_state = -3

    async def retry(_runner: ScriptRunner, call: EvalCommand, own: _OwnCalls, run: Run) -> Any:
        return await run(call) if str(call.arguments[0]) in own.added else not_in_that_state

    _remembers(damage, "reprocessJob", retry)
