"""How verdicts are ordered, softened by level, overlaid by known.toml, and drawn together into a conclusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from conformance.gate.records import WORST_FIRST, Level, RunFooter, Verdict
from conformance.report.text import count

ReportedVerdict = Literal[
    "fail", "error", "stale", "inconclusive", "warn", "info", "expected-fail", "unchecked", "pass", "unsupported"
]
"""The one word that every report prints for a requirement or a scenario, worst first: one scenario that passes is
enough for a requirement not to be reported as unsupported.

It is the verdict of the record, except that the level softens a `fail` (SHOULD warns, MAY informs), a listed failure is
an `expected-fail`, and a listed failure that passes is `stale`.
"""

REPORTED_VERDICTS: tuple[ReportedVerdict, ...] = get_args(ReportedVerdict)

SYMBOLS: dict[ReportedVerdict, str] = {
    "fail": "✗",
    "error": "!",
    "stale": "⚑",
    "inconclusive": "?",
    "warn": "▲",
    "info": "i",
    "expected-fail": "≈",
    "unchecked": "…",
    "pass": "✓",
    "unsupported": "-",
}

MEANING: dict[ReportedVerdict, str] = {
    "fail": "does not do what the requirement says",
    "error": "the kit, the oracle or the set-up broke, nothing is known about the client",
    "stale": "listed in known.toml, but it passes now: take it off the list",
    "inconclusive": "a deadline or an unknown outcome left the question open",
    "warn": "does not do what it should",
    "info": "does not do what it may: nobody has to",
    "expected-fail": "listed in known.toml and fails as listed",
    "unchecked": "a failure of another requirement ended the scenario before this one was looked at",
    "pass": "does what the requirement says",
    "unsupported": "not run: the client does not declare the operation or capability",
}


def at_least_as_bad(verdict: Verdict, than: Verdict) -> bool:
    """Whether a recorded verdict is worse than another, or the same."""
    return WORST_FIRST.index(verdict) <= WORST_FIRST.index(than)


def worst_reported(verdicts: Iterable[ReportedVerdict]) -> ReportedVerdict:
    """Pick the worst of several reported verdicts, `pass` for none."""
    return min(verdicts, key=REPORTED_VERDICTS.index, default="pass")


def reported_verdict(
    verdict: Verdict, level: Level | None, *, known: bool = False, found: bool = False
) -> ReportedVerdict:
    """Return the word for one verdict. `level` is None where the ledger lacks the requirement: then nothing softens.

    An error is never excused; an open question only where the gate says so, because a known failure stopped the
    scenario before it. `found`: there are findings against it; a MAY passes with them (nobody has to follow it) and is
    reported as `info`.
    """
    if known and verdict in ("fail", "warn", "inconclusive", "unchecked"):
        return "expected-fail"
    if verdict in ("fail", "warn"):
        return _soften(verdict, level)
    return "info" if verdict == "pass" and found and level == "MAY" else verdict


def blocks(reported: ReportedVerdict, level: Level | None) -> bool:
    """Whether this keeps the run from being conformant."""
    if reported == "inconclusive":
        return level in (None, "MUST")
    return reported in ("fail", "error", "stale")


def _soften(verdict: Literal["fail", "warn"], level: Level | None) -> ReportedVerdict:
    if level == "MAY":
        return "info"
    return "warn" if level == "SHOULD" else verdict


ConclusionState = Literal["conformant", "not-conformant", "undecided"]
"""`undecided`: nothing speaks against the client, and yet it cannot be said: the run was cut, or the kit broke."""

HEADLINES: dict[ConclusionState, str] = {
    "conformant": "CONFORMANT",
    "not-conformant": "NOT CONFORMANT",
    "undecided": "UNDECIDED",
}


@dataclass(frozen=True, kw_only=True)
class Completeness:
    """Whether the run went to its end. `finished`: it has a footer."""

    finished: bool
    planned: int
    recorded: int

    @property
    def complete(self) -> bool:
        """Finished, and no planned scenario is missing."""
        return self.finished and self.recorded >= self.planned

    @property
    def sentence(self) -> str:
        """What is missing; empty for a complete run."""
        if self.complete:
            return ""
        cut = "it has no footer, so it was cut" if not self.finished else "it stopped early"
        return f"INCOMPLETE RUN: {self.recorded} of {count(self.planned, 'planned scenario')} recorded, {cut}."


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The end of every report. `reasons` says why the run is not plainly conformant, or what that leaves out."""

    state: ConclusionState
    reasons: tuple[str, ...]

    @property
    def conformant(self) -> bool:
        """True only where the run shows it."""
        return self.state == "conformant"

    @property
    def sentence(self) -> str:
        """The conclusion for people, such as `NOT CONFORMANT: 2 failures.`."""
        headline = HEADLINES[self.state]
        return f"{headline}: {'; '.join(self.reasons)}." if self.reasons else f"{headline}."


