"""Stored snapshots: a live store is read once, in parallel parts, and its facts are recorded. No Spark."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from redis.exceptions import ResponseError

from conformance.gate.records import KIT_VERSION
from conformance.observe.canonical_rules import CLOCK_TOLERANCE_MS, PLAUSIBLE_SINCE_MS
from conformance.servers.connection import Client, connect, connect_node, explained, read_facts
from conformance.upstream.manifest import load_manifest
from reports.distribution import Distribution, InProcesses, InThreads, attempt_number
from reports.progress import Watch, unwatched
from reports.snapshot.digests.library import fingerprint_here
from reports.snapshot.digests.rows import DIGESTED, digests_of
from reports.snapshot.folders import Folder, explained_folder
from reports.snapshot.format import (
    GENERATED_ID,
    QueueFacts,
    SnapshotManifest,
    buckets_of,
    claim_folder,
    drop_unclaimed,
    file_name,
    lots_for,
    write_digests,
    write_file,
    write_manifest,
)
from reports.snapshot.plan import KeyspacePart, RedisSource, plan_reading
from reports.snapshot.reading import read_part
from reports.snapshot.rows import as_bytes, as_text, rows_of

ROWS_AT_A_TIME = 125_000
BYTES_AT_A_TIME = 64 * 1024 * 1024
"""Rows of one table, and their bytes, that are held before they are written; as many times more as `lots_for` says."""

_WITH_JOB_IDS = frozenset({"jobs", "memberships"})


class RowCount(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one table and queue. `generated`: some job id was. `event_limit`: the setting `opts.maxLenEvents`.

    `first_ms`: when the first of these jobs or events was added, Unix ms.
    """

    table: str
    queue: str
    rows: int
    generated: bool = False
    event_limit: float | None = None
    first_ms: int | None = None


