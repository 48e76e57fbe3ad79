"""Causes: findings grouped by requirement, locator and kind, the most severe first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from conformance.findings import Finding, Severity
from conformance.gate.records import Level, ScenarioRecord
from conformance.pages.text import count, shape
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
class Cause:
    """One thing that is wrong. `finding` is an example from `example`, the simplest scenario that shows it."""

    number: int
    """Position in the order of severity, from 1."""
    title: str
    verdict: CauseVerdict
    level: Level | None
    finding: Finding
    example: ScenarioRecord
    occurrences: int
    scenarios: tuple[str, ...]
    """Ids of the scenarios that show it, each once, in the order of the run."""

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
CauseKey = tuple[str, ...]


def fold(scenarios: Iterable[ScenarioRecord], rows: Mapping[str, LevelRow]) -> tuple[Cause, ...]:
    """Group all findings of a run: lost jobs first, cosmetic differences later, entries of known.toml last."""
    met: dict[CauseKey, list[Met]] = {}
    for scenario in scenarios:
        for finding in scenario.findings:
            met.setdefault(cause_key(finding), []).append((finding, scenario))
    causes = [_cause(occurrences, rows) for occurrences in met.values()]
    ordered = sorted(causes, key=_rank)
    return tuple(_numbered(cause, number) for number, cause in enumerate(ordered, start=1))


def cause_key(finding: Finding) -> CauseKey:
    """Return what identifies a cause: requirement, locator and kind; for assertions also the message."""
    # The message decides only where no locator tells assertions apart.
    stated = shape(finding.message) if finding.source in ("assertion", "protocol") else ""
    return (finding.requirement, finding.where, finding.kind, stated)


def _rank(cause: Cause) -> tuple[bool, int, int, int]:
    known = cause.verdict == "expected-fail"
    severity, verdict = SEVERITIES.index(cause.finding.severity), CAUSE_VERDICTS.index(cause.verdict)
    return (known, severity, verdict, -len(cause.scenarios))


def _numbered(cause: Cause, number: int) -> Cause:
    values = {name: getattr(cause, name) for name in Cause.__dataclass_fields__}
    return Cause(**{**values, "number": number})


def _cause(occurrences: list[Met], rows: Mapping[str, LevelRow]) -> Cause:
    # The easiest example to reproduce, because it is the one that people repeat.
    finding, example = min(occurrences, key=_difficulty)
    row = rows.get(finding.requirement)
    # All of them: one occurrence that is not excused keeps the cause a failure.
    excused = all(finding.requirement in scenario.known for _, scenario in occurrences)
    return Cause(
        number=0,
        title=title_of(finding, jobs=len({(scenario.id, other.key) for other, scenario in occurrences})),
        verdict="expected-fail" if excused else _verdict(finding, row.level if row else None),
        level=row.level if row else None,
        finding=finding,
        example=example,
        occurrences=len(occurrences),
        scenarios=tuple(dict.fromkeys(scenario.id for _, scenario in occurrences)),
    )


def _verdict(finding: Finding, level: Level | None) -> CauseVerdict:
    if level == "MAY":
        return "info"
    return "warn" if level == "SHOULD" or finding.severity == "cosmetic" else "fail"


def _difficulty(met: Met) -> tuple[bool, bool, int]:
    """Sort key for how hard a finding is to reproduce: worst without steps, then with a second client."""
    _, scenario = met
    steps = steps_of_client(scenario)
    return (not steps, any(step.by in ("oracle", "partner") for step in steps), len(steps))


# Titles.

_NUMBER_OF_COMMAND = re.compile(r"^#\d+ ")
"""Traffic checks number the commands, and the numbers differ between runs."""

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
        return f"does not hold: {finding.message}" if finding.source == "assertion" else finding.message.splitlines()[0]
    if finding.source == "answer":
        return f"{finding.where.removeprefix('answer.')} is a different answer"
    if finding.kind in _OF_KIND and finding.source in ("snapshot", "events"):
        return _OF_KIND[finding.kind].format(where=finding.where, name=finding.where.partition(".")[2])
    if finding.source in ("invariant", "traffic"):
        return _NUMBER_OF_COMMAND.sub("", finding.actual)
    return f"{finding.where}: {finding.kind}"
