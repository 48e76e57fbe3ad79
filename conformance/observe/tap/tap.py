"""The tap: a proxy in its own thread, in front of one Redis or of every node of a cluster.

    with Tap("127.0.0.1:6379", scripts=names) as tap:
        ...                                              # a client that is given tap.address
        with tap.when(Trigger(script="moveToFinished"), Hold()) as barrier:
            barrier.reached.wait(5000)
            barrier.release()

See docs/reference/tap.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

from conformance.observe.tap.cluster import ClusterAddresses, NoClusterAddresses
from conformance.observe.tap.conversation import ClientSide, Conversation, FloodThrottle
from conformance.observe.tap.interference import TapConditions, TapSilence
from conformance.observe.tap.loop import LoopThread
from conformance.observe.tap.recording import KEPT_ARGUMENT_BYTES, Recording
from conformance.observe.tap.rules import Action, Barrier, RuleBook, TapRule, Trigger
from conformance.observe.tap.socket_writer import RedisLink, SilentDirection
from conformance.problems import EnvironmentProblem, UsageProblem

HOST = "127.0.0.1"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """An open connection of the client.

    `name`: set by CLIENT SETNAME. `violation`: bytes that were not RESP. `address`: the one that Redis sees (`addr` of
    CLIENT LIST); empty before the tap has reached Redis, and for Unix sockets.
    """

    number: int
    node: str
    name: str
    violation: str
    address: str


class Tap:
    """A proxy for Redis. Start it with `with` or `start`, and give the client `address` (for a cluster, `addresses`).

    `nodes` are the addresses of Redis: `host:port` or `unix:/path`. With several nodes (or `cluster=True`), the tap
    replaces the addresses of nodes in replies by its own. `scripts`: names of scripts by their SHA-1. `texts`: the
    official scripts by name; with them a trigger also matches scripts that are similar to an official one. `tls`: use
    TLS to Redis; the client always uses plain TCP to the tap. `kept_bytes`: recorded bytes of each word of a command.
    `slows_floods`: limit connections that send commands without end to `MOST_PER_S`.
    All methods may be called from any thread.
    """

    def __init__(
        self,
        *nodes: str,
        scripts: Mapping[str, str] | None = None,
        texts: Mapping[str, str] | None = None,
        cluster: bool = False,
        tls: ssl.SSLContext | None = None,
        kept_bytes: int = KEPT_ARGUMENT_BYTES,
        slows_floods: bool = False,
    ) -> None:
        if not nodes:
            raise UsageProblem("a tap needs a Redis behind it", hint="give the address of at least one node")
        self.nodes = tuple(_checked(node) for node in nodes)
        self.recording = Recording(scripts or {}, texts, kept_bytes=kept_bytes)
        # Only then: in a standalone Redis an address in a reply is user data, and must pass unchanged.
        self._cluster = cluster or len(nodes) > 1
        self._tls = tls
        self._throttle = FloodThrottle() if slows_floods else None
        self._rules = RuleBook()
        self._addresses: ClusterAddresses = NoClusterAddresses()
        self._ports: list[int] = []
        self._servers: list[asyncio.Server] = []
        self._live: dict[int, Conversation] = {}
        self._connections = 0
        self._conditions = TapConditions(self._live)
        self._loop: LoopThread | None = None

    @property
    def address(self) -> str:
        """`127.0.0.1:PORT` in front of the first node."""
        return self.addresses[0]

    @property
    def addresses(self) -> tuple[str, ...]:
        """`127.0.0.1:PORT` in front of every node, in their order."""
        if not self._ports:
            raise UsageProblem("the tap is not started", hint="use it in a with statement")
        return tuple(f"{HOST}:{port}" for port in self._ports)

    def start(self) -> Self:
        """Start listening. Redis need not run yet. Raises EnvironmentProblem if the tap cannot listen."""
        self._loop = LoopThread("tap")
        try:
            self._loop.await_(self._listen())
        except OSError as error:
            self.close()
            raise EnvironmentProblem(f"the tap cannot listen on {HOST}: {error}") from error
        return self

    def close(self) -> None:
        """Remove all rules, end all connections and stop listening. May be called again.

        Raises RuntimeError if the tap itself has failed.
        """
        # First, so that a failing shutdown is not repeated by the next call of close.
        loop, self._loop = self._loop, None
        if loop is None:
            return
        # Before the loop stops: sockets that nothing closes would keep the client waiting.
        loop.await_(self._shut_down())
        loop.stop()
        if loop.failures:
            raise RuntimeError("the tap failed: " + "; ".join(loop.failures))

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @contextlib.contextmanager
    def when(self, trigger: Trigger, action: Action) -> Iterator[Barrier]:
        """Apply a rule during the block. Its end releases all held commands.

        Raises UsageProblem for a trigger or an action that can never apply.
        """
        rule = TapRule(trigger, action, self.recording)
        # Waits for the loop, so the rule is active before the block sends its first command.
        self._do(partial(self._rules.add, rule))
        try:
            yield Barrier(rule.reached, partial(self._do, rule.release))
        finally:
            self._do(partial(self._rules.remove, rule))

    @contextlib.contextmanager
    def link(self, link: RedisLink, *, connection: int | None = None) -> Iterator[None]:
        """Make all connections (or one of them) slow during the block, including new ones."""
        entry = (link, connection)
        self._do(partial(self._conditions.slow_down, entry))
        try:
            yield
        finally:
            self._do(partial(self._conditions.speed_up, entry))

    @contextlib.contextmanager
    def silence(self, direction: SilentDirection = "both") -> Iterator[None]:
        """Hold back all bytes on all connections during the block, including new ones. They arrive after it.

        `direction`: for asymmetric failures of the network, in which only one side receives the other's bytes.
        """
        silence = TapSilence(direction)
        self._do(partial(self._conditions.silence, silence))
        try:
            yield
        finally:
            self._do(partial(self._conditions.unsilence, silence))

    @contextlib.contextmanager
    def outage(self, *, reset: bool = True) -> Iterator[None]:
        """Cut all connections at the start of the block, and reset new ones during it."""
        refusal = object()
        # Refuse first, and in the same turn of the loop: a client that reconnects immediately must not get through.
        self._do(partial(self._conditions.refuse, refusal), partial(self._cut, None, reset))
        try:
            yield
        finally:
            # By identity: two overlapping outages must each remove their own refusal.
            self._do(partial(self._conditions.admit, refusal))

    def cut(self, connection: int | None = None, *, reset: bool = False) -> None:
        """Cut one connection, or all of them, now."""
        self._do(partial(self._cut, connection, reset))

    def heal(self) -> None:
        """End all rules and conditions, even inside their blocks. Everything held continues."""
        self._do(self._heal)

    def forget(self, *, upto: int | None = None) -> None:
        """Drop the recorded commands, or only those up to this number."""
        self._do(partial(self.recording.forget, upto=upto))

    @property
    def failures(self) -> tuple[str, ...]:
        """Errors of the tap itself; empty unless the kit has a defect."""
        return tuple(self._loop.failures) if self._loop is not None else ()

    def connections(self) -> tuple[ConnectionView, ...]:
        """The open connections, oldest first."""
        return self._ask(
            lambda: tuple(
                ConnectionView(
                    number=live.number,
                    node=live.node,
                    name=live.name,
                    violation=live.violation,
                    address=live.to_redis.own_address,
                )
                for live in self._live.values()
            )
        )

    @property
    def has_floods(self) -> bool:
        """Whether an open connection has sent so much that the tap has slowed it down."""
        return self._throttle is not None and bool(self._throttle.floods)

    @property
    def opened(self) -> int:
        """How many connections the client has opened so far, those included that were refused."""
        return self._connections

    async def _listen(self) -> None:
        """Start a server per node. Like all methods down to `_shut_down`, this runs in the loop of the tap."""
        loop = asyncio.get_running_loop()
        for node in self.nodes:
            # Port 0: the kernel picks a free one, so taps of parallel runs cannot collide.
            server = await loop.create_server(partial(self._accept, node), HOST, 0)
            self._servers.append(server)
            self._ports.append(server.sockets[0].getsockname()[1])
        if self._cluster:
            self._addresses = ClusterAddresses(dict(zip(self.nodes, self.addresses, strict=True)))

    def _accept(self, node: str) -> ClientSide:
        self._connections += 1
        conversation = Conversation(
            self._connections,
            node,
            rules=self._rules,
            recording=self.recording,
            addresses=self._addresses,
        )
        self._live[conversation.number] = conversation
        # Before the first byte: during an outage a new connection must not be faster than the condition.
        self._conditions.apply_to_new(conversation)
        return ClientSide(
            conversation,
            self._tls,
            refuse=self._conditions.refuses,
            on_end=self._gone,
            throttle=self._throttle,
        )

    def _gone(self, conversation: Conversation) -> None:
        self._live.pop(conversation.number, None)

    def _heal(self) -> None:
        for rule in self._rules.rules:
            self._rules.remove(rule)
        self._conditions.heal()

    def _cut(self, connection: int | None, reset: bool) -> None:
        for conversation in list(self._live.values()):
            if connection in {None, conversation.number}:
                conversation.cut(reset=reset)

    async def _shut_down(self) -> None:
        for server in self._servers:
            # Stop accepting first: a client that reconnects at once would outlive the shutdown.
            server.close()
        for rule in self._rules.rules:
            self._rules.remove(rule)
        for conversation in list(self._live.values()):
            conversation.drop()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the next turn of the loop, so it must not stop before that

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        if self._loop is None:
            raise UsageProblem("the tap is not running", hint="use it in a with statement")
        return self._loop.ask(question)

    def _do(self, *steps: Callable[[], object]) -> None:
        """Run steps in the loop, and wait until they are done. Does nothing if the tap is closed."""
        if self._loop is not None or not self._ports:
            self._ask(lambda: [step() for step in steps])


def _checked(node: str) -> str:
    host, _, port = node.rpartition(":")
    if node.startswith("unix:") or (host and port.isdigit()):
        return node
    raise UsageProblem(f"{node!r} is not the address of a Redis", hint="write host:port or unix:/path/to/socket")
