"""What a run says about one requirement, over all scenarios that speak about it: one word for all reports. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from conformance.gate.records import Level, ScenarioRecord, Verdict, worst

ReportedVerdict = Literal[
    "fail",
    "error",
    "stale",
    "inconclusive",
    "changed",
    "warn",
    "info",
    "expected-fail",
    "unchecked",
    "pass",
    "unsupported",
]
"""The one word that every report prints for a requirement or a scenario, worst first: one scenario that passes is
enough for a requirement not to be reported as unsupported.

It is the verdict of the record, except that the level softens a `fail` (SHOULD warns, MAY informs), a listed failure is
an `expected-fail`, and a listed failure that passes is `stale`.
"""

REPORTED_VERDICTS: tuple[ReportedVerdict, ...] = get_args(ReportedVerdict)

DECIDED: frozenset[Verdict] = frozenset({"pass", "warn", "fail"})
"""Recorded verdicts that say something about the client; all others leave the requirement open."""


def worst_reported(verdicts: Iterable[ReportedVerdict]) -> ReportedVerdict:
    """Pick the worst of several reported verdicts, `pass` for none."""
    return min(verdicts, key=REPORTED_VERDICTS.index, default="pass")


def reported_verdict(
    verdict: Verdict, level: Level | None, *, known: bool = False, found: bool = False
) -> ReportedVerdict:
    """Return the word for one verdict. `level` is None where the ledger lacks the requirement: then nothing softens.

    An error is never excused; an open question only where the gate says so, because a known failure stopped the
    scenario before it. `found`: there are findings against it; a MAY passes with them (nobody has to follow it) and is
    reported as `info`.
    """
    if known and verdict in ("fail", "warn", "inconclusive", "unchecked"):
        return "expected-fail"
    if verdict in ("fail", "warn"):
        return _soften(verdict, level)
    return "info" if verdict == "pass" and found and level == "MAY" else verdict


def _soften(verdict: Literal["fail", "warn"], level: Level | None) -> ReportedVerdict:
    if level == "MAY":
        return "info"
    return "warn" if level == "SHOULD" else verdict


def blocks(reported: ReportedVerdict, level: Level | None) -> bool:
    """Whether this alone keeps a run from ending well."""
    if reported == "inconclusive":
        return level in (None, "MUST")
    return reported in ("fail", "error", "stale")


@dataclass(frozen=True, kw_only=True)
class RequirementOutcome:
    """One requirement over all its scenarios. `verdict` is the worst as recorded, `reported` the word for it.

    `level` is None where the ledger lacks the requirement.
    """

    requirement: str
    level: Level | None
    verdict: Verdict
    reported: ReportedVerdict

    @property
    def decided(self) -> bool:
        """Whether something was seen that speaks for or against the client."""
        return self.verdict in DECIDED

    @property
    def excused(self) -> bool:
        """Whether it is a known failure, or lies behind one."""
        return self.reported == "expected-fail"

    @property
    def blocks(self) -> bool:
        """Whether this alone keeps the run from ending well."""
        return blocks(self.reported, self.level)


def verdicts_in(scenario: ScenarioRecord) -> dict[str, Verdict]:
    """Read the verdicts of a scenario; a finding against a requirement that has none makes it fail."""
    implied: dict[str, Verdict] = {finding.requirement: "fail" for finding in scenario.findings}
    return implied | scenario.requirements


def verdict_about(requirement: str, scenario: ScenarioRecord, level: Level | None) -> ReportedVerdict:
    """Return the word for what one scenario says about a requirement."""
    found = any(finding.requirement == requirement for finding in scenario.findings)
    return reported_verdict(verdicts_in(scenario)[requirement], level, known=requirement in scenario.known, found=found)


def by_requirement(scenarios: Iterable[ScenarioRecord]) -> dict[str, list[ScenarioRecord]]:
    """Find the scenarios that speak about each requirement, by a verdict or by a finding."""
    found: dict[str, list[ScenarioRecord]] = {}
    for scenario in scenarios:
        for requirement in verdicts_in(scenario):
            found.setdefault(requirement, []).append(scenario)
    return found


def outcomes_of(
    scenarios: Iterable[ScenarioRecord], levels: Mapping[str, Level], stale: Mapping[str, str]
) -> dict[str, RequirementOutcome]:
    """Say what a run says about each requirement. `stale`: those that known.toml lists and that pass now."""
    return {
        requirement: _outcome(requirement, about, levels.get(requirement), stale)
        for requirement, about in by_requirement(scenarios).items()
    }


def _outcome(
    requirement: str, scenarios: Sequence[ScenarioRecord], level: Level | None, stale: Mapping[str, str]
) -> RequirementOutcome:
    reported = worst_reported(verdict_about(requirement, scenario, level) for scenario in scenarios)
    if requirement in stale and reported in ("pass", "info"):
        reported = "stale"
    return RequirementOutcome(
        requirement=requirement,
        level=level,
        verdict=worst(verdicts_in(scenario)[requirement] for scenario in scenarios),
        reported=reported,
    )


def is_unattributed(scenario: ScenarioRecord) -> bool:
    """Whether a scenario's bad verdict is more than its requirements account for: it speaks against none of them."""
    if scenario.verdict not in ("fail", "error", "inconclusive"):
        return False
    return not explains(verdicts_in(scenario).values(), scenario.verdict)


def explains(requirements: Iterable[Verdict], verdict: Verdict) -> bool:
    """Whether the requirements account for a scenario's verdict; only an error explains an error."""
    verdicts = list(requirements)
    if verdict == "error" or not verdicts:
        return verdict in verdicts
    return worst([*verdicts, verdict]) == worst(verdicts)
