"""Every planted defect is caught, and by the invariant that it breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chaos.crash_attempt import crash
from chaos.crash_points import CrashBench, CrashPoint
from chaos.equipment import Equipment
from chaos.faults.registry import all_faults
from chaos.mutants.registry import ChaosMutant, all_mutants
from chaos.runner import Spec, run_chaos
from conformance.checkers.histories.base import Judgement

SEEDS = (1, 2, 3)
DRAIN_S = 10.0
LONG_DRAIN_S = 30.0
OF_A_QUEUE_AT_REST = frozenset({"counters", "events"})
"""Invariants that say nothing of a run that did not come to its end, which takes longer on a busy machine."""


def judgements_of(mutant: ChaosMutant, equipment: Equipment, seed: int) -> Sequence[Judgement]:
    """Run it under the fault (or at the crash point) that brings its defect to light."""
    if isinstance(mutant.under, CrashPoint):
        with CrashBench(mutant.launch, equipment.binary, equipment.texts) as bench:
            return crash(bench, mutant.under).judgements
    drain_s = LONG_DRAIN_S if mutant.kills in OF_A_QUEUE_AT_REST else DRAIN_S
    faults = [replace(all_faults()[mutant.under], drain_s=drain_s)] if mutant.under else []
    spec = Spec(
        client=mutant.launch,
        faults=faults,
        duration_ms=0 if faults else 4000,
        seed=seed,
        texts=equipment.texts,
        mix=mutant.mix,
        drain_s=drain_s,
    )
    return run_chaos(spec).judgements


@pytest.mark.parametrize("name", all_mutants())
def test_the_right_invariant_is_named(name: str, equipment: Equipment) -> None:
    """Not just any. Some defects show only in a race, which another seed may win: a busy machine shifts everything."""
    mutant = all_mutants()[name]
    found: list[str] = []
    for seed in SEEDS:
        failed = {each.check for each in judgements_of(mutant, equipment, seed) if each.verdict == "fail"}
        if mutant.kills in failed:
            return
        found.append(", ".join(sorted(failed)) or "nothing")
    pytest.fail(f"{mutant.what} Instead of {mutant.kills} was found, by seed: {'; '.join(found)}")


def test_there_are_enough_of_them() -> None:
    """And most invariants have one."""
    assert len(all_mutants()) >= 12
    assert len({mutant.kills for mutant in all_mutants().values()}) >= 12
