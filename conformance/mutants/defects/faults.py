"""Clients that break with the network, with Redis, or with other clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.queues.events import QueueEvents
from conformance.reference_impl.scripts.runner import ScriptCall, ScriptRunner
from conformance.reference_impl.workers.base import WorkerBase
from conformance.reference_impl.workers.locks import LockKeeper
from conformance.reference_impl.workers.stalled import StalledChecker


@mutant("faults.nobody-checks", kills=("chaos.crash",))
def nobody_checks(damage: Damage) -> None:
    """A worker never looks for jobs whose worker is gone."""

    async def nothing(_checker: StalledChecker) -> None:
        return None

    damage.replace(StalledChecker, "start", nothing)


@mutant("faults.late-result-wins", kills=("chaos.partition",))
def late_result_wins(damage: Damage) -> None:
    """A worker that has lost its job stores its result over that of the next owner."""
    own_token = 'cmsgpack.unpack(ARGV[8])["token"]'
    damage.commands(
        "moveToFinished",
        f'if command[1] == "GET" and on(command, "lock") then return {own_token} end '
        'if command[1] == "LREM" then send(unpack(command)) return 1 end',
    )


@mutant("faults.gives-up", kills=("chaos.reconnect",))
def gives_up(damage: Damage) -> None:
    """A worker drops what it was doing when its connection is lost."""

    def once(_persist: Function) -> Function:
        async def try_once(worker: WorkerBase, act: Callable[[], Awaitable[Any]]) -> Any:
            try:
                return await act()
            except Exception as error:
                if is_connection_problem(error):
                    await worker.rest(worker.policy.reconnect.first_s)
                raise

        return try_once

    damage.around(WorkerBase, "persist", once)


@mutant("faults.reads-from-now", kills=("chaos.reconnect",))
def reads_from_now(damage: Damage) -> None:
    """A reader of events begins with the newest entry again when its connection was lost."""

    def forgetful(read: Function) -> Function:
        async def read_or_forget(reader: QueueEvents) -> None:
            try:
                await read(reader)
            except Exception:
                vars(reader)["_last_id"] = None
                raise

        return read_or_forget

    damage.around(QueueEvents, "_read", forgetful)


@mutant("faults.renews-at-the-last-moment", kills=("chaos.renewal-survives",))
def renews_at_the_last_moment(damage: Damage) -> None:
    """A lock is renewed when nine tenths of its life are over."""

    async def run_late(keeper: LockKeeper) -> None:
        worker: WorkerBase = vars(keeper)["_worker"]
        while True:
            await asyncio.sleep(worker.opts["lockDuration"] * 0.9 / 1000)
            held = [one.job for one in vars(keeper)["_held"].values()]
            if held:
                await vars(LockKeeper)["_renew"](keeper, held)

    damage.replace(LockKeeper, "_run", run_late)


@mutant("faults.loads-once", kills=("chaos.redis-restart",))
def loads_once(damage: Damage) -> None:
    """The text of a script is sent once, and never again to a Redis that has forgotten it."""
    sent: set[str] = set()

    def sparing(by_text: Function) -> Function:
        def text_or_digest(runner: ScriptRunner, call: ScriptCall) -> Any:
            if call.name in sent:
                return vars(ScriptRunner)["_by_digest"](runner, call)
            sent.add(call.name)
            return by_text(runner, call)

        return text_or_digest

    damage.around(ScriptRunner, "_by_text", sparing)


@mutant("faults.takes-into-memory", kills=("chaos.at-least-once",))
def takes_into_memory(damage: Damage) -> None:
    """A claimed job is taken out of Redis's lists, so that nobody recovers it when the reply does not arrive."""
    damage.commands(
        "moveToActive",
        'if command[1] == "RPOPLPUSH" then return send("RPOP", command[2]) end',
    )
    damage.commands("moveToFinished", 'if command[1] == "LREM" then send(unpack(command)) return 1 end')
