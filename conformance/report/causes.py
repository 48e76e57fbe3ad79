"""Causes: findings grouped by the mistake behind them, the most severe first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from conformance.findings import Finding, Severity
from conformance.gate.records import Level, ScenarioRecord
from conformance.pages.text import count
from conformance.report.roots import Root, root_of
from conformance.report.steps import steps_of_client

SEVERITIES: tuple[Severity, ...] = get_args(Severity)

CauseVerdict = Literal["fail", "warn", "info", "expected-fail"]
"""The verdict that a cause gives its requirement, by level and severity, before known.toml is applied."""

CAUSE_VERDICTS: tuple[CauseVerdict, ...] = get_args(CauseVerdict)

WHY: dict[Severity, str] = {
    "lost-jobs": "An added job is in no state in which a worker looks for jobs, so it will never run.",
    "breaks-others": "Other clients on the same queue, Node.js among them, read or do something wrong because of it.",
    "wrong-behaviour": "The client behaves differently from Node.js BullMQ for the same calls.",
    "missing": "Data that other clients may wait for is not written.",
    "cosmetic": "It differs from what Node.js BullMQ writes, but nothing is known to break on it.",
}


@dataclass(frozen=True, kw_only=True)
class Violation:
    """The part of a cause that is about one requirement: a finding, their number, and the scenarios that show it."""

    finding: Finding
    occurrences: int
    scenarios: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One thing that is wrong. `finding` is an example from `example`, the simplest scenario that shows it.

    `violations`: by requirement, that of the example first.
    """

    number: int
    """Position in the order of severity, from 1."""
    title: str
    verdict: CauseVerdict
    level: Level | None
    finding: Finding
    example: ScenarioRecord
    violations: Mapping[str, Violation]
    occurrences: int
    scenarios: tuple[str, ...]
    """Ids of the scenarios that show it, each once, in the order of the run."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """All requirements that it violates, that of the example first."""
        return tuple(self.violations)

    @property
    def met(self) -> str:
        """How often it appeared: `in 388 scenarios`."""
        where = f"in {count(len(self.scenarios), 'scenario')}"
        return where if self.occurrences == len(self.scenarios) else f"{count(self.occurrences, 'time')} {where}"

    @property
    def line(self) -> str:
        """The cause in one line."""
        return f"{self.title}, {self.met}"


class LevelRow(Protocol):
    """The part of a ledger row that causes need."""

    @property
    def level(self) -> Level:
        """MUST, SHOULD or MAY."""


Met = tuple[Finding, ScenarioRecord]


def fold(scenarios: Iterable[ScenarioRecord], rows: Mapping[str, LevelRow]) -> tuple[Cause, ...]:
    """Group all findings of a run: lost jobs first, cosmetic differences later, entries of known.toml last."""
    met: dict[Root, list[Met]] = {}
    for scenario in scenarios:
        for finding in scenario.findings:
            met.setdefault(root_of(finding), []).append((finding, scenario))
    causes = [_cause(root, occurrences, rows) for root, occurrences in met.items()]
    ordered = sorted(causes, key=_rank)
    return tuple(_numbered(cause, number) for number, cause in enumerate(ordered, start=1))


def _rank(cause: Cause) -> tuple[bool, int, int, int]:
    known = cause.verdict == "expected-fail"
    severity, verdict = SEVERITIES.index(cause.finding.severity), CAUSE_VERDICTS.index(cause.verdict)
    return (known, severity, verdict, -len(cause.scenarios))


def _numbered(cause: Cause, number: int) -> Cause:
    values = {name: getattr(cause, name) for name in Cause.__dataclass_fields__}
    return Cause(**{**values, "number": number})


def _cause(root: Root, occurrences: list[Met], rows: Mapping[str, LevelRow]) -> Cause:
    verdicts = [_verdict(finding, scenario, rows) for finding, scenario in occurrences]
    # The worst one: a single occurrence that fails makes it a failure.
    verdict = min(verdicts, key=CAUSE_VERDICTS.index)
    # The easiest example to reproduce, because it is the one that people repeat.
    shown = [each for each, word in zip(occurrences, verdicts, strict=True) if word == verdict]
    finding, example = min(shown, key=_difficulty)
    row = rows.get(finding.requirement)
    violated: dict[str, list[Met]] = {finding.requirement: []}
    for other, scenario in occurrences:
        violated.setdefault(other.requirement, []).append((other, scenario))
    return Cause(
        number=0,
        title=root.title or title_of(finding, jobs=_jobs(occurrences)),
        verdict=verdict,
        level=row.level if row else None,
        finding=finding,
        example=example,
        violations={requirement: _violation(met) for requirement, met in violated.items()},
        occurrences=sum(other.times for other, _ in occurrences),
        scenarios=_ids(occurrences),
    )


def _violation(occurrences: list[Met]) -> Violation:
    number = sum(finding.times for finding, _ in occurrences)
    return Violation(finding=occurrences[0][0], occurrences=number, scenarios=_ids(occurrences))


def _ids(occurrences: list[Met]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(scenario.id for _, scenario in occurrences))


def _jobs(occurrences: list[Met]) -> int:
    """Return the number of jobs that findings are about: those that are kept, and those that were folded into them."""
    kept = {(scenario.id, finding.key) for finding, scenario in occurrences}
    return len(kept) + sum(finding.times - 1 for finding, _ in occurrences)


def _verdict(finding: Finding, scenario: ScenarioRecord, rows: Mapping[str, LevelRow]) -> CauseVerdict:
    row = rows.get(finding.requirement)
    level = row.level if row else None
    if finding.requirement in scenario.known:
        return "expected-fail"
    if level == "MAY":
        return "info"
    return "warn" if level == "SHOULD" or finding.severity == "cosmetic" else "fail"


def _difficulty(met: Met) -> tuple[bool, bool, int]:
    """Sort key for how hard a finding is to reproduce: worst without steps, then with a second client or a stand-in."""
    _, scenario = met
    steps = steps_of_client(scenario)
    others = any(step.by in ("oracle", "partner") or step.stand_in for step in steps)
    return (not steps, others, len(steps))


# Titles.

_NUMBER_OF_COMMAND = re.compile(r"^#\d+ ")
"""Traffic checks number the commands, and the numbers differ between runs."""

_WHICH_DRIVER = re.compile(r"^driver `[^`]*`: ")
"""Its command differs between machines."""

_OF_KIND: dict[str, str] = {
    "missing-field": "{where} is missing",
    "extra-field": "{where} exists, but not in Node",
    "missing-key": "{where} is missing",
    "extra-key": "{where} exists, but not in Node",
    "wrong-value": "{where} has a different value",
    "wrong-type": "{where} has a different type",
    "ttl": "{where} has a different lifetime",
    "missing-job": "a job is missing",
    "extra-job": "a job exists that Node does not have",
    "wrong-state": "a job is in a different state",
    "two-states": "a job is in two states at once",
    "missing-lock": "a lock is missing",
    "extra-lock": "a lock is left over",
    "missing-member": "{where} lacks an entry",
    "extra-member": "{where} has an extra entry",
    "wrong-order": "{where} is different",
    "missing-event": "the event `{name}` is missing",
    "extra-event": "there is an extra event `{name}`",
    "wrong-event-order": "events are in a different order",
    "event-field": "{where} is different",
}


def title_of(finding: Finding, *, jobs: int = 1) -> str:
    """Return a title in one short sentence. `jobs`: number of lost jobs."""
    if finding.severity == "lost-jobs":
        return f"{count(jobs, 'job')} lost"
    if finding.source in ("assertion", "protocol"):
        first_line = _WHICH_DRIVER.sub("", finding.message).partition("\n")[0]
        return f"does not hold: {finding.message}" if finding.source == "assertion" else first_line
    if finding.source == "answer":
        return f"{finding.where.removeprefix('answer.')} is a different answer"
    if finding.kind in _OF_KIND and finding.source in ("snapshot", "events"):
        return _OF_KIND[finding.kind].format(where=finding.where, name=finding.where.partition(".")[2])
    if finding.source == "oracle-health":
        return f"Node's {finding.where.removeprefix('oracle.')} cannot read the client's queue"
    if finding.source in ("invariant", "traffic"):
        return _NUMBER_OF_COMMAND.sub("", finding.actual)
    return f"{finding.where}: {finding.kind}"
