"""Clients that are right as long as no other client acts: they check first, and act on a state that may be outdated.

Each checks with plain commands whether its script may act, and disables the check in the script. If the script would
refuse anyway, it is called unchanged. So only a race shows the difference.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import DEPENDENCIES, LOCK, WAIT
from conformance.reference_impl.connection.connection import text
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.scripts.move import FinishArguments, MoveScripts
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.loop import WorkerLoop
from conformance.reference_impl.workers.worker import Worker

_BLIND = "blind"
_THOUGHT_S = 0.003
"""How long they think about what they saw: longer than another client needs to change it."""
_NEVER_MIND = 'if command[1] == "%s" then send(unpack(command)) return 1 end'

Look = Callable[[ScriptRunner, EvalCommand], Awaitable[bool]]


def _looks_before(damage: Damage, script: str, look: Look, body: str) -> None:
    """Call a script with a filter where `look` has seen that it may act, and without one otherwise."""
    damage.commands(script, f'if ARGV[#ARGV] == "{_BLIND}" then {body} end')

    def broken(run: Function) -> Function:
        async def look_and_run(runner: ScriptRunner, call: EvalCommand) -> Any:
            if call.name == script and await look(runner, call):
                await asyncio.sleep(_THOUGHT_S)
                call = EvalCommand(call.name, call.keys, [*call.arguments, _BLIND])
            return await run(runner, call)

        return look_and_run

    damage.around(ScriptRunner, "run", broken)


def _sweeps_after(damage: Damage, script: str, name: str) -> None:
    """After a script that is called with `PREFIX:QUEUE:`, delete the key `name` of that queue."""

    def broken(run: Function) -> Function:
        async def run_and_sweep(runner: ScriptRunner, call: EvalCommand) -> Any:
            reply = await run(runner, call)
            if call.name == script:
                await asyncio.sleep(_THOUGHT_S)
                [base] = (
                    text for text in (*call.keys, *call.arguments) if isinstance(text, str) and text.endswith(":")
                )
                await runner.connection.command("DEL", base + name)
                damage.witness.note()
            return reply

        return run_and_sweep

    damage.around(ScriptRunner, "run", broken)


def _unpacked(call: EvalCommand, index: int) -> Any:
    packed = call.arguments[index]
    assert isinstance(packed, bytes)
    return msgspec.msgpack.decode(packed)


async def _exists(runner: ScriptRunner, key: Any) -> bool:
    return bool(await runner.connection.command("EXISTS", key))


async def _holds(runner: ScriptRunner, key: str, token: str) -> bool:
    return text(await runner.connection.command("GET", key) or b"") == token


@mutant(
    "race.lock-looked-at-before",
    kills=("stalled.race.one-outcome", "race.next-owner", "race.one-token"),
)
def lock_checked_before(damage: Damage) -> None:
    """A worker checks whether it still has the lock, and then finishes the job without it."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        return await _holds(runner, f"{call.keys[11]}:{LOCK}", _unpacked(call, 7)["token"])

    own = 'cmsgpack.unpack(ARGV[8])["token"]'
    _looks_before(
        damage, "moveToFinished", look, f'if command[1] == "GET" and on(command, "{LOCK}") then return {own} end'
    )


@mutant("race.renewal-looks-before", kills=("race.extend-and-stalled",))
def renewal_looks_before(damage: Damage) -> None:
    """A worker checks whether it still has the lock, and then sets it again."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        return await _holds(runner, call.keys[0], str(call.arguments[0]))

    _looks_before(damage, "extendLock", look, 'if command[1] == "GET" then return ARGV[1] end')


@mutant("race.retry-looks-before", kills=("race.retry-and-remove",))
def retry_looks_before(damage: Damage) -> None:
    """A producer checks whether the job is there, and then puts it to `wait`."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        return await _exists(runner, call.keys[0])

    _looks_before(damage, "reprocessJob", look, f"{_NEVER_MIND % 'EXISTS'} {_NEVER_MIND % 'ZREM'}")


@mutant("race.promotion-looks-before", kills=("race.promote-and-due",))
def promotion_looks_before(damage: Damage) -> None:
    """A producer checks whether the job is delayed, and then puts it to `wait`."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        return await runner.connection.command("ZSCORE", call.keys[0], call.arguments[1]) is not None

    _looks_before(damage, "promote", look, _NEVER_MIND % "ZREM")


@mutant("race.progress-looks-before", kills=("race.progress-and-finish",))
def progress_looks_before(damage: Damage) -> None:
    """A producer checks whether the job is there, and then writes to its hash."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        return await _exists(runner, call.keys[0])

    _looks_before(damage, "updateProgress", look, _NEVER_MIND % "EXISTS")


@mutant("race.id-looked-for-before", kills=("race.same-id",))
def id_looked_for_before(damage: Damage) -> None:
    """A producer checks whether the id is free, and then stores its job under it."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        base, job_id = _unpacked(call, 0)[:2]
        return bool(job_id) and not await _exists(runner, f"{base}{job_id}")

    _looks_before(damage, "addStandardJob", look, 'if command[1] == "EXISTS" then return 0 end')


@mutant("race.children-counted-before", kills=("race.last-children", "race.remove-child"))
def children_counted_before(damage: Damage) -> None:
    """A worker counts the siblings that are left, and releases the parent only if there was none then."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        parent = await runner.connection.command("HGET", call.keys[11], "parentKey")
        return bool(parent) and await runner.connection.command("SCARD", f"{text(parent)}:{DEPENDENCIES}") > 1

    own = f'KEYS[12] .. ":{DEPENDENCIES}"'
    _looks_before(damage, "moveToFinished", look, f'if command[1] == "SCARD" and command[2] ~= {own} then return 1 end')


