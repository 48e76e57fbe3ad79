"""Telling other clients wrongly, or not at all."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import queue_events
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents, QueueEventsProducer
from conformance.reference_impl.scripts.move import MoveScripts


@mutant(
    "event.exhausted-always",
    kills=("event.retries-exhausted",),
    by=("retry/an_unrecoverable_error_is_final",),
)
def exhausted_always(damage: Damage) -> None:
    """An unrecoverable failure counts as exhausted retries."""
    damage.around(
        MoveScripts,
        "_finish_options",
        lambda healthy: lambda scripts, state, job: {**healthy(scripts, state, job), "attempts": 0},
    )


@mutant("event.reader-raw", kills=("event.reader", "interop.events"))
def reader_raw(damage: Damage) -> None:
    """The event reader hands out JSON texts instead of values."""
    damage.replace(queue_events, "_JSON_FIELDS", {})


@mutant("event.reader-replays", kills=("event.reader",))
def reader_replays(damage: Damage) -> None:
    """The event reader always starts with the oldest entry."""

    def broken(start: Function) -> Function:
        async def find_start(reader: QueueEvents) -> None:
            if vars(reader)["_last_id"] is None:
                vars(reader)["_last_id"] = "0-0"
                damage.witness.note()
            await start(reader)

        return find_start

    damage.around(QueueEvents, "_find_start", broken)


@mutant(
    "event.reader-stops-when-quiet",
    kills=("event.reader",),
    by=("events/a_reader_that_blocks_shortly_misses_nothing",),
)
def reader_stops_when_quiet(damage: Damage) -> None:
    """The event reader ends with the first read that brings nothing."""

    def broken(read: Function) -> Function:
        async def read_once(reader: QueueEvents) -> None:
            before = vars(reader)["_last_id"]
            await read(reader)
            if vars(reader)["_last_id"] == before:
                damage.witness.note()
                await asyncio.Event().wait()

        return read_once

    damage.around(QueueEvents, "_read", broken)


@mutant("event.published-empty", kills=("event.published",))
def published_empty(damage: Damage) -> None:
    """An event of the user has only its name, and none of its fields."""

    def broken(publish: Function) -> Function:
        async def publish_empty(producer: QueueEventsProducer, event: dict[str, Any], most: int = 1000) -> None:
            damage.witness.note()
            await publish(producer, {"eventName": event["eventName"]}, most)

        return publish_empty

    damage.around(QueueEventsProducer, "publishEvent", broken)


@mutant("queue.removes-in-silence", kills=("event.queue",))
def removes_in_silence(damage: Damage) -> None:
    """A queue emits nothing when it has removed a job."""

    def broken(emit: Function) -> Function:
        def emit_others(queue: Queue, event: str, *arguments: Any) -> None:
            if event == "removed":
                damage.witness.note()
            else:
                emit(queue, event, *arguments)

        return emit_others

    damage.around(Queue, "emit", broken)
