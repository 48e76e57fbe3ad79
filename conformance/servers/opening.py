"""The one way to a Redis: from what the user wrote to a `Server`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from conformance.servers.binary import Binary, any_binary, binary_at, bundled_binary
from conformance.servers.cluster import local_cluster
from conformance.servers.connection import connect_node, explained
from conformance.servers.facts import insist_on_version, read_facts
from conformance.servers.local import LocalProcess, local_process
from conformance.servers.server import Server
from conformance.servers.setting import (
    Address,
    BinaryAt,
    BundledBinary,
    Container,
    NewCluster,
    parse_setting,
)
from conformance.servers.url import examine

Announce = Callable[[str], None]


@contextmanager
def open_server(setting: str | None, *, announce: Announce) -> Iterator[Server]:
    """Provide Redis for the duration of the block; what the kit started is gone afterwards.

    `setting`: see `setting.FORMS`; None and "" take what this machine has. `announce` is told, in one line each, what
    the user should know. Raises UsageProblem for a malformed setting, EnvironmentProblem when there is no usable Redis.
    """
    wanted = parse_setting(setting)
    if isinstance(wanted, Address):
        yield examine(wanted, announce)
    elif isinstance(wanted, Container):
        # Only here: the packages behind it are an extra of the kit.
        from conformance.servers.container import container  # noqa: PLC0415

        with container(wanted.image, announce) as address:
            yield _own(address, f"container {wanted.image}")
    elif isinstance(wanted, NewCluster):
        binary = any_binary(announce)
        with local_cluster(binary, wanted.masters) as address:
            yield _own(address, f"cluster of {wanted.masters} masters, {binary.source}")
    else:
        binary = _binary(wanted, announce)
        with local_process(binary) as process:
            yield _own(process.address, binary.source)


@dataclass(frozen=True)
class PrivateServer:
    """A Redis of one's own: where it is, and the process, which can be restarted."""

    server: Server
    process: LocalProcess


@contextmanager
def private_server(settings: Mapping[str, str], *, announce: Announce) -> Iterator[PrivateServer]:
    """Run a local Redis with settings of its own (as in redis.conf) for the duration of the block.

    Raises EnvironmentProblem when there is no server program, or when it refuses the settings.
    """
    binary = any_binary(announce)
    with local_process(binary, settings=settings) as process:
        yield PrivateServer(_own(process.address, binary.source), process)


def _binary(wanted: object, announce: Announce) -> Binary:
    if isinstance(wanted, BinaryAt):
        return binary_at(wanted.path)
    if isinstance(wanted, BundledBinary):
        return bundled_binary()
    return any_binary(announce)


def _own(address: Address, source: str) -> Server:
    """Describe a Redis that the kit has just started. Raises EnvironmentProblem if it is too old or does not answer."""
    node = address.nodes[0]
    with explained(address, node), connect_node(address, node) as client:
        facts = read_facts(client)
    insist_on_version(facts, node)
    return Server(
        mode=address.mode,
        nodes=address.nodes,
        source=source if facts.product == "Redis" else f"{source} ({facts.product})",
        version=facts.version,
        settings=facts.settings,
        own=True,
    )
