"""A separate Redis: tests restart it and fill it without any effect on other tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from conformance.driver.errors import OperationUnsupported
from conformance.environment.clients import NO_CLIENT, find_toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.environment.prepare import Environment
from conformance.gate.bench import Bench, BenchPlan
from conformance.participants.expect import Mismatch
from conformance.participants.own_redis import own_redis
from conformance.participants.participant import Participant
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance, open_server, opening
from conformance.servers.binary import any_binary, bundled_binary


@pytest.fixture(scope="module")
def bench(server: RedisInstance) -> Iterator[Bench]:
    toolchain = find_toolchain("", print)
    oracle, client = (RestartableDriver(toolchain.launch(name), seed=0) for name in ("node", "reference"))
    opened = Bench(server, oracle, client)
    yield opened
    opened.close()


@pytest.fixture
def client(bench: Bench) -> Iterator[Participant]:
    yield bench.participant("client", bench.names("client"), bench.clock(frozen=False))
    bench.client.reset()


@pytest.fixture
def oracle(bench: Bench) -> Iterator[Participant]:
    yield bench.participant("oracle", bench.names("oracle"), bench.clock(frozen=False))
    bench.oracle.reset()


def test_it_is_another_redis_for_the_same_client(client: Participant) -> None:
    here = client.queue()
    here.add("here")
    with own_redis(client) as alone:
        there = alone.client.queue()
        assert there.add("there") == "1"
        assert there.redis.field("1", "name") == "there"
        assert here.redis.field("1", "name") == "here"
    assert [answer.op for answer in client.transcript.calls] == ["open", "queue.add"] * 2


def test_a_restart_keeps_what_is_saved_and_forgets_scripts(client: Participant) -> None:
    with own_redis(client, appendonly="yes", appendfsync="always") as alone:
        queue = alone.client.queue()
        queue.add("kept")
        pid = alone.redis.info("server")["process_id"]
        alone.restart()
        info = alone.redis.info()
        assert info["process_id"] != pid
        assert info["number_of_cached_scripts"] == 0
        assert queue.redis.field("1", "name") == "kept"
        assert queue.add("after") == "2"


def test_a_restart_without_persistence_loses_everything(client: Participant) -> None:
    with own_redis(client) as alone:
        alone.redis.set("a", "b")
        alone.restart()
        assert alone.redis.get("a") is None


def test_redis_is_away_inside_the_block_only(client: Participant) -> None:
    with own_redis(client, appendonly="yes", appendfsync="always") as alone:
        alone.redis.set("a", "b")
        with alone.away(), pytest.raises(redis.ConnectionError):
            alone.redis.ping()
        assert alone.redis.get("a") == b"b"


def test_evicting_ends_when_the_keys_are_gone_and_frees_the_memory(client: Participant) -> None:
    with own_redis(client, maxmemory_policy="volatile-ttl") as alone:
        alone.redis.set("expires", "1", ex=1000)
        alone.redis.set("lasts", "1")
        alone.evict(until=lambda: not alone.redis.exists("expires"), what="the key is evicted")
        assert [key.decode() for key in alone.redis.scan_iter()] == ["lasts"]
        assert int(alone.redis.config_get("maxmemory")["maxmemory"]) == 0


def test_a_key_that_cannot_be_evicted_is_reported(client: Participant) -> None:
    with own_redis(client, maxmemory_policy="noeviction") as alone:
        alone.redis.set("lasts", "1")
        with pytest.raises(Mismatch, match=r"the key is evicted: expected evicted, got still there after \d+ pieces"):
            alone.evict(until=lambda: not alone.redis.exists("lasts"), what="the key is evicted")
        assert [key.decode() for key in alone.redis.scan_iter()] == ["lasts"]


def test_memory_that_is_never_full_is_reported(client: Participant) -> None:
    with (
        own_redis(client, maxmemory_policy="allkeys-random") as alone,
        pytest.raises(Mismatch, match="Redis is full"),
        alone.full_memory(),
    ):
        pytest.fail("the block must not be entered")


def test_settings_that_redis_refuses_do_not_fail_the_client(client: Participant) -> None:
    with pytest.raises(OperationUnsupported, match="ended"), own_redis(client, maxmemory_policy="never"):
        pytest.fail("the block must not be entered")


def test_it_runs_on_the_program_of_the_run(tmp_path: Path) -> None:
    chosen = tmp_path / "redis-server"
    shutil.copy2(bundled_binary().path, chosen)
    with open_server(f"binary:{chosen}", announce=print) as server, _in_another_process(server) as client:
        assert "private redis" not in _facts(server)
        with own_redis(client) as alone:
            assert alone.redis.info("server")["executable"] == str(chosen)


def test_next_to_a_redis_of_the_user_it_runs_on_the_default_program(server: RedisInstance) -> None:
    default = any_binary(print)
    with open_server(server.url, announce=print) as given, _in_another_process(given) as client:
        assert _facts(given)["private redis"] == default.source
        with own_redis(client) as alone:
            assert alone.redis.info("server")["executable"] == default.path


def test_a_machine_without_server_program_does_not_fail_the_client(
    server: RedisInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object, **__: object) -> None:
        raise EnvironmentProblem("no Redis server on PATH")

    monkeypatch.setattr(opening, "any_binary", nothing)
    with open_server(server.url, announce=print) as given, _in_another_process(given) as client:
        assert _facts(given)["private redis"].startswith("none on this machine")
        with pytest.raises(OperationUnsupported, match="no Redis server program"), own_redis(client):
            pytest.fail("the block must not be entered")


@contextmanager
def _in_another_process(server: RedisInstance) -> Iterator[Participant]:
    """The reference on this Redis, as a process of xdist opens it: from a plan in JSON."""
    toolchain = find_toolchain("", print)
    plan = BenchPlan(server=server, oracle=toolchain.oracle, client=toolchain.launch("reference"), seed=0, scripts={})
    bench = BenchPlan.decode(plan.encode()).open()
    try:
        yield bench.participant("client", bench.names("client"), bench.clock(frozen=False))
    finally:
        bench.close()


def _facts(server: RedisInstance) -> dict[str, str]:
    toolchain = find_toolchain("", print)
    return Environment(toolchain=toolchain, scripts={}, oracle=toolchain.oracle, client=NO_CLIENT, redis=server).facts()


@pytest.mark.parametrize("who", ["oracle", "client"])
def test_node_and_the_reference_warn_of_a_policy_that_evicts(who: str, request: pytest.FixtureRequest) -> None:
    participant: Participant = request.getfixturevalue(who)
    warning = 'Eviction policy is allkeys-lfu. It should be "noeviction"'
    with own_redis(participant, maxmemory_policy="allkeys-lfu") as alone:
        alone.client.queue().add("job")
        participant.eventually(
            participant.driver.log_tail, lambda lines: any(warning in line for line in lines), "it warns"
        )
