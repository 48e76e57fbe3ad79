"""The one way to a topology by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from chaos.redis_process import Persistence
from chaos.topologies.base import Topology, TopologyName
from chaos.topologies.cluster import cluster
from chaos.topologies.replica import replica, sentinel
from chaos.topologies.single import single
from conformance.problems import UsageProblem
from conformance.servers.binary import Binary, any_binary, binary_at
from conformance.servers.setting import AnyBinary, BinaryAt, Container, parse_setting

TOPOLOGIES: Mapping[TopologyName, Callable[[Binary, Persistence], AbstractContextManager[Topology]]] = {
    "single": single,
    "replica": replica,
    "sentinel": sentinel,
    "cluster": cluster,
}


@contextmanager
def open_topology(name: TopologyName, redis: str, persistence: Persistence) -> Iterator[Topology]:
    """Run the servers for the duration of the block.

    `redis`: `binary:PATH`, `container[:IMAGE]`, or empty for the program on PATH. Raises a Problem.
    """
    wanted = parse_setting(redis)
    if isinstance(wanted, Container):
        if name != "single":
            raise UsageProblem(f"topology {name} runs on local processes only", hint="leave --redis away")
        # Only here: it is for those who have the extra `chaos`.
        from chaos.topologies.container import container  # noqa: PLC0415

        with container(wanted.image, persistence) as topology:
            yield topology
        return
    if not isinstance(wanted, AnyBinary | BinaryAt):
        raise UsageProblem(f"chaos cannot hurt a Redis given as {redis!r}", hint="use binary:PATH or container[:IMAGE]")
    binary = binary_at(wanted.path) if isinstance(wanted, BinaryAt) else any_binary(lambda _text: None)
    with TOPOLOGIES[name](binary, persistence) as topology:
        yield topology
