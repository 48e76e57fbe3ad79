"""`load`, `snapshot`, `diff`, `check` and `history`: the verbs of the Spark pipeline."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from conformance.cli.options import Duration, run_options_of
from conformance.environment.prepare import announce
from conformance.problems import UsageProblem
from reports.options import properties, require_spark, spark_options

_THRESHOLD = "What must hold, as in 'p99<50ms', 'scheduled-to-added:p99.9<1s' or 'rate>=1000'; repeatable."


@click.command()
@click.option(
    "--workload", type=click.Path(path_type=Path), default=None, help="YAML description; options win over it."
)
@click.option("--jobs", type=click.IntRange(1), default=None, help="Number of jobs.")
@click.option("--seed", type=int, default=None, help="Seed of everything random.")
@click.option("--queues", type=click.IntRange(1), default=None, help="Number of queues.")
@click.option("--rate", type=float, default=None, help="Jobs per second, on a fixed schedule; 0: as fast as possible.")
@click.option("--producer", default="", help="Client that adds the jobs; default: reference, or the driver given.")
@click.option("--worker", "workers", multiple=True, metavar="CLIENT[:PROCESSES]", help="Workers; repeatable for a mix.")
@run_options_of("packages")
@click.option("--concurrency", type=click.IntRange(1), default=100, show_default=True, help="Of each worker.")
@click.option("--partitions", type=click.IntRange(1), default=2, show_default=True, help="Producers at the same time.")
@click.option(
    "--redis", default="", help="URL, binary:PATH, bundled, container[:IMAGE] or cluster[:N]; default: local."
)
@click.option("--prefix", default="", help="Key prefix; default: a fresh one.")
@click.option("--events", type=click.IntRange(1), default=None, help="Events that a queue keeps; default: all.")
@click.option("--resume", is_flag=True, help="Go on with a load that broke off.")
@click.option("--threshold", "thresholds", multiple=True, metavar="BOUND", help=_THRESHOLD)
@click.option("--find-rate", metavar="BOUND", default="", help="Find the highest rate that keeps this threshold.")
@click.option("--trial", type=Duration(positive=True), default="10s", help="Length of each load of --find-rate.")
@click.option("--out", required=True, help="Folder for the snapshot and the reports: a path, s3://…, hdfs://….")
@spark_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def load(  # noqa: PLR0917 - click passes options by name
    workload: Path | None,
    jobs: int | None,
    seed: int | None,
    queues: int | None,
    rate: float | None,
    producer: str,
    workers: tuple[str, ...],
    packages: tuple[str, ...],
    concurrency: int,
    partitions: int,
    redis: str,
    prefix: str,
    events: int | None,
    resume: bool,
    thresholds: tuple[str, ...],
    find_rate: str,
    trial: float,
    out: str,
    master: str,
    memory: str,
    conf: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Load queues, and leave the final state, the measurements and their reports in --out.

    The driver started by COMMAND (after `--`) adds the jobs and works them off, where no other client is named for it.
    Exit code 1: a threshold is missed; 4: it cannot be decided.
    """
    require_spark()
    from reports.snapshot.folders import folder_at  # noqa: PLC0415 - only this verb needs Spark
    from reports.verbs.load import load_queues  # noqa: PLC0415
    from reports.verbs.load_plan import LoadOptions  # noqa: PLC0415

    changes = {"jobs": jobs, "seed": seed, "queues": queues, "rate": rate}
    options = LoadOptions(
        workload=workload,
        changes={name: value for name, value in changes.items() if value is not None},
        producer=producer,
        workers=workers,
        packages=packages,
        concurrency=concurrency,
        partitions=partitions,
        redis=redis,
        prefix=prefix,
        events=events,
        resume=resume,
        thresholds=thresholds,
        find_rate=find_rate,
        trial_s=trial / 1000,
        driver=command,
        out=folder_at(out),
        command=" ".join(["bullmq-conformance", *sys.argv[1:]]),
    )
    return load_queues(options, {"master": master, "memory": memory, "conf": properties(conf)})


