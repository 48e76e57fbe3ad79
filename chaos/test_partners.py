"""Two clients, or two versions of Node's, on the same queues, while workers die."""

from __future__ import annotations

import pytest

from chaos.conftest import complaint
from chaos.equipment import Equipment
from chaos.faults.registry import all_faults
from chaos.report.results import result_of
from chaos.runner import Spec, run_chaos
from chaos.versions import client_named
from conformance.problems import EnvironmentProblem

NEWEST_5 = "node@5.81.3"
PAIRS = [("reference", "node"), ("node", "reference"), ("node", NEWEST_5), ("reference", NEWEST_5)]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_clients_share_the_queues(first: str, second: str, equipment: Equipment) -> None:
    """One worker of each; the jobs are the first one's."""
    try:
        partner = client_named(equipment, second)
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    spec = Spec(
        client=client_named(equipment, first),
        partner=partner,
        faults=[all_faults()["worker.kill"]],
        seed=4,
        texts=equipment.texts,
    )
    result = result_of(run_chaos(spec), seconds=0)
    assert not complaint(result), complaint(result)
