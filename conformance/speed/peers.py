"""The two clients of a session: each behind its driver, on its own queues, connected to Redis without a tap."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psutil

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationUnanswered
from conformance.driver.messages import Ready
from conformance.driver.ops import Op
from conformance.driver.ops.lifecycle import Open, Processor, RedisAddress, Role
from conformance.driver.ops.queue import AddBulk, NewJob
from conformance.environment.drivers import RestartableDriver, TapPoint, place_tap
from conformance.environment.starvation import Families
from conformance.observe.tap.socket_writer import RedisLink
from conformance.servers import RedisInstance

PORTION = 500
"""Jobs per call that adds them: the length of a line of the driver protocol is limited."""

LOOK_S = 0.002
CALL_DEADLINE_MS = 60_000
PATIENCE_S = 120
"""How long a measurement may take: a slower client is not measured."""

NOWHERE = "bench.nothing"
"""An unknown operation: every driver parses the call and answers `unsupported`."""


TOKEN_OF_ACTIVE = "bench"
LOCK_OF_ACTIVE_MS = 600_000
_ACTIVATE = """
for number = 1, tonumber(ARGV[1]) do
  local job = KEYS[1] .. number
  redis.call("HSET", job, "name", "bench", "data", "{}", "opts", "{}", "timestamp", 1, "delay", 0, "priority", 0)
  redis.call("SET", job .. ":lock", ARGV[2], "PX", ARGV[3])
  redis.call("LPUSH", KEYS[1] .. "active", number)
end
"""
"""Keys of a queue as a worker leaves them that has claimed many jobs."""


class Unmeasurable(Exception):
    """A measurement has no result; the text is the reason. It does not count as a failure."""


@dataclass(frozen=True)
class SpeedPlace:
    """An empty queue for one measurement, and what the kit itself does there. `seeder`: the oracle adds the jobs."""

    redis: Any
    prefix: str
    seeder: DriverConnection

    def add(self, count: int) -> None:
        """Add this many empty jobs."""
        for first in range(0, count, PORTION):
            jobs = [NewJob(name="bench") for _ in range(min(PORTION, count - first))]
            self.seeder.call(AddBulk(jobs=jobs), handle=self.prefix, deadline_ms=CALL_DEADLINE_MS)

    def activate(self, count: int) -> None:
        """Make this many active jobs with locks, without a client."""
        self.redis.eval(_ACTIVATE, 1, self.key(""), count, TOKEN_OF_ACTIVE, LOCK_OF_ACTIVE_MS)

    def finished(self) -> tuple[float, int]:
        """The server's clock (s), and how many jobs are finished, at one instant."""
        # One MULTI: time and counts must belong to the same instant.
        with self.redis.pipeline(transaction=True) as pipeline:
            pipeline.time()
            pipeline.zcard(self.key("completed"))
            pipeline.zcard(self.key("failed"))
            (seconds, micros), completed, failed = pipeline.execute()
        if failed:
            raise Unmeasurable(f"{failed} jobs have failed")
        return int(seconds) + int(micros) / 1e6, int(completed)

    def wait_for(self, count: int) -> tuple[float, int]:
        """The first observation with this many finished jobs. Raises Unmeasurable if it takes too long."""
        ends = time.monotonic() + PATIENCE_S
        while (seen := self.finished())[1] < count:
            if time.monotonic() > ends:
                raise Unmeasurable(f"{seen[1]} of {count} jobs are finished after {PATIENCE_S} s")
            # Short against the measured seconds, and rare enough not to load Redis.
            time.sleep(LOOK_S)
        return seen

    def events(self, name: str) -> dict[str, float]:
        """When each job had this event, by the server's clock (ms)."""
        entries = self.redis.xrange(self.key("events"))
        return {
            fields[b"jobId"].decode(): float(entry.partition(b"-")[0])
            for entry, fields in entries
            if fields.get(b"event") == name.encode()
        }

    def key(self, name: str) -> str:
        """A key of the queue."""
        return f"{self.prefix}:bench:{name}"


