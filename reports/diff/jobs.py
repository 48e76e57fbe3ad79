"""Compare jobs in bulk: everything that belongs to one job on one side with the same on the other. No Spark.

The rules and the comparison are the gate's own. Jobs that are certainly the same are taken out first
(`reports.diff.sieve`). Rules are applied to all others at once; the comparison, which explains, is asked only about
those jobs whose canonical rows are not equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from conformance.observe.diff import diff
from conformance.observe.tables import Event, Job, Membership, Snapshot
from reports.diff.columns import keys_of
from reports.diff.settings import Settings
from reports.diff.sieve import SideOfBucket, Sieve, Tables
from reports.diff.table import Pair, batch_of_rows, row_of
from reports.snapshot.files import read_bucket
from reports.snapshot.rows import as_bytes, decoded, narrowed, snapshot_of

JobKey: TypeAlias = tuple[str, str]
Group: TypeAlias = dict[str, list[Any]]
"""The rows of one job, by table."""

JOB_TABLES = ("jobs", "memberships", "dependencies", "logs", "events")
"""Tables whose rows belong to the job named in the column `id`."""

_MEANS_PREFIX = "own-prefix"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What executors compare: two stored snapshots in so many buckets, without some queues.

    `queue`, `job`: where not empty, nothing else is compared.
    """

    folders: tuple[Path, Path]
    buckets: int
    settings: Settings
    left_out: tuple[str, ...] = ()
    queue: str = ""
    job: str = ""


