"""CPU starvation of the kit, its drivers and Redis: it can excuse late answers, but no other findings.

Linux reports for every thread the time in which it was runnable but not scheduled (`conformance.driver.run_queue`), and
whether a process is stopped. Without `/proc`, the kit only knows its own late ticks and the latency of Redis. Child
processes of a driver count as the driver: its command may be a wrapper (`npx`, `go run`, a shell).

A client that takes the CPU time itself is not a victim: its own starvation excuses none of its findings.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from redis.exceptions import RedisClusterException, RedisError

from conformance.driver.run_queue import RunQueue
from conformance.environment.background import BackgroundThread
from conformance.findings import Timing

TICK_S = 0.05
STARVED_MS = 400.0
"""Starvation within one second that can explain a missed deadline of unknown length."""
SECOND_MS = 1000.0
KIT, REDIS, CLOCK = "the kit", "Redis", "the machine's clock"
ORACLE, CLIENT = "the oracle's driver", "the client's driver"
TAKEN = 0.25
"""A client that uses this share of a core, and more than the kit and all other drivers together, is busy itself."""
NOTICED_MS = 20.0
"""Smaller delays are not counted: waking a thread and sending a command always take some time."""
CHILDREN_S = 2.0
"""How often child processes are listed: this reads a file of every process of the machine."""


def _is_stopped(process: psutil.Process) -> bool:
    """Whether a process is stopped (SIGSTOP, a debugger); False if unknown."""
    with suppress(psutil.Error):
        return process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
    return False


class Families:
    """Processes with their children, at any depth; listed again every `CHILDREN_S`."""

    def __init__(self) -> None:
        self._listed: dict[int, tuple[float, list[psutil.Process]]] = {}

    def of(self, pid: int) -> list[psutil.Process]:
        """Return a process and its descendants; none if it has ended."""
        listed_s, family = self._listed.get(pid, (-CHILDREN_S, []))
        if time.monotonic() - listed_s >= CHILDREN_S:
            family = []
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                family = [process, *process.children(recursive=True)]
            self._listed[pid] = time.monotonic(), family
        return family


class CpuTimes:
    """The CPU time (ms) that process families have used since the last question about them."""

    def __init__(self, families: Families | None = None) -> None:
        self._families = families or Families()
        self._used_ms: dict[int, float] = {}

    def newly_used_ms(self, pid: int | None) -> float:
        """The CPU time (ms) of a process and its descendants since the last call; 0 at the first call."""
        if pid is None:
            return 0.0
        is_known, newly_ms = pid in self._used_ms, 0.0
        for member in self._families.of(pid):
            with suppress(psutil.Error):
                times = member.cpu_times()
                used_ms = (times.user + times.system) * 1000
                newly_ms += max(0.0, used_ms - self._used_ms.get(member.pid, 0.0))
                self._used_ms[member.pid] = used_ms
        return newly_ms if is_known else 0.0


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

Loss = tuple[float, float]
"""When it was measured (s, monotonic), and the starvation since the measurement before (ms)."""


@dataclass(frozen=True)
class StarvationRecord:
    """The measured starvation of each party. `own`: the part of it in which the client took the CPU time itself."""

    losses: Mapping[str, Sequence[Loss]]
    own: Mapping[str, Sequence[Loss]] = field(default_factory=dict)

    @property
    def worst(self) -> Starvation:
        """The party with the worst second, regardless of which party used the CPU."""
        return max(map(self._of, self.losses), key=lambda starved: starved.worst_second_ms, default=NO_STARVATION)

    def explaining(self, timing: Timing) -> Starvation | None:
        """Return the starvation of the party that can have caused a finding with this timing; None if none can."""
        concerned = [party for party in self.losses if timing.both_sides or party != ORACLE]
        lost_ms = {
            party: most_lost_ms(
                [loss for loss in self.losses[party] if loss not in self.own.get(party, ())], timing.within_ms
            )
            for party in concerned
        }
        party = max(lost_ms, key=lost_ms.__getitem__, default=None)
        return self._of(party) if party is not None and lost_ms[party] >= timing.slack_ms else None

    def _of(self, party: str) -> Starvation:
        losses = self.losses[party]
        return Starvation(party, sum(lost for _, lost in losses), most_lost_ms(losses, SECOND_MS))


def most_lost_ms(losses: Sequence[Loss], within_ms: float) -> float:
    """Return the starvation (ms) in the worst period of `within_ms`; it may start at any loss."""
    # A sliding period: a burst across two fixed ones would look half as bad.
    most_ms, period_ms, first = 0.0, 0.0, 0
    for measured_s, lost_ms in losses:
        period_ms += lost_ms
        while losses[first][0] <= measured_s - within_ms / 1000:
            period_ms -= losses[first][1]
            first += 1
        most_ms = max(most_ms, period_ms)
    return most_ms


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
        self._families = Families()
        self._losses: dict[str, list[Loss]] = {}
        self._own: dict[str, list[Loss]] = {}
        self._cpu = CpuTimes(self._families)
        self._kit_s = time.process_time()
        self._used: deque[tuple[float, float, float]] = deque()
        self._looking = threading.Lock()
        self._looked_s = time.monotonic()
        self._offset_s = _clock_offset_s()

    def start(self) -> None:
        """Start a new measurement."""
        self._look()
        with self._looking:
            self._losses, self._own = {}, {}

    def seen(self) -> StarvationRecord:
        """The starvation since `start`."""
        self._look()
        with self._looking:
            losses, own = (
                {party: tuple(some) for party, some in recorded.items()} for recorded in (self._losses, self._own)
            )
            return StarvationRecord(losses, own)

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
            processes = self._processes()
            self._note_cpu(now_s, processes)
            # A virtual machine was paused, or its clock was set: delays and minutes ended too early.
            self._lose(CLOCK, _noticed(abs(self._offset_s - before_s) * 1000))
            # The larger of two measurements of the same loss; their sum would count it twice.
            self._lose(KIT, max(_noticed(late_ms), self._waited_ms(os.getpid())))
            for name, driver in processes.items():
                # A stopped process is not runnable, so schedstat does not show its lost time.
                lost_ms = [
                    max(self._waited_ms(member.pid), since_ms if _is_stopped(member) else 0.0)
                    for member in self._families.of(driver)
                ]
                self._lose(name, max(lost_ms, default=0.0))

    def _ask_redis(self) -> None:
        asked_s = time.monotonic()
        # An error does not count: scenarios stop Redis on purpose. Only the time matters here.
        with suppress(RedisError, RedisClusterException, OSError):
            self._ping()
        with self._looking:
            self._lose(REDIS, _noticed((time.monotonic() - asked_s) * 1000))

    def _waited_ms(self, pid: int) -> float:
        return self._run_queue.newly_waited_s(pid) * 1000

    def _note_cpu(self, now_s: float, processes: Mapping[str, int]) -> None:
        used_ms = {name: self._cpu.newly_used_ms(pid) for name, pid in processes.items()}
        # Not as a family: the drivers are children of the kit.
        before_s, self._kit_s = self._kit_s, time.process_time()
        client_ms = used_ms.pop(CLIENT, 0.0)
        self._used.append((now_s, client_ms, sum(used_ms.values()) + (self._kit_s - before_s) * 1000))
        while len(self._used) > 1 and self._used[1][0] < now_s - SECOND_MS / 1000:
            self._used.popleft()

    @property
    def _is_taken(self) -> bool:
        """Whether the client itself has taken the CPU time of about the last second."""
        since_s, period = self._used[0][0], list(self._used)[1:]
        client_ms, others_ms = sum(client for _, client, _ in period), sum(others for _, _, others in period)
        return client_ms > others_ms and client_ms >= TAKEN * (time.monotonic() - since_s) * 1000

    def _lose(self, party: str, lost_ms: float) -> None:
        if lost_ms > 0:
            loss = (time.monotonic(), lost_ms)
            self._losses.setdefault(party, []).append(loss)
            if party != CLOCK and self._used and self._is_taken:
                self._own.setdefault(party, []).append(loss)


def _clock_offset_s() -> float:
    """The wall clock less the monotonic one (s): constant unless the wall clock jumps."""
    return time.time() - time.monotonic()


def _noticed(late_ms: float) -> float:
    return late_ms if late_ms >= NOTICED_MS else 0.0
