"""How verdicts are ordered, softened by level, overlaid by known.toml, and shown.

`Shown` is the one word that every report prints for a requirement or a scenario. It is the verdict of the record,
except that the level softens a `fail` (SHOULD warns, MAY informs), a listed failure is an `expected-fail`, and a listed
failure that passes is `stale`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from conformance.gate.records import Level, Verdict

Shown = Literal["fail", "error", "stale", "inconclusive", "warn", "info", "expected-fail", "unsupported", "pass"]
"""Worst first: one `unsupported` scenario is enough for a requirement not to be shown as passed."""

SHOWN: tuple[Shown, ...] = get_args(Shown)

VERDICTS: tuple[Verdict, ...] = ("fail", "error", "inconclusive", "warn", "unsupported", "pass")
"""Worst first. `fail` before `error`: what is known about the client outlives what could not be found out."""

SYMBOLS: dict[Shown, str] = {
    "fail": "✗",
    "error": "!",
    "stale": "⚑",
    "inconclusive": "?",
    "warn": "▲",
    "info": "i",
    "expected-fail": "≈",
    "unsupported": "-",
    "pass": "✓",
}

MEANING: dict[Shown, str] = {
    "fail": "does not do what the requirement says",
    "error": "the kit, the oracle or the set-up broke, nothing is known about the client",
    "stale": "listed in known.toml, but it passes now: take it off the list",
    "inconclusive": "a deadline or an unknown outcome left the question open",
    "warn": "does not do what it should",
    "info": "does not do what it may: nobody has to",
    "expected-fail": "listed in known.toml and fails as listed",
    "unsupported": "not run: the client does not declare the operation or capability",
    "pass": "does what the requirement says",
}


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Pick the worst of several verdicts, `pass` for none."""
    return min(verdicts, key=VERDICTS.index, default="pass")


def worst_shown(shown: Iterable[Shown]) -> Shown:
    """Pick the worst of several shown words, `pass` for none."""
    return min(shown, key=SHOWN.index, default="pass")


def show(verdict: Verdict, level: Level | None, *, known: bool = False, found: bool = False) -> Shown:
    """Find the word for one verdict. `level` is None where the ledger lacks the requirement: then nothing softens.

    An error is never excused; an open question only where the gate says so, because a known failure stopped the
    scenario before it. `found`: there are findings against it; a MAY passes with them (nobody has to follow it) and is
    shown as `info`.
    """
    if known and verdict in ("fail", "warn", "inconclusive"):
        return "expected-fail"
    if verdict in ("fail", "warn"):
        return _soften(verdict, level)
    return "info" if verdict == "pass" and found and level == "MAY" else verdict


def blocks(shown: Shown, level: Level | None) -> bool:
    """Whether this keeps the run from being conformant."""
    if shown == "inconclusive":
        return level in (None, "MUST")
    return shown in ("fail", "error", "stale")


def _soften(verdict: Literal["fail", "warn"], level: Level | None) -> Shown:
    if level == "MAY":
        return "info"
    return "warn" if level == "SHOULD" else verdict