def comparer(work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from numbers of buckets (column `id`) to the differences of their jobs."""

    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for bucket in batch.column("id").to_pylist():
                yield batch_of_rows(differences_in(work, bucket))

    return compare


def differences_in(work: Work, bucket: int) -> Iterator[tuple[str, ...]]:
    """The differences of all jobs of one bucket."""
    sides = [_read(work, folder, bucket) for folder in work.folders]
    left, right = (rows_by_table(tables) for tables in without_certain(sides[0], sides[1], work.settings))
    for key, pair in unequal_jobs(left, right, work.settings):
        yield from _explained(key, pair)


def without_certain(left: Tables, right: Tables, settings: Settings) -> tuple[Tables, Tables]:
    """Both sides without the jobs that are certainly the same."""
    sides = [SideOfBucket(tables, facts) for tables, facts in zip((left, right), settings.sides, strict=True)]
    certain = Sieve(sides[0], sides[1], settings).certain()
    found = [
        {table: rows.filter(pc.invert(pc.is_in(keys_of(rows), value_set=certain))) for table, rows in side.items()}
        for side in (left, right)
    ]
    return found[0], found[1]


def _read(work: Work, folder: Path, bucket: int) -> Tables:
    """The rows of a bucket that belong to jobs; events without a job belong to their queue."""
    return {table: _wanted(work, read_bucket(folder, table, bucket, work.buckets)) for table in JOB_TABLES}


def _wanted(work: Work, rows: pa.Table) -> pa.Table:
    queue, job = (rows.column(name).combine_chunks().view(pa.binary()) for name in ("queue", "id"))
    wanted = pc.fill_null(pc.not_equal(job, b""), fill_value=False)
    if work.left_out:
        left_out = pa.array([as_bytes(name) for name in work.left_out], pa.binary())
        wanted = pc.and_(wanted, pc.invert(pc.is_in(queue, value_set=left_out)))
    if work.queue:
        wanted = pc.and_(wanted, pc.equal(queue, as_bytes(work.queue)))
    if work.job:
        wanted = pc.and_(wanted, pc.equal(job, as_bytes(work.job)))
    return rows.filter(wanted)


def unequal_jobs(
    left: Mapping[str, list[Any]], right: Mapping[str, list[Any]], settings: Settings
) -> Iterator[tuple[JobKey, Pair]]:
    """The canonical rows of each job that is not the same on both sides. `left`, `right`: rows by table."""
    unneeded = ["opts-parsed-json"] if _same_options(left, right) else []
    sides = [
        _canonical(rows, facts.prefix, facts.taken_ms, settings, unneeded)
        for rows, facts in zip((left, right), settings.sides, strict=True)
    ]
    groups = [grouped(side) for side in sides]
    for key in sorted(groups[0].keys() | groups[1].keys()):
        expected, actual = groups[0].get(key, {}), groups[1].get(key, {})
        if key[0] in settings.trimmed:
            expected, actual = _with_whole_histories(expected, actual)
        if _comparable(expected) != _comparable(actual):
            yield key, Pair(expected=_snapshot(expected), actual=_snapshot(actual))


def _same_options(left: Mapping[str, list[Any]], right: Mapping[str, list[Any]]) -> bool:
    """Whether both sides have the very same texts in the fields that hold the JSON which Lua wrote.

    The rule about them looks at nothing else (`conformance.observe.canonical_rules`), so
    equal texts stay equal without it.
    """
    texts = [
        {(job.queue, job.id): (job.fields.get("opts"), job.fields.get("parent")) for job in side.get("jobs", ())}
        for side in (left, right)
    ]
    return texts[0] == texts[1]


def rows_by_table(tables: Tables) -> Group:
    """The rows of each table."""
    found: Group = defaultdict(list)
    for table, rows in tables.items():
        for batch in rows.to_batches():
            columns = {name: decoded(batch.column(name)) for name in batch.schema.names}
            for values in zip(*columns.values(), strict=True):
                found[table].append(_row({"table": table, **dict(zip(columns, values, strict=True))}))
    return found


def _row(wide: Mapping[str, Any]) -> Any:
    """As `narrowed`, with a short way for the two tables that are nearly everything."""
    if wide["table"] == "jobs":
        return Job(queue=wide["queue"], id=wide["id"], fields=dict(wide["fields"]))
    if wide["table"] == "memberships":
        return Membership(
            queue=wide["queue"],
            container=wide["name"],
            job=wide["id"],
            position=wide["position"],
            score=wide["score"],
        )
    return narrowed(wide)


def _canonical(
    rows: Mapping[str, list[Any]], prefix: str, taken_ms: int, settings: Settings, unneeded: Sequence[str]
) -> Snapshot:
    """Canonical form of all rows. The rule about the prefix is left out where nothing mentions the prefix.

    Positions are compared elsewhere (`reports.diff.order`): within one job they say nothing.
    """
    tables = {**rows, "memberships": [_without_position(row) for row in rows.get("memberships", ())]}
    snapshot = snapshot_of(prefix, taken_ms, ((table, row) for table, listed in tables.items() for row in listed))
    snapshot = replace(snapshot, events=tuple(sorted(snapshot.events, key=stream_order)))
    about_prefix = [] if _mentions(snapshot, f"{prefix}:") else [_MEANS_PREFIX]
    return settings.canonical(snapshot, "generated-uuids", "lock-token", *about_prefix, *unneeded)


def _without_position(row: Membership) -> Membership:
    return row if row.position is None else replace(row, position=None)


def _mentions(snapshot: Snapshot, text: str) -> bool:
    """Whether a text stands in any value of any row."""
    return (
        any(text in value for job in snapshot.jobs for value in job.fields.values())
        or any(text in value for event in snapshot.events for _, value in event.fields)
        or any(text in row.text for row in snapshot.logs)
        or bool(snapshot.dependencies)
    )


def stream_order(event: Event) -> tuple[int, ...]:
    """A sort key that puts stream ids in the order of the stream."""
    return tuple(int(part) for part in event.id.split("-") if part.isdecimal())


def grouped(snapshot: Snapshot) -> Mapping[JobKey, Group]:
    """The rows of each job."""
    groups: defaultdict[JobKey, Group] = defaultdict(dict)
    for row in snapshot.jobs:
        groups[row.queue, row.id]["jobs"] = [row]
    for member in snapshot.memberships:
        groups[member.queue, member.job].setdefault("memberships", []).append(member)
    for child in snapshot.dependencies:
        groups[child.queue, child.parent].setdefault("dependencies", []).append(child)
    for line in snapshot.logs:
        groups[line.queue, line.job].setdefault("logs", []).append(line)
    for event in snapshot.events:
        groups[event.queue, event.job].setdefault("events", []).append(event)
    return groups


def _comparable(group: Group) -> Group:
    """The same rows in an order that does not depend on how they were read; that of events means something."""
    return {
        table: rows if table == "events" or len(rows) == 1 else sorted(rows, key=repr) for table, rows in group.items()
    }


def _with_whole_histories(expected: Group, actual: Group) -> tuple[Group, Group]:
    """Both sides without events, unless both still have the first event of the job."""
    if all(group.get("events") and group["events"][0].name == "added" for group in (expected, actual)):
        return expected, actual
    without = [{table: rows for table, rows in group.items() if table != "events"} for group in (expected, actual)]
    return without[0], without[1]


def _snapshot(group: Group) -> Snapshot:
    return snapshot_of("", 0, ((table, row) for table, rows in group.items() for row in rows))


def _explained(key: JobKey, pair: Pair) -> Iterator[tuple[str, ...]]:
    for found in diff(pair.expected, pair.actual):
        yield row_of(found, pair, key[0])
