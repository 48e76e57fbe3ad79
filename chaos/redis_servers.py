"""Redis servers that can be killed, frozen and restarted, and a relay whose address follows the data."""

from __future__ import annotations

import asyncio
import atexit
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias

import redis

from conformance.interruption import postponed
from conformance.observe.tap.loop import LoopThread
from conformance.problems import EnvironmentProblem
from conformance.servers import guard
from conformance.servers.binary import ServerBinary
from conformance.servers.connection import connect_node, wait_until
from conformance.servers.local import HOST, free_port
from conformance.servers.setting import DEFAULT_PORT, RedisUrl, split_node

START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 10.0
FOLDER_PREFIX = "bullmq-chaos-redis-"
ENGINE_READY_DEADLINE_S = 60.0
CONTAINER_FOLDER_PREFIX = "bullmq-chaos-container-"
CONTAINER_LABEL = "bullmq-conformance-chaos"
BRIDGE = "bridge"
_INSTALL_HINT = "pip install 'WHERE[chaos]', where WHERE is the kit's checkout or wheel"
_ENGINE_HINT = "start the docker engine, or leave --redis away: the same faults run on local processes"

Persistence: TypeAlias = Literal["none", "rdb", "aof-everysec", "aof-always"]
PERSISTENCE: Mapping[Persistence, Sequence[str]] = {
    "none": ("--save", "", "--appendonly", "no"),
    "rdb": ("--save", "3600 1000000", "--appendonly", "no"),
    "aof-everysec": ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    "aof-always": ("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
}
"""Persistence, as arguments of redis-server. `rdb` saves only on command (or at shutdown)."""


class RedisServer(Protocol):
    """One server, in a process or in a container."""

    @property
    def node(self) -> str:
        """`host:port` for this machine."""
        ...

    @property
    def running(self) -> bool:
        """Whether it exists, frozen or not."""
        ...

    def connect(self, *, timeout_s: float = 10.0) -> redis.Redis:
        """A client of this one server."""
        ...

    def start(self, *, wait: bool = True) -> None:
        """Start it with its existing data."""
        ...

    def wait_until_ready(self) -> None:
        """Wait until it serves commands."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...

    def freeze(self) -> None:
        """Freeze it."""
        ...

    def thaw(self) -> None:
        """Resume it."""
        ...

    def close(self) -> None:
        """End it, in any state, and delete its data. May be called again."""
        ...


class RedisProcess:
    """One server. `close` ends it and deletes its folder; its guard does so if the kit dies.

    `mode` `cluster` and `sentinel` start such nodes; `extra_arguments`: of redis-server, from its next start on.
    """

    def __init__(
        self,
        binary: ServerBinary,
        *,
        persistence: Persistence = "none",
        mode: Literal["single", "cluster", "sentinel"] = "single",
    ) -> None:
        self.binary = binary
        self.persistence = persistence
        self.extra_arguments: list[str] = []
        self._mode = mode
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        with postponed():  # an interruption in between would leave the folder behind
            self.folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)).resolve()
            atexit.register(self.close)
        self.port = free_port(cluster=True)

    @property
    def node(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process exists (frozen or not)."""
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        """The last known process id of the server; 0 before its first start."""
        return self._pid

    def connect(self, *, timeout_s: float = 10.0) -> redis.Redis:
        """A client of this one node."""
        return connect_node(RedisUrl(mode="standalone", nodes=[self.node]), self.node, timeout_s=timeout_s)

    def start(self, *, wait: bool = True) -> None:
        """Start with the data in the folder. Raises EnvironmentProblem with the end of the log."""
        with (self.folder / "log").open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, str(self.folder), *self._argv()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # Its own session, so that Ctrl-C in the terminal does not end Redis before the clean-up.
                start_new_session=True,
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until it serves commands. Raises EnvironmentProblem."""
        if not wait_until(lambda: self._serves() or not self.running, deadline_s=START_DEADLINE_S) or not self.running:
            tail = (self.folder / "log").read_text("utf-8", "replace").splitlines()[-10:]
            raise EnvironmentProblem(f"Redis on port {self.port} did not start:\n" + "\n".join(tail))

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. The folder stays."""
        self._signal(signal.SIGKILL)
        # Waited for: a restart needs the port.
        if self._guard is not None:
            self._guard.wait(STOP_DEADLINE_S)

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def limit_files(self, most_bytes: int | None) -> None:
        """Limit the size of its files to this many bytes (None: no limit), which acts like a full disk. Linux only.

        The process must ignore SIGXFSZ, as every child of Python does.
        """
        _, hard = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (hard if most_bytes is None else most_bytes, hard))

    def close(self) -> None:
        """End it, in any state, and remove its folder. May be called again."""
        atexit.unregister(self.close)
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(STOP_DEADLINE_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serves(self) -> bool:
        try:
            # A short timeout, because a server that is loading or frozen must not hold the wait.
            with self.connect(timeout_s=1.0) as client:
                self._pid = int(client.info("server")["process_id"])
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _signal(self, number: int) -> None:
        if self.running and self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _argv(self) -> list[str]:
        where = ["--port", str(self.port), "--bind", HOST, "--dir", str(self.folder)]
        if self._mode == "sentinel":
            return [self.binary.path, str(self.folder / "sentinel.conf"), "--sentinel", *where]
        # No automatic rewrite: it would replace the append-only file that a fault cuts.
        kept = [*PERSISTENCE[self.persistence], "--auto-aof-rewrite-percentage", "0"]
        # No delay before a full synchronisation, so that a replica is linked soon.
        replication = ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        argv = [self.binary.path, *where, "--protected-mode", "yes", *kept, *replication]
        if self._mode == "cluster":
            argv += ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", HOST]
            # Short, so that a failover fits into a run; the default is 15 s.
            argv += ["--cluster-node-timeout", "1500"]
        return [*argv, *self.extra_arguments]


class ContainerServer:
    """A `RedisServer` in a container of an image that has redis-server on its PATH.

    Its port is published at a fixed port of this machine, so the address survives restarts. Its data is in a folder of
    this machine, where faults can change it.
    """

    def __init__(self, image: str, persistence: Persistence) -> None:
        self.image = image
        self.port = free_port(cluster=True)
        self._wrapped: Any = None
        """The engine's own object, once it was started."""
        with postponed():
            self.folder = Path(tempfile.mkdtemp(prefix=CONTAINER_FOLDER_PREFIX)).resolve()
            atexit.register(self.close)
        self.folder.chmod(0o777)  # the user of the image writes there
        self._container = _container_of(image, persistence, self.port, self.folder)

    @property
    def node(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the engine reports it as running; a paused container counts as running."""
        if self._wrapped is None:
            return False
        self._wrapped.reload()
        return bool(self._wrapped.status in {"running", "paused"})

    def connect(self, *, timeout_s: float = 10.0) -> redis.Redis:
        """A client of it."""
        return connect_node(RedisUrl(mode="standalone", nodes=[self.node]), self.node, timeout_s=timeout_s)

    def start(self, *, wait: bool = True) -> None:
        """Start it, or restart it with its existing data. Raises EnvironmentProblem."""
        try:
            if self._wrapped is None:
                self._container.start()
                self._wrapped = self._container.get_wrapped_container()
            else:
                self._wrapped.start()
        except Exception as error:
            what = f"no container of {self.image} could be started ({error})"
            raise EnvironmentProblem(what, hint=_ENGINE_HINT) from error
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until it serves commands. Raises EnvironmentProblem."""
        if not wait_until(self._serves, deadline_s=ENGINE_READY_DEADLINE_S, step_s=0.05):
            raise EnvironmentProblem(f"Redis in a container of {self.image} does not answer at {self.node}")

    def kill(self) -> None:
        """SIGKILL to its first process."""
        self._wrapped.kill()
        # Waited for, because the engine reports the kill before the container has ended.
        wait_until(lambda: not self.running, deadline_s=ENGINE_READY_DEADLINE_S, step_s=0.02)

    def freeze(self) -> None:
        """`docker pause`."""
        self._wrapped.pause()

    def thaw(self) -> None:
        """`docker unpause`, if it is paused."""
        # Any error: a container that is not paused, or gone, needs no thaw.
        with suppress(Exception):
            self._wrapped.unpause()

    def unplug(self) -> None:
        """Disconnect it from its network: it keeps running, but is unreachable."""
        self._network().disconnect(self._wrapped)

    def plug(self) -> None:
        """Connect it again."""
        self._network().connect(self._wrapped)
        self.wait_until_ready()

    def close(self) -> None:
        """Remove container and folder. May be called again."""
        atexit.unregister(self.close)
        if self._wrapped is not None:
            self.thaw()
            self._empty_folder()
            self._container.stop(force=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _empty_folder(self) -> None:
        """Delete the files from inside of the container: they belong to the user of the image."""
        with suppress(Exception):
            self._wrapped.exec_run("sh -c 'rm -rf /data/*'", user="root")

    def _network(self) -> Any:
        return self._container.get_docker_client().client.networks.get(BRIDGE)

    def _serves(self) -> bool:
        try:
            with self.connect(timeout_s=1.0) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def _container_of(image: str, persistence: Persistence, port: int, folder: Path) -> Any:
    """Describe the container. Raises EnvironmentProblem if the packages or the engine are missing."""
    try:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise EnvironmentProblem(f"containers need the Python package {error.name}", hint=_INSTALL_HINT) from error
    command = ["redis-server", "--protected-mode", "no", "--dir", "/data", *PERSISTENCE[persistence]]
    try:
        described = DockerContainer(image)
        described.with_command(command)
        described.with_volume_mapping(str(folder), "/data", "rw")
        described.with_kwargs(labels={CONTAINER_LABEL: "1"})
        ports: dict[str, Any] = described.ports
        ports[f"{DEFAULT_PORT}/tcp"] = (HOST, port)  # to this machine only, which `with_bind_ports` cannot say
    except Exception as error:
        raise EnvironmentProblem(f"no docker engine answers ({error})", hint=_ENGINE_HINT) from error
    return described


class Relay:
    """A stable address in front of a Redis that moves, like a service name or a virtual IP in production.

    Clients of the driver protocol know one address, and no sentinels. After a failover the kit points the relay at the
    new primary, as an operator's automation would. The relay passes bytes between clients and `target` (`host:port`).
    All methods may be called from any thread.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._loop = LoopThread("relay")
        self._live: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.address = ""

    def __enter__(self) -> Self:
        """Listen."""
        self._loop.await_(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening, and end all connections."""
        self._loop.await_(self._close())
        self._loop.stop()

    def point_at(self, target: str) -> None:
        """Lead to another server from now on, and end the connections to the old one."""
        self.target = target  # before the drop: a client that reconnects at once must not reach the old server
        self._loop.ask(self._drop)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.address = f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._drop()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self) -> None:
        for writer in list(self._live):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._live.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection(*split_node(self.target))
        except OSError:
            writer.transport.abort()
            self._live.discard(writer)
            return
        self._live.add(far_writer)
        with suppress(OSError, asyncio.CancelledError):
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, far_writer))
                both.create_task(_pass_on(far_reader, writer))
        for end in (writer, far_writer):
            end.transport.abort()
            self._live.discard(end)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes until one side closes; then close the other side."""
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
