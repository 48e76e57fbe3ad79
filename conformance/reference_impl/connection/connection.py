"""Connections to Redis: each is a single socket on which commands keep their order, as in Node.js."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from redis.exceptions import ClusterCrossSlotError, RedisClusterException, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.cluster_nodes import ClusterNodes
from conformance.reference_impl.connection.opening import ConnectAttempts
from conformance.reference_impl.connection.resp import Argument, Command
from conformance.reference_impl.connection.single_socket import SingleSocket
from conformance.reference_impl.connection.wire import HungUp, ReplyReceiver, first_error
from conformance.reference_impl.errors import BullMQError, Closed
from conformance.reference_impl.policy import ReconnectPolicy

logger = logging.getLogger("bullmq")
CONNECTION_LOST: Final = (RedisConnectionError, RedisTimeoutError, ConnectionError, TimeoutError)
"""After these errors it is unknown whether Redis ran the command."""

_NAME: Final = re.compile("[!-~]+")
"""Connection names that Redis accepts. A worker with another name has an unnamed connection, as in Node.js."""

MINIMUM_VERSION: Final[tuple[int, ...]] = (5, 0, 0)
RECOMMENDED_VERSION: Final[tuple[int, ...]] = (6, 2, 0)
SHORT_BLOCK_VERSION: Final[tuple[int, ...]] = (7, 0, 8)
"""Before this, Redis rounds a block timeout of 1 ms down to 0, which means forever."""

_SLOT_TEXTS: Final = (
    "must map to the same key slot",  # redis-py, before it sends a script
    "hash to the same slot",  # Redis, CROSSSLOT
    "non local key in a cluster node",  # Redis, for a key that a script makes up by itself
)


class ConnectionWatch(Protocol):
    """Observer of whether Redis can be reached (see `Link`)."""

    @property
    def is_lost(self) -> bool:
        """Whether the last command did not get through."""
        ...

    def lost(self, error: BaseException) -> None:
        """A command did not get through."""
        ...

    def restored(self) -> None:
        """Redis answers again."""
        ...

    def warn(self, text: str) -> None:
        """The server has an unsuitable version or setting."""
        ...


class Connection:
    """A connection to Redis. `name` is set with CLIENT SETNAME; `watch` is notified of losses and recoveries.

    `opening` runs once, before the first command and after the check of the server; it sends with `at_once`.
    `check_version`: whether to send INFO, which some services forbid.
    `wait_unsent_s`: how long (s) commands that could not be sent wait for a connection; not in a cluster.

    Commands run in the order of their calls. They are sent at most once: a lost connection is an error, never a silent
    retry. No reply has a timeout. Raises redis errors, Closed after `close`, and CrossSlot if the keys of a queue are
    spread over a cluster.
    """

    def __init__(
        self,
        address: Address,
        *,
        name: str | None = None,
        watch: ConnectionWatch | None = None,
        opening: Callable[[], Awaitable[None]] | None = None,
        wait_unsent_s: float = 0,
        reconnect: ReconnectPolicy | None = None,
        check_version: bool = True,
    ) -> None:
        self.address = address
        self.version: tuple[int, ...] = MINIMUM_VERSION
        self.closed = False
        self._checked = not check_version
        self._opening = opening
        self._preparing = asyncio.Lock()
        self._unprepared = 0
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._watch = watch
        is_cluster = address.mode == "cluster"
        accepted = name if name is not None and _NAME.fullmatch(name) else None
        patience = ConnectAttempts(wait_unsent_s, reconnect or ReconnectPolicy(), self._note_loss)
        self._carrier = ClusterNodes(address, accepted) if is_cluster else SingleSocket(address, accepted, patience)

    @property
    def minimum_block_s(self) -> float:
        """The shortest time (s) for which this Redis can block."""
        return minimum_block_s(self.version)

    @property
    def is_single(self) -> bool:
        """Whether all commands go over one socket, for any key."""
        return self.address.mode != "cluster"

    @property
    def is_connected(self) -> bool:
        """Whether there is an open socket right now; in a cluster whether the connection is in use at all."""
        return not self.closed and self._carrier.is_connected

    async def ready(self) -> None:
        """Connect, check the server's version once, and run the `opening`.

        Raises BullMQError if the server is too old, a redis error if it cannot be reached.
        """
        # Earlier callers may still wait for the lock, which wakes one per loop turn; returning now would overtake them.
        if self._checked and self._opening is None and not self._unprepared:
            return
        self._unprepared += 1
        try:
            # Without the lock several first commands would each run the opening.
            async with self._preparing:
                if not self._checked:
                    await self._check_server()
                if self._opening is not None:
                    await self._opening()
                    # Only after it succeeded: a failed opening runs again with the next command.
                    self._opening = None
        finally:
            self._unprepared -= 1

    async def _check_server(self) -> None:
        info = await self.at_once("INFO")
        facts = parse_info(text(info))
        self.version = version_of(facts)
        for concern in concerns(facts):
            self._warn(concern)
        # Last, so that a failed INFO is repeated by the next caller.
        self._checked = True

    async def command(self, *arguments: Argument) -> Any:
        """Send one command; replies are bytes, ints, lists and None."""
        if self._opening is not None:
            await self.ready()
        return await self.at_once(*arguments)

    async def at_once(self, *arguments: Argument) -> Any:
        """Send one command, even before the `opening`."""
        self._refuse_if_closed()
        if self._watch is not None and self._watch.is_lost:
            await self._probe()
        return await self._watched(self._carrier.command(arguments))

    def post(self, message: bytes, receiver: ReplyReceiver) -> bool:
        """Send an encoded command at once; its receiver passes the reply to `checked`.

        False if it must be sent with `command`: while Redis is lost, before the `opening`, and in a cluster.
        """
        if self.closed or self._opening is not None or (self._watch is not None and self._watch.is_lost):
            return False
        return isinstance(self._carrier, SingleSocket) and self._carrier.post(message, receiver)

    async def checked(self, reply: Any) -> Any:
        """Return a reply to `post`, as `command` would: an error is raised, and losses and recoveries are noted."""

        async def received() -> Any:
            return self._carrier.raised(reply) if isinstance(self._carrier, SingleSocket) else reply

        return await self._watched(received())

    async def client_lines(self) -> list[str]:
        """CLIENT LIST, one line per connection; of all nodes in a cluster."""
        if self._opening is not None:
            await self.ready()
        if isinstance(self._carrier, ClusterNodes):
            replies = await self._carrier.on_all_nodes("CLIENT LIST")
        else:
            replies = [await self.command("CLIENT LIST")]
        return [line for reply in replies for line in text(reply).splitlines()]

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one MULTI; in a cluster one after the other. Raises the first error."""
        if isinstance(self._carrier, ClusterNodes):
            return [await self.command(*command) for command in commands]
        replies = await self.transaction(commands)
        error = first_error(replies)
        if error is not None:
            raise error
        return replies

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands as one MULTI; a command that fails has its error as reply.

        In a cluster all keys must be in one slot.
        """
        if self._opening is not None:
            await self.ready()
        self._refuse_if_closed()
        return with_slots_explained(await self._watched(self._carrier.transaction(commands)))

    async def pipeline(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in a pipeline; a command that fails has its error as reply."""
        if self._opening is not None:
            await self.ready()
        self._refuse_if_closed()
        return with_slots_explained(await self._watched(self._carrier.pipeline(commands)))

    def hang_up(self) -> bool:
        """End a blocking command: it returns its reply if Redis has sent one, else it raises HungUp.

        False if that is impossible: over TLS, and before there is a connection. The next command opens a new one.
        """
        return self._carrier.hang_up()

    async def disconnect(self) -> None:
        """Drop the sockets; the next command opens new ones."""
        await self._carrier.disconnect()

    async def until_idle(self) -> None:
        """Wait for the replies to calls under way. Returns at once if the connection is lost, or not yet ready.

        The first calls wait for the version check and the `opening`, which may get no reply at all: a close must not.
        """
        if self.is_connected and self._checked and self._opening is None and not self._unprepared:
            await self._idle.wait()

    async def close(self) -> None:
        """Close permanently."""
        # First: the loss that closing causes must not start an outage.
        self.closed = True
        with contextlib.suppress(*CONNECTION_LOST):
            await self._carrier.close()

    def _refuse_if_closed(self) -> None:
        # Not a lost connection: nothing brings it back, so no caller should try again.
        if self.closed:
            raise Closed("Connection is closed.")

    async def _probe(self) -> None:
        """After a loss, send PING first: a blocking command may reply much later, and would delay `reconnected`.

        Not in a cluster, where the reply of one node says nothing about the others.
        """
        if self.address.mode != "cluster":
            await self._watched(self._carrier.command(("PING",)))

    async def _watched(self, sent: Awaitable[Any]) -> Any:
        """Await a reply and notify the watch; a connection that is being closed does not count as lost."""
        self._under_way += 1
        self._idle.clear()
        try:
            reply = await sent
        # A wait that this client ended itself is not an outage.
        except HungUp:
            raise
        except CONNECTION_LOST as error:
            self._note_loss(error)
            raise
        except (RedisError, RedisClusterException) as error:
            explained = cross_slot(error)
            if explained is None:
                raise
            raise explained from error
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle.set()
        if self._watch is not None and self._watch.is_lost:
            self._watch.restored()
        return reply

    def _note_loss(self, error: BaseException) -> None:
        # Calls that wait for another connection are not to be waited for.
        self._idle.set()
        if self._watch is not None and not self.closed:
            self._watch.lost(error)

    def _warn(self, concern: str) -> None:
        if self._watch is None:
            logger.warning("%s", concern)
        else:
            self._watch.warn(concern)


