"""Compare jobs in bulk: everything that belongs to one job on one side with the same on the other. No Spark.

The rules and the comparison are the gate's own. Rules are applied to thousands of jobs at once; the comparison, which
explains, is asked only about those jobs whose canonical rows are not equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa

from conformance.observe.diff import diff
from conformance.observe.tables import Event, Job, Membership, Snapshot
from reports.diff.settings import Settings
from reports.diff.table import Pair, batch_of_rows, row_of
from reports.snapshot.rows import decoded, narrowed, snapshot_of
from reports.snapshot.schema import ARROW

JobKey: TypeAlias = tuple[str, str]
Group: TypeAlias = dict[str, list[Any]]
"""The rows of one job, by table."""

JOB_TABLES = ("jobs", "memberships", "dependencies", "logs", "events")
"""Tables whose rows belong to the job named in the column `id`."""

_MEANS_PREFIX = "own-prefix"


def comparer(settings: Settings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function from all rows of some jobs, both sides (column `side`: 0, 1), to their differences."""

    def compare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left, right = _sides(batches)
        rows = [row for key, pair in unequal_jobs(left, right, settings) for row in _explained(key, pair)]
        yield batch_of_rows(rows)

    return compare


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

    The rule about them looks at nothing else (`conformance.observe.rules.texts`), so equal texts stay equal without it.
    """
    texts = [
        {(job.queue, job.id): (job.fields.get("opts"), job.fields.get("parent")) for job in side.get("jobs", ())}
        for side in (left, right)
    ]
    return texts[0] == texts[1]


def _sides(batches: Iterable[pa.RecordBatch]) -> tuple[Group, Group]:
    """All rows by side and table."""
    sides: tuple[Group, Group] = (defaultdict(list), defaultdict(list))
    for batch in batches:
        columns = {name: decoded(batch.column(name)) for name in (*ARROW.names, "side")}
        for values in zip(*columns.values(), strict=True):
            wide = dict(zip(columns, values, strict=True))
            sides[wide["side"]][wide["table"]].append(_row(wide))
    return sides


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
