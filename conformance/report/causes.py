"""Findings folded by cause: one wrong field is one cause, however many scenarios meet it. Most severe first."""

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
"""What the cause does to its requirement: as the gate judges its findings by level and severity, known.toml aside."""

CAUSE_VERDICTS: tuple[CauseVerdict, ...] = get_args(CauseVerdict)

WHY: dict[Severity, str] = {
    "lost-jobs": "A job that was added is in no state in which any worker would find it: nobody will ever work on it.",
    "breaks-others": "Other clients on the same queue, Node.js among them, read or do something wrong because of it.",
    "wrong-behaviour": "The client does something else than Node.js BullMQ does with the same calls.",
    "missing": "Something that other clients may wait for is not written.",
    "cosmetic": "It is not what Node.js BullMQ writes; nothing is known that breaks on it.",
}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One thing that is wrong. `finding` is an example, met in `example`, the simplest scenario that shows it."""

    number: int
    """Its place in the order of severity, from 1."""
    title: str
    verdict: CauseVerdict
    level: Level | None
    finding: Finding
    example: ScenarioRecord
    occurrences: int
    scenarios: tuple[str, ...]
    """Ids of the scenarios that met it, each once, in the order of the run."""

    @property
    def met(self) -> str:
        """How often and where it was met: `in 388 scenarios`."""
        where = f"in {count(len(self.scenarios), 'scenario')}"
        return where if self.occurrences == len(self.scenarios) else f"{count(self.occurrences, 'time')} {where}"

    @property
    def line(self) -> str:
        """The cause in one line."""
        return f"{self.title}, {self.met}"


class LevelRow(Protocol):
    """What is read of a ledger row."""

    @property
    def level(self) -> Level:
        """MUST, SHOULD or MAY."""


Met = tuple[Finding, ScenarioRecord]
CauseKey = tuple[str, ...]


def fold(scenarios: Iterable[ScenarioRecord], rows: Mapping[str, LevelRow]) -> tuple[Cause, ...]:
    """All findings of a run as causes: lost jobs first, what only looks odd last, and then what known.toml lists."""
    met: dict[CauseKey, list[Met]] = {}
    for scenario in scenarios:
        for finding in scenario.findings:
            met.setdefault(cause_key(finding), []).append((finding, scenario))
    causes = [_cause(occurrences, rows) for occurrences in met.values()]
    ordered = sorted(causes, key=_rank)
    return tuple(_numbered(cause, number) for number, cause in enumerate(ordered, start=1))


def cause_key(finding: Finding) -> CauseKey:
    """What makes two findings the same cause: requirement, locator and kind; of a statement also what it states."""
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
    finding, example = min(occurrences, key=_difficulty)
    row = rows.get(finding.requirement)
    excused = all(finding.requirement in scenario.known for _, scenario in occurrences)
    return Cause(
        number=0,
        title=title_of(finding, jobs=len({(scenario.id, each.key) for each, scenario in occurrences})),
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
    """How hard a finding is to show again: without steps nobody can, with a second client only together with it."""
    _, scenario = met
    steps = steps_of_client(scenario)
    return (not steps, any(step.by in ("oracle", "partner") for step in steps), len(steps))


# Titles.

_NUMBER_OF_COMMAND = re.compile(r"^#\d+ ")
"""A check of traffic counts the commands that it has seen, which says nothing about the next run."""

_OF_KIND: dict[str, str] = {
    "missing-field": "{where} is missing",
    "extra-field": "{where} is there, and Node has none",
    "missing-key": "{where} is missing",
    "extra-key": "{where} is there, and Node has none",
    "wrong-value": "{where} has another value",
    "wrong-type": "{where} is of another type",
    "ttl": "{where} lives for another time",
    "missing-job": "a job is missing",
    "extra-job": "a job is there, and Node has none",
    "wrong-state": "a job is in another state",
    "two-states": "a job is in two states at once",
    "missing-lock": "a lock is missing",
    "extra-lock": "a lock is left over",
    "missing-member": "{where} lacks an entry",
    "extra-member": "{where} has an entry too many",
    "wrong-order": "{where} is another one",
    "missing-event": "the event `{name}` is missing",
    "extra-event": "the event `{name}` is there, and Node sends none",
    "wrong-event-order": "events come in another order",
    "event-field": "{where} is another one",
}


def title_of(finding: Finding, *, jobs: int = 1) -> str:
    """One short sentence. `jobs`: how many the finding was met on, for a loss."""
    if finding.severity == "lost-jobs":
        return f"{count(jobs, 'job')} lost"
    if finding.source in ("assertion", "protocol"):
        return f"not so: {finding.message}" if finding.source == "assertion" else finding.message.splitlines()[0]
    if finding.source == "answer":
        return f"{finding.where.removeprefix('answer.')} is another answer"
    if finding.kind in _OF_KIND and finding.source in ("snapshot", "events"):
        return _OF_KIND[finding.kind].format(where=finding.where, name=finding.where.partition(".")[2])
    if finding.source in ("invariant", "traffic"):
        return _NUMBER_OF_COMMAND.sub("", finding.actual)
    return f"{finding.where}: {finding.kind}"
