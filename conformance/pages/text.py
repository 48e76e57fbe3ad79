"""Text of clients and jobs: made safe to print, shortened and compared.

Findings carry job data, and job data may be hostile: terminal escape sequences, control characters, markup. Every
renderer passes such text through `visible` before its own escaping.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

ELLIPSIS = "…"


class SplitText(NamedTuple):
    """A text split around the part that differs from its counterpart: `before` and `after` are common to both."""

    before: str
    different: str
    after: str


def visible(text: str, *, keep_newlines: bool = True) -> str:
    r"""Write out every control, format and surrogate character (`\x1b`, `\u202e`).

    Terminals would execute them, XML forbids some of them, and bidirectional overrides change how a text looks.
    """
    if text.isprintable():
        return text
    return "".join(_visible_character(character, keep_newlines) for character in text)


def _visible_character(character: str, keep_newlines: bool) -> str:
    if character == "\n" and keep_newlines:
        return character
    # Noncharacters (Cn: U+FFFE, U+FFFF) are not allowed in XML either.
    if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Cn"):
        return character
    code = ord(character)
    short = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(character)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def escaped_surrogates(text: str) -> str:
    """Write lone surrogates as escapes: UTF-8 cannot encode them, and Redis may hold any bytes."""
    # The usual case is fast; the conversion copies the text.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def clip(text: str, limit: int) -> str:
    """Cut after `limit` characters, the cut shown by an ellipsis and the full length."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}{ELLIPSIS} ({len(text)} characters)"


def split_difference(expected: str, actual: str) -> tuple[SplitText, SplitText]:
    """Split both texts into what they share at the start, where they differ, and what they share at the end."""
    start = _length_of_common_start(expected, actual)
    end = _length_of_common_start(expected[start:][::-1], actual[start:][::-1])
    return _split(expected, start, end), _split(actual, start, end)


def _length_of_common_start(one: str, other: str) -> int:
    """Return the number of characters that both texts share at their start."""
    # By halves and not by characters: a client may return texts of many megabytes.
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def clip_split(split: SplitText, limit: int) -> SplitText:
    """Shorten the common parts of a split to what surrounds the difference; `limit` per part."""
    before, different, after = split
    if len(before) > limit:
        before = ELLIPSIS + before[-limit:]
    if len(after) > limit:
        after = after[:limit] + ELLIPSIS
    return SplitText(before, clip(different, limit * 2), after)


_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_LONG_NUMBER = re.compile(r"\d{5,}")
_LONG_HEX = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE)


def shape(text: str) -> str:
    """Replace values that differ between scenarios: UUIDs, hashes and long numbers such as times.

    Short numbers stay, because they often matter (`-1` against `-2`).
    """
    return _LONG_NUMBER.sub("<number>", _LONG_HEX.sub("<hex>", _UUID.sub("<uuid>", text)))


def moment(unix_ms: int) -> str:
    """Format a Unix time in ms: `2023-11-14 22:13:20 UTC`."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(milliseconds: float) -> str:
    """Format a duration in ms: `87 ms`, `3.4 s`, `2 min 05 s`."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02d} s"


def count(number: int, singular: str, plural: str = "") -> str:
    """Count things: `1 requirement`, `2 requirements`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def enumeration(names: Sequence[str]) -> str:
    """Join names: `producer, worker and events`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _split(text: str, start: int, end: int) -> SplitText:
    stop = len(text) - end
    return SplitText(text[:start], text[start:stop], text[stop:])
