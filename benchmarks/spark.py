"""The Spark pipeline against its targets, as ratios and rates of one session on one machine.

    python -m benchmarks.spark [--jobs 100000] [--bulk 100000] [--rounds 3] [--times 4]

Load: jobs per second of `reports.load` with the reference in two executors, and Node's `addBulk` in batches of 1000, in
turns. Snapshot: jobs per second from Redis to Parquet. Diff: seconds for `--jobs` against as many jobs with other
times, with a planted difference of every class, all of which must be found without any other; and how much longer it
takes for `--times` as many jobs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import sessions
from benchmarks.planted import CHANGES, expected_differences, planted
from benchmarks.sessions import prefix_on, seconds_of_node
from benchmarks.stores import QUEUE, fill
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers import RedisInstance, open_server
from reports.diff.comparison import compare_snapshots
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.load.barrier import start_barrier
from reports.load.planned_jobs import jobs_of
from reports.load.production import produce
from reports.load.target import LoadTarget, forget_progress
from reports.load.workload import Workload
from reports.session import SparkSettings, spark_session
from reports.snapshot.folders import Folder, folder_at
from reports.snapshot.plan import RedisSource
from reports.snapshot.spark_rows import StoredSnapshot, open_stored
from reports.snapshot.store import save

CONSOLE: Final = Console(stderr=True)

LEAST_LOAD_OF_NODE: Final = 1.0
LEAST_SNAPSHOT: Final = 100_000
LEAST_SNAPSHOT_OF_NODE: Final = 3.0
"""The same as a ratio, which depends less on the machine; Node.js added 33,000 jobs/s on the machine of the target."""
LONGEST_DIFF_S: Final = 60.0
LARGEST_GROWTH: Final = 1.1
"""Times the growth of the number of jobs: 4 times the jobs in at most 4.4 times the time."""


@dataclass(frozen=True)
class Measured:
    """Seconds of one comparison: the two snapshots together, and the diff."""

    jobs: int
    snapshot_s: float
    diff_s: float

    @property
    def snapshot_rate(self) -> float:
        """Jobs per second."""
        return 2 * self.jobs / self.snapshot_s


def main() -> None:
    """Measure, and print a table of targets."""
    options = _options()
    settings = SparkSettings(master="local[2]", memory=options.memory)
    with open_server(options.redis, announce=CONSOLE.print) as server, spark_session(settings) as spark:
        if server.mode != "standalone":
            raise UsageProblem("the benchmark needs a single Redis, not a cluster", hint="leave --redis away")
        bulk = [measure_load(spark, server, options.bulk) for _ in range(options.rounds + 1)][1:]
        measure_diff(spark, server, 1000)
        measured = [measure_diff(spark, server, jobs) for jobs in (options.jobs, options.jobs * options.times)]
    _print(bulk, measured, options)


def measure_load(spark: SparkSession, server: RedisInstance, jobs: int) -> tuple[float, float]:
    """Jobs per second of the pipeline and of Node, one after the other."""
    with prefix_on(server) as prefix:
        workload = Workload(jobs=jobs, name=QUEUE)
        target = LoadTarget(address=server, prefix=prefix, workload=workload, barrier="benchmark")
        with start_barrier(target):
            counts = produce(jobs_of(spark, workload, target.partitions), target)
        first, last = min(count.first_ms for count in counts), max(count.last_ms for count in counts)
        mine = jobs * 1000 / (last - first)
        forget_progress(target)
    with prefix_on(server) as prefix:
        theirs = jobs / seconds_of_node(server, prefix, QUEUE, jobs)
    CONSOLE.print(f"  load: {mine:,.0f} jobs/s, Node {theirs:,.0f} jobs/s", style="dim")
    return mine, theirs


def measure_diff(spark: SparkSession, server: RedisInstance, jobs: int) -> Measured:
    """Fill two queues, read both, compare them. Raises EnvironmentProblem if the diff is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = folder_at(name)
        left, first_s = _kept(spark, server, jobs, folder / "left")
        right, second_s = _kept(spark, server, jobs, folder / "right", with_changes=True)
        started = time.perf_counter()
        wanted = SnapshotComparison(expected=left, actual=right, folder=folder / "differences")
        count = compare_snapshots(wanted).total
        ended = time.perf_counter()
        rows = pq.read_table((folder / "differences").path, columns=["class", "key"]).to_pylist()
        _insist({(row["class"], row["key"]) for row in rows}, count)
    measured = Measured(jobs, first_s + second_s, ended - started)
    CONSOLE.print(f"  {measured}", style="dim")
    return measured


