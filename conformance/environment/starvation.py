"""CPU starvation of the kit, its drivers and Redis: it can excuse late answers, but no other findings.

Linux reports for every thread the time in which it was runnable but not scheduled (`conformance.driver.run_queue`), and
whether a process is stopped. Without `/proc`, the kit only knows its own late ticks and the latency of Redis. Child
processes of drivers are not measured, but they run on the same machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from redis.exceptions import RedisClusterException, RedisError

from conformance.driver.run_queue import RunQueue
from conformance.environment.background import BackgroundThread

TICK_S = 0.05
STARVED_MS = 400.0
"""Starvation within one second (`WINDOW_S`) that can explain a missed deadline."""
WINDOW_S = 1.0
KIT, REDIS, CLOCK = "the kit", "Redis", "the machine's clock"
NOTICED_MS = 20.0
"""Smaller delays are not counted: waking a thread and sending a command always take some time."""


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped (SIGSTOP, a debugger); False if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


@dataclass(frozen=True)
class Starvation:
    """The most starved party, its starvation in ms, and the part of it within the worst second in ms."""

    party: str
    total_ms: float
    worst_second_ms: float

    def __str__(self) -> str:
        """The measurement as a sentence, for reports."""
        if self.party == CLOCK:
            return f"{CLOCK} jumped by {self.total_ms:.0f} ms"
        return (
            f"{self.party} was starved of CPU for {self.total_ms:.0f} ms "
            f"({self.worst_second_ms:.0f} ms within one second)"
        )


NO_STARVATION = Starvation("none", 0.0, 0.0)


@dataclass
class _Losses:
    """The starvation of one party since the start of the scenario."""

    total_ms: float = 0.0
    worst_second_ms: float = 0.0
    recent: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now_s: float, lost_ms: float) -> None:
        self.total_ms += lost_ms
        self.recent.append((now_s, lost_ms))
        # A sliding second: a burst across two fixed seconds would look half as bad.
        while self.recent[0][0] <= now_s - WINDOW_S:
            self.recent.popleft()
        self.worst_second_ms = max(self.worst_second_ms, sum(lost for _, lost in self.recent))


class StarvationWatch(BackgroundThread):
    """Measures in a thread the starvation of the kit, of the given processes and of Redis since `start`.

    `processes`: returns process ids by name; called for every measurement, because drivers restart. `ping` sends any
    command to Redis.
    """

    def __init__(self, processes: Callable[[], Mapping[str, int]], ping: Callable[[], object]) -> None:
        super().__init__()
        self._processes = processes
        self._ping = ping
        self._run_queue = RunQueue()
        self._losses: dict[str, _Losses] = {}
        self._looking = threading.Lock()
        self._looked_s = time.monotonic()
        self._offset_s = _clock_offset_s()

    def start(self) -> None:
        """Start a new measurement."""
        self._look()
        with self._looking:
            self._losses = {}

    def seen(self) -> Starvation:
        """The most starved party since `start`."""
        self._look()
        with self._looking:
            measured = [Starvation(party, lost.total_ms, lost.worst_second_ms) for party, lost in self._losses.items()]
        return max(measured, key=lambda starvation: starvation.worst_second_ms, default=NO_STARVATION)

    def run(self) -> None:
        """Measure until `ended` is set."""
        asleep_s = time.monotonic()
        while not self.ended.wait(TICK_S):
            # The time beyond the tick's length: this thread itself was not scheduled.
            late_ms = (time.monotonic() - asleep_s - TICK_S) * 1000
            self._look(late_ms)
            self._ask_redis()
            asleep_s = time.monotonic()

    def _look(self, late_ms: float = 0.0) -> None:
        with self._looking:
            now_s = time.monotonic()
            since_ms, self._looked_s = (now_s - self._looked_s) * 1000, now_s
            before_s, self._offset_s = self._offset_s, _clock_offset_s()
            # A virtual machine was paused, or its clock was set: delays and minutes ended too early.
            self._lose(CLOCK, _noticed(abs(self._offset_s - before_s) * 1000))
            # The larger of two measurements of the same loss; their sum would count it twice.
            self._lose(KIT, max(_noticed(late_ms), self._waited_ms(os.getpid())))
            for name, pid in self._processes().items():
                # A stopped process is not runnable, so schedstat does not show its lost time.
                self._lose(name, max(self._waited_ms(pid), since_ms if is_stopped(pid) else 0.0))

    def _ask_redis(self) -> None:
        asked_s = time.monotonic()
        # An error does not count: scenarios stop Redis on purpose. Only the time matters here.
        with suppress(RedisError, RedisClusterException, OSError):
            self._ping()
        with self._looking:
            self._lose(REDIS, _noticed((time.monotonic() - asked_s) * 1000))

    def _waited_ms(self, pid: int) -> float:
        return self._run_queue.newly_waited_s(pid) * 1000

    def _lose(self, party: str, lost_ms: float) -> None:
        if lost_ms > 0:
            self._losses.setdefault(party, _Losses()).add(time.monotonic(), lost_ms)


def _clock_offset_s() -> float:
    """The wall clock less the monotonic one (s): constant unless the wall clock jumps."""
    return time.time() - time.monotonic()


def _noticed(late_ms: float) -> float:
    return late_ms if late_ms >= NOTICED_MS else 0.0
