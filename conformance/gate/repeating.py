"""A scenario that did not hold while the machine starved is repeated alone: whoever was not let run is not judged.

So is one in which the client says of its connection, which nobody had touched, what the machine may have done: if it
says so every time, on a machine that lets everybody run, it is the client's doing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from conformance.environment.starvation import STARVED_MS, Starvation, StarvationWatch
from conformance.gate.records import ScenarioRecord, Verdict
from conformance.gate.turnstile import Turnstile

DOUBTFUL: tuple[Verdict, ...] = ("fail", "error", "inconclusive", "changed")
"""What lateness may look like."""
UNDECIDED: tuple[Verdict, ...] = (*DOUBTFUL, "warn", "unchecked")
"""What is not known of a requirement as long as only starving attempts say so."""
MOST_REPEATS = 2
IN_VAIN = 3
"""After so many scenarios whose last repeat starved, too, the machine is not asked again before it has been calm.

After so many that kept their doubt on a calm machine, what the client says of its connection is believed at once.
"""
PATIENT_MS = 2000.0
"""Where time stands still, only deadlines can be missed, and the shortest is 5 s."""


@dataclass(frozen=True, kw_only=True)
class Attempted:
    """A scenario played once. `frozen`: time stood still for both clients. `doubt`: see `TrialResult`."""

    record: ScenarioRecord
    frozen: bool = False
    doubt: str = ""


Attempt = Callable[[], Attempted]


def explains(starvation: Starvation, *, frozen: bool) -> bool:
    """Whether a scenario may have failed because of it alone. `frozen`: time stood still, but for deadlines."""
    return starvation.total_ms >= PATIENT_MS if frozen else starvation.worst_second_ms >= STARVED_MS


class Repeater:
    """Plays the scenarios of one process, and again where the machine may be the culprit."""

    def __init__(self, watch: StarvationWatch, turnstile: Turnstile) -> None:
        self._watch = watch
        self._turnstile = turnstile
        self._in_vain = 0
        self._confirmed = 0

    def play(self, attempt: Attempt, *, alone: bool = False) -> ScenarioRecord:
        """The record of the first attempt that leaves no doubt; `inconclusive` where the machine let none run.

        `alone`: already the first one is played while no other scenario runs.
        """
        with self._turnstile.alone() if alone else self._turnstile.together():
            done, starved = self._watched(attempt)
        repeated: list[str] = []
        while done.record.verdict in DOUBTFUL and (starved or done.doubt):
            if starved is None and self._is_believed(len(repeated)):
                break
            repeated.append(f"{starved or 'a calm machine'}: {_outcome(done.record)}")
            if starved and (len(repeated) > MOST_REPEATS or self._in_vain >= IN_VAIN):
                self._in_vain += 1
                return _inconclusive(done.record, starved, repeated)
            with self._turnstile.alone():
                done, starved = self._watched(attempt)
        if not starved:
            self._in_vain = 0
        return msgspec.structs.replace(done.record, repeated=repeated)

    def _is_believed(self, repeats: int) -> bool:
        """Whether what the client says of its connection counts, on a calm machine and after so many repeats."""
        if repeats == MOST_REPEATS:
            self._confirmed += 1
        return repeats == MOST_REPEATS or self._confirmed >= IN_VAIN

    def _watched(self, attempt: Attempt) -> tuple[Attempted, Starvation | None]:
        """One attempt, and what starvation may explain of it."""
        self._watch.start()
        done = attempt()
        seen = self._watch.seen()
        return done, seen if explains(seen, frozen=done.frozen) else None


def _outcome(record: ScenarioRecord) -> str:
    said = record.reason or next((finding.message for finding in record.findings), "")
    return f"{record.verdict}, {said}" if said else record.verdict


def _inconclusive(record: ScenarioRecord, starved: Starvation, repeated: list[str]) -> ScenarioRecord:
    """Nothing is said about the client; what was seen is kept in words."""
    undecided: dict[str, Verdict] = {
        name: "inconclusive" if verdict in UNDECIDED else verdict for name, verdict in record.requirements.items()
    }
    return msgspec.structs.replace(
        record,
        verdict="inconclusive",
        requirements=undecided,
        findings=[],
        steps=[],
        reason=f"the machine was too busy to judge: {starved}",
        repeated=repeated,
    )
