"""Timing of jobs: their order, due times, progress after every fault, rate limits and concurrency."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from conformance.checkers.histories.base import CheckStatistics, HistoryCheck, HistoryFinding, Undecided
from conformance.checkers.histories.evidence import REDIS, ROUNDING_MS, Evidence, FaultWindow, JobHistory, server_ms
from conformance.checkers.histories.history import RunEnded, RunStarted, StartLimit, StreamEventLine
from conformance.checkers.histories.resumption import WorkerResumption
from conformance.observe.tables import as_number

ELSEWHERE = frozenset({"waits", "delays", "moved"})
"""Kinds of job whose moves do not show in events."""
LEAVING = frozenset({"completed", "failed", "removed", "delayed", "waiting", "waiting-children"})
"""Events after which a job is not active."""
FAULTS_OF_REDIS = ("redis.", "evict.")
"""Prefixes of the names of faults that may delete the key of a limiter."""


class _WaitingJobs:
    """The waiting jobs of one queue, as far as its events show. Each step costs O(log n)."""

    def __init__(self) -> None:
        self.wait: OrderedDict[str, bool] = OrderedDict()
        """From the next job to the last; False: the place is unknown."""
        self._classes: list[tuple[int, int, str]] = []
        self._prioritized: dict[str, tuple[int, int, str]] = {}
        self._inserted = 0

    def to_end(self, job: str, *, certain: bool = True) -> None:
        """Put a job behind all waiting jobs."""
        self.wait[job] = certain
        self.wait.move_to_end(job)

    def to_front(self, job: str) -> None:
        """Put a job first."""
        self.wait[job] = True
        self.wait.move_to_end(job, last=False)

    def to_class(self, job: str, priority: int) -> None:
        """Put a job behind the others of this priority."""
        self._inserted += 1
        entry = (priority, self._inserted, job)
        heapq.heappush(self._classes, entry)
        self._prioritized[job] = entry

    def take(self, job: str) -> bool | None:
        """Take a job out; returns whether it was its turn, None if that is unknown."""
        if job in self.wait:
            return self._take_waiting(job)
        entry = self._prioritized.get(job)
        if entry is None:
            return None
        # A job that left by another way is still in the heap; removing it there would cost O(n).
        while self._prioritized.get(self._classes[0][2]) != self._classes[0]:
            heapq.heappop(self._classes)  # already taken out
        first = self._classes[0] == entry
        del self._prioritized[job]
        # `wait` is served before priorities, so a prioritized job is first only if no known job waits.
        return first and not any(self.wait.values())

    def _take_waiting(self, job: str) -> bool | None:
        # Jobs with an unknown place are skipped: they may be anywhere.
        ahead = next((other for other, certain in self.wait.items() if certain or other == job), job)
        return (ahead == job) if self.wait.pop(job) else None

    def forget(self) -> None:
        """Forget everything: the order is unknown from now on."""
        self.wait.clear()
        self._classes.clear()
        self._prioritized.clear()


def _order(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """The next job is the oldest in `wait` (newest of those put in front), and if none waits the first prioritized one.

    Put in front are LIFO jobs, recovered jobs and released parents; promoted and retried ones go to the end.
    """
    for queue, rows in evidence.events_by_queue.items():
        waiting = _WaitingJobs()
        forget_at = sorted(until for _, until in evidence.rollbacks)
        for index, (event, job) in enumerate(rows):
            if forget_at and event.at_ms >= forget_at[0]:
                # A rollback restores an older order, which the events do not show.
                forget_at.pop(0)
                waiting.forget()
            if event.name == "waiting":
                following = rows[index + 1][0] if index + 1 < len(rows) else None
                _place(waiting, event, job, following)
            elif event.name == "active":
                turn = waiting.take(event.job)
                # A place that is unknown, or that a loss may have changed, decides nothing.
                if turn is None or (job is not None and evidence.may_be_lost(job)):
                    continue
                statistics.count()
                if not turn:
                    message = f"claimed before its turn; before it came {_heads(waiting)}"
                    yield HistoryFinding(
                        message=message, job=job.label if job else f"{queue}:{event.job}", lines=(event,)
                    )
            elif event.name == "removed":
                waiting.take(event.job)


def _place(
    waiting: _WaitingJobs, event: StreamEventLine, job: JobHistory | None, following: StreamEventLine | None
) -> None:
    """Put a job at the place that its event implies."""
    planned = job.planned if job is not None else None
    prev = event.fields.get("prev")
    # The script writes `waiting` and then `stalled`, and puts a recovered job in front.
    stalled = following is not None and following.name == "stalled" and following.job == event.job
    if stalled:
        waiting.to_front(event.job)
    elif planned is None or planned.kind in ELSEWHERE:
        waiting.to_end(event.job, certain=False)
    # A finished job that is retried goes to `wait` even if it has a priority (`reprocessJob`).
    elif planned.priority and prev not in {"completed", "failed"}:
        waiting.to_class(event.job, planned.priority)
    elif prev == "waiting-children" or (planned.lifo and prev in {None, "active", "failed"}):
        waiting.to_front(event.job)
    else:
        waiting.to_end(event.job)


def _heads(waiting: _WaitingJobs) -> str:
    return ", ".join(list(waiting.wait)[:3]) or "another priority"


ORDER_CHECKS = (HistoryCheck(name="order", predicate=_order, least=20),)


def _timing(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """A delayed job is not promoted before it is due, and not much later; it is not due before its delay has passed.

    The next attempt does not start before the back-off of the failed one has passed. Errors of clocks are allowed for.
    While a fault is on, and until work goes on after it, jobs may be late.
    """
    for job in evidence.certain():
        yield from _due_time(evidence, job)
        yield from _back_offs(evidence, job, statistics)
        delayed: StreamEventLine | None = None
        for event in job.events:
            if event.name == "delayed":
                delayed = event
            elif event.name == "waiting" and event.fields.get("prev") == "delayed" and delayed is not None:
                statistics.count()
                yield from _promotion(evidence, job, delayed, event, statistics)
                delayed = None


def _due_time(evidence: Evidence, job: JobHistory) -> Iterator[HistoryFinding]:
    first = next((event for event in job.events if event.name == "delayed"), None)
    invoked = evidence.invoked_ms.get(job.name)
    if first is None or invoked is None or job.planned is None or not job.planned.delay_ms:
        return
    due = as_number(first.fields.get("delay"))
    earliest = evidence.unix_ms(invoked) + job.planned.delay_ms
    # The due time is computed on the client's clock, so its error counts.
    skew = evidence.skew_ms(invoked, first.at_ms)
    if due is not None and due < earliest - skew - ROUNDING_MS:
        message = f"due {earliest - due:.0f} ms before its delay of {job.planned.delay_ms:g} ms has passed"
        yield HistoryFinding(message=message, job=job.label, lines=(first,))


def _back_offs(evidence: Evidence, job: JobHistory, statistics: CheckStatistics) -> Iterator[HistoryFinding]:
    """Attempts that came too early after the failed one. A stalled job is recovered at once."""
    planned = job.planned
    # A stalled job is recovered without any back-off, so its starts do not belong to a failure.
    if planned is None or not planned.backoff_ms or any(event.name == "stalled" for event in job.events):
        return
    failed: RunEnded | None = None
    for line in job.lines:
        if isinstance(line, RunEnded) and line.outcome == "fail":
            failed = line
        elif isinstance(line, RunStarted) and failed is not None:
            statistics.seen["back-offs"] += 1
            early = failed.at_ms + planned.backoff_ms - line.at_ms
            if early > evidence.skew_ms(failed.at_ms, line.at_ms) + ROUNDING_MS:
                message = f"tried again {early:.0f} ms before its back-off of {planned.backoff_ms:g} ms had passed"
                yield HistoryFinding(message=message, job=job.label, lines=(failed, line))
            failed = None


def _promotion(
    evidence: Evidence,
    job: JobHistory,
    delayed: StreamEventLine,
    promoted: StreamEventLine,
    statistics: CheckStatistics,
) -> Iterator[HistoryFinding]:
    due = as_number(delayed.fields.get("delay"))
    if due is None or (job.planned is not None and job.planned.kind == "moved"):
        return
    # The entry's id has Redis's own time, so a late reader of the stream does not count as a late promotion.
    late = server_ms(promoted) - due
    # The due time comes from a client's clock, and the promotion from the worker's: both may be off.
    skew = evidence.skew_ms(delayed.at_ms, promoted.at_ms)
    if late < -skew - ROUNDING_MS:
        message = f"promoted {-late:.0f} ms before it was due"
        yield HistoryFinding(message=message, job=job.label, lines=(delayed, promoted))
    due_ms = due - evidence.history.header.unix_offset_ms
    # Held-up time is added to the bound, so that a short fault does not excuse a very late promotion.
    allowed = evidence.bounds.late_ms + skew + _held_up_ms(evidence, due_ms, promoted.at_ms)
    statistics.keep_maximum("latest promotion (ms)", late)
    if late > allowed:
        message = f"promoted {late:.0f} ms after it was due, which is more than {allowed:.0f} ms"
        yield HistoryFinding(message=message, job=job.label, lines=(delayed, promoted))


def _held_up_ms(evidence: Evidence, since_ms: float, until_ms: float) -> float:
    """For how long faults, and the recovery from them, may have delayed a job (ms)."""
    return sum(
        # Only the overlap of the fault and its recovery with the delay counts.
        min(window.ended_ms + _resume_ms(evidence, window), until_ms) - max(window.began_ms, since_ms)
        for window in evidence.windows
        if window.touches(since_ms, until_ms, margin_ms=_resume_ms(evidence, window))
    )


def _resume_ms(evidence: Evidence, window: FaultWindow) -> float:
    return evidence.patience_ms(window)


def _progress(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """After the healing of each fault work goes on within its bound, and at the end all work is done.

    Each worker that the fault touched asks for jobs again within the bound, however much the others do. Only judged if
    jobs were ready to run, and no other fault was on in the meantime.
    """
    yield from _work_left_undone(evidence, statistics)
    work = _WorkTimes(evidence)
    statistics.seen["jobs done"] = work.done
    for window in evidence.windows:
        # Without a ready job, silence after a fault is right.
        if _is_judged(evidence, window) and work.waiting_at(window.ended_ms) > 0:
            statistics.count()
            yield from _resumption(evidence, window, work, statistics)
    workers = WorkerResumption(evidence)
    for window in evidence.faults:
        if math.isfinite(window.ended_ms):
            yield from workers.late(window, statistics)


def _work_left_undone(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """Whether the run came to rest with all work done."""
    ends = [phase for phase in evidence.phases if phase.name in {"quiescent", "stuck"}]
    if not ends:
        yield Undecided("the run broke off before its end")
    for phase in ends:
        statistics.count()
        # Evicted keys may have been the only place where a job was known.
        if phase.name == "stuck" and evidence.is_torn:
            yield Undecided("keys were evicted, and work that needed them was left undone")
        elif phase.name == "stuck":
            yield HistoryFinding(message=f"work was left undone: {phase.seen}", lines=(phase,))


class _WorkTimes:
    """Sorted times at which jobs became ready to be claimed, were done, and at which any job was claimed or ended."""

    def __init__(self, evidence: Evidence) -> None:
        # A drain removes jobs without an event, so they would count as waiting forever.
        jobs = [job for job in evidence.jobs if not evidence.may_be_removed(job)]
        self._ready = sorted(ready for job in jobs if (ready := _ready_ms(job)) is not None)
        self._done = sorted(_done_ms(job) for job in jobs if _ready_ms(job) is not None)
        self._signs = sorted(
            event.at_ms
            for job in evidence.jobs
            for event in job.events
            if event.name in {"active", "completed", "failed"}
        )

    @property
    def done(self) -> int:
        """How many jobs were done at the end."""
        return bisect_left(self._done, math.inf)

    def waiting_at(self, at_ms: float) -> int:
        """How many jobs were ready then, and not done yet."""
        return bisect_right(self._ready, at_ms) - bisect_right(self._done, at_ms)

    def resumed_after_ms(self, healed_ms: float) -> float:
        """How long after that the next job was claimed or ended; infinite if none was."""
        # Times of events are truncated to whole ms.
        position = bisect_left(self._signs, healed_ms - 1)
        return self._signs[position] - healed_ms if position < len(self._signs) else math.inf


def _is_judged(evidence: Evidence, window: FaultWindow) -> bool:
    """Whether a fault was healed, work is expected after it, and no other fault was on until then."""
    healed, patience = window.ended_ms, _resume_ms(evidence, window)
    # A fault without a time for recovery declares that it does not interrupt work.
    if not patience or math.isinf(healed):
        return False
    others = [other for other in evidence.windows if other is not window]
    # A second fault explains why work does not go on after the first.
    return not any(other.touches(healed, healed + patience) for other in others)


def _resumption(
    evidence: Evidence, window: FaultWindow, work: _WorkTimes, statistics: CheckStatistics
) -> Iterator[HistoryFinding]:
    """Whether work went on soon enough after a fault was healed."""
    resumed = work.resumed_after_ms(window.ended_ms)
    if math.isfinite(resumed):
        statistics.keep_maximum("resumed after (ms)", resumed)
    if resumed > _resume_ms(evidence, window):
        waiting = work.waiting_at(window.ended_ms)
        after = f"{resumed:.0f} ms" if math.isfinite(resumed) else "never"
        message = f"{waiting} jobs were ready when {window.fault} was healed; work went on after: {after}"
        yield HistoryFinding(message=message, lines=tuple(_around(evidence, window)))


def _ready_ms(job: JobHistory) -> float | None:
    """When it could first be claimed."""
    return next((event.at_ms for event in job.events if event.name == "waiting"), None)


def _done_ms(job: JobHistory) -> float:
    finals = [event.at_ms for event in job.events if event.name in {"completed", "failed", "removed"}]
    # The last one: a finished job may have been retried and finished again.
    return finals[-1] if finals else math.inf


def _around(evidence: Evidence, window: FaultWindow) -> Iterator[StreamEventLine]:
    """The first events after a window."""
    later = (
        line for line in evidence.history.lines if isinstance(line, StreamEventLine) and line.at_ms >= window.ended_ms
    )
    for _, event in zip(range(5), later, strict=False):
        yield event


TIMING_CHECKS = (
    HistoryCheck(name="timing", predicate=_timing, least=3, least_seen={"back-offs": 1}),
    HistoryCheck(name="progress", predicate=_progress, even_torn=True, least_seen={"jobs done": 20}),
)


TOLD_LATE_MS = 20
"""By how much the event of a start may be later than its count, on a machine that does not count as starved (ms)."""


def _rate(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding]:
    """After the first start of a window, at most `most` jobs start before the window's duration is over.

    That is BullMQ's rule: a window opens with a start, not with the clock. A fault of Redis itself may lose the
    counter, which opens a new window.
    """
    for queue, limit in evidence.bounds.limits.items():
        windows: list[tuple[StreamEventLine, ...]] = []
        for event, _ in evidence.events_by_queue.get(queue, []):
            if event.name != "active":
                continue
            statistics.count()
            following = list(_windows_with(evidence, windows, event, limit))
            # All possible windows are kept, because near the end of one it is unknown in which one a start is counted.
            allowed = [starts for starts in following if len(starts) <= limit.most]
            statistics.seen["windows at the limit"] += any(len(starts) == limit.most for starts in allowed)
            if following and not allowed:
                # The smallest of them, because it is the least that must have happened.
                crowded = min(following, key=len)
                within = event.at_ms - crowded[0].at_ms
                message = f"{len(crowded)} starts within {within:.0f} ms, allowed are {limit.most}"
                # Then the event may be later than the start by as long as Redis was frozen inside of the script.
                if not evidence.starved(crowded[0].at_ms - limit.duration_ms, event.at_ms, process=REDIS):
                    yield HistoryFinding(message=message, job=f"{queue}:{event.job}", lines=crowded)
            # If no window is possible, the crowded ones go on, so that one violation is not reported for each later
            # start.
            windows = allowed or following


def _windows_with(
    evidence: Evidence, windows: list[tuple[StreamEventLine, ...]], event: StreamEventLine, limit: StartLimit
) -> Iterator[tuple[StreamEventLine, ...]]:
    """The starts of the windows that a start may belong to: near the end of one, it may be the first of the next.

    The same applies if Redis may have lost the counter. A script opens a window with its PEXPIRE and emits the start
    with its XADD. In Redis 7.0 each has its own time, and the machine may run another process in between.
    """
    ages = [event.at_ms - starts[0].at_ms for starts in windows]
    for starts, age in zip(windows, ages, strict=True):
        # The event may be written later than the counter: this much on a machine that is not starved.
        if age <= limit.duration_ms + TOLD_LATE_MS:
            yield (*starts, event)
    # Likewise earlier, so the start may already belong to the next window.
    ended = any(age >= limit.duration_ms - TOLD_LATE_MS for age in ages)
    if ended or not windows or any(_counter_lost(evidence, starts, event) for starts in windows):
        yield (event,)


def _counter_lost(evidence: Evidence, started: Sequence[StreamEventLine], event: StreamEventLine) -> bool:
    return any(
        window.fault.startswith(FAULTS_OF_REDIS) and window.touches(started[0].at_ms, event.at_ms)
        for window in evidence.windows
    )


def _concurrency(evidence: Evidence, statistics: CheckStatistics) -> Iterator[HistoryFinding | Undecided]:
    """A queue never has more active jobs than its global concurrency."""
    for queue, most in evidence.bounds.concurrency.items():
        active: dict[str, StreamEventLine] = {}
        losses = [window.began_ms for window in evidence.windows if window.lost_since_ms is not None]
        lost_ms = min(losses, default=math.inf)
        for event, _ in evidence.events_by_queue.get(queue, []):
            # The setting is one field of `meta`; after a loss the queue may have no limit at all.
            if event.at_ms >= lost_ms:
                yield Undecided("a loss may have taken the setting of the global concurrency")
                break
            if event.name == "active":
                statistics.count()
                active[event.job] = event
            elif event.name in LEAVING:
                active.pop(event.job, None)
            statistics.keep_maximum("most at a time", len(active))
            statistics.seen["moments at the limit"] += event.name == "active" and len(active) == most
            if event.name == "active" and len(active) > most:
                message = f"{len(active)} jobs are active, allowed are {most}"
                yield HistoryFinding(message=message, job=f"{queue}:{event.job}", lines=tuple(active.values()))


LIMIT_CHECKS = (
    HistoryCheck(name="rate", predicate=_rate, least=10, least_seen={"windows at the limit": 2}),
    HistoryCheck(name="concurrency", predicate=_concurrency, least=4, least_seen={"moments at the limit": 1}),
)
