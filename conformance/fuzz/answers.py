"""What one call was answered, and where two answers disagree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from conformance.gate.judge import TIMES, UNSET
from conformance.observe.compare.values import same_json
from conformance.observe.rules.base import PLAUSIBLE_SINCE_MS
from conformance.observe.tables import parsed_json

Status: TypeAlias = Literal["ok", "fail", "info", "unsupported", "broken"]

UNORDERED = frozenset({"flow.getFlow", "job.getDependencies", "queue.getWorkers"})
"""Operations that answer with members of a Redis set: their order depends on the prefix."""

RUNNING_DOWN = frozenset({"queue.getRateLimitTtl"})
"""Operations that answer with a time left, which runs down in Redis while the kit looks."""
TIME_LEFT_TOLERANCE_MS = 5000

OWN_WORDS = frozenset({"queue.getVersion"})
"""Operations that answer with the library's own name."""

PLAUSIBLE_UNTIL_MS = 4_000_000_000_000
_MILLISECONDS = re.compile(r"(?<!\d)1[4-9]\d{11}(?!\d)")


@dataclass(frozen=True)
class Answer:
    """How a call ended. `value` as JSON values when `ok`; `code` is the driver protocol's error code otherwise.

    `broken`: the driver crashed or broke the protocol; `message` says how.
    """

    status: Status
    value: Any = None
    code: str = ""
    message: str = ""

    @property
    def outcome(self) -> str:
        """`ok`, the error code of a refusal, or the status."""
        return self.code if self.status == "fail" else self.status

    def without_prefix(self, prefix: str, *, exact: bool = True) -> Any:
        """The value with the participant's own prefix taken out of every text; unless `exact`, without times, too."""
        plain = _without(self.value, prefix)
        return plain if exact else _timeless(plain)


@dataclass(frozen=True)
class Disagreement:
    """A place in which two answers differ."""

    where: str
    expected: Any
    actual: Any


def disagreements(op: str, expected: Any, actual: Any, *, exact: bool) -> list[Disagreement]:
    """Where two values (without prefixes) differ. `exact`: both clocks stood still, so times are compared too."""
    if op in OWN_WORDS:
        return []
    if op in UNORDERED:
        expected, actual = _in_order(expected), _in_order(actual)
    found = list(_differences(f"answer.{op}", expected, actual, exact=exact))
    if op in RUNNING_DOWN:
        found = [one for one in found if not _both_running(one.expected, one.actual)]
    return found


def _both_running(expected: Any, actual: Any) -> bool:
    numbers = all(isinstance(value, int | float) and value > 0 for value in (expected, actual))
    return numbers and abs(expected - actual) <= TIME_LEFT_TOLERANCE_MS


def _differences(where: str, expected: Any, actual: Any, *, exact: bool) -> Iterator[Disagreement]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in {**expected, **actual}:
            if exact or name not in TIMES:
                yield from _differences(f"{where}.{name}", expected.get(name), actual.get(name), exact=exact)
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for wanted, got in zip(expected, actual, strict=True):
            yield from _differences(where, wanted, got, exact=exact)
    elif where.endswith("_raw") and isinstance(expected, str) and isinstance(actual, str):
        # Which text a client makes of a value for its user is its own matter; what is in Redis is compared exactly.
        if expected != actual and not same_json(parsed_json(expected), parsed_json(actual)):
            yield Disagreement(where, expected, actual)
    elif not _same(expected, actual):
        yield Disagreement(where, expected, actual)


def _same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, bool) != isinstance(actual, bool):
        return False
    return expected == actual or (expected in UNSET and actual in UNSET)


def _in_order(value: Any) -> Any:
    if isinstance(value, list):
        return sorted(map(_in_order, value), key=repr)
    if isinstance(value, dict):
        return {name: _in_order(inner) for name, inner in value.items()}
    return value


def _timeless(value: Any) -> Any:
    """Times stand in ids of scheduled jobs and in their options, too, not only where they are expected."""
    if isinstance(value, str):
        return _MILLISECONDS.sub("<ms>", value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "<ms>" if PLAUSIBLE_SINCE_MS <= value <= PLAUSIBLE_UNTIL_MS else value
    if isinstance(value, dict):
        return {name: _timeless(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_timeless(inner) for inner in value]
    return value


def _without(value: Any, prefix: str) -> Any:
    if isinstance(value, str):
        return value.replace(prefix, "<prefix>") if prefix in value else value
    if isinstance(value, dict):
        return {_without(name, prefix): _without(inner, prefix) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without(inner, prefix) for inner in value]
    return value
