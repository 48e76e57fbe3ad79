"""Opens Redis for a run: from the user's setting to a running, checked server."""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import redis

from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers import connection, prefixes
from conformance.servers.binary import ServerBinary, any_binary, binary_at, bundled_binary
from conformance.servers.connection import (
    CLUSTER_HINT,
    UNAVAILABLE,
    Client,
    ServerFacts,
    connect_node,
    explained,
    insist_on_version,
    read_cluster_info,
    read_facts,
)
from conformance.servers.endless_scripts import scripts_ended
from conformance.servers.local import LocalProcess, local_cluster, local_process
from conformance.servers.setting import (
    AnyBinary,
    BinaryAt,
    BundledBinary,
    ContainerImage,
    NewCluster,
    RedisUrl,
    join_node,
    parse_setting,
)

_GLOB = re.compile(r"([*?\[\]^\\-])")
_SCAN_COUNT = 1000

ANSWER_TIMEOUT_S = 5.0
"""Limit for the first answers of a node."""

_PROOF_LIFETIME_S = 60
"""If the kit dies during the write test, Redis itself removes the key after this time."""

_TAKE = "local value = redis.call('GET', KEYS[1]); redis.call('DEL', KEYS[1]); return value"

Announce = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RedisInstance(RedisUrl):
    """A running Redis: its address and facts.

    `source`: its origin, for reports ("redis-server 7.0.15 from PATH"). `version`: the number that clients see.
    `settings`: the CONFIG values that matter to BullMQ, each "unavailable" if Redis refuses CONFIG. `own`: the kit
    started it and will end it; False: it belongs to the user, and the kit only touches its own prefixes.
    """

    source: str
    version: str
    settings: dict[str, str]
    own: bool
    program: ServerBinary | None = None
    """The program that scenarios start for a private Redis: the chosen one, and the default of this machine for a URL,
    a container or a cluster. None: there is no program."""

    def connect(self, *, timeout_s: float = connection.COMMAND_TIMEOUT_S) -> connection.Client:
        """Create a client for the kit; replies are bytes. Close it after use (`with`). Raises redis errors."""
        return connection.connect(self, timeout_s=timeout_s)

    def fresh_prefix(self, rng: random.Random | None = None) -> str:
        """Create a unique key prefix: `bc` and 8 hex digits, in a cluster as a hash tag (`{bc0f3a9c11}`).

        Pass `rng` only in tests: runs with equal seeds may share one Redis.
        """
        number = secrets.randbits(32) if rng is None else rng.getrandbits(32)
        prefix = f"bc{number:08x}"
        # Before the prefix is returned: a kill right after its first key must still find it in the list.
        prefixes.note(prefix)
        return f"{{{prefix}}}" if self.mode == "cluster" else prefix

    def remove_prefix(self, prefix: str) -> int:
        """Unlink all keys `PREFIX:...` and nothing else. Returns their number. Raises redis errors.

        SCAN finds the keys, so keys that other clients write meanwhile under the prefix may remain.
        """
        if not prefix:
            raise ValueError("an empty prefix would remove everything")
        return self.remove_matching(f"{escape_glob(prefix)}:*")

    def remove_traces(self, prefix: str) -> None:
        """Unlink all keys `PREFIX:...`, and those of queues named `...-PREFIX` under another prefix."""
        self.remove_prefix(prefix)
        self.remove_matching(f"*-{escape_glob(prefix)}:*")

    def remove_matching(self, pattern: str) -> int:
        """Unlink all keys that match a pattern in Redis' glob language; see `remove_prefix`."""
        with self.connect() as client:
            return unlink_matching(client, pattern)


def unlink_matching(client: connection.Client, pattern: str) -> int:
    """Unlink all keys that match a pattern. Returns their number. Raises redis errors."""
    # RedisCluster scans all primaries, and sends one UNLINK per slot.
    matching = client.scan_iter(match=pattern, count=_SCAN_COUNT)
    return sum(client.unlink(*keys) for keys in _batches(matching, _SCAN_COUNT))


BUSY_AFTER_MS = "2000"
"""When a Redis of a run calls a script endless; each process of the run waits for each such script once."""


