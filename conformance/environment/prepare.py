"""Prepares the machine for a verb: finds, installs and starts everything that it needs, in a fixed order."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from rich.console import Console

from conformance.driver.connection import DriverConnection
from conformance.driver.messages import Ready
from conformance.driver.probe import probe_honesty
from conformance.driver.transports import kill_all
from conformance.environment.clients import NO_CLIENT, Launch, Toolchain, find_toolchain, oracle_version
from conformance.environment.drivers import RestartableDriver, reason_for_none
from conformance.pages.terminal import terminal_text
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers import open_server
from conformance.servers.binary import ServerBinary, any_binary
from conformance.servers.opening import RedisInstance, chosen_binary
from conformance.servers.setting import AnyBinary, BinaryAt, BundledBinary, ContainerImage, RedisUrl, parse_setting
from conformance.upstream.node import find_node
from conformance.upstream.redis_libraries import DEFAULT, RedisLibrary
from conformance.upstream.scripts import load_scripts

Announce = Callable[[str], None]
Options = TypeVar("Options", bound="EnvironmentOptions")


def announce(text: str) -> None:
    """Print one line to stderr: a slow step, or something that the user should know."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(terminal_text(text))


class EnvironmentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The requirements of a verb.

    `client`: the client under test by name, "" for none; `command`: the command of its driver instead of a name;
    `packages`: versions of the client's libraries, such as `redis==7.4.1`, instead of its own choice. `library`:
    through which Node's BullMQ speaks to Redis. `declare`: the only operations and capabilities of its driver that
    count, empty for all. `oracle`: the version of bullmq to compare with, "" for the pinned one. `partner`: the second
    client of hand-overs, by name or by the command of its driver, "" for the oracle. `redis` and `node`: the user's
    settings, "" for the default of this machine. `seed`: for all random choices.
    """

    client: str = ""
    command: Sequence[str] = ()
    packages: Sequence[str] = ()
    library: RedisLibrary = DEFAULT
    declare: Sequence[str] = ()
    oracle: str = ""
    partner: str = ""
    redis: str = ""
    node: str = ""
    seed: int = 0


def settled(options: Options) -> Options:
    """The options with the exact version of the oracle instead of a word such as `newest-6`, and "" for the pinned one.

    Asks npm only for words. Raises UsageProblem if it is not a version.
    """
    if not options.oracle:
        return options
    version = oracle_version(find_node(options.node or None), options.oracle)
    return msgspec.structs.replace(options, oracle="" if version == BULLMQ_VERSION else version)


def client_under_test(client: str, command: Sequence[str]) -> str:
    """The name of the client under test: `client`, else the name of the driver's program, else `reference`.

    Raises UsageProblem if both are given.
    """
    if client and command:
        raise UsageProblem("--client and a driver's command exclude each other", hint="give only one of them")
    return client or (Path(command[0]).name if command else "reference")


@dataclass(frozen=True)
class RedisProgram:
    """The program with which a verb starts its own Redis, or the `image` of its containers if not empty."""

    binary: ServerBinary
    image: str = ""

    @property
    def source(self) -> str:
        """Its origin, for reports. Crash points always run on a local process."""
        return f"container {self.image}; crash points: {self.binary.source}" if self.image else self.binary.source


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A prepared machine: the oracle's toolchain, Redis, and the commands of all drivers.

    `scripts`: texts of the official scripts by name. `redis`: a running Redis or, for a verb that starts its own, the
    program. `handshakes`: declarations of the drivers that passed the honesty probe, by `oracle`, `client` and
    `partner` (the partner replaces the oracle in hand-overs, if given). `drivers`: those drivers, if they were kept for
    scenarios in this process. `startup_ms`: the duration of each step.
    """

    toolchain: Toolchain
    scripts: Mapping[str, str]
    oracle: Launch
    client: Launch
    redis: RedisInstance | RedisProgram
    partner: Launch | None = None
    seed: int = 0
    handshakes: Mapping[str, Ready] = field(default_factory=dict)
    drivers: Mapping[str, RestartableDriver] = field(default_factory=dict)
    startup_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def server(self) -> RedisInstance:
        """The running Redis."""
        assert isinstance(self.redis, RedisInstance)
        return self.redis

    @property
    def redis_program(self) -> RedisProgram:
        """The program with which a verb starts its own Redis."""
        assert isinstance(self.redis, RedisProgram)
        return self.redis

    def launch(self, client: str, packages: Sequence[str] = ()) -> Launch:
        """The driver of another client by its name. Raises UsageProblem for an unknown client."""
        return self.toolchain.launch(client, (), packages)

    def facts(self) -> dict[str, str]:
        """Facts about the machine, for the header of the run."""
        node, server = self.toolchain.node, self.server
        return {
            "node": f"{node.version} ({node.source})",
            "bullmq": self.toolchain.package.version,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": str(os.cpu_count()),
            "tap": reason_for_none(server) or "in front of each client",
            **_private_redis(server),
        }


