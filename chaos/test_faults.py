"""Every fault against every invariant, for the reference and for Node."""

from __future__ import annotations

import time

import pytest

from chaos.campaign import Campaign, reproduce_line
from chaos.conftest import complaint
from chaos.equipment import Equipment
from chaos.faults.registry import all_faults
from chaos.report.results import result_of
from chaos.runner import Spec, run_chaos

FAULTS = [name for name, fault in all_faults().items() if not fault.only_containers]
SEED = 1
PAUSE_MS = 20
"""Between two calls of the producer: some 40 jobs in a second are enough, and leave the cores to the others."""


@pytest.mark.parametrize("name", FAULTS)
def test_every_invariant_holds(client: str, name: str, equipment: Equipment) -> None:
    """Each fault, in the topology that is its home."""
    fault = all_faults()[name]
    launch, topology, begun = equipment.launch(client), fault.topologies[0], time.monotonic()
    line = reproduce_line(launch, [fault], topology, Campaign(client=launch, faults=[fault], seed=SEED))
    spec = Spec(
        client=launch,
        faults=[fault],
        topology=topology,
        seed=SEED,
        texts=equipment.texts,
        reproduce=line,
        pause_ms=PAUSE_MS,
    )
    result = result_of(run_chaos(spec), seconds=time.monotonic() - begun)
    assert not complaint(result), complaint(result)


@pytest.mark.parametrize("topology", ["replica", "sentinel", "cluster"])
def test_nothing_happens_where_nothing_is_wrong(client: str, topology: str, equipment: Equipment) -> None:
    """The workload alone, in the other topologies."""
    spec = Spec(
        client=equipment.launch(client),
        faults=[],
        topology=topology,  # type: ignore[arg-type]
        duration_ms=2000,
        seed=SEED,
        texts=equipment.texts,
    )
    result = result_of(run_chaos(spec), seconds=0)
    assert not complaint(result), complaint(result)
