"""The phase after the last fault: workers and producers leave and join, and work goes on until enough was observed.

A run that ends as soon as its fault is healed cannot show lasting damage. The invariants define how much is enough
(`conformance.checkers.histories`); the run only waits for it, for a bounded time.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator

from chaos.clients import ChaosWorker
from chaos.faults.base import ChaosSystem
from chaos.workload import LIMITED, LONG, LONG_MS, MAIN, RATE
from conformance.checkers.histories.evidence import (
    CALLS_AFTER_HEALING,
    ENTRIES_AFTER_HEALING,
    RENEWING,
    entry_number,
)
from conformance.checkers.histories.history import (
    EventReported,
    HandleChanged,
    HistoryLine,
    Ok,
    RunEnded,
    RunPhase,
    RunStarted,
    ScriptLine,
)
from conformance.checkers.histories.renewals import OFTEN
from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.servers.connection import wait_until

BUSY_S = 12.0
"""How long to wait until a worker has a job in hand, before it leaves."""
IN_HAND_MS = 100
"""Work (ms) that a job in hand must still have: else it may end before the worker receives the call to close."""
AWAY_S = 2.0
AWAY_RUNS = 8
"""How many jobs must start in other processes while a worker is away: enough that it could have taken some."""
# Several times as long as the slowest observation, a long job of 4.3 s.
ENOUGH_S = 20.0
# Twice the pause of BullMQ's reader after an error.
READERS_S = 10.0
"""BullMQ's reader pauses for 5 s after an error (upstream `classes/queue-events.ts`)."""


