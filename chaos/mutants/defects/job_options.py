"""Defects of options: a producer that has reconnected forgets one option of its jobs."""

from __future__ import annotations

from typing import Any

from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.reference_impl.flow_producer import FlowPlan
from conformance.reference_impl.queue import Queue

UNDER = "redis.client-kill"


def _forget(damage: Damage, option: str) -> None:
    """Leave an option out of every single add after a reconnect."""
    reconnections = Reconnections(damage)

    def broken(add: Function) -> Function:
        async def add_without(queue: Queue, name: str, data: Any, opts: Any = None) -> Any:
            hidden = {option} if reconnections.happened else set()
            kept = {asked: value for asked, value in (opts or {}).items() if asked not in hidden}
            return await add(queue, name, data, kept)

        return add_without

    damage.around(Queue, "add", broken)


@chaos_mutant("delay.forgotten", kills="options", under=UNDER)
def delay_forgotten(damage: Damage) -> None:
    """A producer that has reconnected omits the delay from the options of its jobs."""
    _forget(damage, "delay")


@chaos_mutant("priority.forgotten", kills="options", under=UNDER)
def priority_forgotten(damage: Damage) -> None:
    """A producer that has reconnected omits the priority from the options of its jobs."""
    _forget(damage, "priority")


@chaos_mutant("attempts.forgotten", kills="options", under=UNDER)
def attempts_forgotten(damage: Damage) -> None:
    """A producer that has reconnected omits the number of attempts from the options of its jobs."""
    _forget(damage, "attempts")


@chaos_mutant("backoff.not-sent", kills="options", under=UNDER)
def backoff_not_sent(damage: Damage) -> None:
    """A producer that has reconnected omits the back-off from the options of its jobs."""
    _forget(damage, "backoff")


@chaos_mutant("lifo.forgotten", kills="options", under=UNDER)
def lifo_forgotten(damage: Damage) -> None:
    """A producer that has reconnected omits `lifo` from the options of its jobs."""
    _forget(damage, "lifo")


@chaos_mutant("retention.forgotten", kills="options", under=UNDER)
def retention_forgotten(damage: Damage) -> None:
    """A producer that has reconnected omits `removeOnComplete` from the options of its jobs: they are kept."""
    _forget(damage, "removeOnComplete")


@chaos_mutant("parent.forgotten", kills="options", under=UNDER)
def parent_forgotten(damage: Damage) -> None:
    """A producer that has reconnected adds the children of a flow without their parent."""
    reconnections = Reconnections(damage)

    def broken(merge: Function) -> Function:
        def merge_without(flow: Any, queue_name: str, own: Any, parent: Any) -> Any:
            return merge(flow, queue_name, own, None if reconnections.happened else parent)

        return merge_without

    damage.around(FlowPlan, "_merged_options", broken)