@contextmanager
def open_server(setting: str | None, *, announce: Announce, ends_scripts: bool = False) -> Iterator[RedisInstance]:
    """Provide Redis for the duration of the block; a Redis that the kit started ends with it.

    `setting`: see `setting.FORMS`; None and "" use the default of this machine. `announce` gets lines for the user.
    `ends_scripts`: end scripts that keep it busy, which needs constant polling. On a Redis of the user, even
    an interrupted block leaves no key under the kit's prefixes. Raises UsageProblem for an invalid setting,
    EnvironmentProblem if there is no usable Redis.
    """
    wanted = parse_setting(setting)
    # Only for a run: others count the commands that Redis gets.
    ended: Callable[..., AbstractContextManager[None]] = scripts_ended if ends_scripts else _left_alone
    if isinstance(wanted, RedisUrl):
        # Only for a Redis of the user: one that the kit started ends together with its keys.
        with prefixes.swept(partial(connection.connect, wanted), announce):
            examined = replace(examine(wanted, announce), program=_default_program())
            with ended(examined):
                yield examined
    elif isinstance(wanted, ContainerImage):
        # Imported here, because it needs the packages of an extra.
        from conformance.servers.container import run_container  # noqa: PLC0415

        with run_container(wanted.image, announce) as address, ended(address):
            yield _own(address, f"container {wanted.image}", _default_program())
    elif isinstance(wanted, NewCluster) and wanted.image:
        from conformance.servers.container import container_cluster  # noqa: PLC0415 - as above

        with container_cluster(wanted.image, wanted.masters, announce) as address, ended(address):
            yield _own(address, f"cluster of {wanted.masters} containers of {wanted.image}", _default_program())
    elif isinstance(wanted, NewCluster):
        binary = any_binary(announce)
        with local_cluster(binary, wanted.masters) as address, ended(address):
            yield _own(address, f"cluster of {wanted.masters} masters, {binary.source}", binary)
    else:
        binary = chosen_binary(wanted, announce)
        settings = {"lua-time-limit": BUSY_AFTER_MS} if ends_scripts else None
        with local_process(binary, settings=settings) as process, ended(process.address, process.restart):
            yield _own(process.address, binary.source, binary)


def _left_alone(*_: object) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class PrivateServer:
    """A private Redis and its process, which can be restarted."""

    server: RedisInstance
    process: LocalProcess


@contextmanager
def private_server(binary: ServerBinary, settings: Mapping[str, str]) -> Iterator[PrivateServer]:
    """Run a local Redis with additional settings (as in redis.conf) for the duration of the block.

    Raises EnvironmentProblem if the program does not start, or refuses the settings.
    """
    with local_process(binary, settings=settings) as process:
        yield PrivateServer(_own(process.address, binary.source, binary), process)


def chosen_binary(wanted: AnyBinary | BinaryAt | BundledBinary, announce: Announce) -> ServerBinary:
    """Find the server program of a setting. Raises UsageProblem or EnvironmentProblem if there is none."""
    if isinstance(wanted, BinaryAt):
        return binary_at(wanted.path)
    if isinstance(wanted, BundledBinary):
        return bundled_binary()
    return any_binary(announce)


def _default_program() -> ServerBinary | None:
    try:
        # Not announced: the run itself does not use it, and `source` says which program it is.
        return any_binary(lambda _line: None)
    except EnvironmentProblem:
        return None


def _own(address: RedisUrl, source: str, program: ServerBinary | None) -> RedisInstance:
    """Describe a Redis that the kit has just started. Raises EnvironmentProblem if it is too old or does not answer."""
    node = address.nodes[0]
    with explained(address, node), connect_node(address, node) as client:
        facts = read_facts(client)
    insist_on_version(facts, node)
    return RedisInstance(
        mode=address.mode,
        nodes=address.nodes,
        source=source if facts.product == "Redis" else f"{source} ({facts.product})",
        version=facts.version,
        settings=facts.settings,
        own=True,
        program=program,
    )


