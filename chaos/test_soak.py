"""A short soak: a mixed workload, a random nemesis by the seed, memory watched."""

from __future__ import annotations

from chaos.conftest import complaint
from chaos.equipment import Equipment
from chaos.faults.registry import chosen_faults
from chaos.report.results import result_of
from chaos.runner import Spec, run_chaos

SOAK = "worker.kill,worker.freeze,network.reset,network.brief-silence,redis.script-flush,redis.freeze,redis.client-kill"


def test_a_random_nemesis(client: str, equipment: Equipment) -> None:
    """`bullmq-conformance chaos --together --duration 30m` is the same for longer."""
    spec = Spec(
        client=equipment.launch(client),
        faults=chosen_faults(SOAK),
        duration_ms=30_000,
        seed=3,
        rounds=1,
        texts=equipment.texts,
    )
    result = result_of(run_chaos(spec), seconds=0)
    assert not complaint(result), complaint(result)
    assert result.timeline is not None
    assert len(result.timeline.memory) >= 20
