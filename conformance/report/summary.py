"""Summary of a run, computed once for all reports: by requirement, area and scenario, and as labelled values."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

from conformance.findings import Finding
from conformance.gate.conclusion import Completeness, Conclusion, RunEvidence, draw_conclusion
from conformance.gate.outcomes import (
    REPORTED_VERDICTS,
    ReportedVerdict,
    RequirementOutcome,
    by_requirement,
    explains,
    is_unattributed,
    verdict_about,
    verdicts_in,
    worst_reported,
)
from conformance.gate.profile_status import ProfileStatus
from conformance.gate.records import Level, RunHeader, ScenarioRecord, Verdict
from conformance.ledger.profiles import NO_PROFILES, ProfileTable
from conformance.pages.text import (
    SplitText,
    clip,
    clip_split,
    count,
    duration,
    moment,
    split_difference,
    visible,
)
from conformance.report.causes import Cause, area_of, fold
from conformance.report.run_file import Run
from conformance.speed.records import SpeedReport


class RequirementRow(Protocol):
    """The part of a ledger row that reports need. `conformance.ledger.loader.Requirement` is one."""

    @property
    def level(self) -> Level:
        """MUST, SHOULD or MAY."""

    @property
    def area(self) -> str:
        """Short name of its area."""

    @property
    def statement(self) -> str:
        """The rule in one sentence."""

    @property
    def source(self) -> str:
        """Upstream Lua script or file with the rule."""


RequirementRows = Mapping[str, RequirementRow]
"""Ledger rows by requirement id. Reports also work for ids that are not in it, with less detail."""

NO_ROWS: RequirementRows = {}


Counts = Mapping[ReportedVerdict, int]
"""Counts by word in the order of `REPORTED_VERDICTS`, without zeros."""


@dataclass(frozen=True, kw_only=True)
class RequirementSummary:
    """One requirement over all scenarios that cover it.

    Without a ledger row, `level` is None and the texts are empty.
    """

    id: str
    area: str
    level: Level | None
    statement: str
    source: str
    verdict: Verdict
    """The worst verdict of its scenarios, as recorded."""
    reported: ReportedVerdict
    blocks: bool
    scenarios: tuple[ScenarioRecord, ...]
    causes: tuple[Cause, ...]
    """Causes against it, in their order."""
    known: tuple[str, ...]
    """Reasons in known.toml because of which it is excused or stale."""
    reasons: tuple[str, ...]
    """Reasons of the scenarios that gave it its verdict without a finding against it."""


@dataclass(frozen=True, kw_only=True)
class ScenarioSummary:
    """One scenario with its reported verdict. `unattributed`: no requirement of the run explains its verdict."""

    record: ScenarioRecord
    reported: ReportedVerdict
    unattributed: bool


@dataclass(frozen=True, kw_only=True)
class AreaSummary:
    """The requirements of one area, in the order of their ids."""

    name: str
    requirements: tuple[RequirementSummary, ...]
    counts: Counts
    reported: ReportedVerdict


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run, ready to be rendered."""

    run: Run
    areas: tuple[AreaSummary, ...]
    scenarios: tuple[ScenarioSummary, ...]
    unattributed: tuple[ScenarioSummary, ...]
    counts: Counts
    """Requirements by reported verdict."""
    scenario_counts: Counts
    causes: tuple[Cause, ...]
    """All findings, grouped by cause, in the order of `fold`."""
    untested: tuple[str, ...]
    """Ids of the ledger that no scenario of this run covers."""
    completeness: Completeness
    conclusion: Conclusion
    others: tuple[Summary, ...] = ()
    """Further runs of the same client, as on a cluster, which decide more claims of the specification."""
    benches: tuple[SpeedReport, ...] = ()
    """Results of `bench` for the same client, which decide claims about its speed."""

    @property
    def requirements(self) -> tuple[RequirementSummary, ...]:
        """All requirements of the run, by area."""
        return tuple(requirement for area in self.areas for requirement in area.requirements)

    @property
    def problems(self) -> tuple[str, ...]:
        """Run-wide problems that the gate wrote into the footer."""
        return tuple(self.run.footer.problems) if self.run.footer else ()

    @cached_property
    def _causes_by_scenario(self) -> Mapping[str, tuple[Cause, ...]]:
        shown: dict[str, list[Cause]] = {}
        for cause in self.causes:
            for scenario in cause.scenarios:
                shown.setdefault(scenario, []).append(cause)
        return {scenario: tuple(causes) for scenario, causes in shown.items()}

    def causes_of(self, record: ScenarioRecord) -> tuple[Cause, ...]:
        """Return the causes that a scenario shows, in their order."""
        return self._causes_by_scenario.get(record.id, ())

    def troubled(self) -> tuple[RequirementSummary, ...]:
        """Return all requirements that did not pass and are not unsupported, the worst first."""
        troubled = [
            requirement for requirement in self.requirements if requirement.reported not in ("pass", "unsupported")
        ]
        return tuple(sorted(troubled, key=lambda each: (not each.blocks, REPORTED_VERDICTS.index(each.reported))))


