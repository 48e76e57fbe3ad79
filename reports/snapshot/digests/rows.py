"""The digests of rows: for each row that belongs to a job a few numbers, written next to the rows in the same order.

A diff reads these first, and the rows themselves only for jobs that may differ (`reports.diff.digest_prefilter`). Facts
about one row are computed here, when the store is read; facts that need all rows of a job are computed by the diff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.protocol.states import JOB_CONTAINERS
from reports.snapshot.digests.library import event_records, job_records, keys_of_columns
from reports.snapshot.digests.records import Keys

CONTAINERS = (*(container.key for container in JOB_CONTAINERS), "stalled")
"""Containers by the number that a digest has for them."""

OTHER_CONTAINER = 255

_JOB = (
    *("key", "texts", "opts", "stacktrace", "timestamp", "processed", "finished", "number", "delay", "priority"),
    "flags",
)
_EVENT = ("key", "content", "added_ms", "flags")

_ODD = np.uint64(0x9E37_79B9_7F4A_7C15)
"""An odd number: multiplied by it, different numbers stay different."""


def digests_of(table: str, rows: pa.Table, prefix: bytes) -> pa.Table:
    """The digests of rows of a table that belongs to jobs, with the column `queue`."""
    columns = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    numbers = _MAKERS[table](columns, prefix)
    return pa.table({"queue": columns["queue"], **numbers})


def _of_jobs(columns: Mapping[str, pa.Array], prefix: bytes) -> dict[str, pa.Array]:
    found = job_records(columns["queue"], columns["id"], columns["fields"], prefix)
    return {name: pa.array(np.ascontiguousarray(found[name])) for name in _JOB}


def _of_events(columns: Mapping[str, pa.Array], prefix: bytes) -> dict[str, pa.Array]:
    texts = [columns["queue"], _known(columns["id"]), columns["name"], columns["key"]]
    found = event_records(texts, columns["fields"], prefix)
    numbers = {name: pa.array(np.ascontiguousarray(found[name])) for name in _EVENT}
    return {**numbers, "is_owned": _is_owned(columns["id"])}


def _of_members(columns: Mapping[str, pa.Array], _: bytes) -> dict[str, pa.Array]:
    codes = pc.index_in(columns["name"], value_set=pa.array(CONTAINERS))
    return {
        "key": pa.array(keys_of_columns(columns["queue"], columns["id"])),
        "container": pc.fill_null(codes, OTHER_CONTAINER).cast(pa.uint8()),
        "score": columns["score"],
        "position": columns["position"],
    }


def _of_children(columns: Mapping[str, pa.Array], _: bytes) -> dict[str, pa.Array]:
    names = keys_of_columns(columns["name"], columns["key"]) ^ _ODD * keys_of_columns(columns["id"], columns["value"])
    return {**_owner(columns), "content": pa.array(names ^ _bits(columns["score"].cast(pa.float64())))}


def _of_logs(columns: Mapping[str, pa.Array], _: bytes) -> dict[str, pa.Array]:
    lines = keys_of_columns(columns["id"], columns["value"])
    return {**_owner(columns), "content": pa.array(lines ^ _bits(columns["position"].cast(pa.float64())))}


def _owner(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    return {"key": pa.array(keys_of_columns(columns["queue"], columns["id"])), "is_owned": _is_owned(columns["id"])}


def _bits(numbers: pa.Array) -> Keys:
    """Different bits for different numbers, all of them changed by each."""
    found: Keys = numbers.to_numpy(zero_copy_only=False).view(np.uint64) * _ODD
    return found


def _known(ids: pa.Array) -> pa.Array:
    """The ids, empty where there is none."""
    return pc.fill_null(ids, "") if ids.null_count else ids


def _is_owned(ids: pa.Array) -> pa.Array:
    """Whether a row belongs to a job at all."""
    return pc.fill_null(pc.greater(pc.binary_length(ids), 0), fill_value=False)


_MAKERS: Mapping[str, Callable[[Mapping[str, pa.Array], bytes], dict[str, pa.Array]]] = {
    "jobs": _of_jobs,
    "memberships": _of_members,
    "dependencies": _of_children,
    "logs": _of_logs,
    "events": _of_events,
}

DIGESTED = frozenset(_MAKERS)
"""Tables whose rows have digests."""
