"""Whether other clients use a server: then a process that reads it is throttled."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Protocol

from reports.throttle import installed_throttle

LOOK_EVERY_S = 1.0
USED_PER_S = 50
"""Between two looks; with fewer commands of other clients per second, a server counts as unused: no client waits."""

OWN_COMMANDS = frozenset(
    {"scan", "type", "exists", "pttl", "time", "dbsize", "info", "echo", "multi", "exec", "xinfo", "config", "cluster"}
    | {"hget", "hgetall", "hscan", "get", "lrange", "llen", "lpos", "zrange", "zcard", "zscore"}
    | {"smembers", "sismember", "srandmember", "xrange", "xrevrange", "xlen"}
    | {"hello", "auth", "select", "client", "readonly"}  # of every new connection
)
"""Commands that a reader sends. Other clients may send them too, but rarely these alone."""

REPLICATED_COMMANDS = frozenset(
    {"replconf", "multi", "exec", "select", "ping", "publish"}
    | {"del", "unlink", "expire", "pexpire", "pexpireat", "persist"}
    | {"set", "setex", "incr", "incrby", "decr", "decrby", "getdel", "rename", "copy", "sadd", "srem", "spop"}
    | {"hset", "hmset", "hsetnx", "hdel", "hincrby", "hincrbyfloat", "xadd", "xdel", "xtrim"}
    | {"lpush", "rpush", "lpop", "rpop", "lrem", "lset", "ltrim", "linsert", "lmove", "rpoplpush"}
    | {"zadd", "zincrby", "zrem", "zpopmin", "zpopmax", "zremrangebyrank", "zremrangebyscore"}
)
"""Commands that a replica gets from its primary; no client can send them to a replica."""


class ReadServer(Protocol):
    """The server that is read."""

    def commands_of_others(self) -> int | None:
        """How many commands other than `OWN_COMMANDS` it has executed since it started; None if it does not say."""
        ...


def is_used(before: int | None, after: int | None, seconds: float) -> bool:
    """Whether other clients have used a server, by `ReadServer.commands_of_others` twice; also if it does not say."""
    if before is None or after is None:
        return True
    # Fewer than before: the statistics were reset.
    return not 0 <= after - before < USED_PER_S * seconds


class GivingWay:
    """Throttles this process while other clients use a server that it reads. `throttle`: see `Throttle.turn`."""

    def __init__(self, throttle: Callable[[bool], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._throttle = throttle
        self._clock = clock
        self._looks: dict[str, tuple[float, int | None]] = {}
        self._used: dict[str, bool] = {}

    def before(self, node: str, server: ReadServer) -> None:
        """Check a node before a lot, now and then; the first check only counts."""
        now = self._clock()
        seen_s, before = self._looks.get(node, (0.0, None))
        if node in self._looks and now - seen_s < LOOK_EVERY_S:
            return
        commands = server.commands_of_others()
        if node in self._looks:
            self._used[node] = is_used(before, commands, now - seen_s)
            self._throttle(any(self._used.values()))
        self._looks[node] = now, commands


@cache
def giving_way() -> GivingWay | None:
    """That of this process, for all that it reads; None if it cannot be throttled."""
    throttle = installed_throttle()
    return None if throttle is None else GivingWay(throttle.turn)
