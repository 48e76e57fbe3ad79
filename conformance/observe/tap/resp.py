"""Decodes RESP2 and RESP3 replies, and encodes them to exactly the same bytes.

A `Reply` keeps all details of the bytes, even those without meaning for clients (the notation of a double, the pieces
of a streamed string), so that `encode(decode(raw)) == raw` for every frame with plainly written lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LINES = b"+-:_#,("
"""Markers of values that are one line: text, error, integer, null, boolean, double, big number."""
BULKS = b"$=!"
"""Markers of values with a length: string, verbatim string, error."""
AGGREGATES = b"*~>%|"
"""Markers of values with members: array, set, push, map, and attributes (which belong to the value after them)."""


class ProtocolViolation(Exception):
    """Bytes that are not RESP. Redis (or the client) would close such a connection."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One value of a reply.

    `kind` is its marker. `text` is the content of lines and bulks, None for the null of RESP2. `items` are the members
    of an aggregate (maps: keys and values in turn; attributes: theirs, and the value that they belong to at the end),
    None for the null array of RESP2 and for other kinds. `streamed`: sent without a length; the pieces of a
    streamed string are `items` too.
    """

    kind: bytes
    text: bytes | None = None
    items: tuple[Reply, ...] | None = None
    streamed: bool = False


def decode(raw: bytes) -> Reply:
    """Read one complete frame. Raises ProtocolViolation if it is not exactly one."""
    try:
        reply, end = _read(raw, 0)
    except (IndexError, ValueError) as error:
        raise ProtocolViolation(f"not a complete frame: {raw[:60]!r}") from error
    if end != len(raw):
        raise ProtocolViolation(f"{len(raw) - end} bytes after the frame {raw[:60]!r}")
    return reply


def _read(raw: bytes, start: int) -> tuple[Reply, int]:
    kind, end = raw[start : start + 1], raw.index(b"\r\n", start)
    header, body = raw[start + 1 : end], end + 2
    if kind and kind in LINES:
        return Reply(kind, header), body
    if kind in {b"$", b"=", b"!"}:
        return _read_chunks(raw, body) if header == b"?" else _read_bulk(raw, kind, header, body)
    if kind and kind in AGGREGATES:
        return _read_aggregate(raw, kind, header, body)
    raise ProtocolViolation(f"unknown marker {kind!r}")


def _read_bulk(raw: bytes, kind: bytes, header: bytes, body: int) -> tuple[Reply, int]:
    size = int(header)
    if size < 0:
        return Reply(kind), body
    if raw[body + size : body + size + 2] != b"\r\n":
        raise ProtocolViolation(f"a bulk of {size} bytes does not end where it should")
    return Reply(kind, raw[body : body + size]), body + size + 2


def _read_chunks(raw: bytes, position: int) -> tuple[Reply, int]:
    chunks: list[Reply] = []
    while True:
        end = raw.index(b"\r\n", position)
        size = int(raw[position + 1 : end])
        if size == 0:
            return Reply(b"$", items=tuple(chunks), streamed=True), end + 2
        chunks.append(Reply(b";", raw[end + 2 : end + 2 + size]))
        position = end + 2 + size + 2


def _read_aggregate(raw: bytes, kind: bytes, header: bytes, position: int) -> tuple[Reply, int]:
    items: list[Reply] = []
    if header == b"?":
        while raw[position : position + 1] != b".":
            item, position = _read(raw, position)
            items.append(item)
        return Reply(kind, items=tuple(items), streamed=True), position + 3
    count = int(header)
    if count < 0:
        return Reply(kind), position
    for _ in range(members(kind, count)):
        item, position = _read(raw, position)
        items.append(item)
    return Reply(kind, items=tuple(items)), position


def members(kind: bytes, count: int) -> int:
    """The number of values after the header of an aggregate that announces `count`."""
    if kind == b"%":
        return 2 * count
    return 2 * count + 1 if kind == b"|" else count


def encode(reply: Reply) -> bytes:
    """Encode a reply to the bytes that it was decoded from."""
    kind, items = reply.kind, reply.items
    if kind in LINES:
        return b"%b%b\r\n" % (kind, reply.text or b"")
    if kind == b";":
        return b";%d\r\n%b\r\n" % (len(reply.text or b""), reply.text or b"")
    if kind == b"$" and reply.streamed:
        return b"$?\r\n" + b"".join(map(encode, items or ())) + b";0\r\n"
    if kind in BULKS:
        return b"%b-1\r\n" % kind if reply.text is None else b"%b%d\r\n%b\r\n" % (kind, len(reply.text), reply.text)
    if items is None:
        return b"%b-1\r\n" % kind
    body = b"".join(map(encode, items))
    if reply.streamed:
        return b"%b?\r\n%b.\r\n" % (kind, body)
    count = len(items) // 2 if kind in {b"%", b"|"} else len(items)
    return b"%b%d\r\n%b" % (kind, count, body)


def encode_command(args: Sequence[bytes | str | int]) -> bytes:
    """Encode a command as clients do: an array of bulk strings."""
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        text = arg if isinstance(arg, bytes) else str(arg).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


def value_of(reply: Reply) -> Reply:
    """The value itself, without attributes around it."""
    while reply.kind == b"|" and reply.items:
        reply = reply.items[-1]
    return reply


def plain(reply: Reply) -> Any:
    """The reply as a Python value: bytes, int, float, bool, None, list, dict. Errors become their text as bytes."""
    reply = value_of(reply)
    kind, text = reply.kind, reply.text
    if kind == b"$" and reply.streamed:
        return b"".join(chunk.text or b"" for chunk in reply.items or ())
    if kind in LINES or kind in BULKS:
        return _plain_scalar(kind, text)
    if reply.items is None:
        return None
    values = [plain(item) for item in reply.items]
    if kind == b"%":
        return dict(zip(map(_hashable, values[::2]), values[1::2], strict=True))
    return values


def _plain_scalar(kind: bytes, text: bytes | None) -> Any:
    if text is None or kind == b"_":
        return None
    if kind in {b":", b"("}:
        return int(text)
    if kind == b"#":
        return text == b"t"
    return float(text) if kind == b"," else text


def _hashable(value: Any) -> Any:
    return value if not isinstance(value, list | dict) else repr(value)
