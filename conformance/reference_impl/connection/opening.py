"""Opening of a socket to Redis: server, transport, user and connection name."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.connection.address import Address, SentinelAccess
from conformance.reference_impl.connection.resp import Command
from conformance.reference_impl.connection.tls import context_of, server_name_of
from conformance.reference_impl.connection.wire import Wire
from conformance.reference_impl.policy import ReconnectPolicy

_CONNECT_WITHIN_S: Final = 10
_ASK_WITHIN_S: Final = 2
"""A sentinel that does not reply within this time is skipped: the next one may know the new master."""

_MASTER: Final = b"role:master"


class Entrance:
    """Opens sockets. `name` is set with CLIENT SETNAME. Raises InvalidArgument for invalid TLS files."""

    def __init__(self, address: Address, name: str | None = None) -> None:
        self._address = address
        self._name = name
        self._context = context_of(address.tls)

    async def open(self) -> Wire:
        """Connect and introduce the client. Raises redis errors."""
        if self._address.sentinel is None:
            return await self.enter(self._address)
        return await self._enter_master(self._address.sentinel)

    async def enter(self, address: Address, within_s: float = _CONNECT_WITHIN_S) -> Wire:
        """Connect to this one server. Raises redis errors."""
        transport = " over TLS" if self._context is not None else ""
        try:
            # The limit includes TLS and login: a server that accepts but never replies (SIGSTOP) must not hang the
            # client.
            async with asyncio.timeout(within_s):
                return await self._enter(address)
        except TimeoutError as error:
            raise RedisTimeoutError(f"no connection to {address.place}{transport} within {within_s} s") from error

    async def _enter(self, address: Address) -> Wire:
        loop = asyncio.get_running_loop()
        try:
            if address.path is not None:
                _, wire = await loop.create_unix_connection(Wire, address.path)
            else:
                host, port = address.nodes[0]
                name = server_name_of(address.tls) if self._context is not None else None
                _, wire = await loop.create_connection(Wire, host, port, ssl=self._context, server_hostname=name)
        except ssl.SSLError as error:
            raise RedisConnectionError(_why_not_encrypted(address.place, error)) from error
        except OSError as error:
            raise RedisConnectionError(f"no connection to {address.place}: {error}") from error
        try:
            # Before anyone else gets the socket: a command sent ahead of AUTH or SELECT would fail or hit another
            # database.
            await wire.ask(*await self._introduction())
        except BaseException:
            wire.drop()
            raise
        return wire

    async def _enter_master(self, sentinel: SentinelAccess) -> Wire:
        """Ask the sentinels in turn, until one names a server that reports itself as the master."""
        refusals = []
        for node in self._address.nodes:
            try:
                place = await _master_by(node, sentinel)
                return await self._enter_as_master(place)
            # One sentinel may be down, partitioned or outdated during a failover: the next may know better.
            except (RedisConnectionError, RedisTimeoutError, ResponseError) as error:
                refusals.append(f"{node[0]}:{node[1]}: {error}")
        raise RedisConnectionError(f"no sentinel leads to the master {sentinel.master!r}: {'; '.join(refusals)}")

    async def _enter_as_master(self, place: tuple[str, int]) -> Wire:
        # A sentinel may still name the old master for some seconds; writing there would lose jobs, so its role is
        # checked.
        wire = await self.enter(replace(self._address, nodes=(place,)))
        try:
            # Not ROLE: BullMQ does not use it elsewhere, so the user's ACL may forbid it.
            (facts,) = await wire.ask(("INFO", "replication"))
            if _MASTER not in facts:
                raise RedisConnectionError(f"{place[0]}:{place[1]} is not a master yet")  # noqa: TRY301 - drops the socket
        except BaseException:
            wire.drop()
            raise
        return wire

    async def _introduction(self) -> list[Command]:
        address = self._address
        commands: list[Command] = []
        if address.credentials is not None:
            # One or two texts: the password, or user and password.
            commands.append(("AUTH", *await address.credentials.get_credentials_async()))
        elif address.password is not None or address.username is not None:
            user = (address.username,) if address.username else ()
            commands.append(("AUTH", *user, address.password or ""))
        # Database 0 is the default of each new socket.
        if address.db:
            commands.append(("SELECT", address.db))
        if self._name is not None:
            commands.append(("CLIENT SETNAME", self._name))
        return commands


@dataclass(frozen=True)
class ConnectAttempts:
    """How long to try to connect (s), and the callback for each failed attempt."""

    within_s: float = 0
    reconnect: ReconnectPolicy = field(default_factory=ReconnectPolicy)
    on_failure: Callable[[Exception], None] | None = None

    async def enter(self, entrance: Entrance) -> Wire:
        """Try until a socket is open or the time is up, or the login is refused. Raises the last redis error."""
        deadline = time.monotonic() + self.within_s
        for attempt in itertools.count(1):
            try:
                return await entrance.open()
            except (RedisConnectionError, RedisTimeoutError) as error:
                pause = self.reconnect.delay_s(attempt)
                # A refused login does not heal by itself, and a pause beyond the deadline would only delay the error.
                if isinstance(error, AuthenticationError) or time.monotonic() + pause > deadline:
                    raise
                if self.on_failure is not None:
                    self.on_failure(error)
                await asyncio.sleep(pause)
        raise AssertionError  # the loop only ends by return or raise


async def _master_by(node: tuple[str, int], sentinel: SentinelAccess) -> tuple[str, int]:
    """The master's address according to one sentinel."""
    own = Address(nodes=(node,), username=sentinel.username, password=sentinel.password, tls=sentinel.tls)
    # A new socket per question: sentinels are asked only when a connection opens.
    wire = await Entrance(own).enter(own, _ASK_WITHIN_S)
    try:
        (place,) = await wire.ask(("SENTINEL GET-MASTER-ADDR-BY-NAME", sentinel.master))
    finally:
        wire.drop()
    if place is None:
        raise RedisConnectionError("it does not know that master")
    host, port = place
    return host.decode(), int(port)


def _why_not_encrypted(place: str, error: ssl.SSLError) -> str:
    """Describe the problem. The client never falls back to plain text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {place} was refused: {error.verify_message}"
    return f"no TLS with {place}, which answers in another way: {error.reason or error}"
