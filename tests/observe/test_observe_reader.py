from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from conformance.observe.reader import AnyRedis, read_snapshot
from conformance.observe.tables import Job, Snapshot, Unknown
from conformance.problems import EnvironmentProblem


def fill(client: AnyRedis, prefix: str) -> None:
    client.hset(f"{prefix}:q:1", mapping={"name": "n", "data": "{}", "timestamp": "1700000000000"})
    client.hset(f"{prefix}:q:repeat:s:1700000000000", mapping={"name": "n", "timestamp": "1700000000000"})
    client.hset(f"{prefix}:q:repeat:s", mapping={"name": "n", "every": "1000"})
    client.zadd(f"{prefix}:q:repeat", {"s": 1700000000000})
    client.rpush(f"{prefix}:q:wait", "2", "1")
    client.zadd(f"{prefix}:q:completed", {"3": 1700000000005, "4": 1700000000004})
    client.sadd(f"{prefix}:q:stalled", "1")
    client.set(f"{prefix}:q:1:lock", "token", px=60_000)
    client.rpush(f"{prefix}:q:1:logs", "first", "second")
    client.sadd(f"{prefix}:q:1:dependencies", f"{prefix}:c:9")
    client.hset(f"{prefix}:q:1:processed", f"{prefix}:c:8", "1")
    client.hset(f"{prefix}:q:1:failed", f"{prefix}:c:7", "reason")
    client.zadd(f"{prefix}:q:1:unsuccessful", {f"{prefix}:c:6": 1700000000006})
    client.set(f"{prefix}:q:id", "4")
    client.set(f"{prefix}:q:limiter", "1", px=60_000)
    client.set(f"{prefix}:q:stalled-check", "1700000000000", px=60_000)
    client.set(f"{prefix}:q:de:x", "1")
    client.hset(f"{prefix}:q:meta", "opts.maxLenEvents", "10000")
    client.hset(f"{prefix}:q:metrics:failed", "count", "2")
    client.rpush(f"{prefix}:q:metrics:failed:data", "1", "0")
    client.zadd(f"{prefix}:q:marker", {"0": 0})
    client.xadd(f"{prefix}:q:events", {"event": "added", "jobId": "1", "name": "n"})
    client.hset(f"{prefix}:other:1", mapping={"name": "n", "timestamp": "1"})
    client.set(f"{prefix}:q:mine", "foreign")


def check_filled(snapshot: Snapshot, prefix: str) -> None:
    assert snapshot.queues == ["other", "q"]
    assert {(job.queue, job.id) for job in snapshot.jobs} == {
        ("q", "1"),
        ("q", "repeat:s:1700000000000"),
        ("other", "1"),
    }
    assert snapshot.members("q", "wait") == ["2", "1"]
    assert snapshot.members("q", "completed") == ["4", "3"]
    assert snapshot.members("q", "stalled") == ["1"]
    (lock,) = snapshot.locks
    assert lock.token == "token"
    assert isinstance(lock.ttl_ms, int)
    assert 0 < lock.ttl_ms <= 60_000
    assert [row.text for row in snapshot.logs] == ["first", "second"]
    assert {(row.kind, row.child.rpartition(":")[2]) for row in snapshot.dependencies} == {
        ("pending", "9"),
        ("processed", "8"),
        ("failed", "7"),
        ("unsuccessful", "6"),
    }
    (scheduler,) = snapshot.schedulers
    assert (scheduler.id, scheduler.next, scheduler.fields) == ("s", 1700000000000, {"name": "n", "every": "1000"})
    assert [(row.kind, dict(row.fields), row.points) for row in snapshot.metrics] == [
        ("failed", {"count": "2"}, ("1", "0"))
    ]
    assert [row.name for row in snapshot.events_of("q")] == ["added"]
    assert snapshot.meta("q") == {"opts.maxLenEvents": "10000"}
    assert [(row.name, row.value) for row in snapshot.counters] == [("id", "4")]
    assert [(row.id, row.job, row.ttl_ms) for row in snapshot.deduplications] == [("x", "1", -1)]
    assert snapshot.unknown == (Unknown(key=f"{prefix}:q:mine", type="string", value="foreign", ttl_ms=-1),)
    assert snapshot.expiries == ()
    assert len(snapshot.limiters) == len(snapshot.stalled_checks) == len(snapshot.markers) == 1