class RecoveryProgress:
    """Counts the recorded lines of this phase. A listener of the recorder; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_calm = False
        self.calls: Counter[str] = Counter()
        """Calls that succeeded, by producer."""
        self.runs: Counter[tuple[str, str]] = Counter()
        """Started runs, by process and queue."""
        self.reports: Counter[str] = Counter()
        """Entries reported by readers, by process."""
        self._readers: set[str] = set()
        self._last_reported: dict[str, tuple[int, int]] = {}
        self._long: dict[str, RunStarted] = {}
        self._starts: Counter[str] = Counter()
        self._renewals: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._sees_renewals = False
        self._long_ended: list[tuple[RunStarted, float]] = []

    def __call__(self, line: HistoryLine) -> None:
        """Count a line."""
        with self._lock:
            self._notice_in_any_phase(line)
            if self._is_calm:
                self._notice_calm(line)

    def _notice_in_any_phase(self, line: HistoryLine) -> None:
        # Counting starts here: work during the faults does not show that clients recover.
        if isinstance(line, RunPhase) and line.name == "calm":
            self._is_calm = True
        elif isinstance(line, HandleChanged) and line.role == "events":
            (self._readers.add if line.change == "opened" else self._readers.discard)(line.process)
        elif isinstance(line, EventReported):
            # The highest entry, because a reader may report an old entry again after a reconnection.
            self._last_reported[line.process] = max(
                self._last_reported.get(line.process, (0, 0)), entry_number(line.entry)
            )
        elif isinstance(line, RunStarted) and line.queue == LONG:
            self._long[line.token] = line
            self._starts[line.name] += 1
        elif isinstance(line, ScriptLine) and line.queue == LONG and line.script in RENEWING:
            self._sees_renewals = True
            for job in line.jobs or [line.job]:
                self._renewals[line.process, job].append(line.at_ms)
        elif isinstance(line, RunEnded) and line.queue == LONG and line.token in self._long:
            self._long_ended.append((self._long.pop(line.token), line.at_ms))

    @property
    def long_runs(self) -> int:
        """Ended runs of long jobs that held their lock, in this phase or before it."""
        # Computed on demand, because the tap reports a renewal later than the worker reports the end of its run.
        return sum(self._held_its_lock(run, ended_ms) for run, ended_ms in self._long_ended)

    def _held_its_lock(self, run: RunStarted, ended_ms: float) -> bool:
        """Whether the run shows how a lock is renewed: a fault may have taken its job away."""
        # Only runs that lasted as long as a long job count: after a loss, short jobs may have the same ids.
        if ended_ms - run.at_ms < LONG_MS or self._starts[run.name] > 1:
            return False
        renewed = [at_ms for at_ms in self._renewals[run.process, run.job] if run.at_ms <= at_ms <= ended_ms]
        return len(renewed) >= OFTEN or not self._sees_renewals

    def _notice_calm(self, line: HistoryLine) -> None:
        if isinstance(line, Ok):
            self.calls[line.process] += 1
        elif isinstance(line, RunStarted):
            self.runs[line.process, line.queue] += 1
        elif isinstance(line, EventReported):
            self.reports[line.process] += 1

    def missing(self, system: ChaosSystem, tested: frozenset[str]) -> list[str]:
        """The observations that are still missing, in words; empty if there are enough."""
        with self._lock:
            return list(self._missing(system, tested))

    def _missing(self, system: ChaosSystem, tested: frozenset[str]) -> Iterator[str]:
        for producer in system.producers:
            if self.calls[producer.process.name] < CALLS_AFTER_HEALING:
                yield f"calls of {producer.process.name}"
        for worker in system.workers:
            if not self.runs[worker.process.name, MAIN]:
                yield f"jobs of {worker.process.name}"
        if "event-readers" in tested:
            yield from (f"entries of {name}" for name in self._readers if self.reports[name] < ENTRIES_AFTER_HEALING)
        if "rate" in tested and sum(runs for (_, queue), runs in self.runs.items() if queue == LIMITED) < 2 * RATE.most:
            # Two windows of the rate limit, because the invariant needs two of them at the limit.
            yield "limited jobs"
        if "renewals" in tested and not self.long_runs:
            yield "a long job"

    def wait_for_readers(self, entry: str) -> bool:
        """Wait until every reader has reported an entry or a later one; returns whether that came in time."""

        def have_reported() -> bool:
            with self._lock:
                return all(self._last_reported.get(who, (0, 0)) >= entry_number(entry) for who in self._readers)

        return wait_until(have_reported, deadline_s=READERS_S)

    def runs_elsewhere(self, process: str) -> int:
        """How many runs on the main queue started in other processes."""
        with self._lock:
            return sum(count for (who, queue), count in self.runs.items() if who != process and queue == MAIN)


def run_recovery_phase(system: ChaosSystem, watch: RecoveryProgress, tested: frozenset[str]) -> None:
    """Let one worker and all producers leave and join, and wait until enough was observed (for a bounded time)."""
    system.recorder.put(RunPhase(at_ms=system.recorder.now_ms(), name="calm"))
    # Producers turn over first, so that there is work when the worker leaves.
    for producer in system.producers:
        producer.calm()
    _leave_and_join(system.workers[0], watch)
    wait_until(lambda: system.aborted.is_set() or not watch.missing(system, tested), deadline_s=ENOUGH_S)


def _leave_and_join(worker: ChaosWorker, watch: RecoveryProgress) -> None:
    """Close its worker of the main queue in the middle of jobs, let the others work, and open it again."""
    process = worker.process
    # Without a job in hand, the close would not show that a worker finishes its jobs first.
    wait_until(lambda: worker.is_at_work(MAIN, for_ms=IN_HAND_MS), deadline_s=BUSY_S)
    worker.leave(MAIN)
    before = watch.runs_elsewhere(process.name)
    # Others must work meanwhile, or it would prove nothing that the closed worker gets no job.
    wait_until(lambda: watch.runs_elsewhere(process.name) >= before + AWAY_RUNS, deadline_s=AWAY_S)
    try:
        if process.alive:
            worker.join(MAIN)
        else:
            process.restart_if_dead()
    except (DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported):
        process.kill()  # the state of its handles is unknown: start again as after a crash
        process.restart_if_dead()