@dataclass
class SpeedPeer:
    """One client. `name`: `client` or `oracle`."""

    name: str
    driver: RestartableDriver
    server: RedisInstance
    redis: Any
    seeder: RestartableDriver
    _handles: Iterator[int] = field(default_factory=itertools.count)

    @property
    def ready(self) -> Ready:
        """The declarations of its driver."""
        return self.driver.handshake()

    @contextmanager
    def place(self) -> Iterator[SpeedPlace]:
        """An empty queue; all handles are closed and all keys removed after the block."""
        prefix = self.server.fresh_prefix()
        seeder = self.seeder.living()
        seeder.call(self._opening("queue", prefix), handle=prefix, deadline_ms=CALL_DEADLINE_MS)
        try:
            yield SpeedPlace(self.redis, prefix, seeder)
        finally:
            # Before the keys are removed: a running worker would write some of them again.
            self.driver.reset()
            self.seeder.reset()
            self.server.remove_prefix(prefix)

    def open(
        self,
        place: SpeedPlace,
        role: Role,
        processor: Processor | None = None,
        *,
        address: RedisAddress | None = None,
        **options: Any,
    ) -> SpeedHandle:
        """Open an object of the client on the queue; `address`: instead of that of Redis."""
        handle = f"{role}{next(self._handles)}"
        opening = self._opening(role, place.prefix, processor, options)
        if address is not None:
            opening = msgspec.structs.replace(opening, redis=address)
        self.driver.living().call(opening, handle=handle, deadline_ms=CALL_DEADLINE_MS)
        return SpeedHandle(self.driver.living(), handle)

    @contextmanager
    def distant(self, latency_ms: float) -> Iterator[TapPoint]:
        """A proxy to Redis with this latency in each direction. Raises Unmeasurable if there can be none."""
        point = place_tap(self.server, {})
        try:
            if point.tap is None:
                raise Unmeasurable(point.reason)
            with point.tap.link(RedisLink(latency_ms=latency_ms)):
                yield point
        finally:
            # Before the tap: a driver whose connection is gone would report it while it closes.
            self.driver.reset()
            point.close()

    def resident_bytes(self) -> float:
        """Resident memory of the driver and of all that it has started."""
        return float(resident_bytes(self.driver.pid()))

    def _opening(
        self, role: Role, prefix: str, processor: Processor | None = None, options: dict[str, Any] | None = None
    ) -> Open:
        address = self.server.for_drivers
        return Open(role=role, queue="bench", prefix=prefix, redis=address, processor=processor, options=options or {})


@dataclass(frozen=True)
class SpeedHandle:
    """An open object of a client, whose calls are timed."""

    connection: DriverConnection
    name: str

    def timed(self, call: Op[Any]) -> tuple[Any, float]:
        """The answer (None where the client gives none), and what the call took (s) with the driver's own part."""
        answer = None
        started = time.perf_counter()
        with suppress(OperationUnanswered):
            answer = self.connection.call(call, handle=self.name, deadline_ms=CALL_DEADLINE_MS)
        return answer, time.perf_counter() - started

    def driver_part(self, arguments: dict[str, Any]) -> float:
        """The driver's time for a call with these arguments before the client has its turn (s)."""
        started = time.perf_counter()
        self.connection.call_raw(NOWHERE, arguments, handle=self.name, deadline_ms=CALL_DEADLINE_MS)
        return time.perf_counter() - started


def resident_bytes(pid: int | None) -> int:
    """Resident memory of a process and of all below it. Raises Unmeasurable if it has ended."""
    found = 0
    for member in [] if pid is None else Families().of(pid):
        with suppress(psutil.Error):
            found += member.memory_info().rss
    if not found:
        raise Unmeasurable("the system does not report the memory of the driver")
    return found