@mutant("race.removal-looks-before", kills=("race.remove-child",))
def removal_looks_before(damage: Damage) -> None:
    """A producer checks whether the job is locked, and then removes it without the check of the script."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        return not await _exists(runner, f"{call.keys[0]}:{LOCK}")

    _looks_before(damage, "removeJob", look, f'if command[1] == "GET" and on(command, "{LOCK}") then return false end')


@mutant("race.pause-looked-for-before", kills=("race.pause-and-fetch",))
def pause_looked_for_before(damage: Damage) -> None:
    """A worker checks whether the queue is paused, and then takes the next job wherever it is."""

    async def look(runner: ScriptRunner, call: EvalCommand) -> bool:
        return not await runner.connection.command("HEXISTS", call.keys[8], "paused")

    body = (
        'if command[1] == "HMGET" then local found = send(unpack(command)) found[1] = false return found end '
        'if command[1] == "RPOPLPUSH" then return send(unpack(command)) or send("RPOPLPUSH", KEYS[8], KEYS[2]) end'
    )
    _looks_before(damage, "moveToActive", look, body)


@mutant("race.drain-sweeps", kills=("race.add-and-drain",))
def drain_sweeps(damage: Damage) -> None:
    """A producer that has drained a queue deletes the list `wait` to be sure."""
    _sweeps_after(damage, "drain", WAIT)


@mutant("race.obliteration-sweeps", kills=("race.add-and-obliterate",))
def obliteration_sweeps(damage: Damage) -> None:
    """A producer that has obliterated a queue deletes the list `wait` to be sure."""
    _sweeps_after(damage, "obliterate", WAIT)


@mutant("race.close-abandons-fetch", kills=("race.close-and-fetch",))
def close_abandons_fetch(damage: Damage) -> None:
    """A worker that is closed waits for the jobs that run, and not for the one that is on its way to it."""

    def broken(wait: Function) -> Function:
        async def wait_if_anything_runs(worker: Worker) -> bool:
            return _runs_anything(worker) and await wait(worker)

        return wait_if_anything_runs

    damage.around(Worker, "_all_ended_in_time", broken)


@mutant("race.pause-forgets-fetch", kills=("race.worker-pause-and-fetch",))
def pause_forgets_fetch(damage: Damage) -> None:
    """A worker that is paused waits for the jobs that run, and not for the one that is on its way to it."""

    def broken(pause: Function) -> Function:
        async def wait_if_anything_runs(worker: Worker, at_once: bool = False) -> None:
            await pause(worker, at_once or not _runs_anything(worker))

        return wait_if_anything_runs

    damage.around(Worker, "pause", broken)


@mutant("race.stop-drops-fetched", kills=("race.close-and-fetch", "race.worker-pause-and-fetch"))
def stop_drops_fetched(damage: Damage) -> None:
    """A worker that stops drops the jobs that the ends of its last jobs have brought; they stay active."""

    def broken(start_fetched: Function) -> Function:
        def start_if_open(loop: WorkerLoop) -> bool:
            worker: Worker = vars(loop)["_worker"]
            fetched: deque[Job] = vars(loop)["_fetched"]
            if fetched and not worker.is_open:
                fetched.clear()
                damage.witness.note()
            return bool(start_fetched(loop))

        return start_if_open

    damage.around(WorkerLoop, "_start_fetched", broken)


@mutant("race.closed-reader-crashes", kills=("race.close-and-read",))
def closed_reader_crashes(damage: Damage) -> None:
    """A reader of events that is closed during a read crashes, and so does the call that closes it."""

    def broken(close: Function) -> Function:
        async def close_and_crash(reader: QueueEvents) -> None:
            reading = not vars(reader)["_task"].done()
            await close(reader)
            if reading:
                damage.witness.note()
                raise RuntimeError("the reply to a read that is not expected any more")

        return close_and_crash

    damage.around(QueueEvents, "close", broken)


def _runs_anything(worker: Worker) -> bool:
    """Whether a job has been started and not ended."""
    loop: WorkerLoop | None = vars(worker)["_loop"]
    return loop is None or bool(vars(loop)["_running"])


@mutant("race.stop-swallows-wake-up", kills=("race.stop-and-wake-up",))
def stop_swallows_wake_up(damage: Damage) -> None:
    """A worker that stops throws its wait for a marker away, with the marker if it has one."""

    def throw_away(fetcher: JobFetcher) -> None:
        wait: asyncio.Task[Any] | None = vars(fetcher)["_marker_wait"]
        if wait is not None:
            wait.cancel()

    damage.replace(JobFetcher, "interrupt", throw_away)


@mutant("race.token-made-own", kills=("race.one-token",))
def token_made_own(damage: Damage) -> None:
    """A worker makes every token its own, so that no other worker can act under it."""

    def own(scripts: MoveScripts, token: str) -> str:
        return f"{token}:{id(scripts)}"

    def claims(healthy: Function) -> Function:
        async def move_to_active(scripts: MoveScripts, token: str) -> Any:
            return await healthy(scripts, own(scripts, token))

        return move_to_active

    def renews(healthy: Function) -> Function:
        async def extend_lock(scripts: MoveScripts, job_id: str, token: str, duration: float) -> Any:
            return await healthy(scripts, job_id, own(scripts, token), duration)

        return extend_lock

    def finishes(healthy: Function) -> Function:
        async def move_to_finished(scripts: MoveScripts, finish: FinishArguments) -> Any:
            return await healthy(scripts, replace(finish, token=own(scripts, finish.token)))

        return move_to_finished

    damage.around(MoveScripts, "move_to_active", claims)
    damage.around(MoveScripts, "extend_lock", renews)
    damage.around(MoveScripts, "move_to_finished", finishes)