def summarise(run: Run, rows: RequirementRows = NO_ROWS, profiles: ProfileTable = NO_PROFILES) -> Summary:
    """Compute everything that the reports of a run share."""
    evidence = RunEvidence(
        header=run.header,
        scenarios=run.scenarios,
        footer=run.footer,
        levels={requirement: row.level for requirement, row in rows.items()},
        profiles=profiles,
    )
    stale = run.footer.stale if run.footer else {}
    causes = fold(run.scenarios, rows, partial(_family, profiles))
    requirements = [
        _requirement(evidence.outcomes[id_], about, rows, stale, causes)
        for id_, about in by_requirement(run.scenarios).items()
    ]
    scenarios = tuple(_scenario(record, rows) for record in run.scenarios)
    return Summary(
        run=run,
        areas=_areas(requirements),
        scenarios=scenarios,
        unattributed=tuple(scenario for scenario in scenarios if scenario.unattributed),
        counts=_count(requirement.reported for requirement in requirements),
        scenario_counts=_count(scenario.reported for scenario in scenarios),
        causes=causes,
        untested=tuple(requirement for requirement in rows if requirement not in evidence.outcomes),
        completeness=evidence.completeness,
        conclusion=draw_conclusion(evidence),
    )


def _family(profiles: ProfileTable, requirement: str) -> str:
    profile = profiles.profile_of(requirement)
    return f"profile {profile.name}" if profile else area_of(requirement)


def scenario_verdict(record: ScenarioRecord, rows: RequirementRows = NO_ROWS) -> ReportedVerdict:
    """Return the reported verdict of one scenario: the worst of its requirements, never better than its own."""
    return _scenario(record, rows).reported


def _requirement(
    outcome: RequirementOutcome,
    scenarios: list[ScenarioRecord],
    rows: RequirementRows,
    stale: Mapping[str, str],
    causes: Iterable[Cause],
) -> RequirementSummary:
    requirement = outcome.requirement
    row = rows.get(requirement)
    return RequirementSummary(
        id=requirement,
        area=row.area if row else _home_area(requirement, scenarios),
        level=row.level if row else None,
        statement=row.statement if row else "",
        source=row.source if row else "",
        verdict=outcome.verdict,
        reported=outcome.reported,
        blocks=outcome.blocks,
        scenarios=tuple(scenarios),
        causes=tuple(cause for cause in causes if requirement in cause.requirements),
        known=_excuses(requirement, scenarios, stale),
        reasons=_reasons(outcome, row.level if row else None, scenarios),
    )


def _reasons(outcome: RequirementOutcome, level: Level | None, scenarios: list[ScenarioRecord]) -> tuple[str, ...]:
    """Return why the verdict is what it is, apart from findings.

    Another scenario may have ended differently for a reason of its own: a busy machine does not explain a failure.
    """
    about = outcome.requirement
    deciding = [scenario for scenario in scenarios if verdict_about(about, scenario, level) == outcome.reported]
    return tuple(dict.fromkeys(reason for scenario in deciding if (reason := _reason_about(about, scenario))))


def _reason_about(requirement: str, record: ScenarioRecord) -> str:
    """Return why a scenario did not show that a requirement holds; empty if it did, or if findings show it."""
    found = any(finding.requirement == requirement for finding in record.findings)
    return "" if found or verdicts_in(record).get(requirement) == "pass" else record.reason


def reason_of(record: ScenarioRecord) -> str:
    """Return why a scenario ended with its verdict; empty if it failed, because that has findings as its reason."""
    return "" if record.verdict in ("fail", "warn") and record.findings else record.reason


def _home_area(requirement: str, scenarios: list[ScenarioRecord]) -> str:
    """Choose an area without a ledger row: of a scenario that states the requirement, if there is one."""
    stating = [scenario.area for scenario in scenarios if requirement in scenario.requirements]
    return stating[0] if stating else scenarios[0].area


def _excuses(requirement: str, scenarios: list[ScenarioRecord], stale: Mapping[str, str]) -> tuple[str, ...]:
    lists = [*(scenario.known for scenario in scenarios), stale]
    listed = [excuses[requirement] for excuses in lists if requirement in excuses]
    return tuple(dict.fromkeys(listed))


