"""Clients that have too many connections, connect in the wrong way or at the wrong time, or trust a dead connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionClosed

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import MARKER
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import CONNECTION_LOST, Connection
from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.policy import ReconnectPolicy
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_base import QueueBase
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.locks import StalledChecker
from conformance.reference_impl.workers.worker import Worker

CHECKS_AFTER_CLOSE = 10


@mutant("worker.waits-for-the-dead", kills=("connection.silent",))
def waits_for_the_dead(damage: Damage) -> None:
    """A wait for work has no end if its connection stays silent."""

    async def pop_marker(fetcher: JobFetcher, block_s: float) -> Any:
        worker = vars(fetcher)["_worker"]
        damage.witness.note()
        return await worker.blocking_connection.command("BZPOPMIN", worker.keys.key(MARKER), block_s)

    damage.replace(JobFetcher, "_pop_marker", pop_marker)


@mutant("worker.hurries", kills=("connection.paced",))
def hurries(damage: Damage) -> None:
    """A worker that has lost Redis tries again without a pause."""
    damage.replace(ReconnectPolicy, "delay_s", lambda _policy, _failures, _chance=None: 0.0)

    def hasty(_rest: Function) -> Function:
        async def rest(_worker: Worker, _seconds: float) -> None:
            damage.witness.note()
            await asyncio.sleep(0)

        return rest

    damage.around(Worker, "rest", hasty)


@mutant(
    "worker.checks-on",
    kills=("liveness.close-connections",),
    by=("connections/a_closed_worker_never_connects_again",),
)
def checks_on(damage: Damage) -> None:
    """The timer of the stalled check outlives the close of its worker, and connects again."""
    running: set[asyncio.Task[None]] = set()

    async def go_on(worker: Worker) -> None:
        for _ in range(CHECKS_AFTER_CLOSE):
            await asyncio.sleep(worker.opts["stalledInterval"] / 1000)
            connection = Connection(worker.address)
            await connection.command("PING")
            damage.witness.note()
            await connection.close()

    def broken(stop: Function) -> Function:
        def stop_others(checker: StalledChecker) -> None:
            stop(checker)
            running.add(asyncio.ensure_future(go_on(vars(checker)["_worker"])))

        return stop_others

    damage.around(StalledChecker, "stop", broken)


@mutant("queue.close-cuts", kills=("liveness.close-calls",))
def close_cuts(damage: Damage) -> None:
    """Closing a queue drops the connection, and with it the calls that are under way."""

    async def at_once(_connection: Connection) -> None:
        damage.witness.note()

    damage.replace(Connection, "until_idle", at_once)


@mutant("queue.gives-up-at-once", kills=("connection.call-waits",))
def gives_up_at_once(damage: Damage) -> None:
    """A call that finds no Redis raises an error at once."""
    damage.replace(Queue, "_wait_unsent_s", lambda _queue: 0.0)


@mutant("client.never-fails-fast", kills=("connection.fail-fast",))
def never_fails_fast(damage: Damage) -> None:
    """A call waits for Redis, although the client is set to fail fast."""

    def patient(send: Function) -> Function:
        async def send_until_it_arrives(connection: Connection, *arguments: Any) -> Any:
            while True:
                try:
                    return await send(connection, *arguments)
                except CONNECTION_LOST:
                    damage.witness.note()
                    await asyncio.sleep(0.1)

        return send_until_it_arrives

    damage.around(Connection, "at_once", patient)


@mutant("flow.ignores-its-connection", kills=("connection.forms",))
def ignores_its_connection(damage: Damage) -> None:
    """A flow producer ignores its option `connection` and goes to the default address."""

    def elsewhere(base: Function) -> Function:
        def init(producer: FlowProducer, opts: Mapping[str, Any] | None = None, **settings: Any) -> None:
            damage.witness.note()
            base(producer, {**(opts or {}), "connection": None}, **settings)

        return init

    damage.around(FlowProducer, "__init__", elsewhere)


@mutant("worker.unreadable-with-a-client", kills=("connection.forms",))
def unreadable_with_a_client(damage: Damage) -> None:
    """A worker that shares a client of the Redis library with its queue gets jobs without name and data."""

    def blind(build: Function) -> Function:
        def from_json(owner: Any, fields: Mapping[str, Any], job_id: str) -> Job:
            if isinstance(owner.opts.get("connection"), Redis) and isinstance(owner, Worker):
                damage.witness.note()
                fields = {**fields, "name": "", "data": "{}"}
            job: Job = build(owner, fields, job_id)
            return job

        return from_json

    damage.around(Job, "fromJSON", blind)


@mutant(
    "worker.closes-a-shared-client", kills=("connection.forms",), by=("connections/every_form_leads_to_redis[client]",)
)
def closes_a_shared_client(damage: Damage) -> None:
    """Closing a worker closes the client of the Redis library that it shares with a queue."""
    closed: set[tuple[Any, ...]] = set()

    def closing(close: Function) -> Function:
        async def close_both(worker: Worker, force: bool = False) -> None:
            await close(worker, force)
            if isinstance(worker.opts.get("connection"), Redis):
                closed.add(worker.address.nodes)

        return close_both

    def refusing(send: Function) -> Function:
        async def at_once(connection: Connection, *arguments: Any) -> Any:
            if connection.address.nodes in closed:
                damage.witness.note()
                raise ConnectionClosed("Connection is closed.")
            return await send(connection, *arguments)

        return at_once

    damage.around(Worker, "close", closing)
    damage.around(Connection, "at_once", refusing)


@mutant("worker.shares-its-wait", kills=("connection.own-wait",))
def shares_its_wait(damage: Damage) -> None:
    """With a shared client of the Redis library, which has one connection, calls wait for the worker's wait."""
    shared: set[tuple[Any, ...]] = set()
    turns: dict[tuple[Any, ...], asyncio.Lock] = {}

    def noticing(base: Function) -> Function:
        def init(owner: QueueBase[Any], name: str, opts: Mapping[str, Any] | None = None, **settings: Any) -> None:
            base(owner, name, opts, **settings)
            if isinstance((opts or {}).get("connection"), Redis):
                shared.add(owner.address.nodes)

        return init

    def in_turn(send: Function) -> Function:
        async def at_once(connection: Connection, *arguments: Any) -> Any:
            place = connection.address.nodes
            if place not in shared:
                return await send(connection, *arguments)
            damage.witness.note()
            async with turns.setdefault(place, asyncio.Lock()):
                return await send(connection, *arguments)

        return at_once

    damage.around(QueueBase, "__init__", noticing)
    damage.around(Connection, "at_once", in_turn)


