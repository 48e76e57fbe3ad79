"""A primary with a replica, behind an address that follows the data; with sentinels, they decide where that is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import redis

from chaos.redis_process import Persistence, RedisProcess
from chaos.relay import Relay
from chaos.topologies.base import Topology
from conformance.problems import EnvironmentProblem
from conformance.servers.binary import Binary
from conformance.servers.connection import send
from conformance.servers.ports import HOST
from conformance.servers.waiting import wait_until

LINK_DEADLINE_S = 20.0
SENTINELS = 3
QUORUM = 2
GROUP = "chaos"
LOOK_S = 0.1
FAIL_OVER_DEADLINE_S = 30.0


class Pair:
    """Two servers and the relay in front of the one that is the primary now."""

    def __init__(self, servers: list[RedisProcess], relay: Relay) -> None:
        self.servers = servers
        self.relay = relay

    @property
    def primary(self) -> RedisProcess:
        """Where the relay leads."""
        return next(server for server in self.servers if server.node == self.relay.target)

    @property
    def replica(self) -> RedisProcess:
        """The other one."""
        return next(server for server in self.servers if server is not self.primary)

    def promote(self) -> None:
        """Make the replica the primary, and lead everybody there."""
        chosen = self.replica
        with chosen.connect() as client:
            send(client, "REPLICAOF", "NO", "ONE")
        self.relay.point_at(chosen.node)

    def follow(self) -> None:
        """Make the other server a replica of the primary, and wait until it has all of the data."""
        primary, replica = self.primary, self.replica
        with replica.connect() as client:
            send(client, "REPLICAOF", HOST, primary.port)
            wait_for_link(client)


def wait_for_link(client: redis.Redis) -> None:
    """Wait until a replica has the data of its primary. Raises EnvironmentProblem."""

    def linked() -> bool:
        facts = client.info("replication")
        return facts.get("master_link_status") == "up" and not facts.get("master_sync_in_progress")

    if not wait_until(linked, deadline_s=LINK_DEADLINE_S):
        raise EnvironmentProblem(f"a replica did not get its data within {LINK_DEADLINE_S:g} s")


@contextmanager
def replica(binary: Binary, persistence: Persistence) -> Iterator[Topology]:
    """Run both for the duration of the block. Raises EnvironmentProblem."""
    with ExitStack() as stack:
        pair = _pair(binary, persistence, stack)
        yield Topology(
            "replica",
            list(pair.servers),
            [pair.relay.address],
            lambda: pair.primary,
            pair=pair,
        )


@contextmanager
def sentinel(binary: Binary, persistence: Persistence) -> Iterator[Topology]:
    """Run both and three sentinels, which fail over by themselves. Raises EnvironmentProblem."""
    with ExitStack() as stack:
        pair = _pair(binary, persistence, stack)
        sentinels = [RedisProcess(binary, mode="sentinel") for _ in range(SENTINELS)]
        for each in sentinels:
            stack.callback(each.close)
            (each.folder / "sentinel.conf").write_text(_config(pair.primary))
            each.start()
        stack.enter_context(_following(pair, sentinels))
        _wait_until_all_know(sentinels)
        yield Topology(
            "sentinel",
            list(pair.servers),
            [pair.relay.address],
            lambda: pair.primary,
            pair=pair,
        )


def _pair(binary: Binary, persistence: Persistence, stack: ExitStack) -> Pair:
    servers = [RedisProcess(binary, persistence=persistence) for _ in range(2)]
    for server in servers:
        stack.callback(server.close)
        server.start()
    pair = Pair(servers, stack.enter_context(Relay(servers[0].node)))
    pair.follow()
    return pair


def _config(primary: RedisProcess) -> str:
    return "\n".join(
        (
            f"sentinel monitor {GROUP} {HOST} {primary.port} {QUORUM}",
            f"sentinel down-after-milliseconds {GROUP} 600",
            f"sentinel failover-timeout {GROUP} 3000",
            f"sentinel parallel-syncs {GROUP} 1",
            "",
        )
    )


@contextmanager
def _following(pair: Pair, sentinels: list[RedisProcess]) -> Iterator[None]:
    """Lead clients to where the sentinels say that the data is."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(LOOK_S):
            for each in sentinels:
                with suppress(redis.RedisError), each.connect(timeout_s=1.0) as client:
                    host, port = send(client, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", GROUP)
                    node = f"{host.decode()}:{port.decode()}"
                    if node != pair.relay.target and any(node == server.node for server in pair.servers):
                        pair.relay.point_at(node)
                    break

    thread = threading.Thread(target=follow, daemon=True, name="sentinel follower")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _wait_until_all_know(sentinels: list[RedisProcess]) -> None:
    """Sentinels find each other, and the replica, through the primary; before that they cannot fail over."""

    def knows(each: RedisProcess) -> bool:
        with suppress(redis.RedisError), each.connect(timeout_s=2.0) as client:
            facts = send(client, "SENTINEL", "MASTER", GROUP)
            pairs = dict(zip(facts[::2], facts[1::2], strict=False)) if isinstance(facts, list) else facts
            text = {_text(name): _text(value) for name, value in pairs.items()}
            return int(text["num-other-sentinels"]) == SENTINELS - 1 and int(text["num-slaves"]) >= 1
        return False

    if not wait_until(lambda: all(knows(each) for each in sentinels), deadline_s=LINK_DEADLINE_S, step_s=LOOK_S):
        raise EnvironmentProblem(f"the sentinels did not find each other within {LINK_DEADLINE_S:g} s")


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
