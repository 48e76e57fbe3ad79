"""The checks of a history that concern one job at a time, in Spark: all records of a job are grouped first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from conformance.checkers.histories.evidence import REMOVING, Evidence
from conformance.checkers.histories.history import (
    FaultEnded,
    FaultStarted,
    History,
    HistoryHeader,
    HistoryLine,
    Invoke,
    MachineStarved,
    Ok,
    RunEnded,
    RunPhase,
    RunStarted,
    ScriptLine,
    StreamEventLine,
    encode,
    in_order,
)
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.observe.tables import Snapshot
from conformance.problems import UsageProblem
from reports.snapshot.rows import WideRow, narrowed, rows_of, snapshot_of
from reports.snapshot.spark_rows import StoredSnapshot


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of one job. It is known by its `queue` and `job` (its id), by its `name`, or by both."""

    line: HistoryLine
    queue: str = ""
    job: str = ""
    name: str = ""


_DECODER: msgspec.json.Decoder[HistoryLine] = msgspec.json.Decoder(HistoryLine)


def decode_line(text: str) -> HistoryLine:
    """A line from its JSON. A function of its own: executors import it, a decoder cannot be sent to them."""
    return _DECODER.decode(text)


def is_shared(line: HistoryLine) -> bool:
    """Whether a line is about all jobs: faults, phases, moments without a machine and calls that remove jobs."""
    if isinstance(line, Invoke):
        return line.op in REMOVING
    return isinstance(line, FaultStarted | FaultEnded | RunPhase | MachineStarved)


def job_lines(line: HistoryLine) -> Iterator[JobLine]:
    """Yield the line once for every job that it is about; each of these names no other job."""
    if isinstance(line, RunStarted | RunEnded):
        yield JobLine(line, queue=line.queue, job=line.job, name=line.name)
    elif isinstance(line, StreamEventLine) and line.job:
        name = line.fields.get("name", "") if line.name == "added" else ""
        yield JobLine(line, queue=line.queue, job=line.job, name=name)
    elif isinstance(line, ScriptLine):
        yield from _script_lines(line)
    elif isinstance(line, Invoke) and not is_shared(line):
        for planned in line.jobs:
            yield JobLine(msgspec.structs.replace(line, jobs=[planned]), queue=planned.queue, name=planned.name)
    elif isinstance(line, Ok):
        for name, job in line.ids.items():
            yield JobLine(msgspec.structs.replace(line, ids={name: job}), job=job, name=name)


def _script_lines(line: ScriptLine) -> Iterator[JobLine]:
    for job in sorted({line.job, line.claimed, *line.jobs} - {""}):
        own = msgspec.structs.replace(
            line,
            job=job if line.job == job else "",
            claimed=job if line.claimed == job else "",
            jobs=[job] if job in line.jobs else [],
        )
        yield JobLine(own, queue=line.queue, job=job)


DECOMPOSABLE = (
    *("conservation", "durability", "indeterminate"),
    *("duplicate-runs", "tokens", "counters", "timing", "events"),
)
"""Names of the checks that need no more than what there is of one job, and the lines about all jobs."""

CHECKS = tuple(check for check in ALL_CHECKS if check.name in DECOMPOSABLE)

FINDING_COLUMNS = ("check", "job", "message", "evidence")
FINDING_DDL = "`check` string, job string, message string, evidence string"


def judge_jobs(
    header: HistoryHeader, shared: Iterable[HistoryLine], own: Iterable[HistoryLine], snapshot: Snapshot | None = None
) -> Iterator[tuple[str, str, str, str]]:
    """The findings about these jobs: check, job, message, and lines as JSON.

    All lines of each of them have to be in `own`, and in `snapshot`, where there is one, all that it has of them.
    """
    evidence = Evidence(History(header, in_order([*shared, *own])), snapshot)
    for check in CHECKS:
        for finding in check.run(evidence).findings:
            evidence_lines = b"".join(encode(line) for line in finding.lines).decode()
            yield check.name, finding.job, finding.message, evidence_lines


LINES_PER_TASK = 100_000

SNAPSHOT_TABLES = ("jobs", "memberships")
"""The tables of a snapshot that the checks need."""

_LINE_DDL = "queue string, job string, name string, line string, row string, shared boolean, number bigint"
_TEXTS = ("queue", "job", "name", "line", "row")
_LINE_SCHEMA = pa.schema([*((name, pa.string()) for name in _TEXTS), ("shared", pa.bool_()), ("number", pa.int64())])