@pytest.mark.parametrize("prefix", ["p", "a:b", "{tag}", "we*ird[x]?\\"])
def test_every_table_is_read_from_a_standalone_server(redis: Redis, prefix: str) -> None:
    fill(redis, prefix)
    check_filled(read_snapshot(redis, prefix), prefix)


@pytest.mark.parametrize("prefix", ["{tag}", "untagged"])
def test_every_table_is_read_from_all_primaries_of_a_cluster(cluster: RedisCluster, prefix: str) -> None:
    cluster.flushall(target_nodes=RedisCluster.PRIMARIES)
    fill(cluster, prefix)
    check_filled(read_snapshot(cluster, prefix), prefix)


def test_an_empty_prefix_gives_an_empty_snapshot_with_the_servers_time(redis: Redis) -> None:
    seconds, _ = redis.time()
    snapshot = read_snapshot(redis, "nothing")
    assert list(snapshot.rows()) == []
    assert abs(snapshot.taken_ms - int(seconds) * 1000) < 60_000


def test_glob_characters_of_the_prefix_match_only_themselves(redis: Redis) -> None:
    redis.hset("ab:q:1", mapping={"name": "foreign"})
    redis.hset("a*:q:1", mapping={"name": "own"})
    assert [job.fields["name"] for job in read_snapshot(redis, "a*").jobs] == ["own"]


def test_bytes_that_are_not_utf8_survive_and_stay_different(redis: Redis) -> None:
    redis.hset("p:q:1", mapping={"name": b"\xff\xfe", "data": "ä"})
    redis.hset("p:q:2", mapping={"name": b"\xff\xfd", "data": "ä"})
    names = [job.fields["name"].encode("utf-8", "surrogateescape") for job in read_snapshot(redis, "p").jobs]
    assert names == [b"\xff\xfe", b"\xff\xfd"]


def test_a_job_id_may_contain_colons(redis: Redis) -> None:
    redis.hset("p:q:a:b:c", mapping={"name": "n", "timestamp": "1"})
    redis.set("p:q:a:b:c:lock", "t", px=1000)
    redis.hset("p:q:a:b:failed", mapping={"name": "a job, not the children of one", "timestamp": "1"})
    snapshot = read_snapshot(redis, "p")
    assert {job.id for job in snapshot.jobs} == {"a:b:c", "a:b:failed"}
    assert [lock.job for lock in snapshot.locks] == ["a:b:c"]


def test_nothing_is_dropped_known_names_of_foreign_type_are_unknown(redis: Redis) -> None:
    redis.set("p:q:wait", "a string")
    redis.sadd("p:q:active", "1")
    redis.set("p:lonely", "no queue")
    redis.xadd("p:q:marker", {"a": "b"})
    redis.zadd("p:q:unheard", {"m": 1.5})
    unknown = {row.key: (row.type, row.value) for row in read_snapshot(redis, "p").unknown}
    assert unknown.pop("p:q:marker")[0] == "stream"
    assert unknown == {
        "p:q:wait": ("string", "a string"),
        "p:q:active": ("set", ["1"]),
        "p:lonely": ("string", "no queue"),
        "p:q:unheard": ("zset", [("m", 1.5)]),
    }


def test_a_hash_under_a_reserved_name_is_a_job_as_bullmq_would_see_it(redis: Redis) -> None:
    redis.hset("p:q:wait", mapping={"name": "n", "timestamp": "1"})
    snapshot = read_snapshot(redis, "p")
    assert snapshot.jobs == (Job(queue="q", id="wait", fields={"name": "n", "timestamp": "1"}),)


