"""Roots: the mistakes behind findings of many requirements, places and scenarios. Pure.

A client that writes seconds instead of ms differs in twenty fields, and that is one thing to repair. Findings without a
rule here have the same root if they have the same locator and kind; statements of scenarios, the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from conformance.findings import Finding
from conformance.pages.text import shape

LONG_AGO = 1e9
"""Smaller numbers are not Unix times, so a factor of 1000 between them says nothing about units."""
UNIT_TOLERANCE = 0.002
"""A time in whole seconds differs from one in ms by up to a second."""
_NOTHING = frozenset({"", "null", "None", "nothing", "(absent)", "(nil)", "[]", "false"})
_WORDS_OF_ERROR = 4
"""Words of an error that show its kind; the next ones name the job, the key or the value."""

_DRIVER = re.compile(r"^driver `[^`]*`: ")
_VALUE = re.compile(r"\{.*\}|\[.*\]|\d+|'[^']*'|\"[^\"]*\"", re.DOTALL)
_ENDED = re.compile(r"^driver `[^`]*`: it ended\b")
_LAST_WORDS = re.compile(
    r"^\s*\| (?=\S)(.*(?:fatal error|panic|panicked|Exception|[A-Z]\w*Error|Segmentation fault)\b.*)$", re.MULTILINE
)
"""The line of stderr that names the crash, in the words of Go, Rust, Java, Python, Node.js and the shell."""
_GONE = re.compile(r"\bno (?:such )?handle\b", re.IGNORECASE)


@dataclass(frozen=True)
class Root:
    """The key that findings with the same mistake share. `title`: empty if a finding describes it.

    `alone`: too grave to be counted together with other roots.
    """

    key: tuple[str, ...]
    title: str = ""
    alone: bool = False


def root_of(finding: Finding) -> Root:
    """Return the root of a finding."""
    return next((root for rule in _RULES if (root := rule(finding)) is not None), _same_place(finding))


def _same_place(finding: Finding) -> Root:
    # A lost job is another mistake than one that is only in the wrong list.
    lost = finding.severity == "lost-jobs"
    return Root((finding.where, finding.kind, "lost" if lost else ""), alone=lost)


def _seconds(finding: Finding) -> Root | None:
    expected, actual = _number(finding.expected), _number(finding.actual)
    if expected is None or actual is None or max(expected, actual) < LONG_AGO:
        return None
    for factor, title in ((1000, "times are in seconds, not in ms"), (0.001, "times are 1000 times too large")):
        if abs(actual * factor - expected) <= UNIT_TOLERANCE * expected:
            return Root(("seconds", title), title)
    return None


def _number(text: str) -> float | None:
    try:
        return float(text.strip('"'))
    except ValueError:
        return None


def _crash(finding: Finding) -> Root | None:
    """The process of the client ended by itself: what it printed last says why, and the scenario does not matter."""
    if finding.source != "protocol" or not _ENDED.search(finding.message):
        return None
    last_words = _LAST_WORDS.search(finding.message)
    reason = f": {last_words[1].strip()}" if last_words else ""
    return Root(("crash", _VALUE.sub("#", reason)), f"the client's process crashes{reason}", alone=True)


def _marker(finding: Finding) -> Root | None:
    about_it = finding.where.startswith(("marker.", "invariant.base-marker")) or "marker" in finding.message
    missing = finding.actual in _NOTHING or finding.kind in ("missing-key", "base-marker")
    return Root(("marker",), "the marker that wakes idle workers is missing") if about_it and missing else None


def _gone_handle(finding: Finding) -> Root | None:
    if finding.source == "protocol" and _GONE.search(finding.message):
        return Root(("handle",), "a handle that the kit still uses is gone")
    return None


def _not_refused(finding: Finding) -> Root | None:
    """Calls that must be refused succeed: one root for each error code."""
    code = finding.expected.removeprefix("refused with ")
    stated = finding.source == "assertion" and code != finding.expected and finding.actual == "accepted"
    answered = finding.source == "answer" and finding.where.endswith(".outcome") and finding.actual == "ok"
    if stated or answered:
        return Root(("not refused", code), f"calls are accepted that must be refused with {code}")
    return None


def _broken_call(finding: Finding) -> Root | None:
    if finding.source != "protocol":
        return None
    # Messages of clients are as different as their data, and the kind of an error is in its first words.
    words = shape(_DRIVER.sub("", finding.message)).split()[:_WORDS_OF_ERROR]
    return Root((finding.where, finding.kind, finding.place, _VALUE.sub("#", " ".join(words))))


def _statement(finding: Finding) -> Root | None:
    if finding.source != "assertion":
        return None
    return Root((finding.where, finding.kind, _VALUE.sub("#", shape(finding.message))))


_RULES: tuple[Callable[[Finding], Root | None], ...] = (
    _crash,
    _seconds,
    _marker,
    _gone_handle,
    _not_refused,
    _broken_call,
    _statement,
)
"""The first rule that knows a finding decides."""
