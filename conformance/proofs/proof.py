"""A proof: how it is declared, how all of them are found, and how one is run on the oracle.

    @proof("lifecycle.claim.waiting-before-prioritized")
    def smallest_first(oracle: Participant) -> str:
        \"\"\"Claim jobs of several priorities.\"\"\"
        ...
        equal(order, [0, 1, 3, 10], "the smallest number runs first")
        return f"they ran in the order {order}"

A proof takes steps on the oracle, asserts what it does (`conformance.participants.expect`), and returns one clause
that says what was seen. It is named by a row or by a claim of the row; a row may have several proofs.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

from conformance.driver.errors import OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.environment.prepare import EnvironmentOptions, prepare
from conformance.gate.bench import Bench, BenchPlan
from conformance.ledger.loader import REQUIREMENT_SET, load_ledger
from conformance.participants.expect import Mismatch
from conformance.participants.participant import Participant

PACKAGE = "conformance.proofs"

Prove = Callable[[Participant], str]

_PROOFS: dict[str, list[Proof]] = {}


@dataclass(frozen=True)
class Proof:
    """One proof: the row that it is about, what it does in one sentence, and the steps.

    `clock`: `frozen` stands still, `real` runs, as for scenarios.
    """

    row: str
    name: str
    what: str
    clock: Literal["frozen", "real"]
    steps: Prove


def proof(about: str, *, clock: Literal["frozen", "real"] = "frozen") -> Callable[[Prove], Prove]:
    """Declare a proof. Raises ValueError unless `about` is a disputed row or a claim of one; also without docstring."""

    def declare(steps: Prove) -> Prove:
        ledger = load_ledger()
        row = ledger.get(about) or ledger.by_claim().get(about)
        what = inspect.getdoc(steps) or ""
        if row is None or row.status != "disputed" or not what:
            raise ValueError(f"proof of {about}: it needs a disputed row, or one of its claims, and a docstring")
        _PROOFS.setdefault(row.id, []).append(Proof(row.id, steps.__name__, what, clock, steps))
        return steps

    return declare


@cache
def all_proofs() -> Mapping[str, tuple[Proof, ...]]:
    """Every proof, by the row that it is about, in the order of the ledger."""
    package = importlib.import_module(PACKAGE)
    for entry in pkgutil.iter_modules(package.__path__):
        if entry.name.startswith("about_"):
            importlib.import_module(f"{PACKAGE}.{entry.name}")
    return {row: tuple(_PROOFS[row]) for row in load_ledger() if row in _PROOFS}


@dataclass(frozen=True)
class ProofResult:
    """Both sides of a dispute. `seen`: what the oracle did just now. `holds`: whether the ledger is right about it."""

    proof: Proof
    paper: str
    seen: str
    holds: bool

    @property
    def text(self) -> str:
        """The two sides as lines."""
        verb = "does" if self.holds else "does NOT do what the ledger says"
        return f"paper says: {self.paper}\nNode {REQUIREMENT_SET} {verb}: {self.seen}"


class ProofRunner:
    """Runs proofs, each on a prefix and a clock of its own."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def run(self, proof: Proof) -> ProofResult:
        """Run one proof on the oracle. Where it is refuted, `holds` is False; raises a DriverBroken problem only."""
        paper = load_ledger().row(proof.row).paper
        prefix = self._bench.prefix()
        clock = self._bench.clock(frozen=proof.clock == "frozen")
        self._bench.begin()
        oracle = self._bench.participant("oracle", prefix, clock)
        try:
            return ProofResult(proof, paper, proof.steps(oracle), holds=True)
        except (Mismatch, OperationFailed, OperationIndeterminate, OperationUnsupported) as failure:
            return ProofResult(proof, paper, str(failure), holds=False)
        finally:
            self._bench.heal()
            oracle.settle()
            self._bench.oracle.reset()
            self._bench.clear([prefix])


@contextmanager
def proof_runner(options: EnvironmentOptions) -> Iterator[ProofRunner]:
    """A runner for the duration of the block, with the oracle and without a client.

    Raises a Problem that says what is missing on this machine.
    """
    with prepare(options) as environment:
        bench = BenchPlan.of(environment).open()
        try:
            yield ProofRunner(bench)
        finally:
            bench.close()
