"""The kill matrix: mutants are run through the scenarios, to see which of the rows that they violate the gate notices.

Everything runs in this process: one Redis and one oracle for all mutants, and each mutant as an in-process driver.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conformance.driver.connection import DriverConnection
from conformance.driver.transports import InProcess
from conformance.environment.clients import NO_CLIENT, Launch
from conformance.environment.drivers import RestartableDriver
from conformance.findings import Finding
from conformance.gate.bench import Bench
from conformance.gate.records import Verdict
from conformance.gate.selection import SCENARIOS
from conformance.gate.trial import run_trial
from conformance.gate.trial_result import TrialResult
from conformance.gate.verdicts import requirement_verdicts, unblamed
from conformance.ledger.loader import load_ledger
from conformance.mutants.damage import Damage
from conformance.mutants.driver import mutant_server
from conformance.mutants.registry import Mutant
from conformance.participants.marks import Scenario
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.versions import in_range
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers.opening import RedisInstance


@dataclass(frozen=True)
class ScenarioCase:
    """One run of a scenario: `id` is `area/name`, `arguments` what pytest would pass."""

    id: str
    scenario: Scenario
    arguments: Mapping[str, Any]

    @cached_property
    def names(self) -> set[str]:
        """Its names in mutants: `area/name`, which is every case of the scenario, or with `[ARGUMENT]`."""
        return {self.id, *(f"{self.id}[{argument}]" for argument in self.arguments.values())}


@cache
def all_cases() -> tuple[ScenarioCase, ...]:
    """Every case of every scenario that is about the pinned version, which mutants are compared with."""
    cases = (case for area, function in _tests() for case in _cases(area, function))
    return tuple(case for case in cases if in_range(BULLMQ_VERSION, case.scenario.bullmq))


def _tests() -> Iterator[tuple[str, Callable[..., None]]]:
    package = importlib.import_module(SCENARIOS)
    for path in sorted(Path(package.__path__[0]).glob("test_*.py")):
        module = importlib.import_module(f"{SCENARIOS}.{path.stem}")
        area = path.stem.removeprefix("test_").replace("_", "-")
        for function in vars(module).values():
            if inspect.isfunction(function) and isinstance(getattr(function, "scenario", None), Scenario):
                yield area, function


def _cases(area: str, function: Callable[..., None]) -> Iterator[ScenarioCase]:
    scenario: Any = vars(function)["scenario"]
    marks: list[pytest.Mark] = [mark for mark in vars(function).get("pytestmark", ()) if mark.name == "parametrize"]
    for chosen in product(*map(_choices, marks)):
        arguments = {name: value for choice in chosen for name, value in choice.items()}
        yield ScenarioCase(f"{area}/{scenario.name}", scenario, arguments)


def _choices(mark: pytest.Mark) -> list[dict[str, Any]]:
    """The sets of arguments of one `parametrize`."""
    names, values = mark.args[:2]
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")]
    return [dict(zip(names, value if len(names) > 1 else (value,), strict=True)) for value in values]


@dataclass
class MutantResult:
    """The result for one row: `finding` counts against it; without one the mutant survived; `seen`: other findings.

    `errors`: why there is no result (the kit or the oracle broke, or the damage had no effect).
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
    """The verdict that the gate must give on a row of the mutant."""
    must = load_ledger().row(row).level == "MUST"
    return "fail" if must and row not in mutant.warns else "warn"


NOTE = "conformance-mutant:"
"""Prefix of keys that show that a broken script has had an effect."""


@dataclass
class MutantDriver(RestartableDriver):
    """A mutant in the place of the client, in this process; if its driver is lost, it is started again."""

    mutant: Mutant | None = None
    scripts: ScriptTexts = field(default_factory=dict)
    damage: Damage | None = None
    is_inflicted: bool = False
    """Whether broken Python code has had an effect since the mutant came."""

    def living(self) -> DriverConnection:
        """A living driver."""
        if self.connection is None or not self.connection.alive:
            assert self.mutant is not None
            # The damage of the lost driver is undone first, or it would be inflicted twice.
            self.heal()
            self.damage = Damage(self.mutant.name, note=NOTE)
            server = mutant_server(self.mutant, self.damage, self.scripts)
            self.connection = InProcess.start(server, seed=self.seed, label=self.mutant.name)
        return self.connection

    def close(self) -> None:
        """End the driver and heal what was broken."""
        super().close()
        self.heal()

    def heal(self) -> None:
        """Undo the damage."""
        if self.damage is not None:
            # Kept over restarts: the mutant has had an effect if any of its drivers had one.
            self.is_inflicted |= self.damage.witness.inflicted
            self.damage.heal()
            self.damage = None


