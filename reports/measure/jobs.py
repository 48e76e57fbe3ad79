"""Latencies of jobs, from the schedule of the workload and the times in the job hashes.

They begin at the *scheduled* instant, not at the moment at which a producer that was held up came round to it: a system
that stalls its producers must not look fast for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from reports.measure.histograms import Histogram, Latency, merged

MEANINGS: Mapping[str, str] = {
    "scheduled-to-added": "from the scheduled instant to the job's timestamp",
    "due-to-active": "from due (timestamp + delay) to the start of processing, jobs that ran once",
    "active-to-finished": "from the start of processing to its end, jobs that ran once",
    "delayed-late": "how long after its due time a delayed job started, jobs that ran once",
    "scheduled-to-finished": "from the scheduled instant to the end, whatever happened between",
}
"""Every latency that jobs tell about."""

_DDL = "name string, histogram binary, early bigint"


def job_latencies(jobs: DataFrame, planned: DataFrame, start_ms: int) -> dict[str, Latency]:
    """Latencies of all finished jobs. `jobs`: the table of a snapshot; `planned`: `reports.workload.generate`."""
    columns = _columns(start_ms)
    timed = jobs.join(planned.select("queue", "id", "scheduled_ms"), ["queue", "id"]).select(
        *(value.cast("bigint").alias(name) for name, value in columns.items())
    )
    parts = timed.mapInArrow(_histograms, _DDL).collect()
    found = merged((row["name"], bytes(row["histogram"]), row["early"]) for row in parts)
    return {name: found[name].latency() for name in MEANINGS if name in found and found[name].latency().count}


def _columns(start_ms: int) -> dict[str, Column]:
    def field(name: str) -> Column:
        return sql.col("fields")[name].cast("bigint")

    added, active, finished = field("timestamp"), field("processedOn"), field("finishedOn")
    scheduled = sql.col("scheduled_ms") + sql.lit(start_ms)
    delay = sql.coalesce(sql.get_json_object(sql.col("fields")["opts"], "$.delay").cast("bigint"), sql.lit(0))
    ran_once = sql.coalesce(field("atm"), sql.lit(0)) <= 1
    return {
        "scheduled-to-added": added - scheduled,
        "due-to-active": sql.when(ran_once, active - added - delay),
        "active-to-finished": sql.when(ran_once, finished - active),
        "delayed-late": sql.when(ran_once & (delay > 0), active - added - delay),
        "scheduled-to-finished": finished - scheduled,
    }


def _histograms(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One histogram per latency and partition."""
    found = {name: Histogram() for name in MEANINGS}
    for batch in batches:
        for name, histogram in found.items():
            for value in batch.column(name).drop_null().to_pylist():
                histogram.record(value)
    rows = {
        "name": list(found),
        "histogram": [histogram.encode() for histogram in found.values()],
        "early": [histogram.early for histogram in found.values()],
    }
    schema = pa.schema([("name", pa.string()), ("histogram", pa.binary()), ("early", pa.int64())])
    yield pa.RecordBatch.from_pydict(rows, schema=schema)
