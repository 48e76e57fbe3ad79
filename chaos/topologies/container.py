"""One server in a container: the docker engine kills, pauses, restarts it, and takes its network away.

The port is published at a fixed number of this machine, so that the address stays the same over restarts; the data is
in a folder of this machine, so that faults can reach it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

from chaos.redis_process import PERSISTENCE, Persistence
from chaos.topologies.base import Topology
from conformance.problems import EnvironmentProblem
from conformance.servers.connection import connect_node
from conformance.servers.ports import HOST, free_port
from conformance.servers.setting import DEFAULT_PORT, Address
from conformance.servers.waiting import wait_until

READY_DEADLINE_S = 60.0
FOLDER_PREFIX = "bullmq-chaos-container-"
LABEL = "bullmq-conformance-chaos"
BRIDGE = "bridge"
_INSTALL_HINT = "pip install bullmq-conformance[chaos]"
_ENGINE_HINT = "start the docker engine, or leave --redis away: the same faults run on local processes"


class ContainerServer:
    """A `RedisServer` in a container of an image that has redis-server on its PATH."""

    def __init__(self, image: str, persistence: Persistence) -> None:
        self.image = image
        self.port = free_port(cluster=True)
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX)).resolve()
        self.folder.chmod(0o777)  # the image's own user writes there
        self._container = _made(image, persistence, self.port, self.folder)
        self._wrapped: Any = None
        """The engine's own object, once it was started."""
        atexit.register(self.close)

    @property
    def node(self) -> str:
        """`127.0.0.1:PORT`."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the engine says so; a paused one runs."""
        if self._wrapped is None:
            return False
        self._wrapped.reload()
        return bool(self._wrapped.status in {"running", "paused"})

    def connect(self, *, timeout_s: float = 10.0) -> redis.Redis:
        """A client of it."""
        return connect_node(Address(mode="standalone", nodes=[self.node]), self.node, timeout_s=timeout_s)

    def start(self, *, wait: bool = True) -> None:
        """Start it the first time, or once more with the data that it has. Raises EnvironmentProblem."""
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
        if not wait_until(self._serves, deadline_s=READY_DEADLINE_S, step_s=0.05):
            raise EnvironmentProblem(f"Redis in a container of {self.image} does not answer at {self.node}")

    def kill(self) -> None:
        """SIGKILL to its first process."""
        self._wrapped.kill()
        wait_until(lambda: not self.running, deadline_s=READY_DEADLINE_S, step_s=0.02)

    def freeze(self) -> None:
        """`docker pause`."""
        self._wrapped.pause()

    def thaw(self) -> None:
        """`docker unpause`, if it is paused."""
        with suppress(Exception):
            self._wrapped.unpause()

    def unplug(self) -> None:
        """Take it off its network: nobody reaches it, and it goes on."""
        self._network().disconnect(self._wrapped)

    def plug(self) -> None:
        """Put it back on."""
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
        """From inside: what the image's user has written may not be ours to remove."""
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


def _made(image: str, persistence: Persistence, port: int, folder: Path) -> Any:
    """Describe the container. Raises EnvironmentProblem where the packages or the engine are missing."""
    try:
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise EnvironmentProblem(f"containers need the Python package {error.name}", hint=_INSTALL_HINT) from error
    command = ["redis-server", "--protected-mode", "no", "--dir", "/data", *PERSISTENCE[persistence]]
    try:
        made = DockerContainer(image)
        made.with_command(command)
        made.with_volume_mapping(str(folder), "/data", "rw")
        made.with_kwargs(labels={LABEL: "1"})
        ports: dict[str, Any] = made.ports
        ports[f"{DEFAULT_PORT}/tcp"] = (HOST, port)  # to this machine only, which `with_bind_ports` cannot say
    except Exception as error:
        raise EnvironmentProblem(f"no docker engine answers ({error})", hint=_ENGINE_HINT) from error
    return made


@contextmanager
def container(image: str, persistence: Persistence) -> Iterator[Topology]:
    """Run it for the duration of the block. Raises EnvironmentProblem."""
    server = ContainerServer(image, persistence)
    try:
        server.start()
        yield Topology("single", [server], [server.node], lambda: server)
    finally:
        server.close()
