from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.cluster import RedisCluster

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.protocol.keys import SLOTS
from conformance.servers import RedisInstance, local, open_server
from conformance.servers.binary import bundled_binary
from conformance.servers.connection import connect_node, read_cluster_info, send, wait_until
from conformance.servers.local import local_cluster, slot_ranges

SET_TWO = "redis.call('SET', KEYS[1], ARGV[1]); redis.call('SET', KEYS[2], ARGV[1]); return redis.call('GET', KEYS[2])"


@pytest.fixture(scope="module")
def three() -> Iterator[RedisInstance]:
    with open_server("cluster", announce=print) as opened:
        yield opened


@pytest.fixture
def client(three: RedisInstance) -> Iterator[RedisCluster]:
    with three.connect() as connected:
        assert isinstance(connected, RedisCluster)
        yield connected


@pytest.mark.parametrize("masters", [3, 4, 7, 32])
def test_every_slot_has_one_owner(masters: int) -> None:
    ranges = slot_ranges(masters)
    assert [slot for slots in ranges for slot in slots] == list(range(SLOTS))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_a_new_cluster_is_complete_on_every_node(three: RedisInstance) -> None:
    assert three.mode == "cluster"
    assert three.own
    assert len(three.nodes) == 3
    for node in three.nodes:
        with connect_node(three, node) as client:
            info = read_cluster_info(client)
            assert info["cluster_state"] == "ok"
            assert info["cluster_slots_assigned"] == str(SLOTS)
            assert info["cluster_size"] == "3"
            assert client.config_get("cluster-node-timeout") == {"cluster-node-timeout": "15000"}


def test_keys_of_one_prefix_share_a_slot(three: RedisInstance, client: RedisCluster) -> None:
    prefix = three.fresh_prefix()
    assert prefix.startswith("{bc")
    assert client.eval(SET_TWO, 2, f"{prefix}:q:id", f"{prefix}:q:wait", "both") == b"both"


def primaries(client: RedisCluster) -> list[redis.Redis]:
    untyped: Any = client
    return [client.get_redis_connection(node) for node in untyped.get_primaries()]


def test_without_a_hash_tag_a_script_is_refused(client: RedisCluster) -> None:
    # On one node, past the client's own check: it is Redis that must refuse.
    with pytest.raises(redis.ResponseError, match=r"CROSSSLOT|hash to the same slot"):
        primaries(client)[0].eval(SET_TWO, 2, "bull:q:id", "bull:q:wait", "both")


def test_all_masters_hold_keys(client: RedisCluster) -> None:
    for number in range(100):
        client.set(f"spread:{number}", number)
    sizes = [node.dbsize() for node in primaries(client)]
    assert len(sizes) == 3
    assert all(sizes)


def test_a_prefix_is_removed_wherever_it_lies(three: RedisInstance, client: RedisCluster) -> None:
    prefix = three.fresh_prefix()
    bare = prefix.strip("{}")
    for number in range(20):
        client.set(f"{prefix}:q:{number}", 1)
        client.set(f"{bare}:q:{number}", 1)  # no tag: all over the cluster
    assert three.remove_prefix(prefix) == 20
    assert client.exists(*[f"{bare}:q:{number}" for number in range(20)]) == 20
    assert three.remove_prefix(bare) == 20


def test_one_living_node_of_a_url_is_enough(three: RedisInstance, closed_port: int) -> None:
    url = f"redis+cluster://127.0.0.1:{closed_port},{three.nodes[1]}"
    with open_server(url, announce=print) as opened, opened.connect() as connected:
        assert opened.mode == "cluster"
        assert not opened.own
        assert connected.ping(target_nodes=RedisCluster.ALL_NODES)


def test_a_cluster_without_answer_names_a_node(closed_port: int) -> None:
    with (
        pytest.raises(EnvironmentProblem, match=f"127.0.0.1:{closed_port} cannot be reached"),
        open_server(f"redis+cluster://127.0.0.1:{closed_port},127.0.0.1:1", announce=print),
    ):
        pass


def test_a_cluster_with_a_hole_is_refused(three: RedisInstance) -> None:
    with connect_node(three, three.nodes[0]) as node:
        send(node, "CLUSTER DELSLOTS", 0)
        try:
            assert wait_until(lambda: read_cluster_info(node)["cluster_state"] == "fail", deadline_s=10)
            with (
                pytest.raises(EnvironmentProblem, match="cannot be used") as caught,
                open_server(three.url, announce=print),
            ):
                pass
            assert "all slots" in caught.value.hint
            assert three.nodes[0] in caught.value.what
        finally:
            send(node, "CLUSTER ADDSLOTS", 0)
            assert wait_until(lambda: read_cluster_info(node)["cluster_state"] == "ok", deadline_s=10)


def test_the_eviction_policy_of_every_node_is_checked(three: RedisInstance) -> None:
    announced: list[str] = []
    with connect_node(three, three.nodes[2]) as node:
        node.config_set("maxmemory-policy", "volatile-ttl")
        try:
            with open_server(f"redis+cluster://{three.nodes[0]}", announce=announced.append):
                pass
        finally:
            node.config_set("maxmemory-policy", "noeviction")
    assert len(announced) == 1
    assert f"{three.nodes[2]} has maxmemory-policy volatile-ttl" in announced[0]


def test_a_node_of_a_cluster_is_not_a_single_server(three: RedisInstance) -> None:
    with (
        pytest.raises(UsageProblem, match="is part of a cluster") as caught,
        open_server(f"redis://{three.nodes[0]}", announce=print),
    ):
        pass
    assert caught.value.hint == f"write redis+cluster://{three.nodes[0]}"


def test_the_oldest_supported_redis_forms_a_cluster() -> None:
    """Before Redis 7.0 slots cannot be assigned by range."""
    binary = bundled_binary()
    assert binary.version < (7, 0, 0)
    with local_cluster(binary, 3) as address:
        assert len(address.nodes) == 3


def test_a_cluster_that_does_not_form_says_what_every_node_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_introduce", lambda _clients, _nodes: None)
    monkeypatch.setattr(local, "FORM_DEADLINE_S", 0.2)
    with (
        pytest.raises(EnvironmentProblem, match=r"did not form within 0.2 s") as caught,
        local_cluster(bundled_binary(), 3),
    ):
        pass
    assert caught.value.what.count("cluster_known_nodes") == 3
