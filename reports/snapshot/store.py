"""Snapshots as Spark knows them: read live, saved to Parquet, opened again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.gate.records import KIT_VERSION
from conformance.servers.connection import explained
from reports.snapshot.facts import last_events, queues_of, redis_facts, script_facts
from reports.snapshot.files import ROWS, buckets_for, drop_unclaimed
from reports.snapshot.manifest import Manifest, QueueFacts, claim_folder, read_manifest, write_manifest
from reports.snapshot.plan import Source, plan
from reports.snapshot.schema import ARROW, DDL, TYPED
from reports.snapshot.writing import Keeping, WrittenPart, write_part


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A snapshot that Spark can query. `rows` are wide rows."""

    name: str
    folder: Path
    manifest: Manifest
    rows: DataFrame

    def table(self, name: str) -> DataFrame:
        """One table with its own columns, for example `table("jobs").select("fields.data")`."""
        columns = [sql.col(place).alias(column) for column, place in TYPED[name].items()]
        return self.rows.where(sql.col("table") == name).select(*columns)


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
        planned = plan(source)
        queues = queues_of(planned.parts)
        version, settings = redis_facts(source)
        before = last_events(source, queues)
    buckets = buckets_for(planned.keys, planned.used_bytes)
    written = _written(spark, Keeping(source=source, parts=planned.parts, folder=folder.absolute(), buckets=buckets))
    with explained(source.address):
        after = last_events(source, queues)
    moving = [queue for queue in queues if before[queue] != after[queue]]
    if moving:
        announce(f"the queue moved while it was read: {', '.join(moving[:5])}; its tables are of different instants")
    bullmq, digest = script_facts()
    tables, facts = _summed(written)
    manifest = Manifest(
        kit=KIT_VERSION,
        bullmq=bullmq,
        scripts_sha256=digest,
        source=source.address.text,
        prefix=source.prefix,
        queue=source.queue,
        taken_ms=planned.parts[0].taken_ms,
        redis_settings=settings,
        redis_version=version,
        rows=tables,
        moving=moving,
        queues=facts,
        buckets=buckets,
        seed=seed,
        workload=workload,
    )
    write_manifest(folder, manifest)
    return Stored(name=str(folder), folder=folder, manifest=manifest, rows=_read(spark, folder))


def open_stored(spark: SparkSession, folder: Path) -> Stored:
    """A snapshot that was saved. Raises UsageProblem where the folder holds none."""
    manifest = read_manifest(folder)
    return Stored(name=str(folder), folder=folder, manifest=manifest, rows=_read(spark, folder))


def _written(spark: SparkSession, keeping: Keeping) -> list[WrittenPart]:
    """Read and keep all parts, each on an executor; what failed attempts have left is removed."""
    count = len(keeping.parts)
    rows = spark.range(0, count, 1, count).mapInArrow(_writer(keeping), "written string").collect()
    written = [msgspec.convert(json.loads(row["written"]), WrittenPart) for row in rows]
    drop_unclaimed(keeping.folder, (name for part in written for name in part.files))
    return written


def _writer(keeping: Keeping) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        attempt = context.attemptNumber() if context else 0
        for batch in batches:
            for number in batch.column("id").to_pylist():
                done = write_part(keeping, number, attempt)
                yield pa.RecordBatch.from_pydict({"written": [json.dumps(msgspec.to_builtins(done))]})

    return write


def _summed(written: Sequence[WrittenPart]) -> tuple[dict[str, int], dict[str, QueueFacts]]:
    """Rows by table, and facts by queue.

    BullMQ adds events with `XADD MAXLEN ~ limit` (upstream `includes/getOrSetMaxEvents.lua`), which trims nothing
    before the limit is reached: a stream that is shorter is complete.
    """
    tables: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    events: Counter[str] = Counter()
    limits: dict[str, float] = {}
    generated: set[str] = set()
    for counted in (counted for part in written for counted in part.counts):
        tables[counted.table] += counted.rows
        queues[counted.queue] += counted.rows
        if counted.table == "events":
            events[counted.queue] += counted.rows
        if counted.event_limit is not None:
            limits[counted.queue] = counted.event_limit
        if counted.generated:
            generated.add(counted.queue)
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
