"""What scenarios read of a queue in Redis, while a client changes it."""

from __future__ import annotations

from threading import Event, Thread

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
