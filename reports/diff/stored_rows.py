"""Rows of the tables from Arrow, as the gate's rules and checks take them. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from conformance.observe.tables import Job, Membership
from reports.diff.prefilter import Tables
from reports.snapshot.format import ARROW
from reports.snapshot.rows import decoded, narrowed

JobRows: TypeAlias = dict[str, list[Any]]
"""The rows of one job, by table."""

GroupKey: TypeAlias = tuple[str, str]
"""Queue and name of the group."""


def rows_by_table(tables: Tables) -> JobRows:
    """The rows of each table."""
    found: JobRows = defaultdict(list)
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


def rows_by_group(
    batches: Iterable[pa.RecordBatch],
) -> Mapping[GroupKey, tuple[list[tuple[str, Any]], list[tuple[str, Any]]]]:
    """The rows of each group by side, lists in the order of their positions."""
    groups: defaultdict[GroupKey, tuple[list[tuple[str, Any]], list[tuple[str, Any]]]] = defaultdict(lambda: ([], []))
    for batch in batches:
        columns = {name: decoded(batch.column(name)) for name in (*ARROW.names, "side", "group", "owner")}
        for values in zip(*columns.values(), strict=True):
            wide = dict(zip(columns, values, strict=True))
            groups[wide["owner"], wide["group"]][wide["side"]].append((wide["table"], narrowed(wide)))
    for sides in groups.values():
        for rows in sides:
            rows.sort(key=lambda pair: getattr(pair[1], "position", None) or 0)
    return groups
