"""A store behind Redis Sentinel is read from a replica: a real primary, its replica, and a real Sentinel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers.binary import any_binary
from conformance.servers.connection import wait_until
from conformance.servers.local import free_port
from conformance.servers.sentinel import SentinelUrl, sentinel_url
from reports.options import CheckConfig
from reports.snapshot.plan import RedisSource
from reports.snapshot.replies import NodeSocket
from reports.verbs.checks import check_store

READY_S = 60.0


def started(stack: ExitStack, folder: Path, *settings: str, words: tuple[str, ...] = ()) -> Redis:
    """A server with these settings."""
    folder.mkdir()
    port = free_port(cluster=False)
    file = folder / "redis.conf"
    file.write_text("\n".join([f"port {port}", f"dir {folder}", 'save ""', *settings, ""]))
    program = str(any_binary(lambda _: None).path)
    process = stack.enter_context(Popen([program, str(file), *words], stdout=DEVNULL))
    stack.callback(process.kill)
    client = Redis(port=port, socket_timeout=5)
    stack.callback(client.close)
    return client


def port_of(client: Redis) -> int:
    return int(client.connection_pool.connection_kwargs["port"])


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Redis, Redis, int]]:
    """A primary, its replica, and the port of the Sentinel."""
    folder = tmp_path_factory.mktemp("sentinel")
    with ExitStack() as stack:
        primary = started(stack, folder / "primary", "repl-diskless-sync-delay 0")
        replica = started(stack, folder / "replica", f"replicaof 127.0.0.1 {port_of(primary)}")
        monitor = f"sentinel monitor mymaster 127.0.0.1 {port_of(primary)} 1"
        sentinel: Any = started(stack, folder / "sentinel", monitor, words=("--sentinel",))
        assert wait_until(lambda: knows_a_replica(sentinel), deadline_s=READY_S), "the Sentinel sees no replica"
        yield primary, replica, port_of(sentinel)


def knows_a_replica(sentinel: Any) -> bool:
    try:
        return any(not found["is_disconnected"] for found in sentinel.sentinel_slaves("mymaster"))
    except RedisError:
        return False


def test_a_replica_is_read(watched: tuple[Redis, Redis, int], capsys: pytest.CaptureFixture[str]) -> None:
    primary, replica, sentinel = watched
    address = f"redis+sentinel://127.0.0.1:{sentinel}/mymaster"
    assert sentinels(address).replica().url == f"redis://127.0.0.1:{port_of(replica)}/0"
    assert sentinels(address).primary().url == f"redis://127.0.0.1:{port_of(primary)}/0"
    # Their login and database are those of the Redis: the sentinel has none.
    with_login = sentinels(f"redis+sentinel://u:p@127.0.0.1:1,127.0.0.1:{sentinel}/mymaster/3")
    assert with_login.replica().url == f"redis://u:p@127.0.0.1:{port_of(replica)}/3"
    primary.rpush("bull:q:wait", "ghost")
    assert wait_until(lambda: bool(replica.exists("bull:q:wait")), deadline_s=READY_S)
    assert check_store(CheckConfig(settle_ms=0), address) == 1  # type: ignore[arg-type]
    assert "id-without-a-hash" in capsys.readouterr().out


def test_the_commands_that_a_replica_gets_from_its_primary_are_not_those_of_clients(
    watched: tuple[Redis, Redis, int],
) -> None:
    primary, replica, _ = watched
    source = RedisSource(redis=f"redis://127.0.0.1:{port_of(replica)}", prefix="b")
    with NodeSocket(source.address, source.address.nodes[0]) as node:
        before = node.commands_of_others()
        for number in range(5):
            primary.eval(
                "redis.call('HSET', KEYS[1], 'a', ARGV[1]) redis.call('LPUSH', KEYS[2], 1)", 2, "a", "b", number
            )
        assert primary.wait(1, int(READY_S * 1000)) == 1
        assert node.commands_of_others() == before
        replica.strlen("none")
        assert before is not None
        assert node.commands_of_others() == before + 1


def test_the_primary_is_read_if_no_replica_can_be(tmp_path: Path) -> None:
    with ExitStack() as stack:
        primary = started(stack, tmp_path / "primary")
        monitor = f"sentinel monitor mymaster 127.0.0.1 {port_of(primary)} 1"
        alone: Any = started(stack, tmp_path / "sentinel", monitor, words=("--sentinel",))
        assert wait_until(lambda: answers(alone), deadline_s=READY_S), "the Sentinel never answers"
        assert sentinels(f"redis+sentinel://127.0.0.1:{port_of(alone)}/mymaster").replica().url == (
            f"redis://127.0.0.1:{port_of(primary)}/0"
        )


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


@pytest.mark.parametrize(
    ("path", "said"), [("", "names no master"), ("/", "names no master"), ("/mymaster/many", "invalid database")]
)
def test_an_incomplete_address_is_refused(path: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        sentinel_url(f"redis+sentinel://127.0.0.1:1{path}")


def test_an_address_has_the_port_and_the_transport_of_its_scheme() -> None:
    assert sentinel_url("redis://127.0.0.1:1") is None
    address = "rediss+sentinel://one:26379,[::1]:26379,two:5/m"
    assert sentinels("rediss+sentinel://u:p@one,[::1],two:5/m").text == address
    assert sentinels("redis+sentinel://one/m/3").text == "redis+sentinel://one:26379/m/3"


def test_an_unknown_master_is_reported(watched: tuple[Redis, Redis, int]) -> None:
    with pytest.raises(EnvironmentProblem, match="no sentinel leads to the master 'other'"):
        sentinels(f"redis+sentinel://127.0.0.1:{watched[2]}/other").replica()


def sentinels(text: str) -> SentinelUrl:
    found = sentinel_url(text)
    assert found is not None
    return found