def _kept(
    spark: SparkSession, server: RedisInstance, jobs: int, folder: Folder, *, with_changes: bool = False
) -> tuple[StoredSnapshot, float]:
    """Fill a queue, read it, and remove it: only one side at a time needs memory. Seconds are those of the reading."""
    with prefix_on(server) as prefix:
        fill(server, prefix, jobs, shift_ms=777 if with_changes else 0)
        changes = planted(server, prefix, CHANGES) if with_changes else nullcontext()
        with changes:
            started = time.perf_counter()
            save(RedisSource(redis=server.url, prefix=prefix), folder)
            return open_stored(spark, folder), time.perf_counter() - started


def _insist(found: set[tuple[str, str]], count: int) -> None:
    expected = expected_differences(CHANGES)
    if found != expected:
        raise EnvironmentProblem(
            f"the diff is wrong: {count} differences; not found {sorted(expected - found)}, too many "
            f"{sorted(found - expected)[:5]}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", default=None, help="where Redis comes from; default: a private one")
    parser.add_argument("--rounds", type=sessions.positive, default=3, help="measurements of the load (%(default)s)")
    parser.add_argument("--bulk", type=sessions.positive, default=100_000, help="jobs per load (%(default)s)")
    parser.add_argument("--jobs", type=sessions.positive, default=100_000, help="jobs per side (%(default)s)")
    parser.add_argument("--times", type=sessions.positive, default=4, help="how many times as many (%(default)s)")
    parser.add_argument("--memory", default="2g", help="of Spark's driver (%(default)s)")
    return parser.parse_args()


def _print(bulk: list[tuple[float, float]], measured: list[Measured], options: argparse.Namespace) -> None:
    small, large = measured
    ratio = statistics.median(mine / theirs for mine, theirs in bulk)
    of_node = small.snapshot_rate / statistics.median(theirs for _, theirs in bulk)
    growth = large.diff_s / small.diff_s / options.times
    allowed = LONGEST_DIFF_S * max(1.0, small.jobs / 1_000_000)
    table = sessions.verdict_table("targets of the Spark pipeline")
    rows = (
        ("load x Node's addBulk", f"{ratio:.2f}", f"at least {LEAST_LOAD_OF_NODE}", ratio >= LEAST_LOAD_OF_NODE),
        (
            f"snapshot of 2 x {small.jobs:,} jobs",
            f"{small.snapshot_rate:,.0f} jobs/s",
            f"at least {LEAST_SNAPSHOT:,}",
            small.snapshot_rate >= LEAST_SNAPSHOT,
        ),
        (
            "snapshot x Node's addBulk, jobs/s",
            f"{of_node:.1f}",
            f"at least {LEAST_SNAPSHOT_OF_NODE}",
            of_node >= LEAST_SNAPSHOT_OF_NODE,
        ),
        (
            f"diff of {small.jobs:,} and {small.jobs:,} jobs",
            f"{small.diff_s:.1f} s",
            f"under {allowed:.0f} s for a million",
            small.diff_s < allowed,
        ),
        (
            f"{options.times} x as many jobs",
            f"{large.diff_s / small.diff_s:.2f} x the time",
            f"at most {LARGEST_GROWTH * options.times:.1f} x",
            growth <= LARGEST_GROWTH,
        ),
    )
    for what, found, wanted, holds in rows:
        sessions.verdict_row(table, what, found, wanted, holds=holds)
    Console(file=sys.stdout).print(table)


if __name__ == "__main__":
    sessions.run(main)
