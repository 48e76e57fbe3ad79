"""Every script that a client calls, at each of its three points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.conftest import complaint
from chaos.crash_points import CrashBench, calls_of, crash, points_of, segment_named
from chaos.results import crash_result_row, identity_of
from chaos.workload import SEGMENTS
from conformance.environment.prepare import Environment


@pytest.fixture
def bench(client: str, environment: Environment) -> Iterator[CrashBench]:
    """Redis, a tap and a driver."""
    with CrashBench(environment.launch(client), environment) as bench:
        yield bench


@pytest.mark.parametrize("segment", [segment.name for segment in SEGMENTS])
def test_every_crash_point(segment: str, bench: CrashBench) -> None:
    """The client calls these scripts, all its scripts are covered, and it survives a break at each point."""
    chosen = segment_named(segment)
    called = calls_of(bench, chosen)
    assert set(chosen.scripts) <= called
    assert called <= {script for known in SEGMENTS for script in known.scripts}
    complaints = []
    for where in points_of(chosen):
        result = crash_result_row(crash(bench, where), who=identity_of(bench.launch, bench.version), seconds=0)
        if not result.reached or complaint(result):
            complaints.append(f"{where}: {complaint(result) or 'the client never came to this point'}")
    assert not complaints, "\n".join(complaints)
