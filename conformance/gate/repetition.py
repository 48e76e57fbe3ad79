"""Repetition: a scenario that the machine may have made fail is repeated after all others, and one by one.

Nothing in a run waits for it: the first attempt goes on a list (`plugin.ScenarioRunner`), which is worked off within a
budget when no other scenario runs any more. Open questions are then inconclusive, with what each attempt showed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from conformance.environment.starvation import STARVED_MS, Starvation, StarvationRecord, StarvationWatch
from conformance.findings import Finding
from conformance.gate.flaky_failures import outcome_text
from conformance.gate.records import ScenarioRecord, Verdict

BROKEN_OFF: tuple[Verdict, ...] = ("error", "inconclusive", "changed")
"""Verdicts without findings that a late process can cause."""
UNDECIDED: tuple[Verdict, ...] = (*BROKEN_OFF, "fail", "warn", "unchecked")
"""Verdicts of requirements that do not count if every attempt starved."""
TOO_BUSY = "the machine was too busy to judge"
"""The start of the reason of a scenario that starvation has left open."""
NOT_CONFIRMED = "could not be confirmed by a repetition, because the time for repetitions was used up"
MOST_REPEATS = 2
CONFIRMED_ENOUGH = 3
"""After this many scenarios that confirmed a lost connection without starvation, the first attempt counts at once."""
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

    `open_findings`: the findings that starvation explains. `starved`: the starvation that explains a failure, or why
    the scenario was broken off. Warnings alone are not worth a repetition.
    """

    attempt: AttemptResult
    open_findings: tuple[Finding, ...]
    starved: Starvation | None

    @staticmethod
    def of(attempt: AttemptResult, measured: StarvationRecord) -> _Judged:
        record = attempt.record
        # Findings that do not count against the client, such as known failures, need no repetition.
        timed = [(finding, finding.timing) for finding in _counting(record) if finding.timing is not None]
        causes = [(finding, measured.explaining(timing)) for finding, timing in timed]
        open_findings = tuple(finding for finding, cause in causes if cause)
        failing = (cause for finding, cause in causes if record.requirements[finding.requirement] == "fail")
        starved = next((cause for cause in failing if cause), None)
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

    @property
    def is_open(self) -> bool:
        """Whether another attempt may show something else."""
        lost = self.attempt.doubt and self.record.verdict in UNDECIDED and self.record.verdict != "warn"
        return self.starved is not None or bool(lost)


@dataclass
class Series:
    """The attempts at one scenario, first to last."""

    attempts: list[_Judged] = field(default_factory=list)
    is_believed: bool = False
    """Whether a lost connection counts against the client, without starvation and before it is confirmed."""

    @property
    def is_open(self) -> bool:
        """Whether another attempt can decide more."""
        last = self.attempts[-1]
        if not last.is_open or len(self.attempts) > MOST_REPEATS or (self.is_believed and last.starved is None):
            return False
        # The same certain result twice: a third attempt would show it again.
        return not (len(self.attempts) > 1 and last.certain and last.certain == self.attempts[-2].certain)

    @property
    def confirms_a_loss(self) -> bool:
        """Whether the client reported a lost connection in every attempt, without starvation at the end."""
        return len(self.attempts) > MOST_REPEATS and self.attempts[-1].is_open and self.attempts[-1].starved is None

    @property
    def spent_ms(self) -> float:
        """The time that an attempt takes."""
        return self.attempts[-1].record.timings_ms.get("total", 0.0)

    @property
    def record(self) -> ScenarioRecord:
        """The record of the first attempt without an open question, or of the last one without its open part.

        An attempt that showed a certain finding is preferred to a later one that did not: what is certain is true even
        if it did not appear again.
        """
        last = self.attempts[-1]
        shown = next((attempt for attempt in self.attempts if attempt.certain), last)
        final = last if shown.certain <= last.certain else shown
        texts = [(attempt, outcome_text(attempt.record, attempt.record.findings)) for attempt in self.attempts]
        counts = self.confirms_a_loss or (self.is_believed and last.starved is None)
        open_texts = [
            (attempt, text) for attempt, text in texts if attempt.is_open and not (counts and attempt is last)
        ]
        repeated = [f"{attempt.starved or 'no starvation'}: {text}" for attempt, text in open_texts]
        record = msgspec.structs.replace(final.record, repeated=repeated)
        if final.is_open and not (counts and final is last):
            cause = f"{TOO_BUSY}: {final.starved}" if final.starved else f"{final.attempt.doubt}; it {NOT_CONFIRMED}"
            # Effects seen every time are probably the client's, so the reason shows them.
            seen = " | ".join(dict.fromkeys(text for _, text in open_texts))
            return _without_open_part(record, final, f"{cause}; seen: {seen}")
        return record


class Repeater:
    """Makes the attempts of one process, under a watch for starvation."""

    def __init__(self, watch: StarvationWatch) -> None:
        self._watch = watch
        self._confirmed = 0

    def first(self, attempt: Attempt) -> Series:
        """Make the first attempt at a scenario."""
        return Series([self._watched(attempt)])

    def settle(self, series: Series, attempt: Attempt, may_repeat: Callable[[], bool]) -> ScenarioRecord:
        """Repeat while a question is open and repetitions are allowed, and return the record that counts."""
        series.is_believed = self._confirmed >= CONFIRMED_ENOUGH
        while series.is_open and may_repeat():
            series.attempts.append(self._watched(attempt))
        # Counted only when a whole series of repetitions confirms it, so that one bad moment does not count.
        self._confirmed += series.confirms_a_loss
        return series.record

    def _watched(self, attempt: Attempt) -> _Judged:
        """Make one attempt, and judge what its starvation explains."""
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


def _without_open_part(record: ScenarioRecord, judged: _Judged, reason: str) -> ScenarioRecord:
    """Return the record without what the machine may have caused."""
    # Findings are dropped, because reports would show them as failures of the client.
    dropped = record.findings if judged.attempt.doubt else judged.open_findings
    kept = [finding for finding in record.findings if finding not in dropped]
    record = msgspec.structs.replace(record, requirements=_left_open(record, kept), findings=kept)
    if any(record.requirements[finding.requirement] == "fail" for finding in _counting(record)):
        return msgspec.structs.replace(record, verdict="fail")
    return msgspec.structs.replace(record, verdict="inconclusive", steps=record.steps if kept else [], reason=reason)


def _left_open(record: ScenarioRecord, kept: Iterable[Finding]) -> dict[str, Verdict]:
    shown = {finding.requirement for finding in kept}
    return {
        name: "inconclusive" if verdict in UNDECIDED and name not in shown | {*record.known} else verdict
        for name, verdict in record.requirements.items()
    }
