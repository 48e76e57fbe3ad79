"""What only the docker engine can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chaos.faults.registry import fault
from chaos.stage import Stage
from chaos.topologies.container import ContainerServer
from conformance.problems import UsageProblem


def _server(stage: Stage) -> ContainerServer:
    server = stage.primary
    if not isinstance(server, ContainerServer):
        raise UsageProblem("this fault needs Redis in a container", hint="--redis container")
    return server


@fault("docker.unplug", group="containers", hold_ms=2500, times=1, topologies=("single",), only_containers=True)
@contextmanager
def unplug(stage: Stage) -> Iterator[None]:
    """Redis is taken off its docker network and put back: connections hang, and then are gone."""
    server = _server(stage)
    with stage.window("docker.unplug", resume_ms=stage.stall_ms):
        server.unplug()
        try:
            yield
        finally:
            server.plug()


@fault(
    "docker.restart",
    group="containers",
    hold_ms=500,
    times=2,
    persistence="aof-always",
    topologies=("single",),
    only_containers=True,
)
@contextmanager
def restart(stage: Stage) -> Iterator[None]:
    """The container is killed and started again, with its data."""
    server = _server(stage)
    with stage.window("docker.restart", resume_ms=stage.stall_ms):
        server.kill()
        try:
            yield
        finally:
            server.start()
