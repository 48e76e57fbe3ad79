"""Proofs of disputed rows: their scenarios, run on the oracle alone.

A row of the ledger is disputed if the written specification and BullMQ disagree. Its proofs are the scenarios that name
it and need one client only: those of `run` (without the tier `full`), and those of `scenarios/disputed_*.py`, which are
about the oracle only and which `run` does not execute. A proof prints each check that held, with its value; a scenario
that states no check proves nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from conformance.driver.errors import OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.environment.prepare import EnvironmentOptions, prepare
from conformance.gate.bench import Bench, BenchPlan
from conformance.gate.selection import all_scenarios, cases_of
from conformance.ledger.loader import REQUIREMENT_SET, load_ledger
from conformance.participants.expect import Mismatch, recorded_checks
from conformance.participants.marks import Scenario, case_text

DISPUTED = "disputed_*.py"
"""The modules with scenarios about the oracle only."""


@dataclass(frozen=True)
class Proof:
    """One scenario, with the arguments of each of its cases, as a proof of a row."""

    row: str
    scenario: Scenario
    cases: tuple[dict[str, Any], ...] = ({},)

    @property
    def title(self) -> str:
        """The sentence that the scenario checks."""
        return " ".join((inspect.getdoc(self.scenario.function) or self.scenario.name).split())


@cache
def all_proofs() -> Mapping[str, tuple[Proof, ...]]:
    """The proofs of each disputed row, in the order of the ledger; those about the oracle only come first."""
    scenarios = [scenario for files in (DISPUTED, "test_*.py") for _, scenario in all_scenarios(files)]
    alone = [scenario for scenario in scenarios if _needs_one_client(scenario)]
    return {
        row.id: tuple(
            Proof(row.id, scenario, tuple(cases_of(scenario).values()))
            for scenario in alone
            if row.id in scenario.requirements
        )
        for row in load_ledger().values()
        if row.status == "disputed"
    }


def _needs_one_client(scenario: Scenario) -> bool:
    # `full` is left out because its scenarios take long; a scenario with version ranges may not hold on this oracle.
    return scenario.style == "differential" and scenario.tier != "full" and not scenario.needs and not scenario.bullmq


@dataclass(frozen=True)
class ProofResult:
    """Both sides of a dispute. `checks`: what the oracle showed. `failure`: the check that did not hold, or ''."""

    proof: Proof
    paper: str
    checks: tuple[str, ...]
    failure: str = ""

    @property
    def holds(self) -> bool:
        """Whether the ledger is right about the oracle."""
        return not self.failure

    @property
    def text(self) -> str:
        """The steps of the oracle, as lines."""
        if self.failure:
            return f"Node {REQUIREMENT_SET} does NOT do what the ledger says: {self.failure}"
        return "\n".join((f"Node {REQUIREMENT_SET} does:", *(f"  {check}" for check in self.checks)))


class ProofRunner:
    """Runs proofs, each case on its own prefix and clock."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def run(self, proof: Proof) -> ProofResult:
        """Run every case of a proof on the oracle, up to the first check that fails.

        Raises a DriverBroken problem if the oracle's driver dies.
        """
        paper = load_ledger().row(proof.row).paper
        checks: list[str] = []
        failure = ""
        for case in proof.cases:
            with recorded_checks() as seen:
                failure = self._run_case(proof.scenario, case)
            label = f"[{case_text(proof.scenario, case)}] " if case else ""
            checks += [f"{label}{check}" for check in seen]
            # The first failure is enough: later cases of a disproved row add nothing.
            if failure:
                break
        return ProofResult(proof, paper, tuple(checks), failure)

    def _run_case(self, scenario: Scenario, case: dict[str, Any]) -> str:
        """Run one case. Returns the check or operation that failed, or ''."""
        names = self._bench.names("oracle")
        clock = self._bench.clock(frozen=scenario.clock == "frozen")
        # A fresh tap: rules and traffic of the previous case must not affect this one.
        self._bench.begin()
        oracle = self._bench.participant("oracle", names, clock)
        try:
            scenario.function(client=oracle, **case)
        except (Mismatch, OperationFailed, OperationIndeterminate, OperationUnsupported) as failure:
            return str(failure)
        finally:
            # Heal first: settling would wait for a call that a tap still holds.
            self._bench.heal()
            # Handles are closed before the keys are removed: an open worker would write some of them again.
            oracle.settle()
            self._bench.oracle.reset()
            self._bench.clear([names])
        return ""


@contextmanager
def proof_runner(options: EnvironmentOptions) -> Iterator[ProofRunner]:
    """A runner for the duration of the block, with the oracle and without a client.

    Raises a Problem that names what is missing on this machine.
    """
    with prepare(options) as environment:
        bench = BenchPlan.of(environment).open()
        try:
            yield ProofRunner(bench)
        finally:
            bench.close()
