"""What a load leaves beside the store: `load.json`, from which every report is made. No Spark."""

from __future__ import annotations

from pathlib import Path

import msgspec

from conformance.problems import UsageProblem
from reports.measure.histograms import Latency
from reports.measure.observing import Point
from reports.workload.description import Workload

FILE = "load.json"

WAITING = ("wait", "paused", "active", "prioritized", "delayed", "waiting-children")
"""Containers that are empty when everything is done."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs and how long they took."""

    jobs: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Throughput in jobs per second."""
        return self.jobs / self.seconds if self.seconds else 0.0


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """One load. `late_ms`: how far the producers fell behind the schedule at most. `final`: members by container."""

    kit: str
    command: str
    workload: Workload
    producer: str
    workers: list[str]
    redis: str
    prefix: str
    start_ms: int
    produced: Phase
    finished: Phase
    late_ms: int
    final: dict[str, int]
    latencies: dict[str, Latency]
    series: list[Point]


def write_result(folder: Path, result: LoadResult) -> None:
    """Write `load.json`."""
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def read_result(folder: Path) -> LoadResult:
    """Read `load.json`. Raises UsageProblem."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=LoadResult)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(f"{folder / FILE} cannot be read: {error}", hint="is this the folder of a load?") from error
