"""Every planted defect is caught, and by the invariant that it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chaos.crash_points import CrashBench, CrashPoint, crash
from chaos.faults.base import FAULTS
from chaos.mutants.catalogue import CHAOS_MUTANTS, ChaosMutant
from chaos.options import ALONE_MS, ChaosOptions, topology_for
from chaos.runner import run_chaos
from conformance.checkers.histories.base import CheckResult
from conformance.environment.prepare import Environment

SEEDS = (1, 2, 3)
DRAIN_S = 10.0
LONG_DRAIN_S = 30.0
OF_A_QUEUE_AT_REST = frozenset({"counters", "events"})
"""Invariants that stay unknown if a run does not end in time, as on a busy machine."""


def judgements_of(mutant: ChaosMutant, environment: Environment, seed: int) -> Sequence[CheckResult]:
    """Run it under the fault (or at the crash point) that reveals its defect."""
    if isinstance(mutant.under, CrashPoint):
        with CrashBench(mutant.launch, environment) as bench:
            return crash(bench, mutant.under).judgements
    drain_s = LONG_DRAIN_S if mutant.kills in OF_A_QUEUE_AT_REST else DRAIN_S
    faults = [replace(FAULTS[mutant.under], drain_s=drain_s)] if mutant.under else []
    options = ChaosOptions(
        client=mutant.launch,
        faults=faults,
        topology=topology_for("single", faults),
        duration_ms=0 if faults else ALONE_MS,
        seed=seed,
        drain_s=drain_s,
    )
    return run_chaos(options, environment).judgements


@pytest.mark.parametrize("name", CHAOS_MUTANTS)
def test_the_right_invariant_is_named(name: str, environment: Environment) -> None:
    """By the right invariant. Some defects show only in a race, so other seeds are tried, too."""
    mutant = CHAOS_MUTANTS[name]
    found: list[str] = []
    for seed in SEEDS:
        failed = {
            judgement.check for judgement in judgements_of(mutant, environment, seed) if judgement.verdict == "fail"
        }
        if mutant.kills in failed:
            return
        found.append(", ".join(sorted(failed)) or "nothing")
    pytest.fail(f"{mutant.what} Instead of {mutant.kills} was found, by seed: {'; '.join(found)}")


def test_there_are_enough_of_them() -> None:
    """And most invariants have one."""
    assert len(CHAOS_MUTANTS) >= 12
    assert len({mutant.kills for mutant in CHAOS_MUTANTS.values()}) >= 12
