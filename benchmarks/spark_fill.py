"""Fills a Redis with finished jobs as workers leave them, by a script inside Redis: faster than any client could.

Beside them a small queue has what finished jobs have not: an order, locks, a parent with children, events.
"""

from __future__ import annotations

from typing import Any, Final

from conformance.servers import RedisInstance

BATCH: Final = 5000
FIRST_MS: Final = 1_700_000_000_000

LIVE: Final = "live"
"""The small queue."""

_SCRIPT: Final = """
local base, first, last, shift = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local function ms(number) return string.format('%.0f', number) end
for i = first, last do
  local added = ARGV[5] + shift + math.floor(i / 30)
  local active = added + (i * 7 + shift) % 1000
  local finished = active + (i * 3 + shift) % 500
  redis.call('HSET', base .. i, 'name', 'job', 'data', '{"i":' .. i .. ',"pad":"' .. string.rep('x', 64) .. '"}',
    'opts', '{"attempts":3,"jobId":"' .. i .. '","backoff":{"type":"fixed","delay":10}}', 'timestamp', ms(added),
    'delay', '0', 'priority', '0', 'processedOn', ms(active), 'ats', '1', 'atm', '1', 'returnvalue', 'null',
    'finishedOn', ms(finished))
  redis.call('ZADD', base .. 'completed', ms(finished), i)
end
"""


def fill(server: RedisInstance, prefix: str, queue: str, jobs: int, *, shift_ms: int = 0) -> None:
    """Put so many completed jobs into a queue, and a few others into the small one.

    `shift_ms`: how much later everything happened than in another fill.
    """
    base = f"{prefix}:{queue}:"
    with server.connect() as client:
        untyped: Any = client
        for first in range(1, jobs + 1, BATCH):
            last = min(first + BATCH - 1, jobs)
            untyped.eval(_SCRIPT, 0, base, first, last, shift_ms, FIRST_MS)
        untyped.hset(f"{base}meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:5.62.0"})
        untyped.set(f"{base}id", jobs)
        _fill_live(untyped, prefix, FIRST_MS + shift_ms)


def _fill_live(client: Any, prefix: str, added_ms: int) -> None:
    """Four jobs that wait, one that is active, and a parent of two of those that wait."""
    base = f"{prefix}:{LIVE}:"
    for number in range(1, 6):
        job = {"name": "job", "data": "{}", "opts": '{"attempts":0}', "timestamp": added_ms, "delay": 0, "priority": 0}
        own = {"processedOn": added_ms + 5, "ats": 1} if number == 5 else {}
        client.hset(f"{base}{number}", mapping={**job, **own})
        client.xadd(f"{base}events", {"event": "added", "jobId": number, "name": "job"})
        client.xadd(f"{base}events", {"event": "waiting", "jobId": number})
    client.rpush(f"{base}wait", "1", "2", "3", "4")
    client.rpush(f"{base}active", "5")
    client.set(f"{base}5:lock", f"token of {prefix}")
    client.hset(
        f"{base}parent", mapping={"name": "parent", "data": "{}", "opts": "{}", "timestamp": added_ms, "delay": 0}
    )
    client.zadd(f"{base}waiting-children", {"parent": added_ms})
    client.sadd(f"{base}parent:dependencies", f"{base}1", f"{base}2")
    client.hset(f"{base}meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:5.62.0"})


def plant(server: RedisInstance, prefix: str, queue: str) -> set[tuple[str, str]]:
    """Make one difference of every class; answers class and key of each."""
    base = f"{prefix}:{queue}:"
    with server.connect() as client:
        untyped: Any = client
        untyped.delete(f"{base}101")
        untyped.zrem(f"{base}completed", "101")
        untyped.hset(f"{base}extra", mapping={"name": "job", "data": "{}", "opts": "{}", "timestamp": FIRST_MS})
        untyped.zadd(f"{base}completed", {"extra": FIRST_MS})
        untyped.delete(f"{base}102")
        untyped.set(f"{base}gone:lock", "token")
        untyped.zrem(f"{base}completed", "103")
        untyped.zadd(f"{base}failed", {"104": FIRST_MS})
        untyped.zrem(f"{base}completed", "105")
        untyped.zadd(f"{base}failed", {"105": FIRST_MS})
        untyped.hset(f"{base}106", "data", '{"i":0}')
        untyped.hset(f"{base}107", "priority", "high")
        untyped.pexpire(f"{base}108", 900_000_000)
        untyped.set(f"{base}109:lock", "token")
        untyped.xadd(f"{base}events", {"event": "completed", "jobId": "110", "returnvalue": "null"})
        return _plant_live(untyped, prefix) | {
            ("missing", f"{queue}:101"),
            ("extra", f"{queue}:extra"),
            ("dangling", f"{queue}:102"),
            ("orphan", f"{queue}:gone"),
            ("no-state", f"{queue}:103"),
            ("two-states", f"{queue}:104"),
            ("wrong-state", f"{queue}:105"),
            ("field", f"{queue}:106"),
            ("type", f"{queue}:107"),
            ("ttl", f"<prefix>:{queue}:108"),
            ("stale-lock", f"{queue}:109"),
            ("event-without-transition", f"{queue}:110"),
        }


def _plant_live(client: Any, prefix: str) -> set[tuple[str, str]]:
    base = f"{prefix}:{LIVE}:"
    client.delete(f"{base}wait")
    client.rpush(f"{base}wait", "1", "3", "2", "4")
    client.delete(f"{base}5:lock")
    client.srem(f"{base}parent:dependencies", f"{base}2")
    last: Any = client.xrevrange(f"{base}events", count=1)
    client.xdel(f"{base}events", last[0][0])
    return {
        ("order", f"{LIVE}:wait"),
        ("lock", f"{LIVE}:5"),
        ("member", f"{LIVE}:parent"),
        ("transition-without-event", f"{LIVE}:5"),
    }
