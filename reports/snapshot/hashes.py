"""Many replies of HGETALL at once, from the bytes of the socket into Arrow, without a Python object per value. No I/O.

The replies are cut at every end of a line, and the cut is right if every value is as long as its header says: the first
header is one, a value of the length that was announced is one, and so is then the header after it. A value with an end
of a line inside breaks this, and then hiredis reads all of them, slowly.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import hiredis
import numpy as np
import pyarrow as pa

from reports.snapshot.rows import texts

Hashes: TypeAlias = "tuple[Any, pa.Array, pa.Array]"
"""How many fields each hash has (an array; -1: the key is no hash), and the names and values of all of them."""

_ARRAY, _BULK, _CR, _LF, _ZERO = b"*$\r\n0"
_END_BYTES = 2
_DIGITS = 10


def hashes_of(replies: memoryview, count: int) -> Hashes:
    """What so many replies hold; an error in the place of one stands for a key that is no hash."""
    cut = _cut(np.frombuffer(replies, np.uint8), count)
    return _read_slowly(replies, count) if cut is None else _taken(replies, *cut)


def _cut(data: Any, count: int) -> tuple[Any, Any, Any, Any] | None:
    """Where the lines begin and end, which of them are names and values, and the fields of each hash.

    None where the lines cannot be what they seem to be.
    """
    ends = np.flatnonzero(data == _CR)
    ends = ends[data[np.minimum(ends + 1, len(data) - 1)] == _LF]
    begins = np.concatenate(([0], ends[:-1] + _END_BYTES))
    if not len(ends) or ends[-1] + _END_BYTES != len(data):
        return None
    heads, elements = _heads(data, begins, ends, count)
    inner = np.ones(len(begins), bool)
    inner[heads] = False
    rest = np.flatnonzero(inner)
    headers, values = rest[0::2], rest[1::2]
    if len(heads) != count or 2 * elements.sum() != len(rest) or not _fit(data, begins, ends, headers, values):
        return None
    return begins, ends, values, elements // 2


def _heads(data: Any, begins: Any, ends: Any, count: int) -> tuple[Any, Any]:
    """The lines that begin a reply, and how many elements it has; fewer than `count` where another line is there."""
    arrays = np.flatnonzero(data[begins] == _ARRAY)
    elements = _numbers(data, begins, ends, arrays)
    if len(arrays) == count and np.array_equal(arrays[1:], arrays[:-1] + 1 + 2 * elements[:-1]):
        return arrays, elements
    known = dict(zip(arrays.tolist(), elements.tolist(), strict=True))  # some values look like the head of a reply
    heads: list[int] = []
    line = 0
    while len(heads) < count and known.get(line, -1) >= 0:
        heads.append(line)
        line += 1 + 2 * known[line]
    return np.array(heads, np.int64), np.array([known[head] for head in heads], np.int64)


def _fit(data: Any, begins: Any, ends: Any, headers: Any, values: Any) -> bool:
    """Whether every value is as long as the header before it says."""
    announced = _numbers(data, begins, ends, headers)
    return bool(np.all(data[begins[headers]] == _BULK) and np.all(announced == (ends - begins)[values]))


def _numbers(data: Any, begins: Any, ends: Any, lines: Any) -> Any:
    """The decimal number after the first byte of these lines; -1 where it is too long for one."""
    place, end = begins[lines] + 1, ends[lines]
    found = np.where(end - place > _DIGITS, -1, 0)
    for _ in range(_DIGITS):
        left = (place < end) & (found >= 0)
        if not left.any():
            break
        found = np.where(left, found * 10 + data[np.minimum(place, len(data) - 1)] - _ZERO, found)
        place = place + 1
    return found


def _taken(replies: memoryview, begins: Any, ends: Any, values: Any, sizes: Any) -> Hashes:
    """Every second element of this array is a line, and those between are the ends of lines."""
    offsets = np.empty(2 * len(begins) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = begins, ends, len(replies)
    lines = pa.StringArray.from_buffers(2 * len(begins), pa.py_buffer(offsets), pa.py_buffer(replies))
    names, held = (lines.take(pa.array(2 * chosen)) for chosen in (values[0::2], values[1::2]))
    return sizes, names, held


def _read_slowly(replies: memoryview, count: int) -> Hashes:
    reader = hiredis.Reader()
    reader.feed(bytes(replies))
    found = [reader.gets() for _ in range(count)]
    flat = [value for reply in found if isinstance(reply, list) for value in reply]
    sizes = [len(reply) // 2 if isinstance(reply, list) else -1 for reply in found]
    return np.array(sizes, np.int64), texts(flat[0::2]), texts(flat[1::2])
