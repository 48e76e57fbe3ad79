"""The Spark pipeline against its targets, as ratios and rates of one session on one machine.

    python -m benchmarks.spark [--jobs 100000] [--bulk 100000] [--rounds 3] [--times 4]

Load: jobs per second of `reports.load` with the reference in two executors, and Node's `addBulk` in batches of 1000, in
turns. Snapshot: jobs per second from Redis to Parquet. Diff: seconds for `--jobs` against as many jobs with other
times, with a difference of every class planted, all of which have to be found and nothing else; and how much longer it
takes for `--times` as many jobs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import sessions
from benchmarks.sessions import Session
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance
from reports.diff.plan import SnapshotComparison, differences
from reports.load.producing import produce
from reports.load.target import LoadTarget, forget_progress
from reports.load.workload import Workload, jobs_of
from reports.session import SparkSettings, spark_session
from reports.snapshot.plan import RedisSource
from reports.snapshot.store import StoredSnapshot, save

BATCH: Final = 5000
FIRST_MS: Final = 1_700_000_000_000
FIVE_YEARS_MS: Final = 5 * 365 * 24 * 3_600_000

LIVE: Final = "live"
"""The small queue."""

_SCRIPT: Final = """
local base, first, last, shift = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local function ms(number) return string.format('%.0f', number) end
for i = first, last do
  local added = ARGV[5] + shift + math.floor(i / 30)
  local active = added + (i * 7 + shift) % 1000
  local finished = active + (i * 3 + shift) % 500
  redis.call('HSET', base .. i, 'name', 'job', 'data', '{"i":' .. i .. ',"pad":"' .. string.rep('x', 64) .. '"}',
    'opts', '{"attempts":3,"jobId":"' .. i .. '","backoff":{"type":"fixed","delay":10}}', 'timestamp', ms(added),
    'delay', '0', 'priority', '0', 'processedOn', ms(active), 'ats', '1', 'atm', '1', 'returnvalue', 'null',
    'finishedOn', ms(finished))
  redis.call('ZADD', base .. 'completed', ms(finished), i)
