"""Snapshots as Spark knows them: read live, saved to Parquet, opened again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.gate.run.version import KIT_VERSION
from conformance.servers.connection import explained
from reports.snapshot.facts import last_events, queues_of, redis_facts, script_facts
from reports.snapshot.manifest import Manifest, QueueFacts, claim_folder, read_manifest, write_manifest
from reports.snapshot.plan import Source, plan
from reports.snapshot.schema import ARROW, DDL, TYPED

GENERATED_ID = r"^(repeat:.+:\d{12,14}|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$"
"""Ids of scheduler iterations, and uuids."""

ROWS = "rows"
"""Folder of the Parquet files inside a snapshot's folder, partitioned by table."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A snapshot that Spark can query. `rows` are wide rows."""

    name: str
    manifest: Manifest
    rows: DataFrame

    def table(self, name: str) -> DataFrame:
        """One table with its own columns, for example `table("jobs").select("fields.data")`."""
        columns = [sql.col(place).alias(column) for column, place in TYPED[name].items()]
        return self.rows.where(sql.col("table") == name).select(*columns)


def live_rows(spark: SparkSession, source: Source) -> DataFrame:
    """A store as wide rows, read whenever Spark needs them."""
    reader = spark.read.format("bullmq")
    options = {"redis": source.redis, "prefix": source.prefix, "queue": source.queue}
    return reader.options(**{name: value for name, value in options.items() if value}).load()


def save(
    spark: SparkSession,
    source: Source,
    folder: Path,
    *,
    seed: int | None = None,
    workload: dict[str, Any] | None = None,
    announce: Callable[[str], None] = lambda _: None,
) -> Stored:
    """Read a store once and keep it as Parquet. Raises Problems; what is left of a failed attempt has no manifest."""
    claim_folder(folder)
    with explained(source.address):
        parts = plan(source)
        queues = queues_of(parts)
        version, settings = redis_facts(source)
        before = last_events(source, queues)
    live_rows(spark, source).write.mode("overwrite").partitionBy("table").parquet(str(folder / ROWS))
    with explained(source.address):
        after = last_events(source, queues)
    rows = _read(spark, folder)
    moving = [queue for queue in queues if before[queue] != after[queue]]
    if moving:
        announce(f"the queue moved while it was read: {', '.join(moving[:5])}; its tables are of different instants")
    bullmq, digest = script_facts()
    tables, facts = _counted(rows)
    manifest = Manifest(
        kit=KIT_VERSION,
        bullmq=bullmq,
        scripts_sha256=digest,
        source=source.address.text,
        prefix=source.prefix,
        queue=source.queue,
        taken_ms=parts[0].taken_ms,
        redis_settings=settings,
        redis_version=version,
        rows=tables,
        moving=moving,
        queues=facts,
        seed=seed,
        workload=workload,
    )
    write_manifest(folder, manifest)
    return Stored(name=str(folder), manifest=manifest, rows=rows)


def open_stored(spark: SparkSession, folder: Path) -> Stored:
    """A snapshot that was saved. Raises UsageProblem where the folder holds none."""
    manifest = read_manifest(folder)
    return Stored(name=str(folder), manifest=manifest, rows=_read(spark, folder))


def _counted(rows: DataFrame) -> tuple[dict[str, int], dict[str, QueueFacts]]:
    """Rows by table, and facts by queue, in one look at the stored rows.

    BullMQ adds events with `XADD MAXLEN ~ limit` (upstream `includes/getOrSetMaxEvents.lua`), which trims nothing
    before the limit is reached: a stream that is shorter is complete.
    """
    has_generated_id = sql.col("table").isin("jobs", "memberships") & sql.col("id").rlike(GENERATED_ID)
    counts = (
        rows.groupBy("table", "queue")
        .agg(
            sql.count("*").alias("n"),
            sql.max(has_generated_id).alias("generated"),
            sql.max(sql.expr("fields['opts.maxLenEvents']")).alias("most"),
        )
        .collect()
    )
    tables: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for row in counts:
        tables[row["table"]] += row["n"]
        queues[row["queue"] or ""] += row["n"]
    events = {row["queue"]: row["n"] for row in counts if row["table"] == "events"}
    limits = {row["queue"]: float(row["most"]) for row in counts if row["table"] == "metas" and row["most"]}
    generated = {row["queue"] for row in counts if row["generated"]}
    return dict(tables), {
        queue: QueueFacts(
            rows=number,
            events_complete=queue not in events or events[queue] < limits.get(queue, 0),
            generated_ids=queue in generated,
        )
        for queue, number in sorted(queues.items())
    }


def _read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(DDL).parquet(str(folder / ROWS)).select(*ARROW.names)