@click.command()
@click.option("--redis", default="", help="URL of the Redis, or of a replica.")
@click.option("--replicate", is_flag=True, help="Take the RDB file that --redis gives to a new replica: one instant.")
@click.option("--rdb", multiple=True, metavar="FILE", help="An RDB file instead; one for each node of a cluster.")
@click.option("--database", type=click.IntRange(0), default=0, help="Number of the database in --rdb.")
@click.option("--prefix", default="bull", show_default=True, help="Key prefix of the queues.")
@click.option("--queue", default="", help="Only this queue; default: all under the prefix.")
@click.option("--out", required=True, help="Folder for the Parquet files: a path, s3://…, hdfs://….")
@spark_options
def snapshot(  # noqa: PLR0917 - click passes options by name
    redis: str,
    replicate: bool,
    rdb: tuple[str, ...],
    database: int,
    prefix: str,
    queue: str,
    out: str,
    master: str,
    memory: str,
    conf: tuple[str, ...],
) -> None:
    """Read a store once and keep it as typed tables (Parquet) with a manifest."""
    if bool(redis) == bool(rdb):
        raise UsageProblem("a snapshot is of one store", hint="give either --redis or --rdb")
    if rdb and replicate:
        raise UsageProblem("--replicate is for a Redis that runs", hint="give it with --redis")
    if database and not rdb:
        raise UsageProblem("--database is for --rdb", hint="write it into the URL: redis://127.0.0.1:6379/2")
    require_spark()
    from reports.snapshot.folders import folder_at  # noqa: PLC0415 - only this verb needs Spark
    from reports.snapshot.plan import RedisSource  # noqa: PLC0415
    from reports.snapshot.rdb.saving import RdbSource  # noqa: PLC0415
    from reports.verbs.snapshot import snapshot_of_files, take_snapshot, take_snapshot_by_replication  # noqa: PLC0415

    folder = folder_at(out)
    live = RedisSource(redis=redis, prefix=prefix, queue=queue)
    if rdb:
        files = RdbSource(files=[Path(file) for file in rdb], prefix=prefix, queue=queue, database=database)
        manifest = snapshot_of_files(files, folder)
    elif replicate:
        manifest = take_snapshot_by_replication(live, folder)
    else:
        manifest = take_snapshot(live, folder, spark={"master": master, "memory": memory, "conf": properties(conf)})
    announce(f"{manifest.jobs} jobs, {sum(manifest.rows.values())} rows in {out}")


@click.command()
@click.argument("expected")
@click.argument("actual")
@click.option("--queue", default="", help="Only this queue.")
@click.option("--replicate", is_flag=True, help="Take the RDB file that a Redis gives to a new replica: one instant.")
@click.option("--job", default="", help="Only this job: shows all that both sides have of it.")
@click.option("--no-rule", multiple=True, help="Canonical rule to switch off (`list --rules` names them); repeatable.")
@click.option("--out", default=None, help="Folder for differences and reports: a path, s3://…, hdfs://….")
@spark_options
def diff(  # noqa: PLR0917 - click passes options by name
    expected: str,
    actual: str,
    queue: str,
    replicate: bool,
    job: str,
    no_rule: tuple[str, ...],
    out: str | None,
    master: str,
    memory: str,
    conf: tuple[str, ...],
) -> int:
    """Compare EXPECTED with ACTUAL: folders of snapshots, `redis://host:port#prefix`, or RDB files.

    Exit code 1: they differ.
    """
    require_spark()
    from reports.snapshot.folders import folder_at  # noqa: PLC0415 - only this verb needs Spark
    from reports.verbs.diff import compare_stores  # noqa: PLC0415

    spark = {"master": master, "memory": memory, "conf": properties(conf)}
    return compare_stores(
        expected,
        actual,
        None if out is None else folder_at(out),
        queue=queue,
        job=job,
        replicate=replicate,
        switched_off=no_rule,
        spark=spark,
    )


@click.command()
@click.argument("store", metavar="SNAPSHOT")
@click.option("--queue", default="", help="Only this queue.")
@click.option("--out", default=None, help="Folder for check.json and junit.xml: a path, s3://…, hdfs://….")
@spark_options
def check(  # noqa: PLR0917 - click passes options by name
    store: str, queue: str, out: str | None, master: str, memory: str, conf: tuple[str, ...]
) -> int:
    """Check one store by itself: a folder of a snapshot, `redis://host:port#prefix`, or an RDB file.

    Exit code 1: it is broken.
    """
    require_spark()
    from reports.snapshot.folders import folder_at  # noqa: PLC0415 - only this verb needs Spark
    from reports.verbs.checks import check_store  # noqa: PLC0415

    folder = None if out is None else folder_at(out)
    return check_store(store, folder, queue=queue, spark={"master": master, "memory": memory, "conf": properties(conf)})


@click.command()
@click.argument("recorded", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--snapshot", default=None, help="Folder of the snapshot taken after the run.")
@click.option("--out", default=None, help="Folder for history.json and junit.xml: a path, s3://…, hdfs://….")
@spark_options
def history(  # noqa: PLR0917 - click passes options by name
    recorded: Path, snapshot: str | None, out: str | None, master: str, memory: str, conf: tuple[str, ...]
) -> int:
    """Check the history.jsonl of a chaos run with all checks that look at one job at a time. Exit code 1: findings."""
    require_spark()
    from reports.snapshot.folders import folder_at  # noqa: PLC0415 - only this verb needs Spark
    from reports.verbs.checks import check_history  # noqa: PLC0415

    kept, folder = (None if named is None else folder_at(named) for named in (snapshot, out))
    return check_history(recorded, kept, folder, spark={"master": master, "memory": memory, "conf": properties(conf)})
