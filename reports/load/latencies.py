"""Latencies, rates and backlog of a load, computed in Spark from the events that its queues have kept.

All times are those of event ids, that is, of the clock of Redis.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from reports.load.barrier import ScheduleSegment
from reports.load.histograms import Histogram, Latency, merged
from reports.load.result import LoadPhase, TimeSlice
from reports.load.workload import Workload

MEANINGS: Mapping[str, str] = {
    "scheduled-to-added": "from the scheduled instant to the job's event `added`: Redis has it",
    "due-to-active": "from due (added, or the end of the delay) to the event `active`, jobs that ran once",
    "active-to-finished": "from the event `active` to `completed` or `failed`, jobs that ran once",
    "delayed-late": "how long after its due time a delayed job became active, jobs that ran once",
    "scheduled-to-finished": "from the scheduled instant to the event of the end, retries and delays included",
}
"""Every latency that is read from events."""

WITHOUT_SCHEDULE = ("active-to-finished",)
"""The only one of a load without a rate: the others would only show the place of a job in the run."""

OVER_TIME = ("scheduled-to-added", "scheduled-to-finished")
"""Latencies that are also given for each slice of time."""

KINDS = ("flow", "delayed", "prioritized", "lifo", "plain")
"""Kinds of a job; the first that applies."""

MOST_QUEUES = 16
"""With more queues than that, latencies by queue are left out."""

MOST_SLICES = 120
_WIDTHS_MS = (250, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)

AHEAD_MS = 1000
"""How much earlier than it is due a job may seem to be added: a producer estimates the clock of Redis."""

ROWS_AT_A_TIME = 500_000
"""Jobs whose values are counted together."""


@dataclass(frozen=True, kw_only=True)
class LoadTimes:
    """The times of a load, from its events. `timed`: jobs whose event `added` is still there."""

    timed: int
    produced: LoadPhase
    finished: LoadPhase
    latencies: dict[str, Latency]
    by_kind: dict[str, dict[str, Latency]]
    by_queue: dict[str, dict[str, Latency]]
    slices: list[TimeSlice]
    exports: dict[str, str]


def measure(
    events: DataFrame, planned: DataFrame, workload: Workload, schedule: Sequence[ScheduleSegment]
) -> LoadTimes:
    """Everything that the events of a load say. `events`: table of a snapshot; `planned`: `jobs_of` the workload."""
    jobs = job_times(events, planned, schedule).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return _measured(jobs, workload, schedule)
    finally:
        jobs.unpersist()


def job_times(events: DataFrame, planned: DataFrame, schedule: Sequence[ScheduleSegment]) -> DataFrame:
    """One row per planned job, all times in Unix ms: when it was `scheduled`, `added`, `due`, `active`, `finished`.

    `runs`: how often it became active; `kind`: one of KINDS; `segment`: number of its part of the schedule. A time
    without an event is null. Children of flows are left out: they have no scheduled time.
    """
    name, at_ms = sql.col("event"), sql.split("id", "-")[0].cast("bigint")

    def first(*names: str) -> Column:
        return sql.min(sql.when(name.isin(*names), at_ms))

    lives = (
        events.where(name.isin("added", "delayed", "active", "completed", "failed"))
        .groupBy(sql.col("queue"), sql.col("job").alias("id"))
        .agg(
            first("added").alias("added"),
            first("active").alias("active"),
            sql.count(sql.when(name == "active", 1)).alias("runs"),
            sql.max(sql.when(name.isin("completed", "failed"), at_ms)).alias("finished"),
            # Upstream `addDelayedJob-6.lua`: the event says when the delay is over.
            sql.min(sql.when(name == "delayed", sql.col("fields")["delay"].cast("bigint"))).alias("due"),
        )
    )
    wanted = planned.select("queue", "id", "index", "scheduled_ms", _kind())
    joined = wanted.join(lives, ["queue", "id"], "left").withColumn("due", sql.coalesce("due", "added"))
    start, segment = _segment_of(schedule)
    times = {"scheduled": sql.col("scheduled_ms") + start, "segment": segment}
    return joined.withColumns(times).drop("index", "scheduled_ms")


def _segment_of(schedule: Sequence[ScheduleSegment]) -> tuple[Column, Column]:
    """The start of the schedule of a job's segment, and the number of that segment.

    A producer that is killed has added a batch that it has not counted: such jobs were there before a resumed schedule
    had them due, and belong to the segment before. Else the pause would count as work.
    """
    start, segment = sql.lit(schedule[0].start_ms), sql.lit(0)
    for number, later in enumerate(schedule[1:], 1):
        partitions = len(later.done)
        done = sql.array(*map(sql.lit, later.done))[sql.pmod(sql.col("index"), sql.lit(partitions)).cast("int")]
        was_there = sql.col("added") < sql.col("scheduled_ms") + later.start_ms - AHEAD_MS
        is_later = (sql.floor(sql.col("index") / partitions) >= done) & ~sql.coalesce(was_there, sql.lit(False))
        start = sql.when(is_later, later.start_ms).otherwise(start)
        segment = sql.when(is_later, number).otherwise(segment)
    return start, segment


def _kind() -> Column:
    def has(option: str) -> Column:
        return sql.get_json_object("opts", f"$.{option}").isNotNull()

    kinds = sql.when(sql.col("children") > 0, "flow").when(has("delay"), "delayed")
    return kinds.when(has("priority"), "prioritized").when(has("lifo"), "lifo").otherwise("plain").alias("kind")


def _measured(jobs: DataFrame, workload: Workload, schedule: Sequence[ScheduleSegment]) -> LoadTimes:
    windows = _windows(jobs)
    start_ms = schedule[0].start_ms
    ends = [time for window in windows for time in (window.last_added, window.last_finished) if time is not None]
    width_ms = _width(max(ends, default=start_ms) - start_ms)
    slicing = _Slicing(start_ms, width_ms)
    names = list(MEANINGS) if workload.rate else list(WITHOUT_SCHEDULE)
    counted = _histograms_of(jobs, names, slicing)
    by_queue = _of(counted, "queue") if workload.queues <= MOST_QUEUES else {}
    whole = {name: histogram for (by, _, name), histogram in counted.items() if by == "all"}
    timed = sum(window.added for window in windows)
    return LoadTimes(
        timed=timed,
        produced=LoadPhase(jobs=timed, seconds=_seconds(_added_windows(windows))),
        finished=LoadPhase(jobs=sum(window.finished for window in windows), seconds=_seconds(_worked_windows(windows))),
        latencies={name: whole[name].latency() for name in names if name in whole},
        by_kind=_of(counted, "kind"),
        by_queue=by_queue,
        slices=_slices(jobs, slicing, _of(counted, "slice"), has_schedule=bool(workload.rate)),
        exports={name: histogram.hgrm() for name, histogram in whole.items()},
    )


@dataclass(frozen=True, kw_only=True)
class _SegmentWindow:
    """Counts of one segment of the schedule, and its first and last times, Unix ms; None if there was no such event."""

    scheduled: int
    added: int
    first_added: int | None
    last_added: int | None
    first_active: int | None
    finished: int
    last_finished: int | None


def _windows(jobs: DataFrame) -> list[_SegmentWindow]:
    rows = jobs.groupBy("segment").agg(
        sql.min("scheduled").alias("scheduled"),
        sql.count("added").alias("added"),
        sql.min("added").alias("first_added"),
        sql.max("added").alias("last_added"),
        sql.min("active").alias("first_active"),
        sql.count("finished").alias("finished"),
        sql.max("finished").alias("last_finished"),
    )
    names = list(_SegmentWindow.__dataclass_fields__)
    return [_SegmentWindow(**row.asDict()) for row in rows.orderBy("segment").select(*names).collect()]


def _added_windows(windows: Sequence[_SegmentWindow]) -> list[tuple[int, int]]:
    return [
        (window.first_added, window.last_added)
        for window in windows
        if window.first_added is not None and window.last_added is not None
    ]


def _worked_windows(windows: Sequence[_SegmentWindow]) -> list[tuple[int, int]]:
    return [
        (window.first_active, window.last_finished)
        for window in windows
        if window.first_active is not None and window.last_finished is not None
    ]


def _seconds(windows: Iterable[tuple[int, int]]) -> float:
    """How long the windows are together; where they overlap, the time counts once."""
    total_ms, until = 0, 0
    for first, last in sorted(windows):
        total_ms += max(0, last - max(first, until))
        until = max(until, last)
    return total_ms / 1000


def _width(duration_ms: int) -> int:
    """The smallest of the widths with which there are not too many slices."""
    return next((width for width in _WIDTHS_MS if duration_ms / width <= MOST_SLICES), _WIDTHS_MS[-1])


@dataclass(frozen=True)
class _Slicing:
    """Time since `start_ms` in slices of `width_ms`."""

    start_ms: int
    width_ms: int

    def of(self, time: Column) -> Column:
        """Number of the slice of a time; times before the start are in the first slice."""
        return sql.greatest(sql.floor((time - self.start_ms) / self.width_ms), sql.lit(0)).cast("int")


def _columns(names: Sequence[str]) -> list[Column]:
    active, due, finished = sql.col("active"), sql.col("due"), sql.col("finished")
    ran_once = sql.col("runs") == 1
    values = {
        "scheduled-to-added": sql.col("added") - sql.col("scheduled"),
        "due-to-active": sql.when(ran_once, active - due),
        "active-to-finished": sql.when(ran_once, finished - active),
        "delayed-late": sql.when(ran_once & (sql.col("kind") == "delayed"), active - due),
        "scheduled-to-finished": finished - sql.col("scheduled"),
    }
    return [values[name].cast("bigint").alias(name) for name in names]


_GROUPINGS = ("all", "kind", "queue", "slice")
_HISTOGRAM_DDL = "`by` string, label string, name string, histogram binary, early bigint"
_HISTOGRAM_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("by", "label", "name")),
        ("histogram", pa.binary()),
        ("early", pa.int64()),
    ]
)
HistogramKey = tuple[str, str, str]
"""The grouping, the group, and the latency."""


def _histograms_of(jobs: DataFrame, names: Sequence[str], slicing: _Slicing) -> Mapping[HistogramKey, Histogram]:
    slice_label = slicing.of(sql.col("scheduled")).cast("string").alias("slice")
    labels = [sql.lit("").alias("all"), sql.col("kind"), sql.col("queue"), slice_label]
    parts = jobs.select(*labels, *_columns(names)).mapInArrow(_counting(names), _HISTOGRAM_DDL).collect()
    return merged(((row["by"], row["label"], row["name"]), bytes(row["histogram"]), row["early"]) for row in parts)


def _counting(names: Sequence[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from the values of jobs to one histogram for each latency and group."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: defaultdict[HistogramKey, Histogram] = defaultdict(Histogram)
        for rows in _in_tables(batches):
            for by in _GROUPINGS:
                for name in OVER_TIME if by == "slice" else names:
                    if name in names:
                        _count(found, rows, by, name)
        yield pa.RecordBatch.from_pylist(
            [
                {"by": by, "label": label, "name": name, "histogram": each.encode(), "early": each.early}
                for (by, label, name), each in found.items()
            ],
            schema=_HISTOGRAM_SCHEMA,
        )

    return count


def _in_tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= ROWS_AT_A_TIME:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _count(found: dict[HistogramKey, Histogram], rows: pa.Table, by: str, name: str) -> None:
    there = rows.filter(pc.is_valid(rows.column(name)))
    if not there.num_rows:
        return
    groups = there.column(by).combine_chunks().dictionary_encode()
    values = there.column(name).to_numpy()
    codes = groups.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(groups.dictionary)), side="right")
    for label, share in zip(groups.dictionary.to_pylist(), np.split(values[order], ends[:-1]), strict=True):
        found[by, label, name].record_all(share)


def _of(counted: Mapping[HistogramKey, Histogram], wanted: str) -> dict[str, dict[str, Latency]]:
    """Latencies of each group of one grouping."""
    found: defaultdict[str, dict[str, Latency]] = defaultdict(dict)
    order = {name: number for number, name in enumerate(MEANINGS)}
    for (by, label, name), histogram in sorted(counted.items(), key=lambda item: (item[0][1], order[item[0][2]])):
        if by == wanted:
            found[label][name] = histogram.latency()
    return dict(found)


def _slices(
    jobs: DataFrame, slicing: _Slicing, latencies: Mapping[str, Mapping[str, Latency]], *, has_schedule: bool
) -> list[TimeSlice]:
    """How many jobs were scheduled, added and finished in each slice of time, and what follows."""
    names = ["added", "finished", *(["scheduled"] if has_schedule else [])]
    moments = [_moments(jobs, slicing, name) for name in names]
    counts: Counter[tuple[str, int]] = Counter()
    for row in reduce(DataFrame.unionByName, moments).collect():
        counts[row["what"], row["slice"]] = row["count"]
    return list(_running(counts, slicing.width_ms, latencies))


def _moments(jobs: DataFrame, slicing: _Slicing, name: str) -> DataFrame:
    time = sql.col(name)
    return jobs.where(time.isNotNull()).groupBy(sql.lit(name).alias("what"), slicing.of(time).alias("slice")).count()


def _running(
    counts: Mapping[tuple[str, int], int], width_ms: int, latencies: Mapping[str, Mapping[str, Latency]]
) -> Iterator[TimeSlice]:
    offered = added = finished = 0
    for number in range(1 + max((slice_number for _, slice_number in counts), default=-1)):
        here: dict[str, Any] = {name: counts.get((name, number), 0) for name in ("scheduled", "added", "finished")}
        offered += here["scheduled"]
        added += here["added"]
        finished += here["finished"]
        yield TimeSlice(
            at_ms=number * width_ms,
            offered=here["scheduled"],
            added=here["added"],
            finished=here["finished"],
            backlog=added - finished,
            unsent=max(0, offered - added),
            latencies={name: found.percentiles for name, found in latencies.get(str(number), {}).items()},
        )
