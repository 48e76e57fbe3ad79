"""The one sentence at the end of every report: conformant, not conformant, or undecided, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from conformance.gate.records import RunFooter
from conformance.report.text import count
from conformance.report.verdicts import SHOWN, Shown

State = Literal["conformant", "not-conformant", "undecided"]
"""`undecided`: nothing speaks against the client, and yet it cannot be said: the run was cut, or the kit broke."""

HEADLINES: dict[State, str] = {
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
    """The end of a report. `reasons` says why it is not plainly conformant, or what it leaves out."""

    state: State
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
    counts: Mapping[Shown, int],
    blocking: Sequence[Shown],
    completeness: Completeness,
    footer: RunFooter | None,
    *,
    untested: int,
) -> Conclusion:
    """Draw the conclusion.

    `counts`: requirements by shown word. `blocking`: the words of everything that keeps the run from being conformant.
    `untested`: how many requirements of the ledger this run did not touch. The exit code of the footer
    is heard too: the gate knows run-wide problems that no scenario shows.
    """
    reasons = _what_blocks(blocking)
    if any(one in ("fail", "stale") for one in blocking):
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
    return Conclusion(state="conformant", reasons=_reservations(counts, untested))


_BLOCKING_PHRASES: dict[Shown, tuple[str, str]] = {
    "fail": ("failure", "failures"),
    "error": ("error of the kit or the set-up", "errors of the kit or the set-up"),
    "stale": ("stale entry in known.toml", "stale entries in known.toml"),
    "inconclusive": ("open question", "open questions"),
}

_RESERVATION_PHRASES: dict[Shown, tuple[str, str]] = {
    "expected-fail": ("known failure", "known failures"),
    "inconclusive": ("open question below MUST", "open questions below MUST"),
    "warn": ("warning", "warnings"),
    "unsupported": ("requirement not supported", "requirements not supported"),
}


def _what_blocks(blocking: Sequence[Shown]) -> tuple[str, ...]:
    counted = Counter(blocking)
    return tuple(count(counted[one], *_BLOCKING_PHRASES[one]) for one in SHOWN if counted[one])


def _reservations(counts: Mapping[Shown, int], untested: int) -> tuple[str, ...]:
    """Say what a conformant client is told all the same."""
    phrases = [
        count(number, *_RESERVATION_PHRASES[one]) for one, number in counts.items() if one in _RESERVATION_PHRASES
    ]
    return (*phrases, f"{count(untested, 'requirement')} not touched by this run") if untested else tuple(phrases)


def _anything_decided(counts: Mapping[Shown, int]) -> bool:
    """Refuse a client that supports nothing: it has shown nothing."""
    return any(counts.get(one, 0) for one in ("pass", "warn", "info", "expected-fail"))


def _exit_reason(footer: RunFooter) -> str:
    problems = f" ({footer.problems[0]})" if footer.problems else ""
    return f"the run ended with exit code {footer.exit_code}{problems}"
