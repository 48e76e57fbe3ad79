"""Assertions of scenarios: each states a sentence, and its failure has the expected and the actual value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from conformance.findings import Timing

Value = TypeVar("Value")

_RECORD: ContextVar[list[str] | None] = ContextVar("_RECORD", default=None)
_ON_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("_ON_CHECK", default=None)
ROW = "row."
"""Start of a locator that names a requirement: of an assertion about something on which the scenario only builds."""
LONGEST_RECORDED = 300
"""Characters of a value that a record keeps."""


class Mismatch(AssertionError):
    """A scenario's statement does not hold.

    `what` is the statement; `where` is the locator that it is about ('' if none), or `row.ID`. `timing`: how late a
    process has to be to cause it, if the statement is about time. `certain`: time cannot change it, even if short times
    take part in the scenario. With neither, it is timed if short times take part (`gate/timing.py`).
    """

    def __init__(
        self,
        what: str,
        *,
        expected: Any,
        actual: Any,
        where: str = "",
        timing: Timing | None = None,
        certain: bool = False,
    ) -> None:
        self.what = what
        self.expected = value_text(expected)
        self.actual = value_text(actual)
        self.where = where
        self.timing = timing
        self.certain = certain
        super().__init__(f"{what}: expected {self.expected}, got {self.actual}")

    @property
    def timed(self) -> bool:
        """Whether a wait ran out: what did not come in time may still come."""
        return self.timing is not None or self.expected.startswith("within ")


@contextmanager
def behind(requirement: str) -> Iterator[None]:
    """Count a failure in this block against a requirement that the scenario needs, but is not about."""
    try:
        yield
    except Mismatch as failed:
        failed.where = failed.where or f"{ROW}{requirement}"
        raise


def value_text(value: Any) -> str:
    """A short text of a value: JSON if possible, else its `repr`. A text is quoted if another value reads alike."""
    if isinstance(value, str) and not _reads_like_json(value):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (TypeError, ValueError):
        return repr(value)


def _reads_like_json(text: str) -> bool:
    """Whether a value that is not this text has the same short text: `null` and the text `null`."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False) == text
    # A text with thousands of brackets is too deep.
    except (ValueError, RecursionError):
        return False


@contextmanager
def recorded_checks() -> Iterator[list[str]]:
    """Record each check that holds in the block, in this thread, as `sentence: value`."""
    record: list[str] = []
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)


@contextmanager
def counted_checks(on_check: Callable[[], None]) -> Iterator[None]:
    """Call a function for each check that holds in the block, in this thread."""
    token = _ON_CHECK.set(on_check)
    try:
        yield
    finally:
        _ON_CHECK.reset(token)


def record_check(what: str, seen: Any) -> None:
    """Count a check that held, and add it to the record, if there is one."""
    on_check = _ON_CHECK.get()
    if on_check is not None:
        on_check()
    record = _RECORD.get()
    if record is not None:
        text = value_text(seen)
        record.append(f"{what}: {text if len(text) <= LONGEST_RECORDED else text[:LONGEST_RECORDED] + '…'}")


def equal(actual: Value, expected: Value, what: str, *, where: str = "") -> None:
    """`actual` is exactly `expected`."""
    if actual != expected:
        raise Mismatch(what, expected=expected, actual=actual, where=where)
    record_check(what, actual)


def one_of(actual: Value, allowed: Sequence[Value], what: str) -> None:
    """`actual` is one of `allowed`."""
    if actual not in allowed:
        raise Mismatch(what, expected=f"one of {value_text(list(allowed))}", actual=actual)
    record_check(what, actual)


def between(actual: float, low: float, high: float, what: str, *, where: str = "") -> None:
    """`low` <= `actual` <= `high`."""
    if not low <= actual <= high:
        raise Mismatch(what, expected=f"{low} .. {high}", actual=actual, where=where)
    record_check(what, actual)


def holds(condition: object, what: str, *, seen: Any, where: str = "", certain: bool = False) -> None:
    """`condition` is true. A failure shows `seen`, the data that it was computed from. `certain`: see `Mismatch`."""
    if not condition:
        raise Mismatch(what, expected=True, actual=seen, where=where, certain=certain)
    record_check(what, seen)
