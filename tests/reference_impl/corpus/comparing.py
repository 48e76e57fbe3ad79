"""The three comparisons between what the oracle and what the reference did: snapshots, answers, traffic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from conformance.observe.canonical import Context, Rule, canonicalise
from conformance.observe.rules.lifetimes import DEDUPLICATION_TTL, LIMITER_TTL, LOCK_TTL, STALLED_CHECK_TTL
from conformance.observe.rules.names import GENERATED_UUIDS, LOCK_TOKEN, OWN_PREFIX
from conformance.observe.rules.texts import STACK_TRACE_TEXT, STREAM_IDS
from conformance.observe.tables import TABLES, Snapshot

from .side import Seen
from .traffic import Sent

RULES: tuple[Rule, ...] = (
    OWN_PREFIX,
    GENERATED_UUIDS,
    LOCK_TOKEN,
    STACK_TRACE_TEXT,
    # No client controls these: the server's clock gives stream ids and runs times to live down.
    *(STREAM_IDS, LOCK_TTL, DEDUPLICATION_TTL, LIMITER_TTL, STALLED_CHECK_TTL),
)
"""All that may differ. Not among them: the bytes of `opts` and `parent`, `meta.version`, any time of a client's clock."""


SHOWN = 3
"""After one command too many all others differ too: so many differences of a table or connection are enough."""


def compare(oracle: Seen, reference: Seen, context: Context) -> list[str]:
    """Every difference as a line; empty where the two clients cannot be told apart."""
    return [
        *compare_answers(oracle.answers, reference.answers),
        *compare_traffic(oracle.traffic, reference.traffic),
        *compare_snapshots(oracle.snapshot, reference.snapshot, context),
    ]


def compare_snapshots(oracle: Snapshot, reference: Snapshot, context: Context) -> list[str]:
    """Rows of all tables, compared as they stand after the rules."""
    expected, actual = (canonicalise(each, RULES, context) for each in (oracle, reference))
    lines: list[str] = []
    for table in TABLES:
        lines += _pairs(f"snapshot, {table}", getattr(expected, table), getattr(actual, table))
    return lines


def compare_answers(oracle: Sequence[Any], reference: Sequence[Any]) -> list[str]:
    """Answers, refusals and events in the order of the steps."""
    return _pairs("answer", oracle, reference)


def compare_traffic(oracle: Sequence[Sent], reference: Sequence[Sent]) -> list[str]:
    """Commands, connection by connection: script, KEYS, decoded ARGV and, where these agree, their bytes."""
    expected, actual = _by_lane(oracle), _by_lane(reference)
    lines: list[str] = []
    for lane in sorted({*expected, *actual}):
        lines += _compare_lane(f"traffic of {lane}", expected[lane], actual[lane])
    return lines


def _compare_lane(what: str, oracle: Sequence[Sent], reference: Sequence[Sent]) -> list[str]:
    without_bytes = [[replace(sent, raw=()) for sent in side] for side in (oracle, reference)]
    lines = _pairs(what, *without_bytes)
    return lines or _pairs(f"{what}, bytes", oracle, reference, show=lambda sent: f"{sent.name} {sent.raw}")


def _by_lane(sent: Iterable[Sent]) -> defaultdict[str, list[Sent]]:
    lanes: defaultdict[str, list[Sent]] = defaultdict(list)
    for each in sent:
        lanes[each.lane].append(each)
    return lanes


def _pairs(what: str, oracle: Iterable[Any], reference: Iterable[Any], show: Any = str) -> list[str]:
    """One line per place where the two sequences differ, the first few of them."""
    differing = [
        f"{what} {place}:\n    oracle    {show(expected) if expected is not None else 'nothing'}"
        f"\n    reference {show(actual) if actual is not None else 'nothing'}"
        for place, (expected, actual) in enumerate(zip_longest(oracle, reference), 1)
        if expected != actual
    ]
    return differing[:SHOWN]
