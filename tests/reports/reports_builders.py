"""Stores for the tests of the pipeline: queues with rows of every table, and one difference of every class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyspark.sql import SparkSession

from conformance.observe.tables import TABLES, Snapshot
from conformance.servers import RedisInstance
from reports.diff import equality
from reports.diff.equality import JobDigests, JobEquality, unequal_jobs
from reports.diff.explanation import compare_group, difference_row, explained
from reports.diff.generated_ids import numbers_in
from reports.diff.hidden_values import HiddenCounts
from reports.diff.queue_groups import SHARED
from reports.diff.values import DiffSettings, DiffSide
from reports.snapshot.digests.records import keys_of
from reports.snapshot.digests.rows import JOB_TABLES, digests_of
from reports.snapshot.folders import Folder
from reports.snapshot.format import SnapshotFolder, open_snapshot_folder
from reports.snapshot.plan import RedisSource
from reports.snapshot.rows import Tables, as_bytes, batch_of, rows_by_table, wide_rows
from reports.snapshot.spark_rows import StoredSnapshot, open_stored
from reports.snapshot.store import save
from tests.observe.snapshot_builders import ADDED, Stream, Zset, event, job

FINISHED = str(ADDED + 2000)

Keys = dict[str, Any]
"""Key names after the prefix, and values as in `tests.observe.snapshot_builders`."""


def finished_job(**fields: str) -> dict[str, str]:
    """The hash of a completed job."""
    return job(
        **{"processedOn": str(ADDED + 1000), "finishedOn": FINISHED, "returnvalue": "null", "atm": "1", **fields}
    )


def plain_store(prefix: str = "p") -> Keys:
    """A queue with a job in most containers, a flow, logs, locks, a deduplication key, settings and events."""
    return {
        **{f"q:{number}": job(data=f'{{"n":{number}}}') for number in range(1, 10)},
        "q:wait": ["1", "2", "3", "4"],
        "q:active": ["5", "6"],
        "q:5:lock": "token-a",
        "q:6:lock": "token-b",
        "q:delayed": Zset({"7": (ADDED + 0.0) * 4096}),
        "q:paused": ["8"],
        "q:prioritized": Zset({"9": 3.0}),
        "q:10": finished_job(),
        "q:11": finished_job(),
        "q:completed": Zset({"10": float(FINISHED), "11": float(FINISHED)}),
        "q:10:logs": ["one", "two"],
        "q:parent": job(),
        "q:waiting-children": Zset({"parent": float(ADDED)}),
        "q:parent:dependencies": {f"{prefix}:q:1"},
        "q:de:once": "1",
        "q:meta": {"opts.maxLenEvents": "10000", "version": "bullmq:5.62.0"},
        "q:id": "11",
        "q:events": Stream([event("added", jobId="1", name="n"), event("waiting", jobId="1")]),
    }


def saved(spark: SparkSession, source: RedisSource, folder: Folder) -> StoredSnapshot:
    """Read a store in this process, and open its snapshot for Spark."""
    save(source, folder)
    return open_stored(spark, folder)


def kept_here(source: RedisSource, folder: Folder) -> SnapshotFolder:
    """Read a store in this process, and open its snapshot."""
    save(source, folder)
    return open_snapshot_folder(folder)


def rows_in(folder: Folder) -> list[dict[str, str]]:
    """The differences in a folder."""
    found: list[dict[str, str]] = []
    for name in sorted(folder.names()):
        with folder.opened(name) as file:
            found += pyarrow.parquet.ParquetFile(file).read().to_pylist()
    return found


def write(server: RedisInstance, prefix: str, keys: Mapping[str, Any]) -> None:
    with server.connect() as client:
        untyped: Any = client
        for name, value in keys.items():
            _write(untyped, f"{prefix}:{name}", value)


def _write(client: Any, key: str, value: Any) -> None:
    if isinstance(value, Stream):
        for number, fields in enumerate(value):
            client.xadd(key, fields, id=f"{ADDED}-{number}")
    elif isinstance(value, Zset):
        client.zadd(key, value)
    elif isinstance(value, dict):
        client.hset(key, mapping=value)
    elif isinstance(value, list):
        client.rpush(key, *value)
    elif isinstance(value, set):
        client.sadd(key, *value)
    else:
        client.set(key, value)


def planted(keys: Keys) -> tuple[Keys, set[tuple[str, str]]]:
    """The same store with one difference of every class, and the class and key of each."""
    changed: Keys = {name: (value if isinstance(value, str) else type(value)(value)) for name, value in keys.items()}
    changed["q:events"] = Stream([*keys["q:events"], event("completed", jobId="4", returnvalue="1")])
    changed["q:events"].remove(event("waiting", jobId="1"))
    del changed["q:2"]
    changed["q:wait"] = ["1", "2", "4", "3"]
    changed["q:extra"] = job()
    changed["q:prioritized"] = Zset({"extra": 3.0})
    changed["q:completed"] = Zset({"9": 3.0, "10": float(FINISHED)})
    changed["q:failed"] = Zset({"10": float(FINISHED)})
    changed["q:1"] = job(data='{"n":"one"}', priority="many")
    changed["q:7:logs"] = ["not there before"]
    changed["q:9:lock"] = "token-c"
    changed["q:gone:lock"] = "token-d"
    del changed["q:8"]
    changed["q:paused"] = []
    changed["q:meta"] = {**keys["q:meta"], "concurrency": "3"}
    changed["q:parent:dependencies"] = {*keys["q:parent:dependencies"], "p:q:3"}
    del changed["q:5:lock"]
    changed = {name: value for name, value in changed.items() if value != []}
    return changed, {
        ("dangling", "q:2"),
        ("order", "q:wait"),
        ("extra", "q:extra"),
        ("wrong-state", "q:9"),
        ("two-states", "q:10"),
        ("no-state", "q:11"),
        ("field", "q:1"),
        ("type", "q:1"),
        ("extra", "q:7"),
        ("orphan", "q:gone"),
        ("missing", "q:8"),
        ("stale-lock", "q:9"),
        ("field", "q:meta"),
        ("member", "q:parent"),
        ("lock", "q:5"),
        ("transition-without-event", "q:1"),
        ("event-without-transition", "q:4"),
    }


def settings_for(expected: Snapshot, actual: Snapshot, **changes: Any) -> DiffSettings:
    sides = [DiffSide(prefix=side.prefix, taken_ms=side.taken_ms) for side in (expected, actual)]
    return DiffSettings(expected=sides[0], actual=sides[1], **changes)


def differences_of(
    expected: Snapshot, actual: Snapshot, hidden: HiddenCounts | None = None, **changes: Any
) -> list[tuple[str, ...]]:
    """Differences that the pipeline's comparers find, called without Spark; those that rules hide count in `hidden`."""
    settings = settings_for(expected, actual, **changes)
    hidden = Counter() if hidden is None else hidden
    sides = rows_in_doubt(expected, actual, settings, hidden)
    found = [
        difference_row(difference, pair, key[0])
        for key, pair in unequal_jobs(rows_by_table(sides[0]), rows_by_table(sides[1]), settings, hidden)
        for difference in explained(pair)
    ]
    groups = [[(table, row) for table in LOOSE for row in getattr(side, table)] for side in (expected, actual)]
    return [*found, *compare_group(("q", SHARED), (groups[0], groups[1]), settings, hidden)]


