"""Repetition of doubtful scenarios: one with an open question is repeated while no other runs.

Open is what starvation can have caused: a timed finding, if a party concerned was starved for long enough, and the end
of a scenario in which nothing was found. Certain findings count on any machine, and so do timed ones that the measured
starvation is too short to cause.

A client that loses an undisturbed connection is repeated as well, because a starved machine can cause that. If it
happens in every attempt without starvation, the client is at fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from conformance.environment.starvation import STARVED_MS, Starvation, StarvationRecord, StarvationWatch
from conformance.findings import Finding
from conformance.gate.flaky_failures import outcome_text
from conformance.gate.records import ScenarioRecord, Verdict
from conformance.gate.run_lock import RunLock

BROKEN_OFF: tuple[Verdict, ...] = ("error", "inconclusive", "changed")
"""Verdicts without findings that a late process can cause."""
UNDECIDED: tuple[Verdict, ...] = (*BROKEN_OFF, "fail", "warn", "unchecked")
"""Verdicts of requirements that do not count if every attempt starved."""
TOO_BUSY = "the machine was too busy to judge"
"""The start of the reason of a scenario that starvation has left open."""
# Each repetition stops all other scenarios, so their number is small.
MOST_REPEATS = 2
IN_VAIN = 3
"""After this many scenarios whose last repetition starved, nothing is repeated until an attempt does not starve.

