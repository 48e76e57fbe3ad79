"""The records of digests: a few numbers for each row. The Rust sources next to this module have the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

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
