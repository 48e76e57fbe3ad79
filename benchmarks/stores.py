"""Stores to compare: a queue of finished jobs with all their events, a small one with jobs in every state, and copies.

A script in Redis writes the jobs, a million in half a minute. No client is needed, because only reading is measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance
from conformance.servers.connection import wait_until

FIRST_MS: Final = 1_700_000_000_000
"""When the first job was added (Unix ms)."""

QUEUE: Final = "q"
LIVE: Final = "live"
"""The small queue with jobs in every state."""

IDLE: Final = "idle"
"""A queue with one waiting job and no worker."""

HOUR_MS: Final = 3_600_000
LOCKED_UNTIL_MS: Final = 4_102_444_800_000
"""The expiry of all locks, the same in stores that were filled at different times (Unix ms, 2100)."""

PER_MS: Final = 30
"""Jobs that were added within one ms."""

ACTIVE_AFTER_MS: Final = 2
FINISHED_AFTER_MS: Final = 5

# A script blocks Redis, so each call writes a limited piece.
_MS_PER_CALL: Final = 200
_COPIED_WITHIN_S: Final = 300.0

# In the order of the ms, because a stream only accepts entries with growing ids.
_SCRIPT: Final = """
local base, from, to, jobs, per, origin = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]),
  tonumber(ARGV[4]), tonumber(ARGV[5])
local active_after, finished_after, first_ms = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local function ms(number) return string.format('%.0f', number) end
for tick = from, to do
  local sequence = 0
  local function event(...)
    redis.call('XADD', base .. 'events', ms(first_ms + origin + tick) .. '-' .. sequence, 'event', ...)
    sequence = sequence + 1
  end
  local function jobs_of(before)
    local first = (tick - before) * per + 1
    return math.max(first, 1), math.min(first + per - 1, jobs)
  end
  for i = jobs_of(0), select(2, jobs_of(0)) do
    local added = first_ms + origin + tick
    redis.call('HSET', base .. i, 'name', 'job', 'data', '{"i":' .. i .. ',"pad":"' .. string.rep('x', 64) .. '"}',
      'opts', '{"attempts":3,"jobId":"' .. i .. '","backoff":{"type":"fixed","delay":10}}', 'timestamp', ms(added),
      'delay', '0', 'priority', '0', 'processedOn', ms(added + active_after), 'ats', '1', 'atm', '1',
      'returnvalue', 'null', 'finishedOn', ms(added + finished_after))
    redis.call('ZADD', base .. 'completed', ms(added + finished_after), i)
    event('added', 'jobId', i, 'name', 'job')
    event('waiting', 'jobId', i)
  end
  for i = jobs_of(active_after), select(2, jobs_of(active_after)) do
    event('active', 'jobId', i, 'prev', 'waiting')
  end
  for i = jobs_of(finished_after), select(2, jobs_of(finished_after)) do
    event('completed', 'jobId', i, 'returnvalue', 'null', 'prev', 'active')
  end