After this many scenarios that confirmed a lost connection without starvation, the first attempt counts at once.
"""
PATIENT_MS = 2000.0
"""Starvation (ms) that matters on a frozen clock: only deadlines can be missed then, and the shortest is 5 s."""


@dataclass(frozen=True, kw_only=True)
class AttemptResult:
    """One attempt at a scenario. `frozen`: both clients ran on a frozen clock. `doubt`: see `TrialResult`."""

    record: ScenarioRecord
    frozen: bool = False
    doubt: str = ""


Attempt = Callable[[], AttemptResult]


def explains(starvation: Starvation, *, frozen: bool) -> bool:
    """Whether starvation alone can have broken off a scenario. `frozen`: the clock was frozen, except for deadlines."""
    # On a running clock one bad second is enough, because short locks and delays expire within it.
    return starvation.total_ms >= PATIENT_MS if frozen else starvation.worst_second_ms >= STARVED_MS


@dataclass(frozen=True)
class _Judged:
    """An attempt, and what the machine may have caused in it.

    `open_findings`: the findings that starvation explains. `starved`: the starvation that does, or that explains why
    the scenario was broken off.
    """

    attempt: AttemptResult
    open_findings: tuple[Finding, ...]
    starved: Starvation | None

    @staticmethod
    def of(attempt: AttemptResult, measured: StarvationRecord) -> _Judged:
        record = attempt.record
        # Those that count against nobody, such as known failures, need no second look.
        timed = [(finding, finding.timing) for finding in _counting(record) if finding.timing is not None]
        causes = [(finding, measured.explaining(timing)) for finding, timing in timed]
        open_findings = tuple(finding for finding, cause in causes if cause)
        starved = next((cause for _, cause in causes if cause), None)
        if record.verdict in BROKEN_OFF and explains(measured.worst, frozen=attempt.frozen):
            starved = measured.worst
        return _Judged(attempt, open_findings, starved)

    @property
    def record(self) -> ScenarioRecord:
        return self.attempt.record

    @property
    def certain(self) -> set[tuple[str, str, str]]:
        """Signs of the findings against the client that starvation does not explain."""
        # After a lost connection the state may be one that a call in progress left.
        decided = [] if self.attempt.doubt else _counting(self.record)
        return {_sign(finding) for finding in decided if finding not in self.open_findings}


class Repeater:
    """Runs the scenarios of one process, and repeats those that the machine may have made fail."""

    def __init__(self, watch: StarvationWatch, lock: RunLock) -> None:
        self._watch = watch
        self._lock = lock
        self._in_vain = 0
        self._confirmed = 0

    def run(self, attempt: Attempt, *, alone: bool = False) -> ScenarioRecord:
        """Return the record of the first attempt without an open question, or of the last one without its open part.

        An attempt that showed a certain finding is preferred to a later one that did not.

        `alone`: run even the first attempt while no other scenario runs.
        """
        # Repetitions below are exclusive, so that this run itself is no longer a cause of starvation.
        with self._lock.exclusive() if alone else self._lock.shared():
            done = self._watched(attempt)
        shown, repeated, outcomes = done, list[str](), list[str]()
        while done.starved or (done.attempt.doubt and done.record.verdict in UNDECIDED):
            # A lost connection without starvation counts once enough attempts confirm it; until then it is repeated.
            if done.starved is None and self._is_believed(len(repeated)):
                break
            outcomes.append(outcome_text(done.record, done.record.findings))
            repeated.append(f"{done.starved or 'no starvation'}: {outcomes[-1]}")
            # On a machine that never gets quiet, repeating each scenario would only make the run longer.
            if done.starved and (len(repeated) > MOST_REPEATS or self._in_vain >= IN_VAIN):
                self._in_vain += 1
                break
            with self._lock.exclusive():
                done = self._watched(attempt)
            shown = shown if shown.certain else done
        # One quiet attempt shows that repeating can help again.
        if not done.starved:
            self._in_vain = 0
        # A certain finding is true even if it did not appear again.
        final = done if shown.certain <= done.certain else shown
        record = msgspec.structs.replace(final.record, repeated=repeated)
        return record if final.starved is None else _without_open_part(record, final, outcomes)

    def _is_believed(self, repeats: int) -> bool:
        """Whether a lost connection counts against the client, without starvation and after this many repetitions."""
        # Counted only when a whole series of repetitions confirms it, so that one bad moment does not count.
        if repeats == MOST_REPEATS:
            self._confirmed += 1
        return repeats == MOST_REPEATS or self._confirmed >= IN_VAIN

    def _watched(self, attempt: Attempt) -> _Judged:
        """Make one attempt, and judge what its starvation explains."""
        # Started directly before the attempt: time spent waiting for the lock is not part of it.
        self._watch.start()
        done = attempt()
        return _Judged.of(done, self._watch.seen())


def _counting(record: ScenarioRecord) -> list[Finding]:
    """Return the findings that decide a requirement against the client."""
    return [
        finding
        for finding in record.findings
        if record.requirements.get(finding.requirement) in ("fail", "warn") and finding.requirement not in record.known
    ]


def _sign(finding: Finding) -> tuple[str, str, str]:
    return finding.requirement, finding.kind, finding.where


def _without_open_part(record: ScenarioRecord, judged: _Judged, outcomes: list[str]) -> ScenarioRecord:
    """Return the record without what the machine may have caused. `outcomes`: of all attempts, as text."""
    # Findings are dropped, because reports would show them as failures of the client.
    kept = [finding for finding in record.findings if finding not in judged.open_findings]
    record = msgspec.structs.replace(record, requirements=_left_open(record, kept), findings=kept)
    if any(record.requirements[finding.requirement] == "fail" for finding in _counting(record)):
        return msgspec.structs.replace(record, verdict="fail")
    return msgspec.structs.replace(
        record,
        verdict="inconclusive",
        steps=record.steps if kept else [],
        # What was seen every time is probably the client's, so the reason shows it.
        reason=f"{TOO_BUSY}: {judged.starved}; seen: {' | '.join(dict.fromkeys(outcomes))}",
    )


def _left_open(record: ScenarioRecord, kept: Iterable[Finding]) -> dict[str, Verdict]:
    shown = {finding.requirement for finding in kept}
    return {
        name: "inconclusive" if verdict in UNDECIDED and name not in shown | {*record.known} else verdict
        for name, verdict in record.requirements.items()
    }
