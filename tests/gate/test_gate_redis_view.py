"""Scenarios read a queue in Redis while a client changes it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from conformance.participants.cancellation import LOOK_EVERY_MS, Cancellation, Cancelled
from conformance.participants.names import Names
from conformance.participants.redis_view import RedisView
from conformance.servers import RedisInstance

MOVED_BACK_AND_FORTH = """
if redis.call("LREM", KEYS[1], 1, "1") == 1 then
  redis.call("ZADD", KEYS[2], 7, "1")
else
  redis.call("ZREM", KEYS[2], "1")
  redis.call("LPUSH", KEYS[1], "1")
end
"""
LOOKS = 300


def test_a_job_that_moves_is_always_in_exactly_one_container(server: RedisInstance) -> None:
    with server.connect() as connection, server.connect() as mover:
        view = RedisView(connection, Names("moving"), "q")
        keys = [view.key_in_redis("wait"), view.key_in_redis("completed")]
        connection.lpush(keys[0], "1")
        ended = Event()

        def move() -> None:
            while not ended.is_set():
                mover.eval(MOVED_BACK_AND_FORTH, 2, *keys)

        moving = Thread(target=move)
        moving.start()
        try:
            states = {tuple(view.state("1")) for _ in range(LOOKS)}
        finally:
            ended.set()
            moving.join()
    assert states == {("wait",), ("completed",)}


def test_a_job_is_in_every_container_that_holds_it(server: RedisInstance) -> None:
    with server.connect() as connection:
        view = RedisView(connection, Names("several"), "q")
        connection.lpush(view.key_in_redis("paused"), "1", "2")
        connection.zadd(view.key_in_redis("failed"), {"2": 5})
        assert [view.state(job) for job in ("1", "2", "3")] == [["paused"], ["paused", "failed"], []]


def test_the_shortest_block_is_that_of_the_server(server: RedisInstance) -> None:
    with server.connect() as connection:
        version = tuple(map(int, connection.info("server")["redis_version"].split(".")))
        shortest_s = RedisView(connection, Names("blocking"), "q").least_block_s
    assert shortest_s == (0.001 if version >= (7, 0, 8) else 0.002)


CHANGES: dict[str, tuple[Callable[[RedisView], object], tuple[str, ...], str, Any]] = {
    "DEL": (lambda view: view.delete("wait"), ("DEL", "p:q:wait"), "wait", None),
    "RENAME": (lambda view: view.rename("wait", "old"), ("RENAME", "p:q:wait", "p:q:old"), "old", ["2", "1"]),
    "SET": (lambda view: view.set_string("de:d", "1"), ("SET", "p:q:de:d", "1"), "de:d", "1"),
    "HSET": (lambda view: view.set_field("1", "name", "m"), ("HSET", "p:q:1", "name", "m"), "1", {"name": "m"}),
    "ZADD": (lambda view: view.set_score("failed", "1", 7), ("ZADD", "p:q:failed", "7", "1"), "failed", [("1", 7.0)]),
    "LPUSH": (lambda view: view.push_left("wait", "0:0"), ("LPUSH", "p:q:wait", "0:0"), "wait", ["0:0", "2", "1"]),
    "PEXPIRE": (lambda view: view.expire_in("wait", 60_000), ("PEXPIRE", "p:q:wait", "60000"), "wait", ["2", "1"]),
}


@pytest.mark.parametrize("fixed_prefix", [None, "fixed"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_made_and_reported_in_the_names_of_the_scenario(
    server: RedisInstance, name: str, fixed_prefix: str | None
) -> None:
    change, (command, *words), key, value = CHANGES[name]
    with server.connect() as connection:
        reports: list[tuple[str, ...]] = []
        names = Names(server.fresh_prefix(), fixed_prefix=fixed_prefix)
        view = RedisView(connection, names, "q", on_change=lambda *report: reports.append(report))
        connection.lpush(view.key_in_redis("wait"), "1", "2")
        connection.hset(view.key_in_redis("1"), "name", "n")
        change(view)
        assert view.value(key) == value
        assert reports == [(command, *(word.replace("p:q:", view.base) for word in words))]
        assert connection.exists(names.client_base("q") + key) == (value is not None)
        if name == "PEXPIRE":
            assert 0 < view.ttl_ms("wait") <= 60_000


def test_an_event_that_another_client_could_have_written(server: RedisInstance) -> None:
    with server.connect() as connection:
        view = RedisView(connection, Names("events"), "q")
        view.append_event(event="added", jobId="7", raw=b"\xff")
        assert view.events() == [{"event": "added", "jobId": "7", "raw": "\udcff"}]


def test_a_wait_ends_at_its_deadline_and_when_the_scenario_is_cancelled() -> None:
    cancellation = Cancellation()
    assert list(cancellation.slices(LOOK_EVERY_MS)) == [LOOK_EVERY_MS]
    waiting = cancellation.slices(10 * LOOK_EVERY_MS)
    assert next(waiting) == LOOK_EVERY_MS
    cancellation.cancel("enough")
    with pytest.raises(Cancelled, match="enough"):
        next(waiting)
    for ended in (lambda: cancellation.sleep(0), lambda: next(cancellation.slices(LOOK_EVERY_MS))):
        with pytest.raises(Cancelled, match="enough"):
            ended()