end
"""


def fill(server: RedisInstance, prefix: str, queue: str, jobs: int, *, shift_ms: int = 0) -> None:
    """Put so many completed jobs into a queue, and a few others into the small one.

    `shift_ms`: how much later everything happened than in another fill.
    """
    base = f"{prefix}:{queue}:"
    with server.connect() as client:
        untyped: Any = client
        for first in range(1, jobs + 1, BATCH):
            last = min(first + BATCH - 1, jobs)
            untyped.eval(_SCRIPT, 0, base, first, last, shift_ms, FIRST_MS)
        untyped.hset(f"{base}meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:5.62.0"})
        untyped.set(f"{base}id", jobs)
        _fill_live(untyped, prefix, FIRST_MS + shift_ms)


def _fill_live(client: Any, prefix: str, added_ms: int) -> None:
    """Four jobs that wait, one that is active, and a parent of two of those that wait."""
    base = f"{prefix}:{LIVE}:"
    for number in range(1, 6):
        job = {"name": "job", "data": "{}", "opts": '{"attempts":0}', "timestamp": added_ms, "delay": 0, "priority": 0}
        own = {"processedOn": added_ms + 5, "ats": 1} if number == 5 else {}
        client.hset(f"{base}{number}", mapping={**job, **own})
        client.xadd(f"{base}events", {"event": "added", "jobId": number, "name": "job"}, id=f"{added_ms}-{2 * number}")
        client.xadd(f"{base}events", {"event": "waiting", "jobId": number}, id=f"{added_ms}-{2 * number + 1}")
    client.rpush(f"{base}wait", "1", "2", "3", "4")
    client.rpush(f"{base}active", "5")
    client.set(f"{base}5:lock", f"token of {prefix}")
    client.hset(
        f"{base}parent", mapping={"name": "parent", "data": "{}", "opts": "{}", "timestamp": added_ms, "delay": 0}
    )
    client.zadd(f"{base}waiting-children", {"parent": added_ms})
    client.sadd(f"{base}parent:dependencies", f"{base}1", f"{base}2")
    client.hset(f"{base}meta", mapping={"opts.maxLenEvents": 10_000, "version": "bullmq:5.62.0"})


def plant(server: RedisInstance, prefix: str, queue: str) -> set[tuple[str, str]]:
    """Make one difference of every class; returns class and key of each."""
    base = f"{prefix}:{queue}:"
    with server.connect() as client:
        untyped: Any = client
        untyped.delete(f"{base}101")
        untyped.zrem(f"{base}completed", "101")
        untyped.hset(f"{base}extra", mapping={"name": "job", "data": "{}", "opts": "{}", "timestamp": FIRST_MS})
        untyped.zadd(f"{base}completed", {"extra": FIRST_MS})
        untyped.delete(f"{base}102")
        untyped.set(f"{base}gone:lock", "token")
        untyped.zrem(f"{base}completed", "103")
        untyped.zadd(f"{base}failed", {"104": FIRST_MS})
        untyped.zrem(f"{base}completed", "105")
        untyped.zadd(f"{base}failed", {"105": FIRST_MS})
        untyped.hset(f"{base}106", "data", '{"i":0}')
        untyped.hset(f"{base}107", "priority", "high")
        untyped.pexpire(f"{base}108", 900_000_000)
        untyped.set(f"{base}109:lock", "token")
        untyped.xadd(f"{base}events", {"event": "completed", "jobId": "110", "returnvalue": "null"})
        untyped.delete(f"{base}111")
        untyped.set(f"{base}111", "a text")
        return _plant_live(untyped, prefix) | {
            ("missing", f"{queue}:101"),
            ("extra", f"{queue}:extra"),
            ("dangling", f"{queue}:102"),
            ("orphan", f"{queue}:gone"),
            ("no-state", f"{queue}:103"),
            ("two-states", f"{queue}:104"),
            ("wrong-state", f"{queue}:105"),
            ("field", f"{queue}:106"),
            ("type", f"{queue}:107"),
            ("type", f"{queue}:111"),
            ("ttl", f"<prefix>:{queue}:108"),
            ("stale-lock", f"{queue}:109"),
            ("event-without-transition", f"{queue}:110"),
        }


def _plant_live(client: Any, prefix: str) -> set[tuple[str, str]]:
    base = f"{prefix}:{LIVE}:"
    client.delete(f"{base}wait")
    client.rpush(f"{base}wait", "1", "3", "2", "4")
    client.delete(f"{base}5:lock")
    client.srem(f"{base}parent:dependencies", f"{base}2")
    last: Any = client.xrevrange(f"{base}events", count=1)
    client.xdel(f"{base}events", last[0][0])
    client.hset(f"{base}3", "timestamp", FIRST_MS - FIVE_YEARS_MS)
    return {
        ("broken", f"{LIVE}:3"),
        ("order", f"{LIVE}:wait"),
        ("lock", f"{LIVE}:5"),
        ("member", f"{LIVE}:parent"),
        ("transition-without-event", f"{LIVE}:5"),
    }


QUEUE: Final = "q"
CONSOLE: Final = Console(stderr=True)

LEAST_LOAD_OF_NODE: Final = 1.0
LEAST_SNAPSHOT: Final = 100_000
LEAST_SNAPSHOT_OF_NODE: Final = 3.0
"""The same as a ratio, which says more on a faster or slower machine: Node added 33,000 jobs/s where it was set."""
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
    with sessions.session([sessions.NODE], options.redis) as session, spark_session(settings) as spark:
        bulk = [measure_load(spark, session, options.bulk) for _ in range(options.rounds + 1)][1:]
        measure_diff(spark, session, 1000)
        measured = [measure_diff(spark, session, jobs) for jobs in (options.jobs, options.jobs * options.times)]
    _print(bulk, measured, options)


def measure_load(spark: SparkSession, session: Session, jobs: int) -> tuple[float, float]:
    """Jobs per second of the pipeline and of Node, one after the other."""
    (node,) = session.peers
    with session.place() as place:
        workload = Workload(jobs=jobs, name=QUEUE)
        target = LoadTarget(address=session.server, prefix=place.prefix, workload=workload)
        counts = produce(jobs_of(spark, workload, target.partitions), replace(target, barrier="benchmark"))
        first, last = min(each.first_ms for each in counts), max(each.last_ms for each in counts)
        mine = jobs * 1000 / (last - first)
        forget_progress(target)
    with session.place() as place:
        theirs = jobs / float(node.do("addBulk", place, QUEUE, jobs=jobs))
    CONSOLE.print(f"  load: {mine:,.0f} jobs/s, Node {theirs:,.0f} jobs/s", style="dim")
    return mine, theirs


def measure_diff(spark: SparkSession, session: Session, jobs: int) -> Measured:
    """Fill two queues, read both, compare them. Raises EnvironmentProblem where the diff is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        left, _, first_s = _kept(spark, session, jobs, folder / "left")
        right, expected, second_s = _kept(spark, session, jobs, folder / "right", planted=True)
        began = time.perf_counter()
        found = differences(spark, SnapshotComparison(expected=left, actual=right, folder=folder / "differences"))
        count = found.count()
        ended = time.perf_counter()
        _insist(expected, {(row["class"], row["key"]) for row in found.limit(1000).collect()}, count)
    measured = Measured(jobs, first_s + second_s, ended - began)
    CONSOLE.print(f"  {measured}", style="dim")
    return measured


def _kept(
    spark: SparkSession, session: Session, jobs: int, folder: Path, *, planted: bool = False
) -> tuple[StoredSnapshot, set[tuple[str, str]], float]:
    """Fill a queue, read it, and remove it: only one side at a time needs memory. Seconds are those of the reading."""
    with session.place() as place:
        fill(session.server, place.prefix, QUEUE, jobs, shift_ms=777 if planted else 0)
        expected = plant(session.server, place.prefix, QUEUE) if planted else set()
        began = time.perf_counter()
        stored = save(spark, RedisSource(redis=session.server.url, prefix=place.prefix), folder)
        return stored, expected, time.perf_counter() - began


def _insist(expected: set[tuple[str, str]], found: set[tuple[str, str]], count: int) -> None:
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
