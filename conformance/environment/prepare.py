"""What a verb needs before it can begin, found, installed and started in one order by one function."""

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
from conformance.environment.clients import NOBODY, Launch, Toolchain, find_toolchain, oracle_version
from conformance.environment.drivers import RestartableDriver, reason_for_none
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers import open_server
from conformance.servers.binary import ServerBinary, any_binary, binary_at
from conformance.servers.opening import RedisInstance
from conformance.servers.setting import AnyBinary, BinaryAt, ContainerImage, parse_setting
from conformance.upstream.node import find_node
from conformance.upstream.scripts import load_scripts

Announce = Callable[[str], None]
Options = TypeVar("Options", bound="EnvironmentOptions")


def announce(text: str) -> None:
    """Say on stderr, in one line, what takes long or what the user should know."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(text)


class EnvironmentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb asks of the machine.

    `client`: the client under test by name, "" for none; `command`: the command of its driver, in place of a name;
    `packages`: versions of what the client stands on, such as `redis==7.4.1`, in place of those that it brings.
    `oracle`: the version of bullmq that is right, "" for the pinned one. `partner`: the second client of hand-overs, by
    name or by the command of its driver, "" for the oracle. `redis` and `node` as the user wrote them, ""
    for what this machine has. `seed`: of everything random.
    """

    client: str = ""
    command: Sequence[str] = ()
    packages: Sequence[str] = ()
    oracle: str = ""
    partner: str = ""
    redis: str = ""
    node: str = ""
    seed: int = 0


def settled(options: Options) -> Options:
    """The same with the exact version in place of a word such as `newest-6`, and "" for the pinned one.

    npm is asked for words only. Raises UsageProblem for what names no version.
    """
    if not options.oracle:
        return options
    version = oracle_version(find_node(options.node or None), options.oracle)
    return msgspec.structs.replace(options, oracle="" if version == BULLMQ_VERSION else version)


def client_under_test(client: str, command: Sequence[str]) -> str:
    """Its name: the one given, else that of the driver's program, else the reference.

    Raises UsageProblem where both a name and a command were given.
    """
    if client and command:
        raise UsageProblem("both --client and a driver's command were given", hint="give one of them")
    return client or (Path(command[0]).name if command else "reference")


@dataclass(frozen=True)
class RedisProgram:
    """What a verb starts its own Redis with: the program, or, where `image` is not empty, containers of that image."""

    binary: ServerBinary
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A machine that is ready: the oracle's toolchain, Redis, and how each client's driver is started.

    `scripts`: texts of the official scripts by name. `redis`: a Redis that answers or, for a verb that starts its own
    ones, the program. `handshakes`: what the drivers said of themselves, by `oracle` and `client`, where they had to
    prove themselves, and by `partner` if there is one, who takes the oracle's place in hand-overs. `drivers`: those
    that have proved themselves and were kept, for whoever plays in this process. `startup_ms`: how long each part took.
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
        """The Redis that answers."""
        assert isinstance(self.redis, RedisInstance)
        return self.redis

    @property
    def redis_program(self) -> RedisProgram:
        """What a verb starts its own Redis with."""
        assert isinstance(self.redis, RedisProgram)
        return self.redis

    def launch(self, client: str, packages: Sequence[str] = ()) -> Launch:
        """How the driver of another client is started, by its name. Raises UsageProblem for an unknown one."""
        return self.toolchain.launch(client, (), packages)

    def facts(self) -> dict[str, str]:
        """What the run took place on, for its header."""
        node = self.toolchain.node
        return {
            "node": f"{node.version} ({node.source})",
            "bullmq": self.toolchain.package.version,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cpus": str(os.cpu_count()),
            "tap": reason_for_none(self.server) or "in front of each client",
        }


@dataclass(frozen=True)
class KeptDrivers:
    """That drivers which have proved themselves are kept. `client_log` gets all that the client's writes to stderr."""

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

    `redis`: `program` only finds the server program. `prove`: start both drivers once and show that they are honest.
    `keep`: do not end them then; whoever plays in this process goes on with them.
    Raises a Problem that says what is missing, or a DriverBroken problem for a driver that crashes, hangs or lies.
    """
    watch = _Stopwatch()
    toolchain = find_toolchain(options.node, announce, options.oracle)
    client = toolchain.launch(options.client, options.command, options.packages) if options.client else NOBODY
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
                kill_all()  # before what they have written is removed: they could write more
                raise


def _server(setting: str, announce: Announce) -> AbstractContextManager[RedisInstance]:
    return open_server(setting or None, announce=announce)


def _program(setting: str, announce: Announce) -> AbstractContextManager[RedisProgram]:
    match parse_setting(setting):
        case BinaryAt(path):
            return nullcontext(RedisProgram(binary_at(path)))
        case ContainerImage(image):
            return nullcontext(RedisProgram(any_binary(announce), image))
        case AnyBinary():
            return nullcontext(RedisProgram(any_binary(announce)))
    raise UsageProblem(f"chaos cannot hurt a Redis given as {setting!r}", hint="use binary:PATH or container[:IMAGE]")


def _proven(
    environment: Environment, watch: _Stopwatch, announce: Announce, kept: ExitStack, keep: KeptDrivers | None
) -> Environment:
    """The same, after both drivers have shown that a job which they say they added is in Redis.

    `kept` ends those that stay.
    """
    server = environment.server
    if no_tap := reason_for_none(server):
        announce(f"no tap, so scenarios that need one are not run: {no_tap}")
    handshakes: dict[str, Ready] = {}
    drivers: dict[str, RestartableDriver] = {}
    parties = {"oracle": environment.oracle, "client": environment.client, "partner": environment.partner}
    for who, launch in parties.items():
        if launch is None:
            continue
        log_file = keep.client_log if keep and who == "client" else None
        driver = RestartableDriver(launch, environment.seed, log_file=log_file)
        kept.callback(driver.close)
        ready = handshakes[who] = _handshake(driver, environment)
        if keep:
            driver.reset()
            drivers[who] = driver
        else:
            driver.close()
        if server.mode == "cluster" and "cluster" not in ready.capabilities:
            raise UsageProblem(
                f"{who} {launch.name!r} does not declare the capability cluster",
                hint="declare it if the client can do it, or run on a single Redis",
            )
        watch.lap(who)
    return replace(environment, handshakes=handshakes, drivers=drivers)


def _handshake(driver: RestartableDriver, environment: Environment) -> Ready:
    connection = driver.living()
    _see_a_write(connection, environment)
    return connection.ready


def _see_a_write(connection: DriverConnection, environment: Environment) -> None:
    server = environment.server
    prefix = server.fresh_prefix()
    try:
        with server.connect() as redis:
            probe_honesty(connection, address=server.for_drivers, redis=redis, prefix=prefix, seed=environment.seed)
    finally:
        server.remove_traces(prefix)


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._since = (now - self._since) * 1000, now
