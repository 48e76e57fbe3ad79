"""Defects of producers: calls that fail, lie, or do half of what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError

from chaos.crash_points import CrashPoint
from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner

ADDING = "add"
"""Prefixes of the names of scripts that add jobs."""


def _adds(calls: EvalCommand | Sequence[EvalCommand]) -> bool:
    named = [calls] if isinstance(calls, EvalCommand) else calls
    return any(call.name.startswith(ADDING) for call in named)


@chaos_mutant("producer.dead", kills="recovery", under="redis.client-kill")
def dead(damage: Damage) -> None:
    """A producer that has reconnected adds no jobs any more: every call fails as if the connection were lost."""
    reconnections = Reconnections(damage)

    def broken(run: Function) -> Function:
        async def run_until_lost(runner: ScriptRunner, calls: Any) -> Any:
            if _adds(calls) and reconnections.happened:
                raise RedisConnectionError("Connection is closed.")
            return await run(runner, calls)

        return run_until_lost

    for method in ("run", "run_pipeline", "run_transaction"):
        damage.around(ScriptRunner, method, broken)


@chaos_mutant("producer.refuses", kills="recovery")
def refuses(damage: Damage) -> None:
    """Every call that adds a job fails."""

    def broken(run: Function) -> Function:
        async def refuse(runner: ScriptRunner, calls: Any) -> Any:
            if _adds(calls):
                raise BullMQError("no")
            return await run(runner, calls)

        return refuse

    for method in ("run", "run_pipeline", "run_transaction"):
        damage.around(ScriptRunner, method, broken)


@chaos_mutant("add.answered-unsent", kills="durability", under="network.outage-all")
def answered_unsent(damage: Damage) -> None:
    """An add that does not reach Redis still returns an id."""
    made_up = iter(range(1_000_000, 2_000_000))

    def broken(run: Function) -> Function:
        async def run_or_pretend(runner: ScriptRunner, call: EvalCommand) -> Any:
            try:
                return await run(runner, call)
            except Exception as error:
                if is_connection_problem(error) and _adds(call):
                    return str(next(made_up)).encode()
                raise

        return run_or_pretend

    damage.around(ScriptRunner, "run", broken)


@chaos_mutant(
    "add.lost-said-failed",
    kills="indeterminate",
    under=CrashPoint(segment="add", script="addStandardJob", point="after-execute", hurt="cut"),
)
def lost_said_failed(damage: Damage) -> None:
    """An add whose reply is lost is reported as certainly failed."""

    def broken(run: Function) -> Function:
        async def run_and_deny(runner: ScriptRunner, call: EvalCommand) -> Any:
            try:
                return await run(runner, call)
            except Exception as error:
                if is_connection_problem(error) and _adds(call):
                    raise BullMQError("the job was not added") from error
                raise

        return run_and_deny

    damage.around(ScriptRunner, "run", broken)


@chaos_mutant("scripts.loaded-once", kills="recovery", under="redis.script-flush")
def loaded_once(damage: Damage) -> None:
    """A script that Redis once knew is never sent again, although Redis may have forgotten it."""
    known: set[str] = set()

    async def run(runner: ScriptRunner, call: EvalCommand) -> Any:
        fields = vars(ScriptRunner)
        try:
            reply = await runner.connection.command(*fields["_by_digest"](runner, call))
        except NoScriptError:
            if call.name in known:
                raise
            reply = await runner.connection.command(*fields["_by_text"](runner, call))
        known.add(call.name)
        return reply

    damage.replace(ScriptRunner, "run", run)


@chaos_mutant(
    "flow.not-atomic",
    kills="indeterminate",
    under=CrashPoint(segment="flow", script="addParentJob", point="after-execute", hurt="kill"),
)
def not_atomic(damage: Damage) -> None:
    """The jobs of a flow are added one after the other: a producer that dies in between leaves half of it."""

    async def one_by_one(runner: ScriptRunner, calls: Sequence[EvalCommand]) -> list[Any]:
        return [await runner.run(call) for call in calls]

    damage.replace(ScriptRunner, "run_transaction", one_by_one)
