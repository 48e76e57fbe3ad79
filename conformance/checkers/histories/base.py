"""What a check over a history is, and what it says. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.lines import Line

Verdict: TypeAlias = Literal["ok", "fail", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place where an invariant does not hold: what is wrong, with which job, and the lines that show it."""

    message: str
    job: str = ""
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why something cannot be judged."""

    reason: str


@dataclass
class Tally:
    """How much a check has looked at, and what it has measured (for the report)."""

    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """Count one thing."""
        self.examined += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a check says of a history.

    `unknown`: nothing speaks against the invariant, but not everything could be judged (`reasons`). `examined` 0: the
    run had nothing that the invariant is about.
    """

    check: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)


TORN = Unknown("keys were evicted one by one, so that what is left need not fit together")
"""Even the counter of ids may be gone while jobs are still there: a new job may get the id of an old one."""

Predicate: TypeAlias = Callable[[Evidence, Tally], Iterator[Finding | Unknown]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCheck:
    """A named invariant over a history. `even_torn`: also judged where keys went away one by one."""

    name: str
    predicate: Predicate
    even_torn: bool = False

    @property
    def doc(self) -> str:
        """The rule in words."""
        return (self.predicate.__doc__ or "").strip()

    def run(self, evidence: Evidence) -> Judgement:
        """Judge."""
        if evidence.is_torn and not self.even_torn:
            return Judgement(check=self.name, verdict="unknown", reasons=(TORN.reason,))
        tally = Tally()
        found = list(self.predicate(evidence, tally))
        findings = tuple(each for each in found if isinstance(each, Finding))
        reasons = tuple(dict.fromkeys(each.reason for each in found if isinstance(each, Unknown)))
        verdict: Verdict = "fail" if findings else "unknown" if reasons else "ok"
        return Judgement(
            check=self.name,
            verdict=verdict,
            findings=findings,
            reasons=reasons,
            examined=tally.examined,
            facts=tally.facts,
        )
