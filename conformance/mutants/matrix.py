"""Letting mutants loose on the gate, to see which of the rows that they violate it finds violated.

Everything runs in this process: one Redis and one oracle for all mutants, and each mutant as an in-process driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from conformance.driver.connection import DriverConnection
from conformance.driver.inprocess import InProcess
from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.gate.bench import Bench
from conformance.gate.records import Finding, Verdict
from conformance.gate.trial import TrialResult, run_trial
from conformance.gate.verdicts import requirement_verdicts
from conformance.ledger.loader import load_ledger
from conformance.mutants.cases import Case, all_cases
from conformance.mutants.damage import Damage
from conformance.mutants.driver import sick_server
from conformance.mutants.registry import Mutant
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers.server import Server


@dataclass
class Outcome:
    """What became of one row: `finding` speaks against it; without one it survived, and `seen` tells what was seen.

    `errors`: where the kit or the oracle broke, so that nothing is known.
    """

    row: str
    wanted: Verdict
    verdict: Verdict = "pass"
    finding: Finding | None = None
    seen: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether the gate noticed."""
        return self.finding is not None and self.verdict == self.wanted


def wanted_verdict(mutant: Mutant, row: str) -> Verdict:
    """What the gate must say about a row of the mutant."""
    must = load_ledger().row(row).level == "MUST"
    return "fail" if must and row not in mutant.warns else "warn"


@dataclass
class MutantSeat(RestartableDriver):
    """A seat whose driver is a mutant in this process; it sits down again when it was broken."""

    mutant: Mutant | None = None
    scripts: ScriptTexts = field(default_factory=dict)
    damage: Damage | None = None

    def living(self) -> DriverConnection:
        """A living driver."""
        if self.connection is None or not self.connection.alive:
            assert self.mutant is not None
            self.heal()
            self.damage = Damage(self.mutant.name)
            server = sick_server(self.mutant, self.damage, self.scripts)
            self.connection = InProcess.start(server, seed=self.seed, label=self.mutant.name)
        return self.connection

    def close(self) -> None:
        """End the driver and heal what was broken."""
        super().close()
        self.heal()

    def heal(self) -> None:
        """Undo the damage."""
        if self.damage is not None:
            self.damage.heal()
            self.damage = None


class Arena:
    """Where mutants meet the scenarios. One per process, because a mutant breaks code of the whole process."""

    def __init__(self, server: Server, oracle: Launch, scripts: ScriptTexts) -> None:
        self._scripts = scripts
        self._nobody = RestartableDriver(Launch("nobody", []), seed=0)
        texts = {name: script.text for name, script in scripts.items()}
        self._bench = Bench(server, RestartableDriver(oracle, seed=0), self._nobody, texts)

    def leave(self) -> None:
        """End the oracle."""
        self._bench.close()

    def outcomes(self, mutant: Mutant) -> list[Outcome]:
        """Run the mutant through its scenarios until each of its rows is killed, or none is left."""
        waiting = {row: Outcome(row, wanted_verdict(mutant, row)) for row in mutant.rows}
        outcomes = list(waiting.values())
        with self._seated(mutant):
            for case in cases_for(mutant):
                if not waiting:
                    break
                if not self._is_possible(case):
                    continue
                if case.id in mutant.by or waiting.keys() & set(case.scenario.requirements):
                    evidence = run_trial(case.scenario, case.arguments, self._bench, load_ledger())
                    _judge(case, evidence, waiting)
        return outcomes

    def evidence(self, mutant: Mutant, case: Case) -> TrialResult:
        """What one scenario brings to light about a mutant."""
        with self._seated(mutant):
            return run_trial(case.scenario, case.arguments, self._bench, load_ledger())

    def _is_possible(self, case: Case) -> bool:
        return case.scenario.needs in ("", self._bench.server.mode)

    @contextmanager
    def _seated(self, mutant: Mutant) -> Iterator[None]:
        self._bench.client = MutantSeat(Launch(mutant.name, []), 0, mutant=mutant, scripts=self._scripts)
        try:
            yield
        finally:
            self._bench.client.close()
            self._bench.client = self._nobody


def cases_for(mutant: Mutant) -> Sequence[Case]:
    """The cases in which the mutant's rows are looked for: quick ones and those that are about the rows first."""
    rows = set(mutant.rows)
    chosen = [case for case in all_cases() if case.id in mutant.by or rows & set(case.scenario.requirements)]
    return sorted(chosen, key=lambda case: (case.id not in mutant.by, *_reluctance(case, rows)))


def _reluctance(case: Case, rows: set[str]) -> tuple[bool, bool]:
    return case.scenario.slow, case.scenario.requirements[0] not in rows


def _judge(case: Case, evidence: TrialResult, waiting: dict[str, Outcome]) -> None:
    """Note what the case says about the rows that are still to be killed."""
    ledger = load_ledger()
    verdicts = requirement_verdicts(
        case.scenario.requirements, evidence.findings, ledger, reached_end=evidence.reached_end
    )
    for row, outcome in list(waiting.items()):
        outcome.errors += [evidence.error] if evidence.error else []
        findings = [finding for finding in evidence.findings if finding.requirement == row]
        if evidence.error or not findings:
            others = "; ".join(f"{one.requirement}: {one.message}" for one in evidence.findings)
            outcome.seen.append(f"{case.id}: {evidence.error or others or 'no finding'}")
            continue
        outcome.verdict, outcome.finding = verdicts[row], findings[0]
        if outcome.killed:
            del waiting[row]
