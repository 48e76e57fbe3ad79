"""The texts and numbers of one sequence: plain ones, such that look like syntax, and such as long use brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

BACKOFFS: tuple[Any, ...] = (
    20_000,
    {"type": "fixed", "delay": 20_000},
    {"type": "exponential", "delay": 20_000},
    {"type": "fixed"},
    0,
)


DAY_MS = 86_400_000
CENTURY_MS = 36_500 * DAY_MS
LONG_DELAYS = (25 * DAY_MS, 50 * DAY_MS, CENTURY_MS)
"""Timers of 31 and of 32 bits end after 24.8 and 49.7 days (ms)."""

LONG_BACKOFFS: tuple[Any, ...] = (
    {"type": "exponential", "delay": 20_000},
    25 * DAY_MS,
    {"type": "fixed", "delay": 50 * DAY_MS},
    {"type": "exponential", "delay": 1},
)

ID_COUNTERS = (99_999_998, 299_999_998, 2**31 - 2, 2**32 - 2, 10**12, 2**53 - 2)
"""Just below numbers that other languages write with an exponent, or that overflow their integers."""

PRIORITY_COUNTERS = (2**31 - 2, 2**32 - 2)
ATTEMPTS_MADE = (31, 40, 12, 63)

SYNTAX: Mapping[str, tuple[str, ...]] = {
    "numbers": ("1e9", "007", "1.5", "0x10", "+1", "-", "NaN", "\u0661\u0662"),
    "words": ("null", "true", "undefined", "constructor", "__proto__"),
    "patterns": ("*", "?", "[a-z]", "*a", "^a"),
    "braces": ("{a}", "a{b}c", "{", "}", "{}"),
    "separators": ("a:b:c", "../x", "a,b", "%s", "$1", "\\", '"', "a b", "::"),
    "accents": ("\u00e9", "e\u0301", "\U0001f389", "\u0130"),
}
"""Texts that BullMQ accepts as ids of jobs and that look like syntax, by kind."""

ONLY_OTHERS: Mapping[str, tuple[str, ...]] = {
    "numbers": ("7", "12"),
    "words": ("repeat", "__default__"),
    "separators": ("a:b", "a:b:c:d:e", "d:1"),
}
"""Texts that are refused as ids of jobs, but not as names of jobs or ids of schedulers and deduplications."""

DEDUPLICATION_IDS = ("d1", "d2")

_VOCABULARY = st.sampled_from(("plain", "syntax", "large"))
_KINDS = st.sampled_from(tuple(SYNTAX))
_ID_COUNTERS = st.sampled_from(ID_COUNTERS)
_PRIORITY_COUNTERS = st.sampled_from(PRIORITY_COUNTERS)
_ATTEMPTS_MADE = st.sampled_from(ATTEMPTS_MADE)


@dataclass(frozen=True)
class Vocabulary:
    """The texts and numbers of one sequence, which come again and again in it. Times are in ms."""

    job_ids: tuple[str, ...] = ("a", "b", "c", "d-é", "job.1", "0x1", "")
    names: tuple[str, ...] = (*("job",) * 6, "é🎉", "", "a:b", "x" * 200, "__proto__", "0")
    schedulers: tuple[str, ...] = ("s1", "s2")
    deduplications: tuple[str, ...] = DEDUPLICATION_IDS
    delays: tuple[int, ...] = (20_000, 60_000, 0, 4_102_444_800_000)
    later: tuple[int, ...] = (20_000, 0, 60_000)
    """Delays of calls that move a job to delayed."""
    backoffs: tuple[Any, ...] = BACKOFFS
    attempts: tuple[int, ...] = (2, 3, 2, 3, 1, 0)
    lives: tuple[int, ...] = (20_000,)
    """Times to live of keys: of a deduplication, of a rate limit."""
    periods: tuple[int, ...] = (20_000, 60_000)
    """Of schedulers."""
    jumps: tuple[int, ...] = (20_000, 30_000, 10_000, 1000, 1, 60_000)
    """Steps of the clock. Keys expire after multiples of 10 s, so that the little time which really passes does not
    matter."""
    id_counter: int = 0
    """The last generated id in both queues."""
    priority_counter: int = 0
    attempts_made: int = 0
    """Attempts of jobs that have been tried for a long time."""
    keeps_last: bool = False
    """Whether jobs may have `keepLastIfActive`, which is of 5.72 and newer."""
    named: bool = False
    """Whether jobs often have an id of the vocabulary."""


PLAIN = Vocabulary()


def _some_of(texts: tuple[str, ...], number: int) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(texts), min_size=number, max_size=number, unique=True).map(tuple)


@st.composite
def vocabularies(draw: st.DrawFn, *, keeps_last: bool) -> Vocabulary:
    """Plain ones, texts that look like syntax, and numbers as large as in production."""
    return replace(draw(_vocabularies()), keeps_last=keeps_last)


@st.composite
def _vocabularies(draw: st.DrawFn) -> Vocabulary:
    match draw(_VOCABULARY):
        case "syntax":
            kind = draw(_KINDS)
            others = _some_of((*SYNTAX[kind], *ONLY_OTHERS.get(kind, ()) * 3), 2)
            return replace(
                PLAIN,
                named=True,
                job_ids=draw(_some_of(SYNTAX[kind], 4)),
                names=draw(others),
                schedulers=draw(_some_of((*SYNTAX[kind], *ONLY_OTHERS["separators"]), 2)),
                deduplications=draw(others),
            )
        case "large":
            return replace(
                PLAIN,
                delays=(*LONG_DELAYS, 20_000),
                later=(*LONG_DELAYS, 20_000),
                backoffs=LONG_BACKOFFS,
                attempts=(100, 50, 3),
                lives=(20_000, *LONG_DELAYS),
                periods=(20_000, *LONG_DELAYS),
                jumps=(20_000, *LONG_DELAYS, 1000),
                id_counter=draw(_ID_COUNTERS),
                priority_counter=draw(_PRIORITY_COUNTERS),
                attempts_made=draw(_ATTEMPTS_MADE),
            )
    return PLAIN