@dataclass(frozen=True)
class KeptDrivers:
    """Keep drivers running after the honesty probe. `client_log` gets the stderr of the client's driver."""

    client_log: Path | None = None


@contextmanager
def prepare(
    options: EnvironmentOptions,
    announce: Announce = announce,
    *,
    redis: Literal["server", "program"] = "server",
    prove: bool = False,
    keep: KeptDrivers | None = None,
) -> Iterator[Environment]:
    """Find or install everything, and start Redis for the duration of the block.

    `redis`: `program` only finds the server program. `prove`: start the drivers and run the honesty probe. `keep`: do
    not end them then, for scenarios in this process. Raises a Problem that names what is missing, or a DriverBroken
    problem for a driver that crashes, hangs or lies.
    """
    watch = _Stopwatch()
    # Before Redis: the installation by npm may take minutes, during which a started Redis would be idle.
    toolchain = find_toolchain(options.node, announce, options.oracle)
    client = NO_CLIENT
    if options.client:
        client = toolchain.launch(options.client, options.command, options.packages, library=options.library)
    client = replace(client, declares=list(options.declare))
    watch.lap("package")
    with _program(options.redis, announce) if redis == "program" else _server(options.redis, announce) as found:
        watch.lap("redis")
        scripts = {name: script.text for name, script in load_scripts(toolchain.package, toolchain.node).items()}
        environment = Environment(
            toolchain=toolchain,
            scripts=scripts,
            oracle=toolchain.oracle,
            client=client,
            redis=found,
            partner=toolchain.partner(options.partner) if options.partner else None,
            seed=options.seed,
            startup_ms=watch.laps,
        )
        with ExitStack() as kept:
            try:
                yield _proven(environment, watch, announce, kept, keep) if prove else environment
            except KeyboardInterrupt:
                kill_all()  # before the cleanup of Redis: drivers could write more keys
                raise


def _server(setting: str, announce: Announce) -> AbstractContextManager[RedisInstance]:
    return open_server(setting or None, announce=announce, ends_scripts=True)


def _program(setting: str, announce: Announce) -> AbstractContextManager[RedisProgram]:
    parsed = parse_setting(setting)
    match parsed:
        case ContainerImage(image):
            return nullcontext(RedisProgram(any_binary(announce), image))
        case AnyBinary() | BinaryAt() | BundledBinary() as wanted:
            return nullcontext(RedisProgram(chosen_binary(wanted, announce)))
    # A URL may contain a password.
    shown = parsed.text if isinstance(parsed, RedisUrl) else setting
    raise UsageProblem(
        f"chaos cannot start a Redis from {shown!r}", hint="use binary:PATH, bundled or container[:IMAGE]"
    )


def _private_redis(server: RedisInstance) -> dict[str, str]:
    """Another program than that of the run, on which scenarios with a private Redis run."""
    program = server.program
    if program is None:
        return {"private redis": "none on this machine, so scenarios that need one are unsupported"}
    return {} if program.source in server.source else {"private redis": program.source}


def _proven(
    environment: Environment, watch: _Stopwatch, announce: Announce, kept: ExitStack, keep: KeptDrivers | None
) -> Environment:
    """The environment, after all drivers have passed the honesty probe. `kept` ends the drivers that stay."""
    server = environment.server
    if no_tap := reason_for_none(server):
        announce(f"no tap, so the run leaves out scenarios that need one: {no_tap}")
    handshakes: dict[str, Ready] = {}
    drivers: dict[str, RestartableDriver] = {}
    parties = {"oracle": environment.oracle, "client": environment.client, "partner": environment.partner}
    for who, launch in parties.items():
        if launch is None:
            continue
        log_file = keep.client_log if keep and who == "client" else None
        driver = RestartableDriver(launch, environment.seed, log_file=log_file)
        # Before the handshake: a driver that fails the probe must be ended too.
        kept.callback(driver.close)
        ready = handshakes[who] = _handshake(driver, environment)
        if keep:
            # The probe's handles must not stay open during the first scenario.
            driver.reset()
            drivers[who] = driver
        else:
            driver.close()
        if server.mode == "cluster" and "cluster" not in ready.capabilities:
            raise UsageProblem(
                f"{who} {launch.name!r} does not declare the capability cluster",
                hint="declare it if the client supports clusters, or run on a single Redis",
            )
        watch.lap(who)
    return replace(environment, handshakes=handshakes, drivers=drivers)


def _handshake(driver: RestartableDriver, environment: Environment) -> Ready:
    connection = driver.living()
    _probe(connection, environment)
    return connection.ready


def _probe(connection: DriverConnection, environment: Environment) -> None:
    server = environment.server
    prefix = server.fresh_prefix()
    try:
        with server.connect() as redis:
            probe_honesty(connection, address=server.for_drivers, redis=redis, prefix=prefix, seed=environment.seed)
    finally:
        # Also after a dishonest answer: the driver may have written under the prefix.
        server.remove_traces(prefix)


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._since = (now - self._since) * 1000, now
