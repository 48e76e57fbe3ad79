"""Arrow columns laid side by side: fields of hashes as columns, rows by key, times and numbers. No Spark.

Everything here says "equal" only of what is equal byte by byte, or "unknown"; positions are numpy arrays, -1 for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNKNOWN = -1
"""Stands for a time that is none, or that is not there."""


def keys_of(rows: pa.Table) -> pa.Array:
    """Queue and job id of each row as one text; a queue's name holds no colon, so that two jobs never share one."""
    queue, job = (rows.column(name).combine_chunks().view(pa.binary()) for name in ("queue", "id"))
    return pc.binary_join_element_wise(queue, pc.fill_null(job, b""), b":")


def positions_in(keys: pa.Array, known: pa.Array) -> Positions:
    """The position of each key among the known ones."""
    found = pc.fill_null(pc.index_in(keys, value_set=known), -1)
    return np.asarray(found).astype(np.int64)


def flags(values: Any) -> Flags:
    """An Arrow column of booleans; null is False."""
    return np.asarray(pc.fill_null(values, fill_value=False)).astype(np.bool_)


def at(values: pa.Array, positions: Positions) -> pa.Array:
    """The values at these positions; null for -1."""
    return values.take(pa.array(positions, mask=positions < 0))


@dataclass(frozen=True)
class HashColumn:
    """A column of hashes, or of the pairs of events, with their texts in one row each."""

    maps: pa.Array

    @cached_property
    def offsets(self) -> Positions:
        """The first position of the pairs of each row, and the end of the last one."""
        raw: Positions = np.asarray(self.maps.offsets).astype(np.int64)
        from_start: Positions = raw - raw[0]
        return from_start

    @cached_property
    def _flat(self) -> slice:
        raw = self.maps.offsets
        return slice(raw[0].as_py(), raw[len(raw) - 1].as_py())

    @cached_property
    def names(self) -> pa.Array:
        """All names, row after row."""
        return self.maps.keys[self._flat].view(pa.binary())

    @cached_property
    def texts(self) -> pa.Array:
        """All values, row after row."""
        return self.maps.items[self._flat].view(pa.binary())

    @cached_property
    def row_of(self) -> Positions:
        """The row of each pair."""
        return np.repeat(np.arange(len(self.maps)), np.diff(self.offsets))

    @cached_property
    def known(self) -> dict[bytes, int]:
        """Each name that occurs, with its code."""
        return {name: code for code, name in enumerate(self._coded.dictionary.to_pylist())}

    @cached_property
    def _coded(self) -> pa.DictionaryArray:
        return self.names.dictionary_encode()

    @cached_property
    def _codes(self) -> Positions:
        return np.asarray(self._coded.indices).astype(np.int64)

    def where(self, name: bytes) -> Positions:
        """The position of the value of a field among the texts, for each row."""
        found = np.full(len(self.maps), -1, np.int64)
        if name in self.known:
            pairs = np.flatnonzero(self._codes == self.known[name])
            found[self.row_of[pairs]] = pairs
        return found

    def rows_with_other_names(self, names: set[bytes]) -> Flags:
        """Rows that have a field other than these."""
        others = [code for name, code in self.known.items() if name not in names]
        return self._rows_of(np.isin(self._codes, others))

    def rows_that_mention(self, text: str) -> Flags:
        """Rows in whose names or values a text stands."""
        pattern = text.encode("utf-8", "surrogateescape")
        texts, names = (_holds(column, pattern) for column in (self.texts, self._coded.dictionary))
        return self._rows_of(texts | names[self._codes] if names.any() else texts)

    def _rows_of(self, pairs: Flags) -> Flags:
        found = np.zeros(len(self.maps), np.bool_)
        found[self.row_of[pairs]] = True
        return found


def _holds(texts: pa.Array, pattern: bytes) -> Flags:
    return flags(pc.match_substring(texts, pattern))


def holds(texts: pa.Array, *patterns: str) -> Flags:
    """Whether each value contains any of some texts."""
    found: Flags = np.logical_or.reduce([_holds(texts, pattern.encode()) for pattern in patterns])
    return found


def times(texts: pa.Array, earliest: int, latest: int) -> Positions:
    """Unix ms written with 13 digits, between two times; UNKNOWN for everything else."""
    written = pc.match_substring_regex(texts, r"^[0-9]{13}$")
    digits = pc.if_else(pc.fill_null(written, fill_value=False), texts, None).view(pa.string())
    found = np.asarray(pc.fill_null(pc.cast(digits, pa.int64()), UNKNOWN)).astype(np.int64)
    return np.where((found >= earliest) & (found <= latest), found, UNKNOWN)


def whole_numbers(texts: pa.Array) -> Positions:
    """Numbers of at most 9 digits; UNKNOWN for everything else."""
    written = pc.match_substring_regex(texts, r"^[0-9]{1,9}$")
    digits = pc.if_else(pc.fill_null(written, fill_value=False), texts, None).view(pa.string())
    return np.asarray(pc.fill_null(pc.cast(digits, pa.int64()), UNKNOWN)).astype(np.int64)


def equal_texts(left: pa.Array, right: pa.Array) -> Flags:
    """Whether two columns hold the same bytes, row by row; absent equals absent."""
    same = flags(pc.equal(left, right))
    absent = flags(pc.is_null(left)) & flags(pc.is_null(right))
    return same | absent
