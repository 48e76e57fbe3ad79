"""What a check over a history is, and the result that it comes to. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import HistoryLine

Verdict: TypeAlias = Literal["ok", "fail", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFinding:
    """One place where an invariant does not hold: what is wrong, with which job, and the lines that show it."""

    message: str
    job: str = ""
    lines: tuple[HistoryLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Undecided:
    """Why something cannot be judged."""

    reason: str


@dataclass
class CheckStatistics:
    """How much a check has looked at, and what it has measured (for the report)."""

    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)

    def count(self) -> None:
        """Count one thing that was looked at."""
        self.examined += 1

    def keep_maximum(self, name: str, value: float) -> None:
        """Keep the highest value of a fact, at least 0."""
        self.facts[name] = max(value, self.facts.get(name, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check over a history.

    `unknown`: nothing speaks against the invariant, but not everything could be judged (`reasons`). `examined` 0: the
    run had nothing that the invariant is about.
    """

    check: str
    verdict: Verdict
    findings: tuple[HistoryFinding, ...] = ()
    reasons: tuple[str, ...] = ()
    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)


NO_SNAPSHOT = Undecided("there is no snapshot of the end")
NO_REST = Undecided("the queues never came to rest, so that events and snapshot are of different times")
TORN = Undecided("keys were evicted one by one, so that what is left need not fit together")
"""Even the counter of ids may be gone while jobs are still there: a new job may get the id of an old one."""

Predicate: TypeAlias = Callable[[Evidence, CheckStatistics], Iterator[HistoryFinding | Undecided]]


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

    def run(self, evidence: Evidence) -> CheckResult:
        """Judge."""
        if evidence.is_torn and not self.even_torn:
            return CheckResult(check=self.name, verdict="unknown", reasons=(TORN.reason,))
        statistics = CheckStatistics()
        found = list(self.predicate(evidence, statistics))
        findings = tuple(item for item in found if isinstance(item, HistoryFinding))
        reasons = tuple(dict.fromkeys(item.reason for item in found if isinstance(item, Undecided)))
        verdict: Verdict = "fail" if findings else "unknown" if reasons else "ok"
        return CheckResult(
            check=self.name,
            verdict=verdict,
            findings=findings,
            reasons=reasons,
            examined=statistics.examined,
            facts=statistics.facts,
        )
