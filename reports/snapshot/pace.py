"""How fast a live store is read: up to a limit, and for a share of the time while others use its server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from reports.throttle import installed_throttle


@dataclass(frozen=True, kw_only=True)
class PageSizes:
    """How much Redis does at once: keys of SCAN, hashes, elements of a list or a sorted set, entries of a stream.

    `batch`: keys that become rows together, at least. `hashes`: 0 for those of a whole batch. `others`: keys of any
    type, read at one instant.
    """

    keys: int
    batch: int
    hashes: int
    others: int
    members: int
    events: int


FAST = PageSizes(keys=5000, batch=0, hashes=0, others=5000, members=50_000, events=5000)
GENTLE = PageSizes(keys=100, batch=2000, hashes=50, others=4, members=500, events=400)
"""Each takes Redis about a fifth of a millisecond, so that other clients hardly wait."""

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
    {
        "replconf",
        "multi",
        "exec",
        "select",
        "ping",
        "publish",
        "del",
        "unlink",
        "expire",
        "pexpire",
        "pexpireat",
        "persist",
    }
    | {"set", "setex", "incr", "incrby", "decr", "decrby", "getdel", "rename", "copy", "sadd", "srem", "spop"}
    | {"hset", "hmset", "hsetnx", "hdel", "hincrby", "hincrbyfloat", "xadd", "xdel", "xtrim"}
    | {"lpush", "rpush", "lpop", "rpop", "lrem", "lset", "ltrim", "linsert", "lmove", "rpoplpush"}
    | {"zadd", "zincrby", "zrem", "zpopmin", "zpopmax", "zremrangebyrank", "zremrangebyscore"}
)
"""Commands that a replica gets from its primary; no client can send them to a replica."""


class Pace:
    """Lets its caller take a number of keys per second, and sleeps if it is faster. 0: no limit."""

    def __init__(
        self,
        keys_per_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_s = keys_per_s
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def take(self, keys: float) -> None:
        """Note that keys were read, after waiting until those before them have taken their time.

        The caller works on keys during their time. Other time in which nothing was read is not made up for: a burst
        would hurt the clients.
        """
        if self._per_s <= 0:
            return
        now = self._clock()
        self._sleep(max(0.0, self._free_at - now))
        self._free_at = max(self._free_at, now) + keys / self._per_s


class ReadServer(Protocol):
    """The server that is read."""

    def commands_of_others(self) -> int | None:
        """How many commands other than `OWN_COMMANDS` it has executed since it started; None if it does not say."""
        ...


def is_used(before: int | None, after: int | None, seconds: float) -> bool:
    """Whether other clients have used a server, by `ReadServer.commands_of_others` twice; also if it does not say."""
    if before is None or after is None:
        return True
    # Fewer than before: somebody has reset the statistics.
    return not 0 <= after - before < USED_PER_S * seconds


class GivingWay:
    """Throttles this process while other clients use a server that it reads. `throttle`: see `Throttle.turn`."""

    def __init__(self, throttle: Callable[[bool], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._throttle = throttle
        self._clock = clock
        self._looks: dict[str, tuple[float, int | None]] = {}
        self._used: dict[str, bool] = {}

    def before(self, node: str, server: ReadServer) -> None:
        """Look at a node before a lot, now and then; the first look only counts."""
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
