"""What a check over a history is, and the result that it comes to. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """Why there is nothing to judge: the client has nothing of the kind, and says so."""

    reason: str


@dataclass
class CheckStatistics:
    """How much a check has looked at, what it has measured (for the report), and what it has seen how often."""

    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def count(self) -> None:
        """Count one thing that was looked at."""
        self.examined += 1

    def keep_maximum(self, name: str, value: float) -> None:
        """Keep the highest value of a fact, at least 0."""
        self.facts[name] = max(value, self.facts.get(name, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check over a history.

    `unknown`: nothing speaks against the invariant, but not everything could be judged, or too little was seen to say
    that it holds (`reasons`). `applicable`: False where that is so because the client lacks what it is about.
    """

    check: str
    verdict: Verdict
    findings: tuple[HistoryFinding, ...] = ()
    reasons: tuple[str, ...] = ()
    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)
    applicable: bool = True


NO_SNAPSHOT = Undecided("there is no snapshot of the end")
NO_REST = Undecided("the queues never came to rest, so that events and snapshot are of different times")
TORN = Undecided("keys were evicted one by one, so that what is left need not fit together")
"""Even the counter of ids may be gone while jobs are still there: a new job may get the id of an old one."""

Judged: TypeAlias = HistoryFinding | Undecided | Inapplicable
Predicate: TypeAlias = Callable[[Evidence, CheckStatistics], Iterator[HistoryFinding | Undecided | Inapplicable]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCheck:
    """A named invariant over a history. `even_torn`: also judged where keys went away one by one.

    `least`: how much it must have examined, and `least_seen`: what it must have seen how often, to say `ok` of a
    history that is to be full evidence.
    """

    name: str
    predicate: Predicate
    even_torn: bool = False
    least: int = 1
    least_seen: Mapping[str, int] = field(default_factory=dict)

    @property
    def doc(self) -> str:
        """The rule in words."""
        return (self.predicate.__doc__ or "").strip()

    @property
    def demands(self) -> str:
        """What it must have seen, in words."""
        seen = [f"{least} {what}" for what, least in self.least_seen.items()]
        return ", ".join([f"{self.least} examined", *seen])

    def run(self, evidence: Evidence) -> CheckResult:
        """Judge."""
        if evidence.is_torn and not self.even_torn:
            return CheckResult(check=self.name, verdict="unknown", reasons=(TORN.reason,))
        statistics = CheckStatistics()
        found = list(self.predicate(evidence, statistics))
        findings = tuple(item for item in found if isinstance(item, HistoryFinding))
        inapplicable = [item.reason for item in found if isinstance(item, Inapplicable)]
        undecided = [item.reason for item in found if isinstance(item, Undecided)]
        if not inapplicable and evidence.is_full:
            undecided += self._too_little(statistics)
        verdict: Verdict = "fail" if findings else "unknown" if undecided or inapplicable else "ok"
        return CheckResult(
            check=self.name,
            verdict=verdict,
            findings=findings,
            reasons=tuple(dict.fromkeys([*inapplicable, *undecided])),
            examined=statistics.examined,
            facts=statistics.facts,
            applicable=bool(findings or undecided or not inapplicable),
        )

    def _too_little(self, statistics: CheckStatistics) -> Iterator[str]:
        if statistics.examined < self.least:
            yield f"only {statistics.examined} examined, {self.least} are needed"
        for what, least in self.least_seen.items():
            if statistics.seen[what] < least:
                yield f"only {statistics.seen[what]} {what}, {least} are needed"
