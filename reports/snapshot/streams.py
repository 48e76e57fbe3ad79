"""A reply of XRANGE as Arrow columns, and these as rows of `events`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hiredis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from redis.exceptions import ResponseError

from reports.snapshot.resp_lines import cut_lines
from reports.snapshot.rows import batch_with, repeated_text, texts

_LINES_BEFORE_FIELDS = 3
"""Of an entry: its own head, and the header and the text of its id. The head of its fields is the next line."""


@dataclass(frozen=True)
class StreamEntries:
    """Entries of a stream: their ids, how many fields each has (an array), and all names and values in a row.

    A name that an entry has twice is there twice.
    """

    ids: pa.Array
    sizes: Any
    names: pa.Array
    values: pa.Array

    def first_of(self, field: bytes) -> pa.Array:
        """The first value that each entry has of a field; empty where it has none."""
        pairs = np.flatnonzero(np.asarray(pc.equal(self.names.view(pa.binary()), field)))
        entry_of = np.repeat(np.arange(len(self.sizes)), self.sizes)[pairs]
        found = np.full(len(self.sizes), -1, np.int64)
        found[entry_of[::-1]] = pairs[::-1]
        return pc.fill_null(self.values.take(pa.array(found, mask=found < 0)), "")


def entries_of(reply: memoryview) -> StreamEntries:
    """Return the entries of one reply of XRANGE. Raises ResponseError where it is an error.

    It is cut at once (`reports.snapshot.resp_lines`); what cannot be cut is read by hiredis.
    """
    found = _cut(reply)
    return _read_slowly(reply) if found is None else found


def _cut(reply: memoryview) -> StreamEntries | None:
    """None where the lines cannot be what they seem to be.

    Every head of an array is expected where it belongs: the reply's, and of each entry its own and that of its fields.
    """
    lines = cut_lines(reply)
    if lines is None:
        return None
    heads, elements = lines.arrays()
    if not len(heads) or heads[0] != 0 or len(heads) != 1 + 2 * elements[0]:
        return None
    entries, fields, sizes = heads[1::2], heads[2::2], elements[2::2]
    ends = fields + 1 + 2 * sizes
    follow = np.array_equal(entries, np.concatenate(([1], ends))[:-1]) and np.array_equal(
        fields, entries + _LINES_BEFORE_FIELDS
    )
    if not follow or (sizes < 0).any() or len(lines.begins) != (ends[-1] if len(ends) else 1):
        return None
    values = lines.bulks(heads)
    if values is None:
        return None
    is_pair = np.isin(values, fields - 1, invert=True)
    pairs = values[is_pair]
    ids, names, held = lines.texts(fields - 1, pairs[0::2], pairs[1::2])
    return StreamEntries(ids, sizes // 2, names, held)


def _read_slowly(reply: memoryview) -> StreamEntries:
    reader = hiredis.Reader()
    reader.feed(bytes(reply))
    found: Any = reader.gets()
    if isinstance(found, Exception):
        raise ResponseError(str(found))
    flat = [text for _, fields in found for text in fields]
    sizes = np.array([len(fields) // 2 for _, fields in found], np.int64)
    return StreamEntries(texts([entry for entry, _ in found]), sizes, texts(flat[0::2]), texts(flat[1::2]))


def event_batch(queue: str, entries: StreamEntries) -> pa.RecordBatch:
    """The entries as rows of `events`; the name and the job of an event have columns of their own."""
    offsets = np.concatenate(([0], np.cumsum(entries.sizes)))
    fields = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), entries.names, entries.values)
    count = len(entries.ids)
    repeated = {"table": repeated_text("events", count), "queue": repeated_text(queue, count)}
    found = {"key": entries.ids, "name": entries.first_of(b"event"), "id": entries.first_of(b"jobId")}
    return batch_with(count, {**repeated, **found, "fields": fields})
