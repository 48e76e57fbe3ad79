"""What is measured of a load: latencies, the backlog over time, and the result that keeps them (`load.json`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from hdrh.histogram import HdrHistogram
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from redis.exceptions import RedisError

from conformance.protocol.states import LIST_CONTAINERS, STATE_CONTAINERS
from conformance.servers.connection import Client, connect
from reports.load.target import LoadTarget
from reports.load.workload import Workload

LARGEST_MS = 24 * 3600 * 1000
"""Longer latencies are counted as one day."""

DIGITS = 3

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """What a histogram says, in ms. `early`: values below zero (clocks that differ), counted as zero."""

    count: int
    mean: float
    percentiles: dict[str, float]
    early: int = 0


class Histogram:
    """An HDR histogram of whole milliseconds: executors fill theirs apart, and they add up without losing precision."""

    def __init__(self) -> None:
        self._counts = HdrHistogram(1, LARGEST_MS, DIGITS)
        self.early = 0

    def record(self, ms: int) -> None:
        """Count one value."""
        if ms < 0:
            self.early += 1
        self._counts.record_value(min(max(ms, 0), LARGEST_MS))

    def encode(self) -> bytes:
        """As bytes, for the way from an executor to the driver."""
        encoded: bytes = self._counts.encode()
        return encoded

    def add(self, encoded: bytes, early: int) -> None:
        """Add what another one has counted."""
        self._counts.decode_and_add(encoded)
        self.early += early

    def latency(self) -> Latency:
        """Count, mean and percentiles."""
        counts = self._counts
        values = {f"{p:g}": float(counts.get_value_at_percentile(p)) for p in PERCENTILES}
        mean = float(counts.get_mean_value()) if counts.total_count else 0.0
        return Latency(count=counts.total_count, mean=round(mean, 3), percentiles=values, early=self.early)


def merged(parts: Iterable[tuple[str, bytes, int]]) -> Mapping[str, Histogram]:
    """Histograms by name, from triples of name, encoded histogram and early values."""
    found: dict[str, Histogram] = {}
    for name, encoded, early in parts:
        found.setdefault(name, Histogram()).add(encoded, early)
    return found


MOST_SAMPLES = 400
"""Samples of a series that a report keeps."""

SAMPLE_EVERY_S = 0.25
_FINISHED = {b"completed", b"failed"}


class BacklogSample(msgspec.Struct, frozen=True, kw_only=True):
    """The backlog, ms since the start of the load: members of each container over all queues. `added`: jobs, ever."""

    at_ms: int
    counts: dict[str, int]
    added: int


def counts_of(client: Client, target: LoadTarget) -> tuple[dict[str, int], int]:
    """Members of each container over all queues of the load, and how many jobs were ever added. Raises redis errors."""
    untyped: Any = client
    bases = [f"{target.prefix}:{queue}:" for queue in target.workload.queue_names]
    pipeline = untyped.pipeline() if hasattr(client, "get_primaries") else untyped.pipeline(transaction=False)
    for base in bases:
        for name in STATE_CONTAINERS:
            (pipeline.llen if name in LIST_CONTAINERS else pipeline.zcard)(base + name)
        pipeline.get(f"{base}id")
    replies = pipeline.execute()
    width = len(STATE_CONTAINERS) + 1
    by_queue = [replies[start : start + width] for start in range(0, len(replies), width)]
    counts = {name: sum(int(reply[number]) for reply in by_queue) for number, name in enumerate(STATE_CONTAINERS)}
    return counts, sum(int(reply[-1] or 0) for reply in by_queue)


class BacklogSeries:
    """Samples the backlog from time to time."""

    def __init__(self, target: LoadTarget) -> None:
        self.samples: list[BacklogSample] = []
        self.latest: dict[str, int] = {}
        self.added = 0
        self._target = target

    def sample(self, client: Client) -> None:
        """Take one sample. Raises redis errors."""
        self.latest, self.added = counts_of(client, self._target)
        at_ms = int(time.time() * 1000) - self._target.start_ms
        self.samples.append(BacklogSample(at_ms=at_ms, counts=self.latest, added=self.added))

    def thinned(self) -> list[BacklogSample]:
        """At most MOST_SAMPLES of the samples, evenly chosen, the last one included."""
        step = -(-len(self.samples) // MOST_SAMPLES) or 1
        return [sample for number, sample in enumerate(reversed(self.samples)) if number % step == 0][::-1]


class FinishListener:
    """Reads the event streams and measures from an entry's own time (the server's clock) to the moment it is here."""

    def __init__(self, target: LoadTarget) -> None:
        self.histogram = Histogram()
        self._last: dict[str, str] = {f"{target.prefix}:{queue}:events": "0-0" for queue in target.workload.queue_names}

    def read(self, client: Client) -> None:
        """Take what is new. Raises redis errors."""
        untyped: Any = client
        for key, last in self._last.items():
            for _, entries in untyped.xread({key: last}, count=5000) or ():
                self._take(key, entries)

    def _take(self, key: str, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]) -> None:
        now_ms = int(time.time() * 1000)
        for entry, fields in entries:
            if fields.get(b"event") in _FINISHED:
                self.histogram.record(now_ms - int(entry.split(b"-")[0]))
        self._last[key] = entries[-1][0].decode()


@contextmanager
def observing(target: LoadTarget) -> Iterator[tuple[BacklogSeries, FinishListener]]:
    """Sample and listen in the background for the duration of the block."""
    series, listener, ended = BacklogSeries(target), FinishListener(target), threading.Event()

    def work() -> None:
        with connect(target.address) as client:
            while not ended.wait(SAMPLE_EVERY_S):
                # A Redis that is away for a moment is the producers' business; there is just no sample of it.
                try:
                    series.sample(client)
                    listener.read(client)
                except RedisError:
                    continue

    thread = threading.Thread(target=work, name="observing", daemon=True)
    thread.start()
    try:
        yield series, listener
    finally:
        ended.set()
        # Otherwise a last sample could be taken while the series is being read.
        thread.join()


MEANINGS: Mapping[str, str] = {
    "scheduled-to-added": "from the scheduled instant to the job's timestamp",
    "due-to-active": "from due (timestamp + delay) to the start of processing, jobs that ran once",
    "active-to-finished": "from the start of processing to its end, jobs that ran once",
    "delayed-late": "how long after its due time a delayed job started, jobs that ran once",
    "scheduled-to-finished": "from the scheduled instant to the end, whatever happened between",
}
"""Every latency that is read from job hashes."""

_HISTOGRAM_DDL = "name string, histogram binary, early bigint"


def job_latencies(jobs: DataFrame, planned: DataFrame, start_ms: int) -> dict[str, Latency]:
    """Latencies of all finished jobs. `jobs`: the table of a snapshot; `planned`: `jobs_of` the workload.

    They begin at the *scheduled* instant, not at the moment at which a producer that was held up came round to it: a
    system that stalls its producers must not look fast for it.
    """
    columns = _columns(start_ms)
    timed = jobs.join(planned.select("queue", "id", "scheduled_ms"), ["queue", "id"]).select(
        *(value.cast("bigint").alias(name) for name, value in columns.items())
    )
    parts = timed.mapInArrow(_histograms, _HISTOGRAM_DDL).collect()
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


LOAD_FILE = "load.json"


class LoadPhase(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs and how long they took."""

    jobs: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Throughput in jobs per second."""
        return self.jobs / self.seconds if self.seconds else 0.0


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """One load.

    `clients`: who took part, with all versions. `late_ms`: how far the producers fell behind the schedule at most.
    `final`: members by container.
    """

    kit: str
    command: str
    workload: Workload
    producer: str
    workers: list[str]
    redis: str
    prefix: str
    start_ms: int
    produced: LoadPhase
    finished: LoadPhase
    late_ms: int
    final: dict[str, int]
    latencies: dict[str, Latency]
    series: list[BacklogSample]
    clients: list[str] = []


def write_result(folder: Path, result: LoadResult) -> None:
    """Write `load.json`."""
    (folder / LOAD_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