def check_jobs(spark: SparkSession, history: Path, stored: StoredSnapshot | None = None) -> DataFrame:
    """The findings of all checks that concern one job at a time.

    The records of each job are grouped by its name. An id alone is not enough: a call that wants a job knows only
    its name. The pairs of both are taken from what has both, and joined to what has one. Lines of the same ms mean
    something in their order, which is that of the file.

    `stored`: the snapshot of the end. Without one, nothing is said of what is there in the end. Raises UsageProblem
    if the file does not start with the header of a history.
    """
    header = header_of(history)
    text = spark.read.text(str(history)).withColumn("number", sql.monotonically_increasing_id())
    kept = text.where('value not like \'%"type":"header"%\' and value not like \'%"type":"footer"%\'')
    lines = kept.mapInArrow(_cut, _LINE_DDL).persist()
    shared = [row["line"] for row in lines.where("shared").orderBy("number").select("line").collect()]
    own = lines.where("not shared")
    if stored is not None:
        rows = stored.rows.where(sql.col("table").isin(*SNAPSHOT_TABLES))
        own = own.unionByName(rows.mapInArrow(_kept, _LINE_DDL))
    partitions = max(2, own.count() // LINES_PER_TASK + 1)
    taken = None if stored is None else (stored.manifest.prefix, stored.manifest.taken_ms)
    return _named(own).repartition(partitions, "key").mapInArrow(_judging(header, shared, taken), FINDING_DDL)


def header_of(history: Path) -> HistoryHeader:
    """The first line of a history. Raises UsageProblem where it is none."""
    try:
        with history.open("rb") as lines:
            return msgspec.json.decode(lines.readline(), type=HistoryHeader)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageProblem(
            f"{history} is not a history: {error}", hint="give the history.jsonl of a chaos run"
        ) from error


def has_jobs(history: Path) -> bool:
    """Whether a job ran in it, which every check needs."""
    with history.open("rb") as lines:
        return any(b'"type":"run-started"' in line for line in lines)


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cut the lines of the file by job."""
    for batch in batches:
        rows: list[dict[str, object]] = []
        for text, number in zip(*(batch.column(name).to_pylist() for name in ("value", "number")), strict=True):
            line = decode_line(text)
            if is_shared(line):
                rows.append({"line": text, "shared": True, "number": number})
            for own in job_lines(line):
                encoded = encode(own.line).decode()
                rows.append({"queue": own.queue, "job": own.job, "name": own.name, "line": encoded, "number": number})
        yield _batch(rows)


def _kept(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of a snapshot, next to the lines of their jobs. A row is JSON in ASCII, which can hold any bytes."""
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


def _name_in(wide: WideRow) -> str:
    return str(dict(wide["fields"]).get("name", "")) if wide["table"] == "jobs" else ""


def _printable(text: str) -> str:
    """Names are only compared with each other here; bytes that are not valid text must not fail."""
    return text.encode("utf-8", "backslashreplace").decode()


def _batch(rows: list[dict[str, object]]) -> pa.RecordBatch:
    whole = [{**dict.fromkeys(_TEXTS, ""), "shared": False, "number": 0, **row} for row in rows]
    return pa.RecordBatch.from_pylist(whole, schema=_LINE_SCHEMA)


def _named(own: DataFrame) -> DataFrame:
    """Add the column `key` to the lines: the name of the job where one is known, else its queue and id."""
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
        rows_in_order = sorted((row for batch in batches for row in batch.to_pylist()), key=itemgetter("number"))
        own = [decode_line(row["line"]) for row in rows_in_order if row["line"]]
        snapshot = None if taken is None else _snapshot(taken, [row["row"] for row in rows_in_order if row["row"]])
        rows = list(judge_jobs(header, [decode_line(text) for text in shared], own, snapshot))
        columns = [pa.array([row[number] for row in rows], pa.string()) for number in range(len(FINDING_COLUMNS))]
        yield pa.RecordBatch.from_arrays(columns, names=list(FINDING_COLUMNS))

    return judge_partition


def _snapshot(taken: tuple[str, int], rows: Iterable[str]) -> Snapshot:
    wide = [json.loads(row) for row in rows]
    return snapshot_of(*taken, ((row["table"], narrowed(row)) for row in wide))


EXAMPLES_OF_A_CHECK = 20
"""Findings of each check that reports show."""


class JobFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. `evidence`: lines of the history, as JSON."""

    check: str
    job: str
    message: str
    evidence: str


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome: findings by check (all checks, also those without any), and examples of them."""

    history: str
    snapshot: str
    by_check: dict[str, int]
    examples: list[JobFinding]

    @property
    def total(self) -> int:
        """Number of findings."""
        return sum(self.by_check.values())


def result_of(found: DataFrame, history: str, snapshot: str) -> HistoryResult:
    """Count, and take examples; only these come to the driver."""
    kept = found.persist()
    counts = {row["check"]: row["count"] for row in kept.groupBy("check").count().collect()}
    within = Window.partitionBy("check").orderBy("job", "message")
    rows = (
        kept.withColumn("n", sql.row_number().over(within))
        .where(sql.col("n") <= EXAMPLES_OF_A_CHECK)
        .drop("n")
        .collect()
    )
    return HistoryResult(
        history=history,
        snapshot=snapshot,
        by_check={check.name: counts.get(check.name, 0) for check in CHECKS},
        examples=[JobFinding(**row.asDict()) for row in rows],
    )
