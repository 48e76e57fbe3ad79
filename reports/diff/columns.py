"""Columns of Arrow as arrays of numpy. No Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN = -1
"""Replaces a time that is invalid or absent."""


def keys_of(rows: pa.Table) -> pa.Array:
    """Queue and job id of each row as one text; a queue's name holds no colon, so that two jobs never share one."""
    queue, job = (rows.column(name).combine_chunks().view(pa.binary()) for name in ("queue", "id"))
    return pc.binary_join_element_wise(queue, pc.fill_null(job, b""), b":")


def flags(values: Any) -> Flags:
    """An Arrow column of booleans; null is False."""
    return np.asarray(pc.fill_null(values, fill_value=False)).astype(np.bool_)
