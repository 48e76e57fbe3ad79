"""A client of a cluster never gets to know an address that is not the tap's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import redis as redis_py

from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.driver.transports import ChildProcess
from conformance.observe.tap.cluster import ClusterAddresses
from conformance.observe.tap.recording import TappedCommand
from conformance.observe.tap.rules import Hold, Trigger
from conformance.observe.tap.tap import Tap
from conformance.protocol.keys import slot_of
from conformance.servers import RedisInstance, open_server

from .conftest import DEADLINE_MS, Node, Wire


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisInstance]:
    with open_server("cluster", announce=print) as opened:
        yield opened


@pytest.fixture
def cluster_tap(cluster: RedisInstance, names: dict[str, str]) -> Iterator[Tap]:
    with Tap(*cluster.nodes, scripts=names) as opened:
        yield opened


def ports_in(topology: Any) -> set[str]:
    """The ports of clients: numbers of slots may be the same."""
    return set(re.findall(r"(?:127\.0\.0\.1(?:', |:)|b'port'(?:, |: ))(\d+)", repr(topology)))


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("what", ["SLOTS", "SHARDS", "NODES"])
def test_topology_names_taps_only(cluster: RedisInstance, cluster_tap: Tap, protocol: int, what: str) -> None:
    with Wire(cluster_tap.addresses[1]) as wire, Wire(cluster.nodes[1]) as direct:
        wire.ask("HELLO", protocol)
        direct.ask("HELLO", protocol)
        if what == "SHARDS" and b"Unknown subcommand" in (direct.ask("CLUSTER", what) or b""):
            pytest.skip("CLUSTER SHARDS came with Redis 7.0; this server is older")
        seen, real = ports_in(wire.ask("CLUSTER", what)), ports_in(direct.ask("CLUSTER", what))
    assert seen == {address.rpartition(":")[2] for address in cluster_tap.addresses}
    assert real == {address.rpartition(":")[2] for address in cluster.nodes}


def test_redirections_lead_to_taps(cluster: RedisInstance, cluster_tap: Tap) -> None:
    del cluster
    with Wire(cluster_tap.address) as wire:
        answers = [wire.ask("GET", f"k{number}") for number in range(50)]
    moved = [answer.decode() for answer in answers if answer and answer.startswith(b"MOVED")]
    assert moved
    for answer in moved:
        assert answer.split()[2] in cluster_tap.addresses


def test_a_real_cluster_client_stays_on_the_tap(cluster: RedisInstance, cluster_tap: Tap) -> None:
    host, port = cluster_tap.address.split(":")
    with redis_py.RedisCluster(host=host, port=int(port)) as client:
        for number in range(60):
            client.set(f"k{number}", number)
        assert {client.get(f"k{number}") for number in range(60)} == {b"%d" % number for number in range(60)}
    sets = cluster_tap.recording.commands(where=lambda record: record.name == "SET")
    assert {record.args[1] for record in sets if record.reply and not record.reply.error} >= {
        b"k%d" % n for n in range(60)
    }
    assert {record.node for record in sets} == set(cluster.nodes)
    assert cluster.own


def test_node_works_in_a_cluster_behind_the_tap(
    cluster: RedisInstance, cluster_tap: Tap, node_driver: ChildProcess
) -> None:
    prefix = cluster.fresh_prefix()
    node = Node(node_driver, RedisAddress(mode="cluster", nodes=list(cluster_tap.addresses)), prefix)
    try:
        node.open("q", "queue")
        node.open("w", "worker", processor="manual")
        node.do("queue.add", name="n")
        with cluster_tap.when(Trigger(script="moveToFinished"), Hold()) as barrier:
            job = node.do("worker.getNextJob", "w", token="t")["job"]
            finishing = _finish(node, job["id"])
            command = barrier.reached.wait(DEADLINE_MS)
            assert slot_of(command.keys[0]) == slot_of(f"{prefix}:q:wait".encode())
            with cluster.connect() as client:
                assert client.lrange(f"{prefix}:q:active", 0, -1) == [job["id"].encode()]
            barrier.release()
            finishing()
    finally:
        node_driver.call(REGISTRY["reset"](), deadline_ms=20_000)
        cluster.remove_prefix(prefix)
    assert not [
        record for record in cluster_tap.recording.commands() if record.reply and record.reply.error_code == "MOVED"
    ]


def _finish(node: Node, job: str) -> Any:
    from .conftest import in_background

    return in_background(lambda: node.do("worker.moveToCompleted", "w", job=job, token="t"))


def sent_command(*words: bytes, node: str = "127.0.0.1:7001") -> TappedCommand:
    return TappedCommand(b"", words, 1, node)


ADDRESSES = ClusterAddresses({"127.0.0.1:7001": "127.0.0.1:9001", "127.0.0.1:7002": "127.0.0.1:9002"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"-MOVED 5 127.0.0.1:7002\r\n", b"-MOVED 5 127.0.0.1:9002\r\n"),
        (b"-ASK 5 127.0.0.1:7002\r\n", b"-ASK 5 127.0.0.1:9002\r\n"),
        (b"-MOVED 5 :7002\r\n", b"-MOVED 5 127.0.0.1:9002\r\n"),
        (b"-MOVED 5 10.0.0.9:7002\r\n", b"-MOVED 5 10.0.0.9:7002\r\n"),
        (b"-ERR 127.0.0.1:7002\r\n", b"-ERR 127.0.0.1:7002\r\n"),
        (b"$14\r\n127.0.0.1:7002\r\n", b"$14\r\n127.0.0.1:7002\r\n"),
    ],
)
def test_redirections_are_rewritten_and_nothing_else(before: bytes, after: bytes) -> None:
    assert ADDRESSES.rewritten(sent_command(b"GET", b"k"), before) == after


def test_without_a_cluster_an_address_in_a_reply_is_data(tap: Tap, wire: Wire) -> None:
    (address,) = tap.nodes
    wire.send("EVAL", "return redis.error_reply(ARGV[1])", 0, f"MOVED 5 {address}")
    assert wire.raw_reply() == f"-MOVED 5 {address}\r\n".encode()


def test_nodes_that_are_not_known_stay_as_they_are() -> None:
    slots = b"*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$8\r\n10.0.0.9\r\n:7001\r\n"
    assert ADDRESSES.rewritten(sent_command(b"CLUSTER", b"SLOTS"), slots) == slots
    assert ADDRESSES.rewritten(sent_command(b"CLUSTER", b"INFO"), b"$1\r\nx\r\n") == b"$1\r\nx\r\n"
    empty_host = b"*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$0\r\n\r\n:7001\r\n"
    rewritten = b"*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$9\r\n127.0.0.1\r\n:9001\r\n"
    assert ADDRESSES.rewritten(sent_command(b"CLUSTER", b"SLOTS"), empty_host) == rewritten


@pytest.mark.parametrize(
    ("key", "slot"), [(b"123456789", 12739), (b"{user1000}.following", 3443), (b"foo", 12182), (b"foo{}{bar}", 8363)]
)
def test_slots_are_those_of_redis(cluster: RedisInstance, key: bytes, slot: int) -> None:
    with Wire(cluster.nodes[0]) as wire:
        assert wire.ask("CLUSTER", "KEYSLOT", key) == slot == slot_of(key)


def test_hash_tags() -> None:
    for key in (b"{a}x", b"y{a}", b"{a}{b}"):
        assert slot_of(key) == slot_of(b"a")
    assert slot_of(b"{}a") != slot_of(b"a")
