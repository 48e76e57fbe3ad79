"""The checks that look at one job at a time, in Spark: what there is of each job comes together by its name.

An id alone is not enough: a call that wants a job knows only its name. The pairs of both are taken from what has both,
and joined to what has one. Lines of the same ms mean something in their order, which is that of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from conformance.checkers.histories.history import HistoryHeader, encode
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem
from reports.history.judging import COLUMNS, DDL, judge
from reports.history.pieces import decode_line, is_shared, pieces_of
from reports.snapshot.rows import Wide, narrowed, rows_of, snapshot_of
from reports.snapshot.store import Stored

PIECES_PER_TASK = 100_000

SNAPSHOT_TABLES = ("jobs", "memberships")
"""What the checks ask a snapshot for."""

_PIECES = "queue string, job string, name string, line string, row string, shared boolean, number bigint"
_TEXTS = ("queue", "job", "name", "line", "row")
_SCHEMA = pa.schema([*((name, pa.string()) for name in _TEXTS), ("shared", pa.bool_()), ("number", pa.int64())])


def check_jobs(spark: SparkSession, history: Path, stored: Stored | None = None) -> DataFrame:
    """The findings of all checks that look at one job at a time (`reports.history.judging`).

    `stored`: the snapshot of the end. Without one, nothing is said of what is there in the end. Raises UsageProblem
    where the file does not begin with the header of a history.
    """
    header = header_of(history)
    text = spark.read.text(str(history)).withColumn("number", sql.monotonically_increasing_id())
    kept = text.where('value not like \'%"type":"header"%\' and value not like \'%"type":"footer"%\'')
    lines = kept.mapInArrow(_cut, _PIECES).persist()
    shared = [row["line"] for row in lines.where("shared").orderBy("number").select("line").collect()]
    own = lines.where("not shared")
    if stored is not None:
        rows = stored.rows.where(sql.col("table").isin(*SNAPSHOT_TABLES))
        own = own.unionByName(rows.mapInArrow(_kept, _PIECES))
    partitions = max(2, own.count() // PIECES_PER_TASK + 1)
    taken = None if stored is None else (stored.manifest.prefix, stored.manifest.taken_ms)
    return _named(own).repartition(partitions, "key").mapInArrow(_judging(header, shared, taken), DDL)


def header_of(history: Path) -> HistoryHeader:
    """The first line of a history. Raises UsageProblem where it is none."""
    try:
        with history.open("rb") as lines:
            return msgspec.json.decode(lines.readline(), type=HistoryHeader)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(f"{history} is no history: {error}", hint="give the history.jsonl of a chaos run") from error


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Lines of the file as pieces."""
    for batch in batches:
        rows: list[dict[str, object]] = []
        for text, number in zip(*(batch.column(name).to_pylist() for name in ("value", "number")), strict=True):
            line = decode_line(text)
            if is_shared(line):
                rows.append({"line": text, "shared": True, "number": number})
            for each in pieces_of(line):
                own = encode(each.line).decode()
                rows.append({"queue": each.queue, "job": each.job, "name": each.name, "line": own, "number": number})
        yield _batch(rows)


def _kept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of a snapshot as pieces. The row is JSON in ASCII, which carries bytes of any kind."""
    for batch in batches:
        yield _batch([
            {
                "queue": _printable(wide["queue"]),
                "job": _printable(wide["id"]),
                "name": _printable(_name_in(wide)),
                "row": json.dumps(wide),
            }
            for wide in rows_of(batch)
        ])  # fmt: skip


def _name_in(wide: Wide) -> str:
    return str(dict(wide["fields"]).get("name", "")) if wide["table"] == "jobs" else ""


def _printable(text: str) -> str:
    """Names are only compared with each other here; bytes that are no text must not stop that."""
    return text.encode("utf-8", "backslashreplace").decode()


def _batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    whole = [{**dict.fromkeys(_TEXTS, ""), "shared": False, "number": 0, **row} for row in rows]
    return pa.RecordBatch.from_pylist(whole, schema=_SCHEMA)


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
    ).select("key", "line", "row", "number")


def _judging(
    header: HistoryHeader, shared: list[str], taken: tuple[str, int] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def judge_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows_in_order = sorted((each for batch in batches for each in batch.to_pylist()), key=itemgetter("number"))
        pieces = [(each["line"], each["row"]) for each in rows_in_order]
        own = [decode_line(line) for line, _ in pieces if line]
        snapshot = None if taken is None else _snapshot(taken, [row for _, row in pieces if row])
        rows = list(judge(header, [decode_line(text) for text in shared], own, snapshot))
        columns = [pa.array([row[number] for row in rows], pa.string()) for number in range(len(COLUMNS))]
        yield pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))

    return judge_partition


def _snapshot(taken: tuple[str, int], rows: Iterable[str]) -> Snapshot:
    wide = [json.loads(row) for row in rows]
    return snapshot_of(*taken, ((each["table"], narrowed(each)) for each in wide))
