"""Replies of Redis as Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def text(reply: Any) -> str:
    """Return a reply as text; bytes that are not UTF-8 are replaced, as Node does."""
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)


def maybe_text(reply: Any) -> str | None:
    """Return a reply as text, or None for a nil reply."""
    return None if reply is None else text(reply)


def texts(reply: Sequence[Any]) -> list[str]:
    """Return a list reply as texts."""
    return [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in reply]


def flat_mapping(reply: Any) -> dict[str, str]:
    """Alternating field names and values as a dict."""
    if isinstance(reply, Mapping):
        return {text(name): text(value) for name, value in reply.items()}
    try:
        words = [word.decode() for word in reply]
    except (UnicodeDecodeError, AttributeError):
        words = texts(reply)
    return dict(zip(words[::2], words[1::2], strict=True))
