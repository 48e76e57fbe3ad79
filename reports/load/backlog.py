"""Samples of a running load: the backlog over time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from redis.exceptions import RedisError

from conformance.protocol.states import LIST_CONTAINERS, STATE_CONTAINERS
from conformance.servers.connection import Client, connect, explained
from reports.load.redis_clock import RedisClock, read_redis_clock
from reports.load.target import LoadTarget

MOST_SAMPLES = 400
"""Samples of a series that a report keeps."""

SAMPLE_EVERY_S = 0.25


class BacklogSample(msgspec.Struct, frozen=True, kw_only=True):
    """The backlog, ms since the start of the load: members of each container over all queues. `added`: jobs, ever."""

    at_ms: int
    counts: dict[str, int]
    added: int


def counts_of(client: Client, target: LoadTarget) -> tuple[dict[str, int], int]:
    """Members of each container over all queues of the load, and how many jobs were ever added. Raises redis errors."""
    untyped: Any = client
    bases = [f"{target.prefix}:{queue}:" for queue in target.workload.queue_names]
    pipeline = untyped.pipeline() if hasattr(client, "get_primaries") else untyped.pipeline(transaction=False)
    for base in bases:
        for name in STATE_CONTAINERS:
            (pipeline.llen if name in LIST_CONTAINERS else pipeline.zcard)(base + name)
        pipeline.get(f"{base}id")
    replies = pipeline.execute()
    width = len(STATE_CONTAINERS) + 1
    by_queue = [replies[start : start + width] for start in range(0, len(replies), width)]
    counts = {name: sum(int(reply[number]) for reply in by_queue) for number, name in enumerate(STATE_CONTAINERS)}
    return counts, sum(int(reply[-1] or 0) for reply in by_queue)


class BacklogSeries:
    """Samples the backlog from time to time; the instants are Unix ms of Redis' clock."""

    def __init__(self, target: LoadTarget, clock: RedisClock) -> None:
        self.samples: list[BacklogSample] = []
        self.latest: dict[str, int] = {}
        self.added = 0
        self._target = target
        self._clock = clock

    def sample(self, client: Client) -> None:
        """Take one sample. Raises redis errors."""
        self.latest, self.added = counts_of(client, self._target)
        at_ms = int(self._clock.now_ms())
        self.samples.append(BacklogSample(at_ms=at_ms, counts=self.latest, added=self.added))

    def since(self, start_ms: int) -> list[BacklogSample]:
        """At most MOST_SAMPLES of the samples after `start_ms`, evenly chosen, the last one included; ms since then."""
        later = [sample for sample in self.samples if sample.at_ms >= start_ms]
        step = -(-len(later) // MOST_SAMPLES) or 1
        chosen = [sample for number, sample in enumerate(reversed(later)) if number % step == 0][::-1]
        return [msgspec.structs.replace(sample, at_ms=sample.at_ms - start_ms) for sample in chosen]


@contextmanager
def observing(target: LoadTarget) -> Iterator[BacklogSeries]:
    """Sample in the background for the duration of the block. Raises Problems where Redis is not there."""
    with explained(target.address):
        clock = read_redis_clock(target.address)
    series, ended = BacklogSeries(target, clock), threading.Event()

    def work() -> None:
        with connect(target.address) as client:
            while not ended.wait(SAMPLE_EVERY_S):
                # A Redis that is away for a moment is the producers' business; there is just no sample of it.
                try:
                    series.sample(client)
                except RedisError:
                    continue

    thread = threading.Thread(target=work, name="observing", daemon=True)
    thread.start()
    try:
        yield series
    finally:
        ended.set()
        # Otherwise a last sample could be taken while the series is being read.
        thread.join()
