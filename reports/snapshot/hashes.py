"""Many replies of HGETALL as Arrow columns."""

from __future__ import annotations

from typing import Any, TypeAlias

import hiredis
import numpy as np
import pyarrow as pa

from reports.snapshot.resp_lines import RespLines, cut_lines
from reports.snapshot.rows import texts

Hashes: TypeAlias = "tuple[Any, pa.Array, pa.Array]"
"""How many fields each hash has (an array; -1: the key is not a hash), and the names and values of all of them."""


def hashes_of(replies: memoryview, count: int) -> Hashes:
    """Parse `count` replies; an error in place of a reply means that the key is not a hash.

    They are cut at once (`reports.snapshot.resp_lines`); what cannot be cut is read by hiredis.
    """
    found = _cut(replies, count)
    return _read_slowly(replies, count) if found is None else found


def _cut(replies: memoryview, count: int) -> Hashes | None:
    """None where the lines cannot be what they seem to be."""
    lines = cut_lines(replies)
    if lines is None:
        return None
    heads, elements = _heads(lines, count)
    if len(heads) != count or (elements < 0).any() or count + 2 * elements.sum() != len(lines.begins):
        return None
    values = lines.bulks(heads)
    if values is None:
        return None
    return elements // 2, *lines.texts(values[0::2], values[1::2])


def _heads(lines: RespLines, count: int) -> tuple[Any, Any]:
    """The first line of each reply, and its number of elements; fewer than `count` if another line is found."""
    arrays, elements = lines.arrays()
    if len(arrays) == count and np.array_equal(arrays[1:], arrays[:-1] + 1 + 2 * elements[:-1]):
        return arrays, elements
    known = dict(zip(arrays.tolist(), elements.tolist(), strict=True))  # some values look like the head of a reply
    heads: list[int] = []
    line = 0
    while len(heads) < count and known.get(line, -1) >= 0:
        heads.append(line)
        line += 1 + 2 * known[line]
    return np.array(heads, np.int64), np.array([known[head] for head in heads], np.int64)


def _read_slowly(replies: memoryview, count: int) -> Hashes:
    reader = hiredis.Reader()
    reader.feed(bytes(replies))
    found = [reader.gets() for _ in range(count)]
    flat = [value for reply in found if isinstance(reply, list) for value in reply]
    sizes = [len(reply) // 2 if isinstance(reply, list) else -1 for reply in found]
    return np.array(sizes, np.int64), texts(flat[0::2]), texts(flat[1::2])