class MutantRunner:
    """Runs scenarios on mutants. One per process, because a mutant breaks code of the whole process."""

    def __init__(self, server: RedisInstance, oracle: Launch, scripts: ScriptTexts) -> None:
        self._scripts = scripts
        self._no_client = RestartableDriver(NO_CLIENT, seed=0)
        texts = {name: script.text for name, script in scripts.items()}
        self._bench = Bench(server, RestartableDriver(oracle, seed=0), self._no_client, texts)

    def close(self) -> None:
        """End the oracle."""
        self._bench.close()

    def results(self, mutant: Mutant) -> list[MutantResult]:
        """Run the mutant through its scenarios until each of its rows is killed, or none is left."""
        waiting = {row: MutantResult(row, wanted_verdict(mutant, row)) for row in mutant.rows}
        results = list(waiting.values())
        # Read before the run, because reading removes the notes.
        self._is_noted()  # what the mutant before has left
        noted = False
        with self._as_client(mutant) as client:
            for case in cases_for(mutant):
                if not waiting:
                    break
                if case.scenario.needs not in ("", self._bench.server.mode):
                    continue
                if case.names & set(mutant.by) or waiting.keys() & set(case.scenario.requirements):
                    evidence = run_trial(case.scenario, case.arguments, self._bench, load_ledger())
                    _judge(case, evidence, waiting)
                    noted |= self._is_noted()
        # Without an effect, neither a kill nor a survival says anything about the gate.
        if not (noted or client.is_inflicted):
            _mark_never_reached(results)
        return results

    def evidence(self, mutant: Mutant, case: ScenarioCase) -> TrialResult:
        """The result of one scenario on a mutant."""
        with self._as_client(mutant):
            return run_trial(case.scenario, case.arguments, self._bench, load_ledger())

    def _is_noted(self) -> bool:
        """Whether a broken script has had an effect in Redis since this was asked last."""
        notes = list(self._bench.redis.scan_iter(match=f"{NOTE}*"))
        for note in notes:
            self._bench.redis.delete(note)
        return bool(notes)

    @contextmanager
    def _as_client(self, mutant: Mutant) -> Iterator[MutantDriver]:
        client = MutantDriver(Launch(mutant.name, []), 0, mutant=mutant, scripts=self._scripts)
        self._bench.client = client
        try:
            yield client
        finally:
            # The client is closed before the bench gets another one, so that its damage is healed.
            client.close()
            self._bench.client = self._no_client


def _mark_never_reached(results: Sequence[MutantResult]) -> None:
    """Nothing was broken: survivors may be healthy, and findings have another cause."""
    for result in results:
        if result.finding is None:
            why = "none of its cases runs its broken code, or it does there what the healthy client does"
        else:
            why = f"its broken code has had no effect, and yet there is {result.finding.message}"
        result.errors.append(f"never reached: {why}")


def cases_for(mutant: Mutant) -> Sequence[ScenarioCase]:
    """The cases in which the mutant's rows are looked for: quick ones and those that are about the rows first."""
    rows, by = set(mutant.rows), set(mutant.by)
    chosen = [
        case for case in all_cases() if not by.isdisjoint(case.names) or not rows.isdisjoint(case.scenario.requirements)
    ]
    # Cases that the mutant names come first, then quick ones: most mutants are killed by their first case.
    return sorted(chosen, key=lambda case: (by.isdisjoint(case.names), *_reluctance(case, rows)))


def _reluctance(case: ScenarioCase, rows: set[str]) -> tuple[bool, bool, bool]:
    return case.scenario.slow, case.scenario.tier == "full", case.scenario.requirements[0] not in rows


def _judge(case: ScenarioCase, evidence: TrialResult, waiting: dict[str, MutantResult]) -> None:
    """Note what the case says about the rows that are still to be killed."""
    ledger = load_ledger()
    verdicts = requirement_verdicts(case.scenario.requirements, evidence.findings, ledger, unblamed=unblamed(evidence))
    for row, result in list(waiting.items()):
        result.errors += [evidence.error] if evidence.error else []
        findings = [finding for finding in evidence.findings if finding.requirement == row]
        if evidence.error or not findings:
            others = "; ".join(f"{finding.requirement}: {finding.message}" for finding in evidence.findings)
            result.seen.append(f"{case.id}: {evidence.error or others or 'no finding'}")
            continue
        result.verdict, result.finding = verdicts[row], findings[0]
        if result.killed:
            del waiting[row]
