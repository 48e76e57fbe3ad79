"""When a run has come to rest."""

from __future__ import annotations

from typing import Any, cast

from chaos.redis_process import RedisProcess
from chaos.rest import Rest, wait_for_rest
from conformance.servers.binary import any_binary


def rest_of(server: RedisProcess, deadline_s: float) -> Rest:
    return wait_for_rest(cast("Any", server), "p", ("main",), lambda: 0, deadline_s=deadline_s)


def test_a_parent_that_waits_for_a_failed_child_is_at_rest_and_other_parents_are_not() -> None:
    server = RedisProcess(any_binary(lambda _text: None))
    try:
        server.start()
        with server.connect() as client:
            client.zadd("p:main:waiting-children", {"1": 1})
            client.hset("p:main:1", mapping={"name": "parent"})
            client.sadd("p:main:1:dependencies", "p:main:2")
            assert rest_of(server, 0.3) == Rest(reached=False, seen="waiting-children 1")
            client.zadd("p:main:failed", {"2": 1})
            assert rest_of(server, 10) == Rest(reached=True)
            client.rpush("p:main:wait", "3")
            assert not rest_of(server, 0.3).reached
    finally:
        server.close()
