"""Redis in a container, through testcontainers (the extra `chaos`), which uses DOCKER_HOST and TESTCONTAINERS_*.

Unlike a local process, a container outlives a killed kit until Ryuk, the helper container of testcontainers, removes
it. With TESTCONTAINERS_RYUK_DISABLED=true nothing removes it.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from conformance.problems import EnvironmentProblem
from conformance.servers.binary import read_version
from conformance.servers.connection import connect_node, explained, read_facts, wait_until
from conformance.servers.local import HOST, RANGES_SINCE, form_cluster, free_port, server_arguments
from conformance.servers.setting import DEFAULT_PORT, RedisUrl

READY_DEADLINE_S = 60.0
READY_STEP_S = 0.05

_LOOPBACK = "127.0.0.1"
_INSTALL_HINT = "pip install 'WHERE[chaos]', where WHERE is the kit's checkout or wheel"
_ENGINE_HINT = (
    "start the docker engine (`sudo systemctl start docker`, Docker Desktop, or point DOCKER_HOST at one),"
    " or run without containers: redis-server on PATH or a redis:// URL"
)
_RYUK_HINT = "the helper image of testcontainers is missing: set TESTCONTAINERS_RYUK_DISABLED=true to run without it"
_SHOWN_LOG_LINES = 20


@dataclass(frozen=True)
class _ContainerEngine:
    """The parts of docker and testcontainers that the kit uses. `errors`: all their exceptions."""

    container: Callable[[str], Any]
    missing_image: type[Exception]
    errors: tuple[type[Exception], ...]


@contextmanager
def run_container(image: str, announce: Callable[[str], None]) -> Iterator[RedisUrl]:
    """Run a container for the duration of the block. `announce` gets a line before an image is fetched.

    Raises EnvironmentProblem when the packages, the engine or the image are missing, or when Redis does not answer.
    """
    engine = _engine()
    redis_container = _reach_engine(engine, image)
    # Before the start: an exit during the start would leave the container running.
    atexit.register(redis_container.stop)
    try:
        _announce_fetch(engine, redis_container, announce)
        address = _start(engine, redis_container, image)
        _wait_until_ready(redis_container, address, image)
        _switch_off_persistence(address)
        yield address
    finally:
        atexit.unregister(redis_container.stop)
        _remove(engine, redis_container, announce)


@contextmanager
def container_cluster(image: str, masters: int, announce: Callable[[str], None]) -> Iterator[RedisUrl]:
    """Run a cluster of containers for the duration of the block, each in the network of this machine.

    A cluster announces the addresses of its nodes, so these must be the same inside and outside of a container.
    Raises as `run_container`, also if the cluster does not form.
    """
    engine = _engine()
    with ExitStack() as stack:
        nodes = [stack.enter_context(_cluster_node(engine, image, announce)) for _ in range(masters)]
        address = RedisUrl(mode="cluster", nodes=[node.nodes[0] for node in nodes])
        with explained(address), connect_node(address, address.nodes[0]) as client:
            version = read_version(read_facts(client).version)
        form_cluster(address, by_range=version is not None and version >= RANGES_SINCE, source=f"containers of {image}")
        yield address


@contextmanager
def _cluster_node(engine: _ContainerEngine, image: str, announce: Callable[[str], None]) -> Iterator[RedisUrl]:
    port = free_port(cluster=True)
    address = RedisUrl(mode="standalone", nodes=[f"{HOST}:{port}"])
    try:
        node = engine.container(image)
        node.with_command(["redis-server", *server_arguments(port, cluster=True)])
        node.with_kwargs(network_mode="host")
    except engine.errors as error:
        raise EnvironmentProblem(f"no docker engine answers ({_short(error)})", hint=_ENGINE_HINT) from error
    # Before the start, as above.
    atexit.register(node.stop)
    try:
        _announce_fetch(engine, node, announce)
        _started(engine, node, image)
        _wait_until_ready(node, address, image)
        yield address
    finally:
        atexit.unregister(node.stop)
        _remove(engine, node, announce)


def _engine() -> _ContainerEngine:
    try:
        from docker.errors import DockerException, ImageNotFound  # noqa: PLC0415 - an extra, see above
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415
    except ImportError as error:
        raise EnvironmentProblem(f"containers need the Python package {error.name}", hint=_INSTALL_HINT) from error
    except ValueError as error:  # testcontainers reads its variables when it is imported
        raise EnvironmentProblem(str(error), hint="correct or unset the variable TESTCONTAINERS_...") from error
    # testcontainers raises RuntimeError, and the HTTP package of docker OSError.
    return _ContainerEngine(DockerContainer, ImageNotFound, (DockerException, RuntimeError, OSError))


def _reach_engine(engine: _ContainerEngine, image: str) -> Any:
    try:
        created = engine.container(image)
        _publish(created)
    except engine.errors as error:
        raise EnvironmentProblem(f"no docker engine answers ({_short(error)})", hint=_ENGINE_HINT) from error
    return created


def _publish(created: Any) -> None:
    """Publish the port. If the engine is local, only to this machine, because this Redis has no password."""
    client = created.get_docker_client()
    local = client.get_connection_mode().value == "docker_host" and client.host() in {"localhost", _LOOPBACK}
    # `with_exposed_ports` cannot express the address; docker itself takes a tuple here.
    created.ports[f"{DEFAULT_PORT}/tcp"] = (_LOOPBACK,) if local else None


def _announce_fetch(engine: _ContainerEngine, created: Any, announce: Callable[[str], None]) -> None:
    try:
        created.get_docker_client().client.images.get(created.image)
    except engine.missing_image:
        announce(f"fetching the container image {created.image}")
    except engine.errors as error:
        raise EnvironmentProblem(f"the docker engine failed ({_short(error)})", hint=_ENGINE_HINT) from error


def _start(engine: _ContainerEngine, created: Any, image: str) -> RedisUrl:
    _started(engine, created, image)
    try:
        host = created.get_container_host_ip()
        port = created.get_exposed_port(DEFAULT_PORT)
    except engine.errors as error:
        raise EnvironmentProblem(f"the docker engine failed ({_short(error)})", hint=_ENGINE_HINT) from error
    # Node may resolve `localhost` to ::1, where the port is not published.
    return RedisUrl(mode="standalone", nodes=[f"{_LOOPBACK if host == 'localhost' else host}:{port}"])


def _started(engine: _ContainerEngine, created: Any, image: str) -> None:
    try:
        created.start()
    except engine.errors as error:
        said = _short(error)
        hint = _RYUK_HINT if "ryuk" in said.lower() else f"try `docker pull {image}`, or choose another image"
        raise EnvironmentProblem(f"no container of {image} could be started ({said})", hint=hint) from error


def _wait_until_ready(created: Any, address: RedisUrl, image: str) -> None:
    node = address.nodes[0]

    def running() -> bool:
        wrapped = created.get_wrapped_container()
        # The status is cached at the start; without this a container that ended looks alive.
        wrapped.reload()
        return bool(wrapped.status in {"created", "running", "restarting"})

    def answers() -> bool:
        try:
            # Short: docker's proxy accepts connections before Redis listens, and then nothing answers.
            with explained(address, node), connect_node(address, node, timeout_s=1.0) as client:
                return bool(client.ping())
        except EnvironmentProblem:
            return False

    if wait_until(lambda: answers() or not running(), deadline_s=READY_DEADLINE_S, step_s=READY_STEP_S) and answers():
        return
    output = b"".join(created.get_logs()).decode("utf-8", "replace").splitlines()
    tail = "\n".join(output[-_SHOWN_LOG_LINES:])
    raise EnvironmentProblem(
        f"no Redis answers at {node} from a container of {image}; the end of its log:\n{tail}",
        hint="the image must start Redis by itself, without a password, and the engine must run on this machine",
    )


def _switch_off_persistence(address: RedisUrl) -> None:
    """Use CONFIG SET, because not every image passes arguments to redis-server."""
    node = address.nodes[0]
    with explained(address, node), connect_node(address, node) as client:
        # A snapshot would fork in the middle of a run and delay commands.
        client.config_set("save", "")
        client.config_set("appendonly", "no")


def _remove(engine: _ContainerEngine, created: Any, announce: Callable[[str], None]) -> None:
    try:
        created.stop()
    except engine.errors as error:
        # Only announced: the run's result is complete, and the container is the user's to remove.
        announce(f"a container of {created.image} could not be removed, see `docker ps` ({_short(error)})")


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
