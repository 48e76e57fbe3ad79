from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
import redis

from conformance.servers import Server
from conformance.servers.connection import connect_node
from conformance.servers.server import escape_glob


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with connect_node(server, server.nodes[0]) as connected:
        yield connected


def test_fresh_prefixes_differ(server: Server) -> None:
    prefixes = {server.fresh_prefix() for _ in range(100)}
    assert len(prefixes) == 100
    assert all(re.fullmatch(r"bc[0-9a-f]{8}", prefix) for prefix in prefixes)


def test_a_given_generator_decides(server: Server) -> None:
    assert server.fresh_prefix(random.Random(7)) == server.fresh_prefix(random.Random(7))


def test_only_the_prefix_is_removed(server: Server, client: redis.Redis) -> None:
    prefix = server.fresh_prefix()
    neighbours = [
        prefix,
        f"{prefix}0:q:id",
        f"x{prefix}:q:id",
        prefix[:-1] + ":q:id",
        f"{{{prefix}}}:q:id",
        "bull:q:id",
    ]
    for key in [*neighbours, f"{prefix}:q:id", f"{prefix}:q:*", f"{prefix}::"]:
        client.set(key, 1)
    assert server.remove_prefix(prefix) == 3
    assert set(client.keys("*")) == {key.encode() for key in neighbours}


@pytest.mark.parametrize("prefix", ["a*", "a?c", "[ab]", "a\\b", "{a}", "a^-]"])
def test_signs_of_a_pattern_in_a_prefix_stand_for_themselves(server: Server, client: redis.Redis, prefix: str) -> None:
    neighbours = {"a:1", "abc:1", "axc:1", "b:1", "ab:1", "a*b:1"}
    for key in [*neighbours, f"{prefix}:1"]:
        client.set(key, 1)
    assert server.remove_prefix(prefix) == 1
    assert set(client.keys("*")) == {key.encode() for key in neighbours}


def test_without_escaping_neighbours_would_be_hit(client: redis.Redis) -> None:
    """The test above can fail: the bare prefix is a pattern to Redis."""
    client.set("abc:1", 1)
    assert list(client.scan_iter(match="a?c:*")) == [b"abc:1"]
    assert list(client.scan_iter(match=f"{escape_glob('a?c')}:*")) == []


def test_other_databases_are_left_alone(server: Server, client: redis.Redis) -> None:
    client.select(1)
    client.set("bc00000000:q:id", 1)
    assert server.remove_prefix("bc00000000") == 0


def test_more_keys_than_one_batch(server: Server, client: redis.Redis) -> None:
    prefix = server.fresh_prefix()
    client.mset({f"{prefix}:{number}": 1 for number in range(2501)})
    assert server.remove_prefix(prefix) == 2501
    assert client.dbsize() == 0


def test_nothing_to_remove_is_fine(server: Server) -> None:
    assert server.remove_prefix(server.fresh_prefix()) == 0


def test_an_empty_prefix_is_a_mistake_of_the_kit(server: Server) -> None:
    with pytest.raises(ValueError, match="everything"):
        server.remove_prefix("")
