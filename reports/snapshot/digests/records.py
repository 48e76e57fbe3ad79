"""The records of digests, as the Rust sources next to this module have them, and their columns as arrays of numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN = -1
"""Replaces a time that is invalid or absent."""

JOB_RECORD = np.dtype(
    [
        *((name, np.uint64) for name in ("key", "texts", "opts", "stacktrace")),
        *((name, np.int64) for name in ("timestamp", "processed", "finished", "number")),
        *((name, np.int32) for name in ("delay", "priority")),
        *((name, np.uint32) for name in ("flags", "reserved")),
    ]
)
"""As `src/jobs.rs` has it (JobRecord)."""

EVENT_RECORD = np.dtype(
    [
        *((name, np.uint64) for name in ("key", "content")),
        ("added_ms", np.int64),
        *((name, np.uint32) for name in ("flags", "reserved")),
    ]
)
"""As `src/events.rs` has it (EventRecord)."""

HISTORY_RECORD = np.dtype(
    [
        *((name, np.uint64) for name in ("key", "content")),
        ("added_ms", np.int64),
        *((name, np.uint32) for name in ("flags", "count")),
    ]
)
"""As `src/events.rs` has it (HistoryRecord)."""

USUAL, GOOD, HAS_PROCESSED, HAS_FINISHED, HAS_RESULT, HAS_REASON = (1 << bit for bit in range(6))
"""Flags of a job, as `src/jobs.rs` has them."""

IS_ODD, IS_ADDED = 1, 2
"""Flags of events, as `src/events.rs` has them."""


def keys_of(rows: pa.Table) -> pa.Array:
    """Queue and job id of each row as one text; a queue's name holds no colon, so that two jobs never share one."""
    queue, job = (rows.column(name).combine_chunks().view(pa.binary()) for name in ("queue", "id"))
    return pc.binary_join_element_wise(queue, pc.fill_null(job, b""), b":")


def flags(values: Any) -> Flags:
    """An Arrow column of booleans; null is False."""
    return np.asarray(pc.fill_null(values, fill_value=False)).astype(np.bool_)
