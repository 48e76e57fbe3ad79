"""Dates as users of BullMQ may give them: `new Date(value)` of JavaScript for numbers and the common texts."""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from conformance.reference_impl.encoding.js_json import is_number
from conformance.reference_impl.errors import InvalidArgument

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(value: Any) -> int:
    """Answer the Unix ms of a number (ms), a datetime, or a text in ISO 8601 or RFC 2822.

    As in JavaScript a text without a zone is the machine's time, except a date alone, which is UTC. Raises
    InvalidArgument for anything else; JavaScript would go on with an invalid date.
    """
    if is_number(value):
        return int(value)
    if isinstance(value, datetime):
        return _instant(value)
    if isinstance(value, str):
        return _instant(_read(value))
    raise InvalidArgument(f"Invalid date: {value!r}")


def iso_text(instant: int) -> str:
    """`Date.prototype.toISOString` of Unix ms."""
    return (_EPOCH + timedelta(milliseconds=instant)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant % 1000:03}Z"


def _read(text: str) -> datetime:
    if re.fullmatch(r"\d{4}(-\d{2}){0,2}", text):
        text = f"{text}-01-01"[: len("2000-01-01")] + "T00:00Z"
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with contextlib.suppress(ValueError):
            return read(text)
    raise InvalidArgument(f"Invalid date: {text}")


def _instant(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
