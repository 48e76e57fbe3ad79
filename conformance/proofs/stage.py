"""Where proofs run: a Redis of their own and the oracle alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from conformance.driver.connection import OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.environment.clients import Launch, Toolchain
from conformance.environment.drivers import RestartableDriver
from conformance.gate.bench import Bench
from conformance.ledger.loader import REQUIREMENT_SET, load_ledger
from conformance.participants.expect import Mismatch
from conformance.proofs.registry import Proof
from conformance.servers import open_server
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package

NOBODY = Launch("nobody", [])
"""The client's place on the bench stays empty."""


@dataclass(frozen=True)
class Shown:
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


class Stage:
    """Runs proofs, each on a prefix and a clock of its own."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def show(self, proof: Proof) -> Shown:
        """Run one proof on the oracle. A refuted one is told by `holds`; raises a DriverBroken problem only."""
        paper = load_ledger().row(proof.row).paper
        prefix = self._bench.prefix()
        clock = self._bench.clock(frozen=proof.clock == "frozen")
        oracle = self._bench.participant("oracle", prefix, clock)
        try:
            return Shown(proof, paper, proof.steps(oracle), holds=True)
        except (Mismatch, OperationFailed, OperationIndeterminate, OperationUnsupported) as failure:
            return Shown(proof, paper, str(failure), holds=False)
        finally:
            self._bench.oracle.reset()
            self._bench.clear([prefix])


@contextmanager
def stage(*, node: str | None = None, redis: str | None = None, announce: Callable[[str], None]) -> Iterator[Stage]:
    """A stage for the duration of the block; `redis` as in `conformance.servers.setting`, by default a private one.

    Raises a Problem that says what is missing on this machine.
    """
    found = find_node(node)
    toolbox = Toolchain(found, ensure_package(found, announce=announce), announce)
    with open_server(redis, announce=announce) as server:
        bench = Bench(server, RestartableDriver(toolbox.oracle, seed=0), RestartableDriver(NOBODY, seed=0))
        try:
            yield Stage(bench)
        finally:
            bench.close()
