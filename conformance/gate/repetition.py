"""Repetition of doubtful scenarios: one that fails while the machine starves is repeated while no other runs.

A client that loses an undisturbed connection is repeated as well, because a starved machine can cause that. If it
happens in every attempt without starvation, the client is at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from conformance.environment.starvation import STARVED_MS, Starvation, StarvationWatch
from conformance.gate.records import ScenarioRecord, Verdict
from conformance.gate.run_lock import RunLock

DOUBTFUL: tuple[Verdict, ...] = ("fail", "error", "inconclusive", "changed")
"""Verdicts that a late process can cause."""
UNDECIDED: tuple[Verdict, ...] = (*DOUBTFUL, "warn", "unchecked")
"""Verdicts of requirements that do not count if every attempt starved."""
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
    """Whether starvation alone can have made a scenario fail. `frozen`: the clock was frozen, except for deadlines."""
    # On a running clock one bad second is enough, because short locks and delays expire within it.
    return starvation.total_ms >= PATIENT_MS if frozen else starvation.worst_second_ms >= STARVED_MS


class Repeater:
    """Runs the scenarios of one process, and repeats those that the machine may have made fail."""

    def __init__(self, watch: StarvationWatch, lock: RunLock) -> None:
        self._watch = watch
        self._lock = lock
        self._in_vain = 0
        self._confirmed = 0

    def run(self, attempt: Attempt, *, alone: bool = False) -> ScenarioRecord:
        """Return the record of the first attempt without doubt; `inconclusive` if every attempt starved.

        `alone`: run even the first attempt while no other scenario runs.
        """
        # Repetitions below are exclusive, so that this run itself is no longer a cause of starvation.
        with self._lock.exclusive() if alone else self._lock.shared():
            done, starved = self._watched(attempt)
        repeated: list[str] = []
        while done.record.verdict in DOUBTFUL and (starved or done.doubt):
            # A lost connection without starvation counts once enough attempts confirm it; until then it is repeated.
            if starved is None and self._is_believed(len(repeated)):
                break
            repeated.append(f"{starved or 'no starvation'}: {_outcome(done.record)}")
            # On a machine that never gets quiet, repeating each scenario would only make the run longer.
            if starved and (len(repeated) > MOST_REPEATS or self._in_vain >= IN_VAIN):
                self._in_vain += 1
                return _inconclusive(done.record, starved, repeated)
            with self._lock.exclusive():
                done, starved = self._watched(attempt)
        # One quiet attempt shows that repeating can help again.
        if not starved:
            self._in_vain = 0
        return msgspec.structs.replace(done.record, repeated=repeated)

    def _is_believed(self, repeats: int) -> bool:
        """Whether a lost connection counts against the client, without starvation and after this many repetitions."""
        # Counted only when a whole series of repetitions confirms it, so that one bad moment does not count.
        if repeats == MOST_REPEATS:
            self._confirmed += 1
        return repeats == MOST_REPEATS or self._confirmed >= IN_VAIN

    def _watched(self, attempt: Attempt) -> tuple[AttemptResult, Starvation | None]:
        """Make one attempt. Returns it, and its starvation if that can explain a failure."""
        # Started directly before the attempt: time spent waiting for the lock is not part of it.
        self._watch.start()
        done = attempt()
        seen = self._watch.seen()
        return done, seen if explains(seen, frozen=done.frozen) else None


def _outcome(record: ScenarioRecord) -> str:
    why = record.reason or next((finding.message for finding in record.findings), "")
    return f"{record.verdict}, {why}" if why else record.verdict


def _inconclusive(record: ScenarioRecord, starved: Starvation, repeated: list[str]) -> ScenarioRecord:
    """Return the record without findings: nothing counts against the client. `repeated` keeps what was seen."""
    undecided: dict[str, Verdict] = {
        name: "inconclusive" if verdict in UNDECIDED else verdict for name, verdict in record.requirements.items()
    }
    return msgspec.structs.replace(
        record,
        verdict="inconclusive",
        requirements=undecided,
        # Findings and steps are dropped, because reports would show them as failures of the client.
        findings=[],
        steps=[],
        reason=f"the machine was too busy to judge: {starved}",
        repeated=repeated,
    )
