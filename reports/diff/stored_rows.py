"""Rows of the tables from Arrow, as the gate's rules and checks take them. No Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from conformance.observe.tables import Job, Membership
from reports.snapshot.rows import decoded, narrowed

Tables = Mapping[str, pa.Table]
"""Wide rows by table."""

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