end
"""


def fill(server: RedisInstance, prefix: str, jobs: int, *, shift_ms: int = 0) -> None:
    """Put `jobs` completed jobs with four events each into `q`, some in every state into `live`, one into `idle`.

    `shift_ms`: how much later everything happened than in another fill.
    """
    base = f"{prefix}:{QUEUE}:"
    last_ms = -(-jobs // PER_MS) + FINISHED_AFTER_MS
    with server.connect() as client:
        untyped: Any = client
        for first in range(0, last_ms + 1, _MS_PER_CALL):
            last = min(first + _MS_PER_CALL - 1, last_ms)
            numbers = (first, last, jobs, PER_MS, shift_ms, ACTIVE_AFTER_MS, FINISHED_AFTER_MS, FIRST_MS)
            untyped.eval(_SCRIPT, 1, base, *numbers)
        untyped.hset(f"{base}meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:5.62.0"})
        untyped.set(f"{base}id", jobs)
        _LiveQueue(untyped, f"{prefix}:{LIVE}:", FIRST_MS + shift_ms).fill()
        _LiveQueue(untyped, f"{prefix}:{IDLE}:", FIRST_MS + shift_ms).fill_idle()


class _LiveQueue:
    """Writes a queue that has jobs in every state, two deduplication keys, a flow, a limiter and a job with a uuid."""

    def __init__(self, client: Any, base: str, added_ms: int) -> None:
        self.client = client
        self.base = base
        self.added_ms = added_ms
        self.events = 0

    def fill(self) -> None:
        for job in ("1", "2", "3", "4", UUID_JOB):
            self._job(job)
            self.client.rpush(f"{self.base}wait", job)
        for job, token in LOCKED.items():
            self._job(job, processedOn=self.added_ms + 5, ats=1)
            self.client.lpush(f"{self.base}active", job)
            self.client.set(f"{self.base}{job}:lock", token, pxat=LOCKED_UNTIL_MS)
        for job in DEDUPLICATED:
            self._job(job, deid=f"once-{job}", opts=json.dumps({"de": {"id": f"once-{job}", "ttl": 2 * HOUR_MS}}))
            self.client.rpush(f"{self.base}wait", job)
            self.client.set(f"{self.base}de:once-{job}", job, px=2 * HOUR_MS)
        self._failed("20", "21")
        self._later("30", "31")
        self._flow()
        self.client.set(f"{self.base}limiter", 5, px=HOUR_MS)
        self.client.set(f"{self.base}id", 40)
        self.client.zadd(f"{self.base}marker", {"0": 0, "1": self.added_ms + HOUR_MS})
        self._meta()

    def fill_idle(self) -> None:
        self._job("1")
        self.client.rpush(f"{self.base}wait", "1")
        self.client.set(f"{self.base}id", 1)
        self.client.zadd(f"{self.base}marker", {"0": 0})
        self._meta()

    def _meta(self) -> None:
        self.client.hset(f"{self.base}meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:5.62.0"})

    def _failed(self, *jobs: str) -> None:
        for job in jobs:
            finished = self.added_ms + 9
            how: dict[str, Any] = {"failedReason": "no", "stacktrace": '["Error: no"]', "ats": 1, "atm": 1}
            self._job(job, processedOn=self.added_ms + 5, finishedOn=finished, **how)
            self.client.zadd(f"{self.base}failed", {job: finished})

    def _later(self, delayed: str, prioritized: str) -> None:
        opts = json.dumps({**json.loads(OPTS), "delay": HOUR_MS})
        self._job(delayed, delay=HOUR_MS, opts=opts, event="delayed", fields={"delay": self.added_ms + HOUR_MS})
        self.client.zadd(f"{self.base}delayed", {delayed: (self.added_ms + HOUR_MS) * 4096})
        self._job(prioritized, priority=3)
        self.client.zadd(f"{self.base}prioritized", {prioritized: 3 * 2**32 + 1})
        self.client.set(f"{self.base}pc", 1)

    def _flow(self) -> None:
        self._job("parent", event="waiting-children")
        self.client.zadd(f"{self.base}waiting-children", {"parent": self.added_ms})
        self.client.sadd(f"{self.base}parent:dependencies", f"{self.base}1", f"{self.base}2")

    def _job(self, job: str, *, event: str = "waiting", fields: dict[str, Any] | None = None, **own: Any) -> None:
        usual = {"name": "job", "data": "{}", "opts": OPTS, "timestamp": self.added_ms, "delay": 0, "priority": 0}
        self.client.hset(f"{self.base}{job}", mapping={**usual, **own})
        self._event(event="added", jobId=job, name="job")
        self._event(event=event, jobId=job, **(fields or {}))

    def _event(self, **entry: Any) -> None:
        self.events += 1
        self.client.xadd(f"{self.base}events", entry, id=f"{self.added_ms}-{self.events}")


OPTS: Final = '{"attempts":2,"sizeLimit":9}'
UUID_JOB: Final = "3f2f1c9e-0a4b-4c7d-9d57-9f3a1b2c4d5e"
LOCKED: Final = {
    "5": "worker:1",
    "6": "worker:1",
    "11": "worker:2",
    "12": "worker:2",
    "13": "worker:3",
    "14": "worker:4",
}
"""Jobs in `active`, and the tokens of their locks."""

DEDUPLICATED: Final = ("15", "16")


def copy_store(source: RedisInstance, target: RedisInstance) -> None:
    """Make an empty Redis the exact copy of another, moments of expiry and ids of streams included, by replication.

    Raises EnvironmentProblem if that takes longer than five minutes.
    """
    host, _, port = source.nodes[0].rpartition(":")
    with source.connect() as origin, target.connect() as client:
        untyped: Any = client
        with _replica(untyped, host, port):
            # Equal offsets: a linked replica may still be behind.
            if not wait_until(lambda: _in_step(origin, untyped), deadline_s=_COPIED_WITHIN_S):
                raise EnvironmentProblem(
                    f"{target.text} is not a copy of {source.text} within {_COPIED_WITHIN_S:.0f} s"
                )


@contextmanager
def _replica(client: Any, host: str, port: str) -> Iterator[None]:
    client.replicaof(host, port)
    try:
        yield
    finally:
        # Also after a failure: a replica would follow and refuse writes.
        client.replicaof("NO", "ONE")


def _in_step(origin: Any, client: Any) -> bool:
    here, there = (server.info("replication") for server in (client, origin))
    return bool(here.get("master_link_status") == "up" and here["slave_repl_offset"] == there["master_repl_offset"])