@mutant("client.connection-per-call", kills=("connection.bounded",))
def connection_per_call(damage: Damage) -> None:
    """A queue opens a connection for each command that is sent while another one is in progress."""
    busy: dict[int, int] = {}

    def spread(send: Function) -> Function:
        async def at_once(connection: Connection, *arguments: Any) -> Any:
            number = id(connection)
            busy[number] = busy.get(number, 0) + 1
            try:
                if busy[number] == 1 or arguments[0] == "BZPOPMIN":
                    return await send(connection, *arguments)
                damage.witness.note()
                other = Connection(connection.address)
                try:
                    return await send(other, *arguments)
                finally:
                    await other.close()
            finally:
                busy[number] -= 1

        return at_once

    damage.around(Connection, "at_once", spread)


@mutant("worker.forgets-its-login", kills=("connection.login",))
def forgets_its_login(damage: Damage) -> None:
    """The connection on which a worker waits for work does not log in."""

    def stranger(base: Function) -> Function:
        def init(connection: Connection, address: Address, **settings: Any) -> None:
            if settings.get("name"):
                damage.witness.note()
                address = Address(nodes=address.nodes, mode=address.mode, db=address.db)
            base(connection, address, **settings)

        return init

    damage.around(Connection, "__init__", stranger)


@mutant("client.always-asks-info", kills=("connection.no-info",))
def always_asks_info(damage: Damage) -> None:
    """A client sends INFO, although its user has set `skipVersionCheck`."""

    def curious(base: Function) -> Function:
        def init(connection: Connection, address: Address, **settings: Any) -> None:
            base(connection, address, **{**settings, "check_version": True})

        return init

    damage.around(Connection, "__init__", curious)


@mutant("worker.plain-name", kills=("interop.workers-seen",))
def plain_name(damage: Damage) -> None:
    """A worker names its connection by the queue as it is written, not in base64."""

    def plain(_name: Function) -> Function:
        def client_name(owner: QueueBase[Any], suffix: str = "") -> str:
            return f"{owner.keys.prefix}:{owner.name}{suffix}"

        return client_name

    damage.around(Worker, "client_name", plain)
