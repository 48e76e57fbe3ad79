"""The findings of a disturbed run about a client that is correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.gate.records import ScenarioRecord
from conformance.problems import Problem
from conformance.report.run_file import read_run

BLAMES = ("fail", "error")


@dataclass(frozen=True)
class Outcome:
    """`broken`: why there is no complete run, empty if there is one. `seconds`: how long it took."""

    scenarios: Sequence[ScenarioRecord]
    broken: str
    seconds: float

    @property
    def steady(self) -> bool:
        """Whether it was a complete run that blamed no client."""
        return not self.broken and bool(self.scenarios) and not self._ended_as(*BLAMES)

    def __str__(self) -> str:
        """One line with the numbers, and one for each scenario that did not hold or was repeated."""
        counts = [f"{len(self._ended_as(verdict))} {verdict}" for verdict in (*BLAMES, "inconclusive")]
        repeated = [scenario for scenario in self.scenarios if scenario.repeated]
        head = f"{len(self.scenarios)} scenarios in {self.seconds:.0f} s, {', '.join(counts)}, {len(repeated)} repeated"
        worse = [
            f"    {scenario.verdict}  {scenario.id}  {_why(scenario)}"
            for scenario in self.scenarios
            if scenario in repeated or scenario.verdict in (*BLAMES, "inconclusive")
        ]
        return "\n".join([head, *worse, *([f"    {self.broken}"] if self.broken else [])])

    def _ended_as(self, *verdicts: str) -> list[ScenarioRecord]:
        return [scenario for scenario in self.scenarios if scenario.verdict in verdicts]


def _why(scenario: ScenarioRecord) -> str:
    found = [f"{finding.message}: expected {finding.expected}, got {finding.actual}" for finding in scenario.findings]
    return " | ".join([*([scenario.reason] if scenario.reason else []), *found[:2], *scenario.repeated])


def outcome_of(run_file: Path, output: str, *, seconds: float) -> Outcome:
    """Read the run file; `output` is what the program printed, for a run that left none."""
    try:
        run = read_run(run_file)
    except (Problem, OSError) as problem:
        return Outcome((), f"{problem}\n{output}", seconds)
    return Outcome(run.scenarios, "" if run.footer else f"the run was cut:\n{output}", seconds)
