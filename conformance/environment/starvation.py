"""Starvation: a machine that does not let run who is ready to run, so that nobody is to blame for being late.

Linux says of every thread for how long it was ready and not let run (`conformance.driver.run_queue`), and of a process
whether it was stopped from outside. Where there is no `/proc`, only the kit's own late ticks and a slow Redis tell. A
process that a driver has started is not asked, but it lives on the machine that is.
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
"""Who is not let run for so much of one second may be late for what lasts no longer: nobody is to blame."""
WINDOW_S = 1.0
KIT, REDIS = "the kit", "Redis"
NOTICED_MS = 20.0
"""Less than this is no lateness: a thread that wakes up and a command that travels take their time."""


def is_stopped(pid: int) -> bool:
    """Whether a process stands still (SIGSTOP, a debugger); False where nobody can tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


@dataclass(frozen=True)
class Starvation:
    """Who was let run least, for how long it was not (ms), and how much of that (ms) fell into one second."""

    party: str
    total_ms: float
    worst_second_ms: float

    def __str__(self) -> str:
        """What was measured, for people."""
        return (
            f"{self.party} was not let run for {self.total_ms:.0f} ms, "
            f"of which {self.worst_second_ms:.0f} ms close together"
        )


NOBODY_STARVED = Starvation("nobody", 0.0, 0.0)


@dataclass
class _Losses:
    """What one party has lost since a scenario began."""

    total_ms: float = 0.0
    worst_second_ms: float = 0.0
    recent: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now_s: float, lost_ms: float) -> None:
        self.total_ms += lost_ms
        self.recent.append((now_s, lost_ms))
        while self.recent[0][0] <= now_s - WINDOW_S:
            self.recent.popleft()
        self.worst_second_ms = max(self.worst_second_ms, sum(lost for _, lost in self.recent))


class StarvationWatch(BackgroundThread):
    """Measures in a thread how late the kit, the processes that it is given, and Redis were since `begin`.

    `processes`: their ids by name, asked every time, because processes come and go. `ping` asks Redis for anything.
    """

    def __init__(self, processes: Callable[[], Mapping[str, int]], ping: Callable[[], object]) -> None:
        super().__init__()
        self._processes = processes
        self._ping = ping
        self._run_queue = RunQueue()
        self._losses: dict[str, _Losses] = {}
        self._looking = threading.Lock()
        self._looked_s = time.monotonic()

    def begin(self) -> None:
        """Forget what was before."""
        self._look()
        with self._looking:
            self._losses = {}

    def seen(self) -> Starvation:
        """Who has starved most since `begin`."""
        self._look()
        with self._looking:
            found = [Starvation(party, lost.total_ms, lost.worst_second_ms) for party, lost in self._losses.items()]
        return max(found, key=lambda starvation: starvation.worst_second_ms, default=NOBODY_STARVED)

    def run(self) -> None:
        """Work until the end."""
        asleep_s = time.monotonic()
        while not self.ended.wait(TICK_S):
            late_ms = (time.monotonic() - asleep_s - TICK_S) * 1000
            self._look(late_ms)
            self._ask_redis()
            asleep_s = time.monotonic()

    def _look(self, late_ms: float = 0.0) -> None:
        with self._looking:
            now_s = time.monotonic()
            since_ms, self._looked_s = (now_s - self._looked_s) * 1000, now_s
            self._lose(KIT, max(_noticed(late_ms), self._waited_ms(os.getpid())))
            for name, pid in self._processes().items():
                # One that is stopped is not ready to run, and is not let run all the same.
                self._lose(name, max(self._waited_ms(pid), since_ms if is_stopped(pid) else 0.0))

    def _ask_redis(self) -> None:
        asked_s = time.monotonic()
        with suppress(RedisError, RedisClusterException, OSError):
            self._ping()
        with self._looking:
            self._lose(REDIS, _noticed((time.monotonic() - asked_s) * 1000))

    def _waited_ms(self, pid: int) -> float:
        return self._run_queue.newly_waited_s(pid) * 1000

    def _lose(self, party: str, lost_ms: float) -> None:
        if lost_ms > 0:
            self._losses.setdefault(party, _Losses()).add(time.monotonic(), lost_ms)


def _noticed(late_ms: float) -> float:
    return late_ms if late_ms >= NOTICED_MS else 0.0