def _scenario(record: ScenarioRecord, rows: RequirementRows) -> ScenarioSummary:
    words = {
        requirement: verdict_about(requirement, record, rows[requirement].level if requirement in rows else None)
        for requirement in verdicts_in(record)
    }
    reported = [word for requirement, word in words.items() if not _is_aside(requirement, word, record)]
    explained = explains(verdicts_in(record).values(), record.verdict)
    return ScenarioSummary(
        record=record,
        reported=worst_reported(reported if explained else [*reported, record.verdict]),
        unattributed=is_unattributed(record),
    )


def _is_aside(requirement: str, reported: ReportedVerdict, record: ScenarioRecord) -> bool:
    """Whether this is only a warning about a requirement of another scenario, which is reported as a cause."""
    return bool(record.about) and requirement not in record.about and reported in ("warn", "info", "expected-fail")


def _areas(requirements: list[RequirementSummary]) -> tuple[AreaSummary, ...]:
    by_area: dict[str, list[RequirementSummary]] = {}
    for requirement in sorted(requirements, key=lambda requirement: (requirement.area, requirement.id)):
        by_area.setdefault(requirement.area, []).append(requirement)
    return tuple(
        AreaSummary(
            name=name,
            requirements=tuple(members),
            counts=_count(member.reported for member in members),
            reported=worst_reported(member.reported for member in members),
        )
        for name, members in by_area.items()
    )


def _count(verdicts: Iterable[ReportedVerdict]) -> Counts:
    counted = Counter(verdicts)
    return {word: counted[word] for word in REPORTED_VERDICTS if counted[word]}


LabelledValue = tuple[str, str]
"""A label and its value. Values are visible text, not yet escaped for any format."""

MOST_VIOLATED = 8
"""Requirements of a cause that are named."""
WORTH_LOCATING = 24
"""Characters; in shorter texts a difference is easy to see."""


def run_facts(run: Run) -> list[LabelledValue]:
    """Describe a run: clients, Redis, options and times."""
    header = run.header
    client, oracle, redis = header.client, header.oracle, header.redis
    facts = [
        ("client", f"{client.text}, targets BullMQ {client.targets}"),
        ("oracle", oracle.text),
        *([("partner", header.partner.text)] if header.partner else []),
        *_installed(header),
        ("redis", f"{redis.version}, {redis.mode}, from {redis.source}"),
        *_private_redis(header.environment),
        ("run", f"{header.run}, tier {header.tier}, seed {header.seed}, kit {header.kit}"),
        *([("selection", f"pytest left out {count(header.deselected, 'scenario')}")] if header.deselected else []),
        ("requirements", f"set {header.requirement_set}"),
        ("started", moment(header.started_ms)),
        ("command", shlex.join(header.command)),
    ]
    if run.footer:
        facts.append(("duration", duration(run.footer.finished_ms - header.started_ms)))
    facts += _cpu_time(run.scenarios)
    if run.footer and run.footer.unanswered:
        facts.append(("without answer", f"{', '.join(run.footer.unanswered)}: no result was returned to compare"))
    for reason in dict.fromkeys(record.unsteady for record in run.scenarios if record.unsteady):
        held = [record.id for record in run.scenarios if record.unsteady == reason]
        facts.append(("unsteady", f"{', '.join(held)}: failed, but held when repeated ({reason})"))
    return [(label, visible(value, keep_newlines=False)) for label, value in facts]


MUCH_CPU = 10
"""More than this many times the oracle's CPU time is mentioned."""


def _cpu_time(scenarios: Sequence[ScenarioRecord]) -> list[LabelledValue]:
    """The CPU time of a client that needs much more than the oracle, which any scenario may explain."""
    client_ms = round(sum(record.client_cpu_ms for record in scenarios))
    oracle_ms = round(sum(record.oracle_cpu_ms for record in scenarios))
    times = f"the client has used {duration(client_ms)}, the oracle {duration(oracle_ms)}"
    return [("cpu time", times)] if client_ms > MUCH_CPU * max(oracle_ms, 1) else []


def _installed(header: RunHeader) -> list[LabelledValue]:
    """A summary of what the kit has installed; the run file has each package."""
    parties = {"oracle": header.oracle, "client": header.client, "partner": header.partner}
    texts = [f"{who}: {party.installed_text}" for who, party in parties.items() if party and party.installed]
    return [("installed", "; ".join(texts))] if texts else []


