"""The three comparisons between oracle and reference: snapshots, answers, traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import zip_longest
from typing import Any

from conformance.observe.canonical import canonicalise
from conformance.observe.canonical_rules import (
    DEDUPLICATION_TTL,
    GENERATED_UUIDS,
    LIMITER_TTL,
    LOCK_TOKEN,
    LOCK_TTL,
    OWN_PREFIX,
    STACK_TRACE_TEXT,
    STALLED_CHECK_TTL,
    STREAM_IDS,
    CanonicalContext,
    CanonicalRule,
)
from conformance.observe.tables import TABLES, Snapshot
from tests.reference_impl.corpus.client_runs import CaseResult
from tests.reference_impl.corpus.traffic import SentCommand

RULES: tuple[CanonicalRule, ...] = (
    OWN_PREFIX,
    GENERATED_UUIDS,
    LOCK_TOKEN,
    STACK_TRACE_TEXT,
    # No client controls these: the server's clock decides stream ids and remaining times to live.
    *(STREAM_IDS, LOCK_TTL, DEDUPLICATION_TTL, LIMITER_TTL, STALLED_CHECK_TTL),
)
"""All allowed differences. Not among them: the bytes of `opts` and `parent`, `meta.version`, any time of a clock."""


SHOWN = 3
"""The most differences that are shown per table or connection: after one extra command all later ones differ."""


ABSENT = "nothing"


def compare(oracle: CaseResult, reference: CaseResult, context: CanonicalContext) -> list[str]:
    """A line for each difference; empty if both clients did the same."""
    return [
        *compare_answers(oracle.answers, reference.answers),
        *compare_traffic(oracle.traffic, reference.traffic),
        *compare_snapshots(oracle.snapshot, reference.snapshot, context),
    ]


def compare_snapshots(oracle: Snapshot, reference: Snapshot, context: CanonicalContext) -> list[str]:
    """Rows of all tables, compared after the rules."""
    expected, actual = (canonicalise(snapshot, RULES, context) for snapshot in (oracle, reference))
    lines: list[str] = []
    for table in TABLES:
        lines += _pairs(
            f"snapshot, {table}", *(_ordered(table, getattr(snapshot, table)) for snapshot in (expected, actual))
        )
    return lines


def _ordered(table: str, rows: Sequence[Any]) -> Sequence[Any]:
    """Rows come sorted by key, and so by uuid. Lists have positions and sorted sets have scores in their rows."""
    return rows if table == "events" else sorted(rows, key=str)


def compare_answers(oracle: Sequence[Any], reference: Sequence[Any]) -> list[str]:
    """Answers, refusals and events in the order of the steps."""
    return _pairs("answer", map(_without_arrivals, oracle), map(_without_arrivals, reference))


def _without_arrivals(answer: Any) -> Any:
    """Redis lists clients in the order of their connections, which depends on the machine."""
    match answer:
        case [status, {"names": list() as names, **others}]:
            return [status, {"names": sorted(names), **others}]
        case _:
            return answer


def compare_traffic(oracle: Sequence[SentCommand], reference: Sequence[SentCommand]) -> list[str]:
    """Commands, connection by connection: script, KEYS, decoded ARGV and, where these agree, their bytes."""
    expected, actual = _by_lane(oracle), _by_lane(reference)
    lines: list[str] = []
    for lane in sorted({*expected, *actual}):
        lines += _compare_lane(f"traffic of {lane}", expected[lane], actual[lane])
    return lines


def _compare_lane(what: str, oracle: Sequence[SentCommand], reference: Sequence[SentCommand]) -> list[str]:
    without_bytes = [[replace(sent, raw=()) for sent in commands] for commands in (oracle, reference)]
    lines = _pairs(what, *without_bytes)
    return lines or _pairs(f"{what}, bytes", oracle, reference)


def _by_lane(sent: Iterable[SentCommand]) -> defaultdict[str, list[SentCommand]]:
    lanes: defaultdict[str, list[SentCommand]] = defaultdict(list)
    for command in sent:
        lanes[command.lane].append(command)
    return lanes


def _pairs(what: str, oracle: Iterable[Any], reference: Iterable[Any]) -> list[str]:
    """One line per place where the two sequences differ, the first few of them."""
    differing = [
        f"{what} {place}: {difference}"
        for place, pair in enumerate(zip_longest(oracle, reference), 1)
        for difference in _differences(*pair)
    ]
    return differing[:SHOWN]


def _differences(expected: Any, actual: Any, where: str = "") -> Iterator[str]:
    """Descend to the members in which two values differ."""
    if expected == actual and type(expected) is type(actual):
        return
    if type(expected) is type(actual) and is_dataclass(expected) and _name(expected) == _name(actual):
        expected, actual = ({f.name: getattr(row, f.name) for f in fields(row)} for row in (expected, actual))
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple) and len(expected) == len(actual):
        expected, actual = dict(enumerate(expected)), dict(enumerate(actual))
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for name in dict.fromkeys([*expected, *actual]):
            yield from _differences(expected.get(name, ABSENT), actual.get(name, ABSENT), f"{where}[{name!r}]")
    else:
        yield f"{where}\n    oracle    {expected}\n    reference {actual}"


def _name(row: Any) -> Any:
    """The details of commands with different names are not compared."""
    return getattr(row, "name", None)
