"""Stalled jobs: whether the lock can have expired, and whether a fault of its worker explains that it did.

A job stalls rightly only if its lock has expired by the clock of Redis. A worker lets a lock expire only if it never
got the job, is dead or frozen, cannot reach Redis, or does not get the CPU. A fault of another process excuses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.checkers.histories.evidence import HEARS_WITHIN_MS, LOCK, RENEWING, ROUNDING_MS, Evidence, JobHistory
from conformance.checkers.histories.history import RunStarted, ScriptLine, StreamEventLine

CLAIMING = frozenset({"moveToActive", "moveToFinished", "moveToDelayed", "retryJob"})
"""Scripts that may return a job. Newer versions of bullmq also fetch the next job when they delay one."""
OVERTAKING = 3
"""This many later jobs that a process has started show that it was let run."""
OF_PROCESSES = ("worker.", "clock.", "crash.kill")
"""Prefixes of the names of faults after which a process no longer has the jobs that it received: it is another process,
is frozen, or has closed its handles."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A stall of a job: its last claim and its recovery, as Redis reports them."""

    evidence: Evidence
    job: JobHistory
    claimed: StreamEventLine
    stalled: StreamEventLine

    @property
    def problem(self) -> str:
        """Why it must not have stalled; empty if it may have."""
        call = self._call()
        if call is None:
            return "" if self._is_excused_without_call() else "stalled, although no fault has touched its worker"
        last = max((call, *self._renewals(call)), key=_sent_ms)
        lives_ms, age_ms = self.evidence.bounds.lock_ms, self.stalled.at_ms - _sent_ms(last)
        # Redis set the lock after it was sent to, so that no delay of any process makes a lock look younger than it is.
        if age_ms < lives_ms - ROUNDING_MS:
            return "" if self._lock_was_deleted(last) else self._too_soon(last, age_ms)
        run = self._run_of(call)
        if run is None:
            return "" if self._may_not_have_received(call) else self._dropped(call)
        # A worker whose end of the job failed does not renew the lock any more.
        since_ms = _sent_ms(call) if self._end_failed(call) else _sent_ms(last)
        if self._is_excused(call.process, since_ms) or self.job.loses_renewal(run, self.stalled.at_ms):
            return ""
        return f"stalled, although no fault has touched its worker, {call.process}"

    def _call(self) -> ScriptLine | None:
        """The call that claimed the job, if its reply reached the worker; None if that is unknown."""
        return next((line for line in self._scripts() if line.claimed == self.job.id and self._covers(line)), None)

    def _scripts(self) -> Iterator[ScriptLine]:
        return (line for line in self.job.lines if isinstance(line, ScriptLine) and line.accepted)

    def _covers(self, line: ScriptLine) -> bool:
        """Whether Redis may have executed a call at the time of the claim."""
        return _sent_ms(line) - ROUNDING_MS <= self.claimed.at_ms <= line.at_ms + ROUNDING_MS

    def _renewals(self, call: ScriptLine) -> Iterator[ScriptLine]:
        """The confirmed renewals of the lock by the worker that claimed the job."""
        return (
            line
            for line in self._scripts()
            if line.script in RENEWING
            and line.process == call.process
            and self.job.id in line.jobs
            and call.at_ms <= line.at_ms <= self.stalled.at_ms
        )

    def _end_failed(self, call: ScriptLine) -> bool:
        """Whether Redis refused a call of the worker to end the job, or its reply was lost."""
        return any(
            isinstance(line, ScriptLine)
            and line.process == call.process
            and line.job == self.job.id
            and line.script not in RENEWING
            and not line.accepted
            and call.at_ms <= line.at_ms
            for line in self.job.lines
        )

    def _lock_was_deleted(self, last: ScriptLine) -> bool:
        return self.evidence.deleted(LOCK, _sent_ms(last), self.stalled.at_ms)

    def _too_soon(self, last: ScriptLine, age_ms: float) -> str:
        what = "renewed" if last.script in RENEWING else "claimed"
        lives_ms = self.evidence.bounds.lock_ms
        return f"stalled at most {age_ms:.0f} ms after {last.process} {what} it, and its lock lives for {lives_ms:g} ms"

    def _run_of(self, call: ScriptLine) -> RunStarted | None:
        return next(
            (
                start
                for start in self.job.starts
                if start.process == call.process and _sent_ms(call) <= start.at_ms <= self.stalled.at_ms
            ),
            None,
        )

    def _may_not_have_received(self, call: ScriptLine) -> bool:
        """Whether a fault came between the reply and the worker, or the worker was gone before it ran a job."""
        evidence, since_ms, hears_ms = self.evidence, _sent_ms(call), call.at_ms + HEARS_WITHIN_MS
        # A process starts its jobs in the order in which it gets them, however slowly it runs.
        is_overtaken = evidence.starts_of(call.process, call.queue, hears_ms, self.stalled.at_ms) >= OVERTAKING
        waited_ms = 0.0 if is_overtaken else evidence.waited_ms(call.process, since_ms, self.stalled.at_ms)
        return (
            evidence.excused(since_ms, hears_ms + waited_ms, process=call.process, margin_ms=ROUNDING_MS)
            or self._was_gone(call)
            or waited_ms >= evidence.bounds.lock_ms / 4
        )

    def _was_gone(self, call: ScriptLine) -> bool:
        return any(
            window.fault.startswith(OF_PROCESSES)
            and window.hurts(call.process)
            and window.touches(_sent_ms(call), self.stalled.at_ms, margin_ms=ROUNDING_MS)
            for window in self.evidence.windows
        )

    def _dropped(self, call: ScriptLine) -> str:
        return (
            f"{call.process} received it by {call.script} and never ran it, so that it stalled; "
            "no fault came between, and the process was alive"
        )

    def _is_excused_without_call(self) -> bool:
        """A claim whose reply was lost, or that the tap has not seen: its worker is unknown, unless a run shows it."""
        process = self._worker()
        return self._is_excused(process, self.claimed.at_ms) or self._older_run_ended()

    def _worker(self) -> str:
        """The process that ran the job between claim and stall; empty if none did."""
        runs = (start for start in self.job.starts if self.claimed.at_ms - 1 <= start.at_ms <= self.stalled.at_ms)
        return next((start.process for start in runs), "")

    def _older_run_ended(self) -> bool:
        run = next((start for start in reversed(self.job.starts) if start.at_ms <= self.stalled.at_ms), None)
        return run is not None and self.job.loses_renewal(run, self.stalled.at_ms)

    def _is_excused(self, process: str, since_ms: float) -> bool:
        """Whether a fault touched the worker since its last renewal, or the worker was starved of CPU."""
        evidence, until_ms = self.evidence, self.stalled.at_ms
        lock_ms = evidence.bounds.lock_ms
        if evidence.excused(since_ms, until_ms, process=process, margin_ms=ROUNDING_MS):
            return True
        if evidence.deleted(LOCK, since_ms, until_ms):
            return True
        # A stall takes a whole life without renewal; two lives also cover the renewal before it. A quarter is BullMQ's
        # time between two checks.
        return evidence.waited_ms(process, until_ms - 2 * lock_ms, until_ms) >= lock_ms / 4


def worker_of_claim(job: JobHistory, claimed: StreamEventLine) -> str:
    """The process that claimed a job; empty if the reply was lost, or if the tap has not seen the call."""
    return next(
        (
            line.process
            for line in job.lines
            if isinstance(line, ScriptLine)
            and line.accepted
            and line.claimed == job.id
            and _sent_ms(line) - ROUNDING_MS <= claimed.at_ms <= line.at_ms + ROUNDING_MS
        ),
        "",
    )


def _sent_ms(line: ScriptLine) -> float:
    return line.sent_ms if line.sent_ms is not None else -math.inf
