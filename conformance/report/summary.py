"""What a run says, worked out once for all reports: per requirement, per area, per scenario, and in all.

Everything here is a pure function of a run and, where they are at hand, ledger rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from conformance.gate.records import Level, ScenarioRecord, Verdict
from conformance.report.conclusion import Completeness, Conclusion, conclude
from conformance.report.findings import FindingGroup, group_findings
from conformance.report.rows import NO_ROWS, Rows
from conformance.report.run_file import Run
from conformance.report.verdicts import SHOWN, VERDICTS, Shown, blocks, show, worst_shown, worst_verdict

Counts = Mapping[Shown, int]
"""How many of each, in the order of `SHOWN`; words that do not occur are left out."""


@dataclass(frozen=True, kw_only=True)
class RequirementSummary:
    """One requirement over all scenarios that speak about it.

    Without a ledger row, `level` is None and the texts are empty.
    """

    id: str
    area: str
    level: Level | None
    statement: str
    source: str
    verdict: Verdict
    """The worst verdict of its scenarios, as recorded."""
    shown: Shown
    blocks: bool
    scenarios: tuple[ScenarioRecord, ...]
    findings: tuple[FindingGroup, ...]
    known: tuple[str, ...]
    """Reasons from known.toml for which it is excused or stale."""
    reasons: tuple[str, ...]
    """What the scenarios that did not pass say about why."""


@dataclass(frozen=True, kw_only=True)
class ScenarioSummary:
    """One scenario with the word shown for it. `unattributed`: its verdict speaks against no requirement of the run."""

    record: ScenarioRecord
    shown: Shown
    unattributed: bool


@dataclass(frozen=True, kw_only=True)
class AreaSummary:
    """The requirements of one area, in the order of their ids."""

    name: str
    requirements: tuple[RequirementSummary, ...]
    counts: Counts
    shown: Shown


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A run, ready to be rendered."""

    run: Run
    areas: tuple[AreaSummary, ...]
    scenarios: tuple[ScenarioSummary, ...]
    unattributed: tuple[ScenarioSummary, ...]
    counts: Counts
    """Requirements by shown word."""
    scenario_counts: Counts
    untested: tuple[str, ...]
    """Ids of the ledger that no scenario of this run spoke about."""
    completeness: Completeness
    conclusion: Conclusion

    @property
    def requirements(self) -> tuple[RequirementSummary, ...]:
        """All requirements of the run, by area."""
        return tuple(requirement for area in self.areas for requirement in area.requirements)

    @property
    def problems(self) -> tuple[str, ...]:
        """Run-wide problems that the gate wrote into the footer."""
        return tuple(self.run.footer.problems) if self.run.footer else ()

    def troubled(self) -> tuple[RequirementSummary, ...]:
        """Pick the requirements with something to tell, the worst first: all but passed and unsupported ones."""
        told = [one for one in self.requirements if one.shown not in ("pass", "unsupported")]
        return tuple(sorted(told, key=lambda one: (not one.blocks, SHOWN.index(one.shown))))


def summarise(run: Run, rows: Rows = NO_ROWS) -> Summary:
    """Work out everything that the reports of a run share."""
    stale = run.footer.stale if run.footer else {}
    requirements = [_requirement(one, speaking, rows, stale) for one, speaking in _speakers(run.scenarios).items()]
    scenarios = tuple(_scenario(record, rows) for record in run.scenarios)
    unattributed = tuple(one for one in scenarios if one.unattributed)
    completeness = Completeness(
        finished=run.footer is not None, planned=run.header.planned, recorded=len(run.scenarios)
    )
    counts = _count(one.shown for one in requirements)
    blocking = [one.shown for one in requirements if one.blocks]
    blocking += [one.record.verdict for one in unattributed]
    tested = {one.id for one in requirements}
    untested = tuple(one for one in rows if one not in tested)
    return Summary(
        run=run,
        areas=_areas(requirements),
        scenarios=scenarios,
        unattributed=unattributed,
        counts=counts,
        scenario_counts=_count(one.shown for one in scenarios),
        untested=untested,
        completeness=completeness,
        conclusion=conclude(counts, blocking, completeness, run.footer, untested=len(untested)),
    )


def show_scenario(record: ScenarioRecord, rows: Rows = NO_ROWS) -> Shown:
    """Find the word for one scenario: the worst of its requirements, and never better than its own verdict."""
    return _scenario(record, rows).shown


