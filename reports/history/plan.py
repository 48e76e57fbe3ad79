"""The checks that look at one job at a time, in Spark: the lines of each job come together by its name.

An id alone is not enough: a call that wants a job knows only its name. The pairs of both are taken from the lines that
have both, and joined to those that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.checkers.histories.history import encode
from conformance.checkers.histories.lines import Header
from conformance.problems import UsageProblem
from reports.history.judging import COLUMNS, DDL, judge
from reports.history.pieces import decode_line, is_shared, pieces_of

LINES_PER_TASK = 100_000

_PIECES = "queue string, job string, name string, line string, shared boolean"
_SCHEMA = pa.schema([*((name, pa.string()) for name in ("queue", "job", "name", "line")), ("shared", pa.bool_())])


def check_jobs(spark: SparkSession, history: Path) -> DataFrame:
    """The findings of all checks that look at one job at a time (`reports.history.judging`).

    Raises UsageProblem where the file does not begin with the header of a history.
    """
    header = _header(history)
    text = spark.read.text(str(history)).where(
        'value not like \'%"type":"header"%\' and value not like \'%"type":"footer"%\''
    )
    pieces = text.mapInArrow(_cut, _PIECES).persist()
    shared = [row["line"] for row in pieces.where("shared").select("line").collect()]
    own = pieces.where("not shared")
    partitions = max(2, own.count() // LINES_PER_TASK + 1)
    return _named(own).repartition(partitions, "key").mapInArrow(_judging(header, shared), DDL)


def _header(history: Path) -> Header:
    try:
        with history.open("rb") as lines:
            return msgspec.json.decode(lines.readline(), type=Header)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(f"{history} is no history: {error}", hint="give the history.jsonl of a chaos run") from error


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Lines of the file as pieces."""
    for batch in batches:
        rows: list[dict[str, object]] = []
        for text in batch.column("value").to_pylist():
            line = decode_line(text)
            if is_shared(line):
                rows.append({"queue": "", "job": "", "name": "", "line": text, "shared": True})
                continue
            rows += [
                {
                    "queue": each.queue,
                    "job": each.job,
                    "name": each.name,
                    "line": encode(each.line).decode(),
                    "shared": False,
                }
                for each in pieces_of(line)
            ]
        yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _named(own: DataFrame) -> DataFrame:
    """The pieces with the column `key`: the name of the job where one is known, else its queue and id."""
    names = (
        own.where("name != '' and job != '' and queue != ''")
        .groupBy("queue", "job")
        .agg(sql.min("name").alias("known"))
    )
    joined = own.join(names, ["queue", "job"], "left")
    by_id = sql.concat_ws(":", "queue", "job")
    return joined.withColumn(
        "key", sql.when(sql.col("name") != "", sql.col("name")).otherwise(sql.coalesce(sql.col("known"), by_id))
    ).select("key", "line")


def _judging(header: Header, shared: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def judge_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = [decode_line(text) for batch in batches for text in batch.column("line").to_pylist()]
        rows = list(judge(header, [decode_line(text) for text in shared], own))
        columns = [pa.array([row[number] for row in rows], pa.string()) for number in range(len(COLUMNS))]
        yield pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))

    return judge_partition