class WrittenPart(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one attempt at a part: counts, and the kind of the digests (empty: no row has one).

    `files`: paths below the folder of the snapshot, and sizes (bytes).
    """

    files: dict[str, int]
    counts: list[RowCount]
    digests: str = ""


@dataclass(frozen=True, kw_only=True)
class RowPlace:
    """The destination of rows: the folder of a snapshot, in `buckets` buckets. `prefix`: common to all keys."""

    folder: Folder
    buckets: int
    prefix: str


@dataclass(frozen=True, kw_only=True)
class SnapshotWrite:
    """A snapshot to write: what is read, and where it goes."""

    source: RedisSource
    folder: Folder
    buckets: int

    @property
    def place(self) -> RowPlace:
        """The folder of its rows."""
        return RowPlace(folder=self.folder, buckets=self.buckets, prefix=self.source.prefix)


@dataclass(frozen=True, kw_only=True)
class PartWrite:
    """A part of the store to read and write; `number`: which one."""

    write: SnapshotWrite
    part: KeyspacePart
    number: int


MOST_KEYS_IN_THREADS = 150_000
"""For more keys, starting processes takes less time than the threads of one interpreter lose to each other."""


def write_part(task: PartWrite) -> WrittenPart:
    """Read one part and write its files: from the socket through Arrow into Parquet.

    Raises EnvironmentProblem where Redis cannot be read, or the disk is full.
    """
    place, attempt = task.write.place, attempt_number()
    with explained_folder(place.folder):
        batches = read_part(task.write.source, task.part)
        done = [
            write_rows(place, table, rows, part=task.number, attempt=attempt, number=written)
            for written, (table, rows) in enumerate(collected_by_table(batches, place.buckets))
        ]
    return WrittenPart(
        files={path: size for each in done for path, size in each.files.items()},
        counts=[counted for each in done for counted in each.counts],
        digests=fingerprint_here(),
    )


def write_rows(place: RowPlace, table: str, rows: pa.Table, *, part: int, attempt: int, number: int) -> WrittenPart:
    """Write rows of one table, a file for each bucket, and their digests. Raises OSError where the disk is full."""
    files: dict[str, int] = {}
    for bucket, share in in_buckets(rows, place.buckets):
        name = file_name(bucket, part, attempt, number)
        written = [write_file(place.folder, table, name, share)]
        if table in DIGESTED:
            digests = digests_of(table, share, as_bytes(place.prefix))
            written.append(write_digests(place.folder, table, name, digests))
        files.update(written)
    return WrittenPart(files=files, counts=list(row_counts(table, rows)), digests=fingerprint_here())


def digests_in(written: Iterable[WrittenPart]) -> str:
    """Of which kind the digests are; empty if there are several kinds (an executor may have no compiler)."""
    kinds = {part.digests for part in written}
    return kinds.pop() if len(kinds) == 1 else ""


def files_in(written: Iterable[WrittenPart]) -> dict[str, int]:
    """Paths and sizes of all files, in the order of the paths."""
    return dict(sorted(file for part in written for file in part.files.items()))


def collected_by_table(batches: Iterator[pa.RecordBatch], buckets: int) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each table, in chunks that are large enough for the number of buckets."""
    held: defaultdict[str, HeldRows] = defaultdict(HeldRows)
    for batch in batches:
        found = pc.unique(batch.column("table")).to_pylist()
        for table in found:
            held[table].add(batch if len(found) == 1 else batch.filter(pc.equal(batch.column("table"), table)))
            if held[table].is_much(lots_for(buckets)):
                yield table, pa.Table.from_batches(held.pop(table).batches)
    for table, rows in held.items():
        yield table, pa.Table.from_batches(rows.batches)


@dataclass
class HeldRows:
    """Rows of a table that are written together. `size`: in bytes."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold these too. Their size is asked once, because Arrow reads every column for it."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size += batch.nbytes

    def is_much(self, lots: int) -> bool:
        """Whether it is time to write them."""
        return self.rows >= lots * ROWS_AT_A_TIME or self.size >= lots * BYTES_AT_A_TIME


def in_buckets(rows: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has any. Rows without a job id are in the bucket of the empty id."""
    if buckets == 1:
        yield 0, rows
        return
    places = buckets_of(rows.column("id").combine_chunks().view(pa.binary()), buckets)
    order = np.argsort(places, kind="stable")
    ordered = rows.take(pa.array(order))
    ends = np.searchsorted(places[order], np.arange(buckets), side="right")
    start = 0
    for bucket, end in enumerate(ends.tolist()):
        if end > start:
            yield bucket, ordered.slice(start, end - start)
        start = end


def row_counts(table: str, rows: pa.Table) -> Sequence[RowCount]:
    """Counts by queue."""
    queues = rows.column("queue").combine_chunks().view(pa.binary())
    generated = _queues_with_generated_ids(rows, queues) if table in _WITH_JOB_IDS else set()
    limits = _event_limits(rows) if table == "metas" else {}
    firsts = _first_times(table, rows, queues) if table in _TIMES else {}
    return [
        RowCount(
            table=table,
            queue=as_text(found["values"] or b""),
            rows=found["counts"],
            generated=found["values"] in generated,
            event_limit=limits.get(found["values"]),
            first_ms=firsts.get(found["values"]),
        )
        for found in pc.value_counts(queues).to_pylist()
    ]


def _queues_with_generated_ids(rows: pa.Table, queues: pa.Array) -> set[bytes]:
    ids = rows.column("id").combine_chunks().view(pa.binary())
    return set(pc.unique(queues.filter(pc.match_substring_regex(ids, GENERATED_ID))).to_pylist())


def _time_of_jobs(rows: pa.Table) -> pa.Array:
    return pc.map_lookup(rows.column("fields").combine_chunks(), pa.scalar("timestamp"), "first")


def _time_of_events(rows: pa.Table) -> pa.Array:
    return rows.column("key").combine_chunks()


_TIMES: Mapping[str, Callable[[pa.Table], pa.Array]] = {"jobs": _time_of_jobs, "events": _time_of_events}
"""Tables whose rows have a time in Unix ms at the beginning of a text."""


def _first_times(table: str, rows: pa.Table, queues: pa.Array) -> dict[bytes, int]:
    """The first time of each queue."""
    digits = pc.struct_field(pc.extract_regex(_TIMES[table](rows), r"^(?P<ms>[0-9]{1,18})(?:-[0-9]+)?$"), [0])
    times = pa.table({"queue": queues, "ms": pc.cast(digits, pa.int64())})
    # A job with a timestamp in seconds was not added before the first event.
    times = times.filter(pc.greater_equal(times.column("ms"), PLAUSIBLE_SINCE_MS))
    found = times.group_by("queue").aggregate([("ms", "min")]).to_pylist()
    return {row["queue"]: row["ms_min"] for row in found if row["ms_min"] is not None}


def _event_limits(rows: pa.Table) -> dict[bytes, float]:
    """`opts.maxLenEvents` of each queue that has it as a number."""
    found: dict[bytes, float] = {}
    for batch in rows.to_batches():
        for wide in rows_of(batch):
            limit = dict(wide["fields"] or ()).get("opts.maxLenEvents", "")
            if limit.replace(".", "", 1).isdigit():
                found[as_bytes(wide["queue"])] = float(limit)
    return found


def script_facts() -> tuple[str, str]:
    """Version of the pinned BullMQ, and one SHA-256 over the SHA-1 of all of its scripts, in the order of names."""
    manifest = load_manifest()
    digests = "".join(manifest.scripts[name].sha1 for name in sorted(manifest.scripts))
    return manifest.version, hashlib.sha256(digests.encode()).hexdigest()


def redis_facts(source: RedisSource) -> tuple[str, dict[str, str]]:
    """Version of the Redis and the settings that matter to BullMQ. Raises redis errors."""
    address = source.address
    with connect_node(address, address.nodes[0]) as client:
        facts = read_facts(client)
    return facts.version, facts.settings


@dataclass(frozen=True, kw_only=True)
class StreamFacts:
    """Facts about an event stream. `last`: id of the last entry ever written; it changes with every event of a queue.

    `is_trimmed`: whether older entries are gone; None if the server does not say it.
    """

    last: str = ""
    is_trimmed: bool | None = None


def stream_facts(source: RedisSource, queues: Iterable[str]) -> dict[str, StreamFacts]:
    """The facts about the event stream of each queue."""
    with connect(source.address) as client:
        return {queue: _facts_of_stream(client, f"{source.prefix}:{queue}:events") for queue in sorted(queues)}


def _facts_of_stream(client: Client, key: str) -> StreamFacts:
    untyped: Any = client
    try:
        found = untyped.xinfo_stream(key)
    except ResponseError:
        return StreamFacts()
    added, deleted = found.get("entries-added"), found.get("max-deleted-entry-id")
    # XDEL takes single entries, of which the server does not count how many there were.
    is_known = added is not None and deleted == b"0-0"
    return StreamFacts(last=str(found["last-generated-id"]), is_trimmed=added > found["length"] if is_known else None)


def queues_of(parts: Iterable[KeyspacePart]) -> list[str]:
    """Names of the queues that a plan knows."""
    return sorted({single.queue for part in parts for single in part.parts})


def save(
    source: RedisSource,
    folder: Folder,
    distribution: Distribution | None = None,
    *,
    seed: int | None = None,
    workload: dict[str, Any] | None = None,
    announce: Callable[[str], None] = lambda _: None,
    watch: Watch = unwatched,
) -> SnapshotManifest:
    """Read a live store once and keep it as Parquet, in memory that does not grow with the store.

    `distribution`: where its parts are read and written; by default in this process, or in several of this machine if
    the store is large. Raises Problems; what is left of a failed attempt has no manifest.
    """
    claim_folder(folder)
    began = time.monotonic()
    with explained(source.address):
        planned = plan_reading(source)
        queues = queues_of(planned.parts)
        version, settings = redis_facts(source)
        # Asked before the first row is read and after the last: else a queue that moved in between would go unnoticed.
        before = stream_facts(source, queues)
    task = SnapshotWrite(source=source, folder=folder.absolute(), buckets=planned.buckets)
    parts = [PartWrite(write=task, part=part, number=number) for number, part in enumerate(planned.parts)]
    where = distribution or (InProcesses(last=source.is_shared) if planned.keys > MOST_KEYS_IN_THREADS else InThreads())
    written = _written(where, parts, watch)
    with explained_folder(folder):
        drop_unclaimed(folder, (name for part in written for name in part.files))
    reading_ms = int((time.monotonic() - began) * 1000)
    with explained(source.address):
        after = stream_facts(source, queues)
    moving = [queue for queue in queues if before[queue].last != after[queue].last]
    if moving:
        announce(f"the queue moved while it was read: {', '.join(moving[:5])}; its tables are of different instants")
    bullmq, digest = script_facts()
    trimmed = {queue: facts.is_trimmed for queue, facts in after.items() if facts.is_trimmed is not None}
    tables, facts = summed(written, trimmed)
    manifest = SnapshotManifest(
        kit=KIT_VERSION,
        bullmq=bullmq,
        scripts_sha256=digest,
        source=source.address.text,
        prefix=source.prefix,
        queue=source.queue,
        taken_ms=planned.parts[0].taken_ms,
        reading_ms=reading_ms,
        redis_settings=settings,
        redis_version=version,
        rows=tables,
        moving=moving,
        queues=facts,
        buckets=planned.buckets,
        digests=digests_in(written),
        files=files_in(written),
        seed=seed,
        workload=workload,
    )
    write_manifest(folder, manifest)
    return manifest


def _written(where: Distribution, parts: Sequence[PartWrite], watch: Watch) -> list[WrittenPart]:
    """Read and keep all parts, however they are distributed."""
    written = []
    with watch(f"reading {parts[0].write.source.address.text}", len(parts)) as progress:
        for part in where.run(write_part, parts):
            written.append(part)
            progress.advance(jobs=sum(counted.rows for counted in part.counts if counted.table == "jobs"))
    return written


def summed(written: Sequence[WrittenPart], trimmed: Mapping[str, bool]) -> tuple[dict[str, int], dict[str, QueueFacts]]:
    """Rows by table, and facts by queue. `trimmed`: whether the event stream of a queue was, where the server says it.

    Else: BullMQ adds events with `XADD MAXLEN ~ limit` (upstream `includes/getOrSetMaxEvents.lua`), which trims nothing
    before the limit is reached. A stream that is shorter is complete, unless `trimEvents` made it so: then there are
    jobs that are older than its first entry.
    """
    tables: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    events: Counter[str] = Counter()
    limits: dict[str, float] = {}
    firsts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    generated: set[str] = set()
    for counted in (counted for part in written for counted in part.counts):
        tables[counted.table] += counted.rows
        queues[counted.queue] += counted.rows
        if counted.table == "events":
            events[counted.queue] += counted.rows
        if counted.first_ms is not None:
            known = firsts[counted.queue]
            known[counted.table] = min(counted.first_ms, known.get(counted.table, counted.first_ms))
        if counted.event_limit is not None:
            limits[counted.queue] = counted.event_limit
        if counted.generated:
            generated.add(counted.queue)
    return dict(tables), {
        queue: QueueFacts(
            rows=number,
            events_complete=not trimmed.get(
                queue, events[queue] >= limits.get(queue, 1) or _has_lost_its_beginning(firsts[queue])
            ),
            generated_ids=queue in generated,
        )
        for queue, number in sorted(queues.items())
    }


def _has_lost_its_beginning(firsts: Mapping[str, int]) -> bool:
    """Whether the first job of a queue is older than its first event."""
    return {"jobs", "events"} <= firsts.keys() and firsts["jobs"] + CLOCK_TOLERANCE_MS < firsts["events"]