class LinkOwner(Protocol):
    """The object that emits the events of the connection."""

    def emit(self, event: str, *args: Any) -> None:
        """Call the listeners."""
        ...


class Link:
    """Tracks an outage of Redis: its start, the failed attempts, and the time of the next one.

    Emits on its owner: `disconnected` (error) at the first loss; `reconnecting` (number) at every further attempt;
    `reconnected` (attempts, seconds); `unreachable` (attempts, error) once `max_attempts` are used up; `warning`
    (text).

    Losses before the next attempt is due count as the same attempt, because several connections and jobs notice the
    same outage.
    """

    def __init__(self, owner: LinkOwner, policy: ReconnectPolicy) -> None:
        self._owner = owner
        self._policy = policy
        self._failures = 0
        self._lost_at = 0.0
        self._next_attempt = 0.0

    @property
    def is_lost(self) -> bool:
        """Whether the last command did not get through."""
        return self._failures > 0

    @property
    def pause_s(self) -> float:
        """Seconds until the next attempt is due; 0 while Redis can be reached."""
        return max(self._next_attempt - time.monotonic(), 0) if self._failures else 0

    def lost(self, error: BaseException) -> None:
        """Note that a command did not get through."""
        now = time.monotonic()
        if self._failures and now < self._next_attempt:
            return
        self._failures += 1
        # Monotonic, because the wall clock may be set during an outage.
        self._next_attempt = now + self._policy.delay_s(self._failures)
        if self._failures == 1:
            self._lost_at = now
            self._owner.emit("disconnected", error)
            return
        self._owner.emit("reconnecting", self._failures - 1)
        # `==`, not `>=`: `unreachable` closes the worker and must be emitted once.
        if self._failures - 1 == self._policy.max_attempts:
            self._owner.emit("unreachable", self._failures - 1, error)

    def restored(self) -> None:
        """Note that Redis can be reached again."""
        # Reset before emitting: a listener may send a command, which must not see the outage as continuing.
        attempts, self._failures = self._failures, 0
        self._owner.emit("reconnecting", attempts)
        self._owner.emit("reconnected", attempts, time.monotonic() - self._lost_at)

    def warn(self, text: str) -> None:
        """Emit a warning about the server."""
        self._owner.emit("warning", text)


