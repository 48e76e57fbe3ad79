"""Each worker by itself after a fault: it asks Redis for jobs again within the bound, although others do the work."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from conformance.checkers.histories.base import CheckStatistics, HistoryFinding
from conformance.checkers.histories.evidence import Evidence, FaultWindow
from conformance.checkers.histories.history import HandleChanged, ScriptLine
from conformance.checkers.histories.stalls import CLAIMING

STARTS_ELSEWHERE = 20
"""This many jobs of the queue must have started in other processes: there was work, and Redis wakes workers in turn."""


MOVING = ("replica.", "sentinel.", "cluster.")
"""Prefixes of the names of faults after which clients first have to find the data again."""
ENDS_WITHIN_MS = 1000
"""How long after the end of a processor its worker may take to send the result."""


class WorkerResumption:
    """When each worker asked for jobs, as the tap saw it, and when it ran some."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._asked: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._starts: defaultdict[str, list[float]] = defaultdict(list)
        self._runs: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self._handles: defaultdict[tuple[str, str], list[HandleChanged]] = defaultdict(list)
        self._results: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self._last_ms = 0.0
        sent: dict[tuple[str, str, str], float] = {}
        for line in evidence.history.lines:
            if isinstance(line, ScriptLine):
                self._last_ms = max(self._last_ms, line.at_ms)
                if line.script in CLAIMING and line.sent_ms is not None:
                    self._asked[line.process, line.queue].append(line.sent_ms)
                    sent[line.process, line.job, line.token] = line.sent_ms
        for times in self._asked.values():
            times.sort()
        for run in evidence.runs:
            started = run.started
            if (sent_ms := sent.get((started.process, started.job, started.token))) is not None:
                self._results[started.process, started.queue].append((started.at_ms, sent_ms))
            self._starts[started.queue].append(started.at_ms)
            self._runs[started.process, started.queue].append((started.at_ms, run.ended_ms))
        for handle in evidence.handles:
            if handle.role == "worker":
                self._handles[handle.process, handle.queue].append(handle)

    def late(self, window: FaultWindow, statistics: CheckStatistics) -> Iterator[HistoryFinding]:
        """Findings about workers that a fault touched, and that did not ask for jobs within its bound."""
        evidence = self._evidence
        patience_ms = self._bound_ms(window)
        for process, queue in self._handles if patience_ms else ():
            place = (process, queue)
            healed_ms = self._free_ms(place, window.ended_ms)
            # CPU time that it had to wait for is added to the bound.
            waited_ms = evidence.waited_ms(process, healed_ms, healed_ms + patience_ms)
            until_ms = healed_ms + patience_ms + waited_ms
            if not window.hurts(process) or not self._is_expected(window, place, until_ms):
                continue
            statistics.seen["workers judged alone"] += 1
            if self._is_active(place, healed_ms, until_ms):
                continue
            others = self._starts_in(self._starts[queue], healed_ms, until_ms)
            if others >= STARTS_ELSEWHERE:
                yield HistoryFinding(
                    message=f"{process} did not ask for a job of {queue} within {until_ms - healed_ms:.0f} ms after "
                    f"{window.fault} was healed; other processes started {others} meanwhile"
                )

    def _bound_ms(self, window: FaultWindow) -> float:
        """How long a worker may take: the bound of most faults includes the recovery of stalled jobs, this one not."""
        patience_ms = self._evidence.patience_ms(window)
        if window.fault.startswith(MOVING):
            return patience_ms
        return min(patience_ms, self._evidence.bounds.resume_ms)

    def _free_ms(self, place: tuple[str, str], healed_ms: float) -> float:
        """When the worker has also sent the results of the jobs that it had started before the fault was healed.

        These calls ask for the next job as well, but show nothing about the wait of an idle worker.
        """
        sent = (sent_ms for start_ms, sent_ms in self._results[place] if start_ms <= healed_ms < sent_ms)
        return max(sent, default=healed_ms)

    def _is_expected(self, window: FaultWindow, place: tuple[str, str], until_ms: float) -> bool:
        """Whether the worker was open all the time, no other fault touched it, and the tap recorded the whole time."""
        healed_ms = window.ended_ms
        if not until_ms < self._last_ms:
            return False
        before = [line for line in self._handles[place] if line.at_ms <= healed_ms]
        changed = any(healed_ms < line.at_ms <= until_ms for line in self._handles[place])
        if changed or not before or before[-1].change != "opened":
            return False
        return not any(
            other is not window and other.hurts(place[0]) and other.touches(healed_ms, until_ms)
            for other in self._evidence.windows
        )

    def _is_active(self, place: tuple[str, str], since_ms: float, until_ms: float) -> bool:
        """Whether it asked for a job, or has one in hand up to the end: a worker whose places are taken asks for none.

        The end of a job asks for the next one.
        """
        if self._starts_in(self._asked[place], since_ms, until_ms):
            return True
        opened_ms = max(line.at_ms for line in self._handles[place] if line.at_ms <= since_ms)
        # Runs of a process that was killed never end.
        return any(opened_ms <= start < until_ms < end + ENDS_WITHIN_MS for start, end in self._runs[place])

    @staticmethod
    def _starts_in(times: list[float], since_ms: float, until_ms: float) -> int:
        return bisect_right(times, until_ms) - bisect_right(times, since_ms)
