"""Defects of limits: rates, and deduplication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.packing import pack
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import EvalCommand

PACKED = {"moveToActive": 2, "moveToFinished": 7}
"""The index of the packed options that contain the limiter."""


def _with_limiter(damage: Damage, change: Callable[[Any], Any]) -> None:
    """Change the limiter that a worker sends in the calls that claim jobs."""

    def broken(script: str) -> Callable[[EvalCommand], EvalCommand]:
        def edit(call: EvalCommand) -> EvalCommand:
            arguments, index = list(call.arguments), PACKED[script]
            options = msgpack.unpackb(bytes(arguments[index]), raw=False)  # type: ignore[arg-type]
            arguments[index] = pack({**options, "limiter": change(options.get("limiter"))})
            return EvalCommand(call.name, call.keys, arguments)

        return edit

    for script in PACKED:
        damage.calls(script, broken(script))


@chaos_mutant("limiter.forgotten", kills="rate", under="redis.client-kill")
def limiter_forgotten(damage: Damage) -> None:
    """A worker that has reconnected no longer sends its limiter."""
    reconnections = Reconnections(damage)
    _with_limiter(damage, lambda limiter: None if reconnections.happened else limiter)


@chaos_mutant("limiter.per-worker", kills="rate")
def limiter_per_worker(damage: Damage) -> None:
    """Each worker counts its own starts, so all of them together exceed the limit."""
    _with_limiter(damage, lambda limiter: limiter and {**limiter, "max": 2 * limiter["max"]})


@chaos_mutant("deduplication.forgotten", kills="deduplication", under="redis.client-kill")
def deduplication_forgotten(damage: Damage) -> None:
    """A producer that has reconnected omits the deduplication from the options of its jobs."""
    reconnections = Reconnections(damage)

    def broken(add: Function) -> Function:
        async def add_plainly(queue: Queue, name: str, data: Any, opts: Any = None) -> Any:
            hidden = {"deduplication"} if reconnections.happened else set()
            kept = {option: value for option, value in (opts or {}).items() if option not in hidden}
            return await add(queue, name, data, kept)

        return add_plainly

    damage.around(Queue, "add", broken)