def _speakers(scenarios: Iterable[ScenarioRecord]) -> dict[str, list[ScenarioRecord]]:
    """Find the scenarios that speak about each requirement, by a verdict or by a finding."""
    speakers: dict[str, list[ScenarioRecord]] = {}
    for scenario in scenarios:
        for requirement in _verdicts(scenario):
            speakers.setdefault(requirement, []).append(scenario)
    return speakers


def _verdicts(scenario: ScenarioRecord) -> dict[str, Verdict]:
    """Read the verdicts of a scenario; a finding against a requirement that has none makes it fail."""
    implied: dict[str, Verdict] = {finding.requirement: "fail" for finding in scenario.findings}
    return implied | scenario.requirements


def _requirement(
    requirement: str, scenarios: list[ScenarioRecord], rows: Rows, stale: Mapping[str, str]
) -> RequirementSummary:
    row = rows.get(requirement)
    level = row.level if row else None
    shown = worst_shown(_show_one(scenario, requirement, level) for scenario in scenarios)
    if requirement in stale and shown in ("pass", "info"):
        shown = "stale"
    return RequirementSummary(
        id=requirement,
        area=row.area if row else _home_area(requirement, scenarios),
        level=level,
        statement=row.statement if row else "",
        source=row.source if row else "",
        verdict=worst_verdict(_verdicts(scenario)[requirement] for scenario in scenarios),
        shown=shown,
        blocks=blocks(shown, level),
        scenarios=tuple(scenarios),
        findings=group_findings(requirement, scenarios),
        known=_excuses(requirement, scenarios, stale),
        reasons=tuple(
            dict.fromkeys(one.reason for one in scenarios if one.reason and _verdicts(one)[requirement] != "pass")
        ),
    )


def _show_one(scenario: ScenarioRecord, requirement: str, level: Level | None) -> Shown:
    verdict = _verdicts(scenario)[requirement]
    found = any(finding.requirement == requirement for finding in scenario.findings)
    return show(verdict, level, known=requirement in scenario.known, found=found)


def _home_area(requirement: str, scenarios: list[ScenarioRecord]) -> str:
    """Choose an area without a ledger row: of a scenario that states it, not of one that stumbled over it."""
    stating = [scenario.area for scenario in scenarios if requirement in scenario.requirements]
    return stating[0] if stating else scenarios[0].area


def _excuses(requirement: str, scenarios: list[ScenarioRecord], stale: Mapping[str, str]) -> tuple[str, ...]:
    lists = [*(scenario.known for scenario in scenarios), stale]
    listed = [excuses[requirement] for excuses in lists if requirement in excuses]
    return tuple(dict.fromkeys(listed))


def _scenario(record: ScenarioRecord, rows: Rows) -> ScenarioSummary:
    verdicts = _verdicts(record)
    shown = [_show_one(record, one, rows[one].level if one in rows else None) for one in verdicts]
    if _explained(record.verdict, verdicts.values()):
        return ScenarioSummary(record=record, shown=worst_shown(shown), unattributed=False)
    return ScenarioSummary(
        record=record,
        shown=worst_shown([*shown, record.verdict]),
        unattributed=record.verdict in ("fail", "error", "inconclusive"),
    )


def _explained(verdict: Verdict, requirements: Collection[Verdict]) -> bool:
    """Tell whether the requirements account for a scenario's verdict; only an error explains an error."""
    if verdict == "error" or not requirements:
        return verdict in requirements
    return VERDICTS.index(worst_verdict(requirements)) <= VERDICTS.index(verdict)


def _areas(requirements: list[RequirementSummary]) -> tuple[AreaSummary, ...]:
    by_area: dict[str, list[RequirementSummary]] = {}
    for requirement in sorted(requirements, key=lambda one: (one.area, one.id)):
        by_area.setdefault(requirement.area, []).append(requirement)
    return tuple(
        AreaSummary(
            name=name,
            requirements=tuple(members),
            counts=_count(one.shown for one in members),
            shown=worst_shown(one.shown for one in members),
        )
        for name, members in by_area.items()
    )


def _count(shown: Iterable[Shown]) -> Counts:
    counted = Counter(shown)
    return {one: counted[one] for one in SHOWN if counted[one]}