def digests_by_table(side: Snapshot, tables: Tables) -> dict[str, pa.Table]:
    return {table: digests_of(table, rows, as_bytes(side.prefix)) for table, rows in tables.items()}


def by_digests(expected: Snapshot, actual: Snapshot, **changes: Any) -> JobEquality:
    facts = settings_for(expected, actual, **changes)
    left, right = (
        JobDigests(digests_by_table(side, tables_of(side)), about)
        for side, about in zip((expected, actual), facts.sides, strict=True)
    )
    return JobEquality(left, right, facts)


def rows_in_doubt(
    expected: Snapshot, actual: Snapshot, settings: DiffSettings, hidden: HiddenCounts
) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """The rows of the jobs that digests leave to the rules; what these hide in all others is added to `hidden`."""
    found = by_digests(expected, actual, switched_off=settings.switched_off, trimmed=settings.trimmed)
    hidden.update(found.hidden())
    left, right = (rows_of_jobs(tables_of(side), found.wanted) for side in (expected, actual))
    return left, right


def rows_of_jobs(tables: Tables, wanted: Any) -> dict[str, pa.Table]:
    """The rows of some jobs, given by their numbers."""
    return {table: rows.filter(pa.array(np.isin(numbers_in(rows), wanted))) for table, rows in tables.items()}


def tables_of(side: Snapshot) -> Tables:
    """The rows of all jobs as they are read from a stored snapshot, events without a job left out."""
    rows = pa.Table.from_batches([batch_of(wide_rows(side))])
    owned = rows.filter(pc.fill_null(pc.not_equal(rows.column("id"), ""), fill_value=False))
    return {table: owned.filter(pc.equal(owned.column("table"), table)).drop_columns(["table"]) for table in JOB_TABLES}


def listed(expected: Snapshot, actual: Snapshot, **changes: Any) -> set[bytes]:
    """Keys of the jobs for which the explanation, asked about every job, lists something."""
    tables = [{table: list(getattr(side, table)) for table in JOB_TABLES} for side in (expected, actual)]
    with patch.object(equality, "_alike", return_value=False):
        pairs = list(unequal_jobs(tables[0], tables[1], settings_for(expected, actual, **changes), Counter()))
    return {":".join(key).encode() for key, pair in pairs if explained(pair)}


def hidden_in_jobs(expected: Snapshot, actual: Snapshot, *, with_digests: bool) -> HiddenCounts:
    """How much of the jobs the rules hide, with digests or by the rules alone."""
    settings, hidden = settings_for(expected, actual), Counter[str]()
    sides = (tables_of(expected), tables_of(actual))
    if with_digests:
        sides = rows_in_doubt(expected, actual, settings, hidden)
    list(unequal_jobs(rows_by_table(sides[0]), rows_by_table(sides[1]), settings, hidden))
    return hidden


def names_by_number(tables: Tables) -> dict[int, bytes]:
    """The keys of all jobs by the number that digests have for them."""
    found: dict[int, bytes] = {}
    for rows in tables.values():
        if len(rows):
            found |= dict(zip(numbers_in(rows).tolist(), keys_of(rows).to_pylist(), strict=True))
    return found


LOOSE = tuple(table for table in TABLES if table not in {"logs", "dependencies", "events"})
"""Tables that the comparison gets by queue; jobs and memberships only for rules to read."""
