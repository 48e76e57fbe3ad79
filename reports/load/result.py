"""The result of a load (`load.json`), and what follows from it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from conformance.problems import UsageProblem
from reports.load.backlog import BacklogSample
from reports.load.barrier import ScheduleSegment
from reports.load.histograms import Latency
from reports.load.workload import Workload

LOAD_FILE = "load.json"

HARNESS_SHARE = 0.5
HARNESS_LEAST_MS = 10.0
"""The harness spoils a measurement if its own lag is more than this share of it, and more than this number of ms."""

_JUDGED = ("50", "99")


class LoadPhase(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, and the window in which they were added or finished."""

    jobs: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Throughput in jobs per second."""
        return self.jobs / self.seconds if self.seconds else 0.0


class TimeSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time of a load, from `at_ms` since its start to the next one.

    `offered`: jobs that were scheduled in it; `added`, `finished`: jobs of which Redis took the event in it. `backlog`:
    added and not finished at its end. `unsent`: scheduled and not added at its end. `latencies`: percentiles in ms, by
    name, of the jobs that were scheduled in it.
    """

    at_ms: int
    offered: int
    added: int
    finished: int
    backlog: int
    unsent: int
    latencies: dict[str, dict[str, float]] = {}


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """One load.

    `clients`: who took part, with all versions; `taken_at`: the start as a date. `start_ms`: when its schedule started,
    Unix ms of Redis' clock; `schedule`: its segments, more than one if it was resumed. `waited_s`, `apart_s`: how
    long it took until all producers were connected, and how long the last one was behind the first; no latency
    includes it. `late_ms`: how far a producer fell behind the schedule at most, for any reason; `harness`: the
    part of that which the kit itself caused. `final`: members by container. `latencies`: of all jobs, by
    name; `by_kind`, `by_queue`: the same for each kind of job and each queue. `timed`: how many of the jobs still had
    the event `added`; if it is less than all, older events were trimmed, and there are no `slices`.
    """

    kit: str
    command: str
    workload: Workload
    producer: str
    workers: list[str]
    redis: str
    prefix: str
    start_ms: int
    produced: LoadPhase
    finished: LoadPhase
    late_ms: int
    final: dict[str, int]
    latencies: dict[str, Latency]
    series: list[BacklogSample]
    schedule: list[ScheduleSegment] = []
    waited_s: float = 0.0
    apart_s: float = 0.0
    harness: Latency | None = None
    by_kind: dict[str, dict[str, Latency]] = {}
    by_queue: dict[str, dict[str, Latency]] = {}
    slices: list[TimeSlice] = []
    timed: int = 0
    taken_at: str = ""
    clients: list[str] = []

    @property
    def offered_per_second(self) -> float:
        """Jobs per second of the whole schedule; 0 if jobs were added as fast as possible."""
        due_s = self.workload.due_ms(self.workload.jobs) / 1000
        return self.workload.jobs / due_s if due_s else 0.0

    @property
    def spoilt_by_harness(self) -> str:
        """Why the latencies say nothing about the client; empty if they are valid."""
        whole = self.latencies.get("scheduled-to-added")
        if self.harness is None or whole is None:
            return ""
        for name in _JUDGED:
            own, measured = self.harness.percentiles[name], whole.percentiles[name]
            if own > HARNESS_LEAST_MS and own > HARNESS_SHARE * measured:
                return (
                    f"the harness itself was {own:,.0f} ms late at p{name}, of {measured:,.0f} ms measured: "
                    "these latencies say nothing about the client"
                )
        return ""


def write_result(folder: Path, result: LoadResult) -> None:
    """Write `load.json`."""
    (folder / LOAD_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def read_result(folder: Path) -> LoadResult:
    """The result of a load that was kept. Raises UsageProblem if the folder has none."""
    try:
        return msgspec.json.decode((folder / LOAD_FILE).read_bytes(), type=LoadResult)
    except OSError as error:
        raise UsageProblem(
            f"{folder} holds no {LOAD_FILE}: {error.strerror}", hint="give the --out of a load"
        ) from error
    except msgspec.MsgspecError as error:
        raise UsageProblem(
            f"{folder / LOAD_FILE} is not a load of this version of the kit: {error}", hint="run the load again"
        ) from error
