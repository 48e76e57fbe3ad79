"""Scores, order and markers that other clients cannot find the next job by, also in the fetch that ends another job."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import QueueKeys
from conformance.reference_impl import queue_base
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.move import MoveScripts

_DELAYED = 'command[1] == "ZADD" and on(command, "delayed")'
_PRIORITIZED = 'command[1] == "ZADD" and on(command, "prioritized")'


@mutant("queue.cannot-be-made", kills=("order.meta",))
def cannot_be_made(damage: Damage) -> None:
    """A queue cannot be opened, because the client's package lacks a file."""

    def broken(_make: Function) -> Function:
        def fail(_queue: Queue, *_args: object, **_options: object) -> None:
            raise FileNotFoundError("reprocessJob-6.lua")

        return fail

    damage.around(Queue, "__init__", broken)


@mutant("keys.braces", kills=("key.plain",))
def braces(damage: Damage) -> None:
    """Every key puts the queue into braces."""
    damage.replace(queue_base, "QueueKeys", lambda prefix, queue: QueueKeys(prefix, f"{{{queue}}}"))


@mutant("keys.own-index", kills=("interop.same-state",), warns=("order.no-other-keys",))
def own_index(damage: Damage) -> None:
    """The client keeps an index of its own in Redis."""

    def broken(add: Function) -> Function:
        async def add_and_index(queue: Queue, *args: object) -> object:
            job = await add(queue, *args)
            await queue.connection.command("SADD", queue.keys.key("index"), job.id)
            damage.witness.note()
            return job

        return add_and_index

    damage.around(Queue, "add", broken)


@mutant("fetch-next.unsigned", kills=("fetch-next.signs",))
def unsigned(damage: Damage) -> None:
    """A named worker does not sign the jobs that it got by finishing another."""
    _edit_finish(damage, name=None)


@mutant("fetch-next.short-lock", kills=("fetch-next.lock-duration",))
def short_lock(damage: Damage) -> None:
    """The lock of a job that was got by finishing another lives for a second."""
    _edit_finish(damage, lockDuration=1000)


def _edit_finish(damage: Damage, **options: Any) -> None:
    damage.around(
        MoveScripts,
        "_finish_options",
        lambda healthy: lambda scripts, state, job: {**healthy(scripts, state, job), **options},
    )
