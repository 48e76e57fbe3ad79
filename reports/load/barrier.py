"""All producers of a load start at the same instant: when the last of them is connected.

An executor needs seconds to start its Python, and a driver to start its client. If the schedule started without them,
every latency would include that time. So each producer reports in Redis that it is ready, and waits. The driver of
Spark sets the instant at which the schedule starts, in the clock of Redis.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from redis.exceptions import RedisError

from conformance.problems import EnvironmentProblem
from conformance.servers.connection import Client, connect, explained, wait_until
from reports.load.redis_clock import read_redis_clock
from reports.load.target import LoadTarget

LEAD_MS = 500
"""Between the moment at which the last producer is connected and the first scheduled job: all must learn of it."""

DEADLINE_S = 300.0
"""How long producers may take to connect."""

KEPT_S = 24 * 3600
"""The time to live of the keys of a barrier, for the case that it is never removed."""

_LOOK_EVERY_S = 0.005
_GIVEN_UP = b"given up"


class ScheduleSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the schedule: the whole of it, or what was left when the load was resumed.

    `start_ms`: Unix ms, in the clock of Redis, to which `scheduled_ms` of a job is added. `done`: for each partition
    how many of its jobs were there before; those that come after them are scheduled from here.
    """

    start_ms: int
    done: list[int]


class StartBarrier:
    """Waits for all producers and sets the beginning of the schedule.

    `waited_s`: from the moment at which they were asked for until the last was connected. `apart_s`: how long after the
    first one that was. Neither is part of any latency.
    """

    def __init__(self, target: LoadTarget) -> None:
        self.segments: list[ScheduleSegment] = []
        self.waited_s = 0.0
        self.apart_s = 0.0
        self._target = target

    @property
    def is_open(self) -> bool:
        """Whether the schedule has started."""
        return bool(self.segments)

    def open_when_ready(self, client: Client, ended: threading.Event) -> None:
        """Wait for all producers; if some are missing after DEADLINE_S, release the others. Raises redis errors."""
        began = time.monotonic()
        first: float | None = None
        ready = 0
        while not ended.wait(_LOOK_EVERY_S) and time.monotonic() - began < DEADLINE_S:
            ready = int(client.scard(self._target.barrier_key))
            if ready and first is None:
                first = time.monotonic()
            if ready >= self._target.partitions:
                self.waited_s, self.apart_s = time.monotonic() - began, time.monotonic() - (first or began)
                self._begin(client)
                return
        if not ended.is_set():
            client.set(self._target.start_key, _GIVEN_UP + b" %d" % ready, ex=KEPT_S)

    def _begin(self, client: Client) -> None:
        target = self._target
        done = [int(client.get(target.progress_key(number)) or 0) for number in range(target.partitions)]
        start_ms = round(read_redis_clock(target.address).now_ms()) + LEAD_MS - target.workload.due_ms(_next_job(done))
        segments = [
            *(_earlier_segments(client, target) if target.resume else []),
            ScheduleSegment(start_ms=start_ms, done=done),
        ]
        client.set(target.schedule_key, msgspec.json.encode(segments))
        self.segments = segments
        # The start key is written last: a producer that reads it then finds all other keys in place.
        client.set(target.start_key, start_ms, ex=KEPT_S)


def _next_job(done: Sequence[int]) -> int:
    """Number of the first job that is not there yet; job i is number i // partitions of partition i % partitions."""
    return min(count * len(done) + partition for partition, count in enumerate(done))


def _earlier_segments(client: Client, target: LoadTarget) -> list[ScheduleSegment]:
    written = client.get(target.schedule_key)
    return msgspec.json.decode(written, type=list[ScheduleSegment]) if written else []


@contextmanager
def start_barrier(target: LoadTarget) -> Iterator[StartBarrier]:
    """Wait for the producers in the background, while Spark starts them inside the block."""
    barrier, ended = StartBarrier(target), threading.Event()
    failed: list[Exception] = []

    def work() -> None:
        try:
            with connect(target.address) as client:
                barrier.open_when_ready(client, ended)
        except RedisError as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="start barrier", daemon=True)
    thread.start()
    try:
        yield barrier
    finally:
        ended.set()
        thread.join()
    if failed:
        with explained(target.address):
            raise failed[0]


def wait_for_start(client: Client, target: LoadTarget, partition: int) -> int:
    """Say that this partition's producer is connected and return the start of the schedule, Unix ms of Redis' clock.

    Raises EnvironmentProblem where others stay away; redis errors.
    """
    untyped: Any = client
    untyped.sadd(target.barrier_key, partition)
    untyped.expire(target.barrier_key, KEPT_S)
    start: list[bytes] = []

    def is_set() -> bool:
        start[:] = [answer] if (answer := untyped.get(target.start_key)) else []
        return bool(start)

    wait_until(is_set, deadline_s=2 * DEADLINE_S, step_s=_LOOK_EVERY_S)
    if not start or start[0].startswith(_GIVEN_UP):
        ready = start[0].removeprefix(_GIVEN_UP).decode().strip() if start else "?"
        raise EnvironmentProblem(
            f"{ready} of {target.partitions} producers were connected after {DEADLINE_S:g} s, and none has started",
            hint="every partition needs a core of its own at the same time: lower --partitions",
        )
    return int(start[0])
