"""Messages between a worker and its sandboxed process: JSON texts over two pipes, each after its length.

The worker sends `{"path": [...], "processor": "module:function"}` first, then `{"job": {...}, "token": ...}` for each
job. The process requests what only the worker can do (`{"ask": number, "method": ..., "args": [...]}`), gets
`{"ask": number, "answer": ...}` or `{"ask": number, "refused": ...}`, and ends a job with `{"completed": value}` or
`{"failed": {...}}`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

from conformance.reference_impl import js_values

HEADER: Final = struct.Struct(">I")
"""The number of bytes of the text that follows."""

ASKABLE: Final = (
    *("updateProgress", "log", "updateData", "moveToDelayed", "moveToWait", "moveToWaitingChildren"),
    *("getChildrenValues", "getIgnoredChildrenFailures"),
)
"""The methods of a job that a sandboxed processor may call, as in Node (upstream `child-processor.ts`, `wrapJob`)."""


def frame(message: Mapping[str, Any]) -> bytes:
    """Return a message as it is sent. Raises TypeError and ValueError for what is not JSON."""
    # Job data may hold lone surrogates, which Redis stores too; strict UTF-8 would refuse them.
    text = js_values.stringify(message).encode("utf-8", "surrogatepass")
    return HEADER.pack(len(text)) + text


def unframed(text: bytes) -> dict[str, Any]:
    """Return a message from its text."""
    message: dict[str, Any] = js_values.parse(text.decode("utf-8", "surrogatepass"))
    return message


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """Read the next message; None at the end of the stream. Blocks until it has arrived."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    text = stream.read(length)
    # A truncated message means that the worker died while it wrote: treated like the end of the stream.
    return unframed(text) if len(text) == length else None
