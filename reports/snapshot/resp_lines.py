"""Replies of Redis cut into lines, all at once: the bytes of the socket become Arrow without an object per value.

The replies are cut at every end of a line. The cut is right if every value is as long as the header before it says:
the first header is one, a value of the length that was announced is one, and so is then the header after it. A value
with an end of a line inside breaks this, and then hiredis has to read all of them, slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

_ARRAY, _BULK, _CR, _LF, _ZERO = b"*$\r\n0"
_END_BYTES = 2
_DIGITS = 10


@dataclass(frozen=True)
class RespLines:
    """The first and last positions of the lines of some replies, as arrays."""

    replies: memoryview
    data: Any
    begins: Any
    ends: Any

    def arrays(self) -> tuple[Any, Any]:
        """The lines that look like the head of an array, and how many elements each announces."""
        found = np.flatnonzero(self.data[self.begins] == _ARRAY)
        return found, self._numbers(found)

    def bulks(self, heads: Any) -> Any | None:
        """The lines that are values, where those of these heads are arrays; None where they are not what they seem.

        Between the heads a header and a value take turns, and the value is as long as its header says.
        """
        inner = np.ones(len(self.begins), bool)
        inner[heads] = False
        rest = np.flatnonzero(inner)
        headers, values = rest[0::2], rest[1::2]
        return values if len(headers) == len(values) and self._fit(headers, values) else None

    def texts(self, *chosen: Any) -> list[pa.Array]:
        """The texts of these lines, an Arrow array of each choice.

        Every second element of the array that they are taken from is a line, and those between are the ends of lines.
        """
        offsets = np.empty(2 * len(self.begins) + 1, np.int32)
        offsets[0:-1:2], offsets[1::2], offsets[-1] = self.begins, self.ends, len(self.replies)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.replies)]
        lines = pa.StringArray.from_buffers(2 * len(self.begins), buffers[1], buffers[2])
        return [lines.take(pa.array(2 * lines_of_one)) for lines_of_one in chosen]

    def _fit(self, headers: Any, values: Any) -> bool:
        announced = self._numbers(headers)
        is_bulk = self.data[self.begins[headers]] == _BULK
        return bool(np.all(is_bulk) and np.all(announced == (self.ends - self.begins)[values]))

    def _numbers(self, lines: Any) -> Any:
        """The decimal number after the first byte of these lines; -1 where it is too long for one."""
        place, end = self.begins[lines] + 1, self.ends[lines]
        found = np.where(end - place > _DIGITS, -1, 0)
        for _ in range(_DIGITS):
            left = (place < end) & (found >= 0)
            if not left.any():
                break
            found = np.where(left, found * 10 + self.data[np.minimum(place, len(self.data) - 1)] - _ZERO, found)
            place = place + 1
        return found


def cut_lines(replies: memoryview) -> RespLines | None:
    """Cut at every end of a line; None if there is none, or if bytes follow the last one."""
    data = np.frombuffer(replies, np.uint8)
    ends = np.flatnonzero(data == _CR)
    ends = ends[data[np.minimum(ends + 1, len(data) - 1)] == _LF]
    if not len(ends) or ends[-1] + _END_BYTES != len(data):
        return None
    return RespLines(replies, data, np.concatenate(([0], ends[:-1] + _END_BYTES)), ends)