def _private_redis(environment: Mapping[str, str]) -> list[LabelledValue]:
    """The Redis of scenarios that restart it or fill its memory, if it is another program than that of the run."""
    source = environment.get("private redis")
    return [("private redis", f"{source} (in scenarios that restart Redis or fill its memory)")] if source else []


def verdict_facts(conclusion: Conclusion) -> list[LabelledValue]:
    """Return the status of each profile with the decided share."""
    return [(status.name, status.remark) for status in _selected(conclusion)]


def open_facts(conclusion: Conclusion, *, limit: int = 6) -> list[LabelledValue]:
    """Return the undecided requirements of each profile by reason. `limit`: how many are named per reason."""
    facts = [(status.name, _open(status, limit)) for status in _selected(conclusion) if status.open]
    elsewhere = sum(status.requirements for status in conclusion.profiles if status not in _selected(conclusion))
    return [*facts, *([("all others", f"{elsewhere} outside the selection")] if elsewhere else [])]


def _selected(conclusion: Conclusion) -> list[ProfileStatus]:
    """Return the profiles that the run covers; a selection leaves most of them out."""
    return [status for status in conclusion.profiles if status.decided or not conclusion.narrowed]


def _open(status: ProfileStatus, limit: int) -> str:
    return "; ".join(
        f"{len(requirements)} {reason}: {_some(requirements, limit)}" for reason, requirements in status.open.items()
    )


def _some(requirements: Sequence[str], limit: int) -> str:
    more = f" and {len(requirements) - limit} more" if len(requirements) > limit else ""
    return ", ".join(requirements[:limit]) + more


def requirement_facts(requirement: RequirementSummary) -> list[LabelledValue]:
    """Describe a requirement: statement, source, and reasons of its scenarios."""
    facts = [("statement", requirement.statement), ("source", requirement.source)]
    facts += [("known", reason) for reason in requirement.known]
    facts += [("reason", reason) for reason in requirement.reasons]
    return [(label, visible(value)) for label, value in facts if value]


def scenario_facts(record: ScenarioRecord) -> list[LabelledValue]:
    """Describe a scenario: title, why it did not pass or end, and earlier attempts that do not count."""
    label = "reason" if reason_of(record) else "left open"
    facts = [("scenario", visible(record.title)), (label, visible(record.reason))]
    return facts + [("repeated", visible(attempt)) for attempt in record.repeated]


def finding_facts(finding: Finding, *, limit: int = 160) -> list[LabelledValue]:
    """Describe one finding. `limit`: characters of a text that are shown around the difference."""
    expected, actual = split_difference(finding.expected, finding.actual)
    facts = [
        ("where", f"{finding.where} ({finding.kind}, {finding.severity}, seen by {finding.source})"),
        ("key", finding.key),
        ("message", clip(finding.message, limit * 2)),
        ("expected", "".join(clip_split(expected, limit)) or "(empty)"),
        ("actual", "".join(clip_split(actual, limit)) or "(empty)"),
        ("differs", _difference(finding, expected, actual)),
    ]
    return [(label, visible(value)) for label, value in facts if value]


def cause_facts(cause: Cause, *, limit: int = 160) -> list[LabelledValue]:
    """Describe a cause by its example, both sides of Redis, and its scenarios."""
    first = ", ".join(cause.scenarios[:3])
    more = f" and {len(cause.scenarios) - 3} more" if len(cause.scenarios) > 3 else ""
    facts = [("requirement", f"{cause.finding.requirement} ({cause.level or 'level unknown'})")]
    if len(cause.requirements) > 1:
        facts.append(("violates too", _some(cause.requirements[1:], MOST_VIOLATED)))
    facts += finding_facts(cause.finding, limit=limit)
    for reading in cause.finding.redis[:3]:
        command = " ".join(reading.command)
        facts += [("redis", command)]
        sides = [("  Node", reading.expected), ("  client", reading.actual)]
        facts += [(side, clip(text, limit * 2)) for side, text in sides if text]
    return [(label, visible(value)) for label, value in [*facts, ("seen", f"{cause.met}: {first}{more}")]]


def _difference(finding: Finding, expected: SplitText, actual: SplitText) -> str:
    """Locate the difference inside long texts; empty for short ones and for texts with nothing in common."""
    if max(len(finding.expected), len(finding.actual)) < WORTH_LOCATING or finding.expected == finding.actual:
        return ""
    if not (expected.before or expected.after):
        return ""
    position = len(expected.before) + 1
    return f"at character {position}: expected {_quoted(expected.different)}, got {_quoted(actual.different)}"


def _quoted(text: str) -> str:
    return f"“{clip(text, 40)}”" if text else "nothing"
