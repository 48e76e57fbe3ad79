"""Defects of connections, of closing, and of reading events after a connection was lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from weakref import WeakSet

from chaos.mutants.catalogue import chaos_mutant
from chaos.mutants.reconnections import Reconnections
from conformance.mutants.damage import Damage, Function
from conformance.protocol.keys import MARKER
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.connection.opening import Entrance
from conformance.reference_impl.policy import ReconnectPolicy
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.loop import WorkerLoop
from conformance.reference_impl.workers.worker import Worker

FEW_ATTEMPTS = 3
SLEEPS_S = 15.0
AWAKE_S = 1.0
"""Connections that open within this time after a sleep were lost together."""
FETCHES_NEXT = 5
"""The index of the argument that asks for the next job."""


@chaos_mutant("connections.leak", kills="connections", under="redis.client-kill")
def leak(damage: Damage) -> None:
    """Every reconnect leaves one more unused socket open."""
    connected: WeakSet[Entrance] = WeakSet()
    leaked: list[asyncio.StreamWriter] = []

    def broken(open_wire: Function) -> Function:
        async def open_twice(entrance: Entrance) -> Any:
            if entrance in connected:
                host, port = vars(entrance)["_address"].nodes[0]
                leaked.append((await asyncio.open_connection(host, port))[1])
            connected.add(entrance)
            return await open_wire(entrance)

        return open_twice

    damage.around(Entrance, "open", broken)


@chaos_mutant("connection.given-up", kills="recovery", under="redis.away-20s")
def connection_given_up(damage: Damage) -> None:
    """A worker tries three times to reconnect to Redis, and then closes silently."""

    def broken(make: Function) -> Function:
        def make_impatient(worker: Worker, *arguments: Any, **options: Any) -> None:
            make(worker, *arguments, **options)
            vars(worker.link)["_policy"] = ReconnectPolicy(max_attempts=FEW_ATTEMPTS)

        return make_impatient

    damage.around(Worker, "__init__", broken)


@chaos_mutant("close.does-not-wait", kills="closing")
def does_not_wait(damage: Damage) -> None:
    """`close()` returns at once, while the jobs in hand go on."""
    behind: set[asyncio.Task[None]] = set()

    def broken(close: Function) -> Function:
        async def close_behind(worker: Worker, force: bool = False) -> None:
            behind.add(asyncio.create_task(close(worker, force)))

        return close_behind

    damage.around(Worker, "close", broken)


@chaos_mutant("close.takes-more", kills="closing")
def takes_more(damage: Damage) -> None:
    """`close()` returns, and the worker claims jobs as before."""

    def broken(close: Function) -> Function:
        async def close_by_force_only(worker: Worker, force: bool = False) -> None:
            if force:
                await close(worker, force)

        return close_by_force_only

    damage.around(Worker, "close", broken)


@chaos_mutant("close.hangs", kills="closing", under="redis.client-kill")
def hangs(damage: Damage) -> None:
    """`close()` of a worker that has reconnected never returns."""
    reconnections = Reconnections(damage)

    def broken(close: Function) -> Function:
        async def close_or_hang(worker: Worker, force: bool = False) -> None:
            await close(worker, force)
            if reconnections.happened and not force:
                await asyncio.Event().wait()

        return close_or_hang

    damage.around(Worker, "close", broken)


@chaos_mutant("events.again-at-dollar", kills="event-readers", under="network.outage-all")
def again_at_dollar(damage: Damage) -> None:
    """A reader that has reconnected continues with new entries, and skips those in between."""

    def broken(read: Function) -> Function:
        async def read_or_skip(reader: QueueEvents) -> None:
            try:
                await read(reader)
            except Exception as error:
                if is_connection_problem(error):
                    vars(reader)["_last_id"] = "$"
                raise

        return read_or_skip

    damage.around(QueueEvents, "_read", broken)


@chaos_mutant("events.repeated", kills="event-readers", under="redis.client-kill")
def repeated(damage: Damage) -> None:
    """A reader that has reconnected starts again at its first entry."""

    def broken(read: Function) -> Function:
        async def read_or_begin_again(reader: QueueEvents) -> None:
            fields = vars(reader)
            first = fields.setdefault("_first_id", fields["_last_id"])
            try:
                await read(reader)
            except Exception as error:
                if is_connection_problem(error):
                    fields["_last_id"] = first
                raise

        return read_or_begin_again

    damage.around(QueueEvents, "_read", broken)


@chaos_mutant("events.same-ms", kills="event-readers")
def same_ms(damage: Damage) -> None:
    """A reader reports only the first entry of a millisecond: it takes the time for the whole id."""

    def broken(emit: Function) -> Function:
        def emit_the_first(reader: QueueEvents, fields: dict[str, Any], entry_id: str) -> None:
            last_ms, fresh_ms = vars(reader).get("_last_ms"), entry_id.partition("-")[0]
            vars(reader)["_last_ms"] = fresh_ms
            if fresh_ms != last_ms:
                emit(reader, fields, entry_id)

        return emit_the_first

    damage.around(QueueEvents, "_emit_entry", broken)


@chaos_mutant("close.drops-fetched", kills="closing")
def drops_fetched(damage: Damage) -> None:
    """A worker that closes still fetches with its last finishes, and drops those jobs."""

    def dropping(start: Function) -> Function:
        def start_or_drop(loop: WorkerLoop) -> bool:
            if not vars(loop)["_worker"].is_open:
                vars(loop)["_fetched"].clear()
            return bool(start(loop))

        return start_or_drop

    damage.argument("moveToFinished", FETCHES_NEXT, lambda _is_open: 1)
    damage.around(WorkerLoop, "_start_fetched", dropping)


@chaos_mutant("reconnect.sleeps", kills="progress", under="network.outage-worker")
def sleeps(damage: Damage) -> None:
    """A process that has reconnected sleeps for 15 s, while others do its work."""
    connected: WeakSet[Entrance] = WeakSet()
    awake_since_s = [0.0]

    def broken(open_wire: Function) -> Function:
        async def open_and_sleep(entrance: Entrance) -> Any:
            wire = await open_wire(entrance)
            if entrance in connected and time.monotonic() > awake_since_s[0] + AWAKE_S:
                time.sleep(SLEEPS_S)  # noqa: ASYNC251 - the defect: everything in the process stands still
                awake_since_s[0] = time.monotonic()
            connected.add(entrance)
            return wire

        return open_and_sleep

    damage.around(Entrance, "open", broken)


@chaos_mutant("pop.no-deadline", kills="progress", under="network.half-open")
def no_deadline(damage: Damage) -> None:
    """A worker waits for a marker without a deadline of its own: on a connection that is half open, for ever."""

    async def pop_for_ever(fetcher: JobFetcher, block_s: float) -> Any:
        worker = vars(fetcher)["_worker"]
        return await worker.blocking_connection.command("BZPOPMIN", worker.keys.key(MARKER), block_s)

    damage.replace(JobFetcher, "_pop_marker", pop_for_ever)
