"""Preparing a run: Node and the pinned package, Redis, both drivers started once and shown to be honest."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from conformance.driver.connection import DriverConnection
from conformance.driver.probe import probe_honesty
from conformance.driver.process import ChildProcess
from conformance.gate.bench import Bench, Seat
from conformance.gate.preparing.clients import Launch, Toolbox, client_launch, oracle_launch
from conformance.gate.run.config import RunConfig
from conformance.gate.run.records import Party
from conformance.gate.taps import reason_for_none
from conformance.problems import UsageProblem
from conformance.servers import open_server
from conformance.servers.server import Server
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package
from conformance.upstream.scripts import load_scripts

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """What a process needs to seat both clients; crosses to xdist workers as JSON.

    `scripts`: texts of the official scripts by name.
    """

    server: Server
    oracle: Launch
    client: Launch
    seed: int
    scripts: dict[str, str]

    def encode(self) -> str:
        """As JSON text."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def decode(text: str) -> Prepared:
        """From JSON text."""
        return msgspec.json.decode(text, type=Prepared)

    def bench(self) -> Bench:
        """A bench for this process; its drivers start with the first scenario."""
        return Bench(self.server, Seat(self.oracle, self.seed), Seat(self.client, self.seed), self.scripts)


@dataclass(frozen=True)
class Handshakes:
    """Who answered, and how long the parts of the set-up took (ms)."""

    oracle: Party
    client: Party
    startup_ms: dict[str, float]
    environment: dict[str, str]


def prepare(config: RunConfig, stack: ExitStack, announce: Announce) -> tuple[Prepared, Handshakes]:
    """Find or install everything, start Redis (ended by `stack`), and make both drivers prove themselves.

    Raises a Problem that says what is missing, or a DriverBroken problem for a driver that crashes, hangs or lies.
    """
    watch = _Stopwatch()
    node = find_node(config.node or None)
    package = ensure_package(node, announce=announce)
    toolbox = Toolbox(node, package, announce)
    oracle, client = oracle_launch(toolbox), client_launch(config.client, config.command, toolbox)
    watch.lap("package")
    server = stack.enter_context(open_server(config.redis or None, announce=announce))
    watch.lap("redis")
    scripts = {name: script.text for name, script in load_scripts(package, node).items()}
    prepared = Prepared(server, oracle, client, config.seed, scripts)
    if no_tap := reason_for_none(server):
        announce(f"no tap, so scenarios that need one are not run: {no_tap}")
    oracle_party = _prove(oracle, prepared)
    watch.lap("oracle")
    client_party = _prove(client, prepared)
    _insist_on_cluster(client_party, server)
    watch.lap("client")
    environment = {
        "node": f"{node.version} ({node.source})",
        "bullmq": package.version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": str(os.cpu_count()),
        "tap": reason_for_none(server) or "in front of each client",
    }
    return prepared, Handshakes(oracle_party, client_party, watch.laps, environment)


def _prove(launch: Launch, prepared: Prepared) -> Party:
    connection = ChildProcess.start(launch.command, seed=prepared.seed, env=launch.environment)
    try:
        _see_a_write(connection, prepared.server, prepared.seed)
    finally:
        connection.close()
    ready = connection.ready
    return Party(
        name=launch.name,
        language=ready.client.language,
        version=ready.client.version,
        targets=ready.client.targets,
        command=launch.command,
        capabilities=sorted(ready.capabilities),
        ops=sorted(ready.ops),
    )


def _insist_on_cluster(client: Party, server: Server) -> None:
    if server.mode == "cluster" and "cluster" not in client.capabilities:
        raise UsageProblem(
            f"client {client.name!r} does not declare the capability cluster",
            hint="declare it if the client can do it, or run on a single Redis",
        )


def _see_a_write(connection: DriverConnection, server: Server, seed: int) -> None:
    prefix = server.fresh_prefix()
    try:
        with server.connect() as redis:
            probe_honesty(connection, address=server.for_drivers, redis=redis, prefix=prefix, seed=seed)
    finally:
        server.remove_prefix(prefix)


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._since = (now - self._since) * 1000, now
