"""Every script that a client calls, at each of its three points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.conftest import complaint
from chaos.crash_attempt import calls_of, crash
from chaos.crash_points import CrashBench, points_of, segment_named
from chaos.equipment import Equipment
from chaos.report.results import crash_result_of
from chaos.segments import SEGMENTS

SEVERAL_SEGMENTS_CALL = {"moveToActive", "moveToFinished", "moveStalledJobsToWait", "addStandardJob"}


@pytest.fixture
def bench(client: str, equipment: Equipment) -> Iterator[CrashBench]:
    """Redis, a tap and a driver."""
    with CrashBench(equipment.launch(client), equipment.binary, equipment.texts) as made:
        yield made


@pytest.mark.parametrize("segment", [each.name for each in SEGMENTS])
def test_every_crash_point(client: str, segment: str, bench: CrashBench) -> None:
    """The client calls these scripts, no others that no segment covers, and survives being broken at each point."""
    chosen = segment_named(segment)
    called = calls_of(bench, chosen)
    assert set(chosen.scripts) <= called
    assert called <= {script for each in SEGMENTS for script in each.scripts}
    complaints = []
    for where in points_of(chosen):
        result = crash_result_of(crash(bench, where), client=client, seconds=0)
        if not result.reached or complaint(result):
            complaints.append(f"{where}: {complaint(result) or 'the client never came to this point'}")
    assert not complaints, "\n".join(complaints)