def text(reply: Any) -> str:
    """Return a reply as text; bytes that are not UTF-8 are replaced, as Node does."""
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)


def maybe_text(reply: Any) -> str | None:
    """Return a reply as text, or None for a nil reply."""
    return None if reply is None else text(reply)


def texts(reply: Sequence[Any]) -> list[str]:
    """Return a list reply as texts."""
    return [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in reply]


def flat_mapping(reply: Any) -> dict[str, str]:
    """Alternating field names and values as a dict."""
    if isinstance(reply, Mapping):
        return {text(name): text(value) for name, value in reply.items()}
    try:
        words = [word.decode() for word in reply]
    except (UnicodeDecodeError, AttributeError):
        words = texts(reply)
    return dict(zip(words[::2], words[1::2], strict=True))


def is_connection_problem(error: BaseException) -> bool:
    """Whether the connection failed, as opposed to an error reply of the server."""
    return isinstance(error, CONNECTION_LOST)


def parse_info(document: str) -> dict[str, str]:
    """Read the reply of INFO."""
    pairs = (line.partition(":") for line in document.splitlines())
    return {name: value for name, separator, value in pairs if separator}


def version_of(facts: Mapping[str, str]) -> tuple[int, ...]:
    """Return the server's version; the oldest supported one if INFO does not have it."""
    return tuple(int(part) for part in re.findall(r"\d+", facts.get("redis_version", "5.0.0"))[:3])


def minimum_block_s(version: tuple[int, ...]) -> float:
    """Return the shortest time (s) for which a server of this version can block."""
    return 0.001 if version >= SHORT_BLOCK_VERSION else 0.002


def concerns(facts: Mapping[str, str]) -> Iterator[str]:
    """Warnings about the server's version and settings. Raises BullMQError if the version is too old."""
    version = version_of(facts)
    shown = ".".join(map(str, version))
    if version < MINIMUM_VERSION:
        raise BullMQError(f"Redis version needs to be greater or equal than 5.0.0 Current: {shown}")
    if version < RECOMMENDED_VERSION:
        yield f"It is highly recommended to use a minimum Redis version of 6.2.0, current: {shown}"
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield f'Eviction policy is {policy}. It should be "noeviction"'


class CrossSlot(BullMQError):
    """The keys of a queue or flow are spread over a cluster; its scripts need them in one slot."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "CROSSSLOT: the keys of a queue must share one slot of the cluster; give it a prefix with a hash tag, "
            f'for example {{"prefix": "{{bull}}"}} (the error was: {reason})'
        )


def cross_slot(error: Exception) -> CrossSlot | None:
    """Return the error to raise instead of an error about slots, None for any other error."""
    is_about_slots = isinstance(error, ClusterCrossSlotError) or any(text in str(error) for text in _SLOT_TEXTS)
    return CrossSlot(str(error)) if is_about_slots else None


def with_slots_explained(replies: Sequence[Any]) -> list[Any]:
    """Return the replies; errors about slots become CrossSlot."""
    return [cross_slot(reply) or reply if isinstance(reply, Exception) else reply for reply in replies]
