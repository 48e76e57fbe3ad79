"""Base of queues, workers and event readers: name, key names, connection and scripts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from redis.asyncio import Redis, RedisCluster

from conformance.protocol.keys import DEFAULT_PREFIX, QueueKeys
from conformance.reference_impl.clock import Clock, SystemClock
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import Connection, Link
from conformance.reference_impl.connection.own_commands import client_of
from conformance.reference_impl.emitter import EventEmitter, EventName
from conformance.reference_impl.errors import BullMQError, InvalidArgument
from conformance.reference_impl.journal import ErrorRepeats, Journal, sink_of, worker_id_of
from conformance.reference_impl.observation import observe_link
from conformance.reference_impl.option_types import (
    AnyOptions,
    ClientOptions,
    QueueOptions,
    refuse_misspelt_client_options,
)
from conformance.reference_impl.policy import Policy, policy_of
from conformance.reference_impl.scripts import Scripts
from conformance.reference_impl.scripts.runner import ScriptRunner, ScriptTexts, script_texts
from conformance.reference_impl.telemetry.interface import SpanKind, Telemetry, telemetry_of
from conformance.reference_impl.telemetry.tracing import TracedBlock, trace


def connection_name(prefix: str, queue: str, suffix: str = "") -> str:
    """CLIENT SETNAME of a blocking connection; getWorkers finds workers by it."""
    return f"{prefix}:{base64.b64encode(queue.encode()).decode()}{suffix}"


def refuse_outside_of_a_loop(client: object, reason: str, method: str) -> None:
    """Raise BullMQError unless an event loop is running."""
    kind = type(client).__name__
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise BullMQError(
            f"a {kind} with {reason} starts at once and needs a running event loop: create it in a coroutine, or with "
            f'{{"autorun": False}} and await {method}() later'
        ) from None


class QueueBase(EventEmitter[EventName]):
    """Base of everything that belongs to one queue.

    `opts["connection"]` is an Address, a URL or a dict (see `Address.of`), `opts["prefix"]` the key prefix. `scripts`
    are the official Lua scripts by default (see `official_scripts`), or a folder with them; `clock` is that of the
    machine by default. `opts["telemetry"]` records spans (see `telemetry`). Options that only this library has, none of
    them stored: `policy` (see `policy`), `workerId` and `logger` (see `journal`), `metricsCollector`
    (see `metrics`).
    Local events: error, warning, disconnected, reconnecting, reconnected, unreachable, closed.

    An `async with` block connects it at the start and closes it at the end. Raises InvalidArgument for a bad queue
    name and for misspelt options.
    """

    EVENTS: ClassVar[Mapping[str, int]] = {
        "error": 1,
        "warning": 1,
        "closed": 0,
        "disconnected": 1,
        "reconnecting": 1,
        "reconnected": 2,
        "unreachable": 2,
    }

    def __init__(
        self,
        name: str,
        opts: QueueOptions | ClientOptions | AnyOptions | None = None,
        *,
        scripts: ScriptTexts | str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        if not name:
            raise InvalidArgument("Queue name must be provided")
        if not isinstance(name, str):
            raise InvalidArgument(
                f"the name of a queue must be a text, not {name!r}", field="name", constraint="a text"
            )
        if ":" in name:
            raise InvalidArgument("Queue name cannot contain :")
        given: Mapping[str, Any] = {**(opts or {})}
        refuse_misspelt_client_options(given, type(self).__name__)
        self.name = name
        self._opts: dict[str, Any] = {"prefix": DEFAULT_PREFIX, **(opts or {})}
        self._keys = QueueKeys(str(self._opts["prefix"]), name)
        self._clock: Clock = clock or SystemClock()
        self._closing = False
        self.address = Address.of(self._opts.get("connection"))
        self.policy: Policy = policy_of(self._opts)
        self.worker_id = worker_id_of(self._opts)
        self.telemetry: Telemetry | None = telemetry_of(self._opts)
        self.journal = Journal(sink_of(self._opts.get("logger")), name, self.worker_id)
        self._repeats = ErrorRepeats()
        self.link = Link(self, self.policy.reconnect)
        observe_link(self, self._opts.get("metricsCollector"))
        self.connection = Connection(
            self.address,
            watch=self.link,
            opening=self._opening(),
            wait_unsent_s=self._wait_unsent_s(),
            reconnect=self.policy.reconnect,
            check_version=not self._opts.get("skipVersionCheck"),
        )
        self.scripts = Scripts(ScriptRunner(self.connection, script_texts(scripts)), self)

    @property
    def keys(self) -> QueueKeys:
        """Key names of the queue."""
        return self._keys

    @property
    def opts(self) -> Mapping[str, Any]:
        """The options, defaults filled in."""
        return self._opts

    @property
    def clock(self) -> Clock:
        """The clock that the object uses."""
        return self._clock

    @property
    def closing(self) -> bool:
        """Whether close was called."""
        return self._closing

    @property
    def qualifiedName(self) -> str:
        """`PREFIX:QUEUE`."""
        return self._keys.qualified_name

    def toKey(self, name: str) -> str:
        """Full Redis key of a queue-level name or job id."""
        return self._keys.key(name)

    def trace(
        self, kind: SpanKind, operation: str, destination: str | None = None, *, metadata: Any = None
    ) -> TracedBlock:
        """Return a block for `with`, which is a span if there is telemetry; `destination` is the queue by default."""
        target = self.name if destination is None else destination
        return trace(self.telemetry, kind, self.name, operation, target, metadata=metadata)

    async def waitUntilReady(self) -> None:
        """Connect, and check that BullMQ can use the server. Raises BullMQError if its version is too old."""
        await self.connection.ready()

    async def close(self) -> None:
        """Close the connection."""
        # Before the connection closes: a listener that is called meanwhile must see that.
        self._closing = True
        await self.connection.close()
        await self._close_client()
        self.emit("closed")

    async def disconnect(self) -> None:
        """Drop the sockets; the next call opens new ones."""
        await self.connection.disconnect()

    async def __aenter__(self) -> Self:
        await self.waitUntilReady()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    @cached_property
    def client(self) -> Redis | RedisCluster:
        """A redis-py client for your own commands, with separate sockets; closed together with this object.

        If `connection` is such a client, it is returned and stays open. Raises InvalidArgument for an SSLContext.
        """
        handed_in = self._opts.get("connection")
        return handed_in if isinstance(handed_in, (Redis, RedisCluster)) else client_of(self.address)

    async def _close_client(self) -> None:
        client = vars(self).pop("client", None)
        # A client that the user handed in belongs to the user, who may still need it.
        if client is not None and client is not self._opts.get("connection"):
            await client.aclose()

    def _opening(self) -> Callable[[], Awaitable[None]] | None:
        """Return the coroutine that runs on the connection before the first command."""
        return None

    def _wait_unsent_s(self) -> float:
        """Return how long commands wait for a connection; workers and event readers retry on their own."""
        return 0

    def unheard(self, error: Any) -> None:
        """Log an `error` without a listener; one that repeats takes one line a minute, with its count."""
        repeats = self._repeats.count(error)
        if repeats == 0:
            self.journal.error(str(error), error=error)
        elif repeats:
            self.journal.error(f"{error}, again {repeats} times", repeats=repeats)

    def client_name(self, suffix: str = "") -> str:
        """Name of this queue's blocking connections."""
        return connection_name(self._keys.prefix, self.name, suffix)