def examine(address: RedisUrl, announce: Callable[[str], None]) -> RedisInstance:
    """Check that BullMQ can work with the Redis at an address of the user, and return its facts.

    Raises EnvironmentProblem if it cannot be reached, refuses the login, is too old, is a replica or does not write;
    UsageProblem if it is a cluster but the address is not, or vice versa.
    """
    facts = _first_answer(address)
    _insist_on_mode(facts, address)
    if facts.primary and address.mode == "standalone":
        raise EnvironmentProblem(f"Redis at {address.nodes[0]} is a replica", hint=f"give its primary, {facts.primary}")
    server = RedisInstance(
        mode=address.mode,
        nodes=address.nodes,
        db=address.db,
        username=address.username,
        password=address.password,
        tls=address.tls,
        source=address.text if facts.product == "Redis" else f"{address.text} ({facts.product})",
        version=facts.version,
        settings=facts.settings,
        own=False,
    )
    with explained(address), server.connect() as client:
        # Every primary: a queue's slot may be on any of them, and versions may differ during an upgrade.
        for node in _primaries(client) or address.nodes:
            _examine_node(address, node, announce)
        # Last, because it writes: a Redis that is refused for another reason stays untouched.
        _prove_writable(client, server)
    return server


def escape_glob(text: str) -> str:
    """A MATCH pattern that matches only this text."""
    return _GLOB.sub(r"\\\1", text)


def _batches(keys: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for key in keys:
        batch.append(key)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _primaries(client: Client) -> list[str]:
    """All nodes of a cluster that may hold a queue; empty for a single server."""
    if isinstance(client, redis.Redis):
        return []
    untyped: Any = client
    return [join_node(node.host, node.port) for node in untyped.get_primaries()]


def _examine_node(address: RedisUrl, node: str, announce: Callable[[str], None]) -> None:
    with explained(address, node), connect_node(address, node, timeout_s=ANSWER_TIMEOUT_S) as client:
        facts = read_facts(client)
        insist_on_version(facts, node)
        _warn_of_eviction(facts, node, announce)
        state = read_cluster_info(client).get("cluster_state") if address.mode == "cluster" else "ok"
    if state != "ok":
        raise EnvironmentProblem(
            f"the cluster of Redis at {node} cannot be used (cluster_state {state})", hint=CLUSTER_HINT
        )


def _warn_of_eviction(facts: ServerFacts, where: str, announce: Callable[[str], None]) -> None:
    """Warn that BullMQ loses jobs if Redis evicts keys, as BullMQ itself does."""
    policy = facts.eviction_policy
    if policy not in {"noeviction", UNAVAILABLE}:
        announce(f"Redis at {where} has maxmemory-policy {policy}: it may evict queues; BullMQ needs noeviction")


def _first_answer(address: RedisUrl) -> ServerFacts:
    """The facts of the first node that answers. Raises the Problem of the first node if none answers."""
    first: Problem | None = None
    for node in address.nodes:
        try:
            with explained(address, node), connect_node(address, node, timeout_s=ANSWER_TIMEOUT_S) as client:
                return read_facts(client)
        except Problem as problem:
            # The first one is the node that the user wrote first.
            first = first or problem
    assert first is not None  # an address has at least one node
    raise first


def _insist_on_mode(facts: ServerFacts, address: RedisUrl) -> None:
    where = ", ".join(address.nodes)
    if facts.mode == "sentinel":
        raise UsageProblem(f"{where} is a Redis Sentinel", hint="give the address of the primary that it monitors")
    if facts.mode == address.mode:
        return
    if facts.mode == "cluster":
        raise UsageProblem(f"Redis at {where} is part of a cluster", hint=f"write redis+cluster://{where}")
    raise UsageProblem(f"Redis at {where} is not a cluster", hint=f"write redis://{address.nodes[0]}")


def _prove_writable(client: Client, server: RedisInstance) -> None:
    """Write a key under a new prefix, and delete it by a script. Raises redis errors."""
    key = f"{server.fresh_prefix()}:write-test"
    proof = secrets.token_hex(8)
    client.set(key, proof, ex=_PROOF_LIFETIME_S)
    # By a script, because users may be allowed to SET but not to EVAL, which all of BullMQ needs.
    if client.eval(_TAKE, 1, key) != proof.encode():
        raise EnvironmentProblem(
            f"Redis at {', '.join(server.nodes)} did not return what was written", hint="is a proxy in between?"
        )
