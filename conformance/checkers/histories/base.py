"""Checks of invariants over a history, and their results. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import HistoryLine

Verdict: TypeAlias = Literal["ok", "fail", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFinding:
    """One violation of an invariant: what is wrong, with which job, and the lines of the history that show it."""

    message: str
    job: str = ""
    lines: tuple[HistoryLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Undecided:
    """The reason why something cannot be judged."""

    reason: str


@dataclass(frozen=True, slots=True)
class Inapplicable:
    """The reason why there is nothing to judge: the client declares that it lacks the feature."""

    reason: str


@dataclass
class CheckStatistics:
    """Counts of a check: how much it has examined, its measurements for the report, and how often it saw something."""

    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)

    def count(self) -> None:
        """Count one examined item."""
        self.examined += 1

    def keep_maximum(self, name: str, value: float) -> None:
        """Keep the highest value of a fact, at least 0."""
        self.facts[name] = max(value, self.facts.get(name, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of a check over a history.

    `unknown`: no violation was found, but not everything could be judged, or too little was seen to say that the
    invariant holds (`reasons`). `applicable` is False if the client lacks the feature that the invariant is about.
    """

    check: str
    verdict: Verdict
    findings: tuple[HistoryFinding, ...] = ()
    reasons: tuple[str, ...] = ()
    examined: int = 0
    facts: dict[str, float] = field(default_factory=dict)
    applicable: bool = True


NO_SNAPSHOT = Undecided("there is no snapshot of the end")
NO_REST = Undecided("the queues never came to rest, so events and snapshot are of different times")
TORN = Undecided("keys were evicted one by one, so the remaining keys may be inconsistent")
"""Even the counter of ids may be gone while jobs are still there: a new job may get the id of an old one."""

Judged: TypeAlias = HistoryFinding | Undecided | Inapplicable
Predicate: TypeAlias = Callable[[Evidence, CheckStatistics], Iterator[Judged]]


def _reasons(judgements: Iterable[Judged], kind: type[Undecided | Inapplicable]) -> list[str]:
    return [item.reason for item in judgements if isinstance(item, kind)]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCheck:
    """A named invariant over a history. `even_torn`: also judged if keys were evicted one by one.

    A history that is meant as full evidence is `ok` only if the check has examined at least `least` items, and has seen
    each item of `least_seen` that often.
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
        """The minimum that the check must have seen, in words."""
        seen = [f"{least} {what}" for what, least in self.least_seen.items()]
        return ", ".join([f"{self.least} examined", *seen])

    def run(self, evidence: Evidence) -> CheckResult:
        """Judge a history."""
        # After single keys were evicted, almost every invariant may be broken without any client's fault.
        if evidence.is_torn and not self.even_torn:
            return CheckResult(check=self.name, verdict="unknown", reasons=(TORN.reason,))
        statistics = CheckStatistics()
        judgements = list(self.predicate(evidence, statistics))
        findings = tuple(item for item in judgements if isinstance(item, HistoryFinding))
        inapplicable = _reasons(judgements, Inapplicable)
        undecided = _reasons(judgements, Undecided)
        # Crash points produce short segments, which cannot contain every kind of evidence.
        if not inapplicable and evidence.is_full:
            undecided += self._too_little(statistics)
        return CheckResult(
            check=self.name,
            # A violation is certain even if other parts of the history could not be judged.
            verdict="fail" if findings else "unknown" if undecided or inapplicable else "ok",
            findings=findings,
            # Without duplicates, because a predicate may give the same reason for each of many jobs.
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
