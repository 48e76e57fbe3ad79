"""Prepare this machine for Spark, once: the classes that a comparison needs are archived.

python -m reports.prepare_spark      # takes up to a minute; every later command that needs Spark starts faster
"""

from __future__ import annotations

import sys
import tempfile

from conformance import interruption
from conformance.problems import Problem
from conformance.servers import RedisInstance, open_server
from reports.class_archive import archive_path, make_archive
from reports.diff.comparison import compare_snapshots
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.session import OnSpark, SparkSettings, class_path_of, jvm_options, spark_session
from reports.snapshot.folders import folder_at
from reports.snapshot.plan import RedisSource
from reports.snapshot.spark_rows import open_stored
from reports.snapshot.store import save

PREFIX = "{prepare}"
JOBS = 20


def main() -> None:
    """Make the archive unless it is there, and print where it is."""
    try:
        with interruption.handled():
            archive = archive_path()
            print(archive if archive.exists() else make_archive(_compare_two_small_stores))
    except Problem as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit(interruption.EXIT_CODE)


def _compare_two_small_stores(options: list[str]) -> str:
    """Load the classes that snapshots and comparisons need, in a JVM with these options; returns its class path.

    Raises Problems.
    """
    settings = SparkSettings(properties={"spark.driver.extraJavaOptions": jvm_options(options)})
    with (
        tempfile.TemporaryDirectory(prefix="bullmq-conformance-") as named,
        open_server(None, announce=print) as server,
        spark_session(settings) as session,
    ):
        folder, sides = folder_at(named), []
        for side in ("expected", "actual"):
            _fill(server, side)
            save(RedisSource(redis=server.url, prefix=PREFIX), folder / side, OnSpark(session))
            sides.append(open_stored(session, folder / side))
        wanted = SnapshotComparison(expected=sides[0], actual=sides[1], folder=folder / "differences")
        compare_snapshots(wanted, OnSpark(session))
        for stored in sides:
            stored.table("events").groupBy("event").count().collect()
        return class_path_of(session)


def _fill(server: RedisInstance, name: str) -> None:
    """Waiting jobs with their events; those of another name are others, so that a comparison finds something."""
    with server.connect() as redis:
        for number in range(JOBS):
            job = f"{name}-{number}"
            redis.hset(f"{PREFIX}:queue:{job}", mapping={"name": name, "data": "{}", "opts": "{}", "timestamp": "1"})
            redis.lpush(f"{PREFIX}:queue:wait", job)
            redis.xadd(f"{PREFIX}:queue:events", {"event": "added", "jobId": job, "name": name})


if __name__ == "__main__":
    main()