def test_a_job_that_expires_is_noted(redis: Redis) -> None:
    redis.hset("p:q:1", "name", "n")
    redis.pexpire("p:q:1", 60_000)
    redis.rpush("p:q:wait", "1")
    (expiry,) = read_snapshot(redis, "p").expiries
    assert (expiry.key, expiry.kind) == ("p:q:1", "job")


def test_a_decoding_client_gives_the_same_snapshot(redis: Redis, redis_port: int) -> None:
    fill(redis, "p")
    with Redis(port=redis_port, decode_responses=True) as decoding:
        assert _stable(read_snapshot(decoding, "p")) == _stable(read_snapshot(redis, "p"))


def _stable(snapshot: Snapshot) -> Snapshot:
    """Without what runs down between two reads."""
    return dataclasses.replace(snapshot, taken_ms=0, locks=(), limiters=(), stalled_checks=())


def test_an_unreachable_server_is_a_problem_that_says_so() -> None:
    with (
        Redis(port=1, retry=Retry(NoBackoff(), 0)) as unreachable,
        pytest.raises(EnvironmentProblem, match=r"cannot read the keys 'p:\*'"),
    ):
        read_snapshot(unreachable, "p")


class DisturbedRedis:
    """A client that calls the n-th disturbance before its n-th pipeline: the first reads types, the second values, …"""

    def __init__(self, client: Redis, *disturbances: Callable[[], object]) -> None:
        self._client = client
        self._disturbances = list(disturbances)
        self.pipelines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def pipeline(self, *, transaction: bool) -> Any:
        self.pipelines += 1
        if self._disturbances:
            self._disturbances.pop(0)()
        return self._client.pipeline(transaction=transaction)


def disturbed_snapshot(client: Redis, *disturbances: Callable[[], object]) -> tuple[Snapshot, int]:
    disturbed: Any = DisturbedRedis(client, *disturbances)
    return read_snapshot(disturbed, "p"), disturbed.pipelines


def test_a_key_that_expires_and_comes_back_while_it_is_read_has_its_type(redis: Redis) -> None:
    def expire() -> None:
        redis.delete("p:q:stalled-check")

    def set_again() -> None:
        redis.set("p:q:stalled-check", "1700000000000", px=60_000)

    set_again()
    snapshot, pipelines = disturbed_snapshot(redis, expire, set_again)
    assert snapshot.unknown == ()
    assert [row.queue for row in snapshot.stalled_checks] == ["q"]
    assert pipelines == 4


def test_a_key_whose_type_changes_while_it_is_read_is_read_again(redis: Redis) -> None:
    redis.rpush("p:q:wait", "1")

    def change() -> None:
        redis.delete("p:q:wait")
        redis.zadd("p:q:wait", {"1": 1})

    snapshot, _ = disturbed_snapshot(redis, lambda: None, change)
    assert [(row.key, row.type, row.value) for row in snapshot.unknown] == [("p:q:wait", "zset", [("1", 1.0)])]


def test_a_key_that_never_stands_still_is_shown_and_reading_ends(redis: Redis) -> None:
    redis.set("p:q:stalled-check", "1")

    def come_and_go() -> None:
        if not redis.delete("p:q:stalled-check"):
            redis.set("p:q:stalled-check", "1")

    snapshot, pipelines = disturbed_snapshot(redis, *[come_and_go] * 100)
    assert [(row.key, row.type) for row in snapshot.unknown] == [("p:q:stalled-check", "none")]
    assert pipelines < 100


def test_a_key_that_goes_away_while_it_is_read_is_left_out(redis: Redis) -> None:
    redis.set("p:q:1:lock", "token")
    snapshot, _ = disturbed_snapshot(redis, lambda: None, lambda: redis.delete("p:q:1:lock"))
    assert list(snapshot.rows()) == []