def conclude(
    counts: Mapping[ReportedVerdict, int],
    blocking: Sequence[ReportedVerdict],
    completeness: Completeness,
    footer: RunFooter | None,
    *,
    untested: int,
) -> Conclusion:
    """Draw the conclusion.

    `counts`: requirements by reported verdict. `blocking`: the verdicts of everything that keeps the run from being
    conformant. `untested`: how many requirements of the ledger this run did not touch. The exit code of the footer
    counts too: the gate knows run-wide problems that no scenario shows.
    """
    reasons = _what_blocks(blocking)
    if any(reported in ("fail", "stale") for reported in blocking):
        return Conclusion(state="not-conformant", reasons=reasons)
    if not completeness.complete:
        reasons = (*reasons, "the run is incomplete")
    if not blocking and footer is not None and footer.exit_code:
        reasons = (*reasons, _exit_reason(footer))
        if footer.exit_code == 1 and completeness.complete:
            return Conclusion(state="not-conformant", reasons=reasons)
    if not reasons and not _anything_decided(counts):
        reasons = ("no requirement was decided",)
    if reasons:
        return Conclusion(state="undecided", reasons=reasons)
    return Conclusion(state="conformant", reasons=_reservation_phrases(counts, untested))


_BLOCKING_PHRASES: dict[ReportedVerdict, tuple[str, str]] = {
    "fail": ("failure", "failures"),
    "error": ("error of the kit or the set-up", "errors of the kit or the set-up"),
    "stale": ("stale entry in known.toml", "stale entries in known.toml"),
    "inconclusive": ("open question", "open questions"),
}

_RESERVATION_PHRASES: dict[ReportedVerdict, tuple[str, str]] = {
    "expected-fail": ("known failure", "known failures"),
    "inconclusive": ("open question below MUST", "open questions below MUST"),
    "warn": ("warning", "warnings"),
    "unchecked": ("requirement not reached", "requirements not reached"),
    "unsupported": ("requirement not supported", "requirements not supported"),
}


def _what_blocks(blocking: Sequence[ReportedVerdict]) -> tuple[str, ...]:
    counted = Counter(blocking)
    return tuple(count(counted[word], *_BLOCKING_PHRASES[word]) for word in REPORTED_VERDICTS if counted[word])


def _reservation_phrases(counts: Mapping[ReportedVerdict, int], untested: int) -> tuple[str, ...]:
    """Say what a conformant client should know all the same."""
    phrases = [
        count(number, *_RESERVATION_PHRASES[word]) for word, number in counts.items() if word in _RESERVATION_PHRASES
    ]
    return (*phrases, f"{count(untested, 'requirement')} not touched by this run") if untested else tuple(phrases)


def _anything_decided(counts: Mapping[ReportedVerdict, int]) -> bool:
    """Refuse a client that supports nothing: it has proved nothing."""
    return any(counts.get(word, 0) for word in ("pass", "warn", "info", "expected-fail"))


def _exit_reason(footer: RunFooter) -> str:
    problems = f" ({footer.problems[0]})" if footer.problems else ""
    return f"the run ended with exit code {footer.exit_code}{problems}"
