"""Outcome of each requirement over all its scenarios: the one word that all reports print. No I/O."""

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
"""Recorded verdicts that decide a requirement; all others leave it open."""


def worst_reported(verdicts: Iterable[ReportedVerdict]) -> ReportedVerdict:
    """Pick the worst of several reported verdicts, `pass` for none."""
    return min(verdicts, key=REPORTED_VERDICTS.index, default="pass")


def reported_verdict(
    verdict: Verdict, level: Level | None, *, known: bool = False, found: bool = False
) -> ReportedVerdict:
    """Return the word for one verdict. `level`: None if the ledger lacks the requirement; then nothing softens it.

    An error is never excused. An open question is excused only if a known failure stopped the scenario before it.
    `found`: there are findings against it. A MAY passes with findings, because it is optional, and is reported as
    `info`.
    """
    # `error` is missing here on purpose: a known failure of the client does not excuse a broken kit.
    if known and verdict in ("fail", "warn", "inconclusive", "unchecked"):
        return "expected-fail"
    if verdict in ("fail", "warn"):
        return _soften(verdict, level)
    # Nothing softens an error, a change or an open question: they say that nothing was judged.
    return "info" if verdict == "pass" and found and level == "MAY" else verdict


def _soften(verdict: Literal["fail", "warn"], level: Level | None) -> ReportedVerdict:
    if level == "MAY":
        return "info"
    return "warn" if level == "SHOULD" else verdict


def blocks(reported: ReportedVerdict, level: Level | None) -> bool:
    """Whether this verdict alone makes a run fail."""
    # An open SHOULD or MAY does not fail the run, because its failure would not either.
    if reported == "inconclusive":
        return level in (None, "MUST")
    return reported in ("fail", "error", "stale")


@dataclass(frozen=True, kw_only=True)
class RequirementOutcome:
    """One requirement over all its scenarios. `verdict`: the worst one recorded. `reported`: the word for it.

    `level`: None if the ledger lacks the requirement.
    """

    requirement: str
    level: Level | None
    verdict: Verdict
    reported: ReportedVerdict

    @property
    def decided(self) -> bool:
        """Whether the run showed that the client keeps or breaks it."""
        return self.verdict in DECIDED

    @property
    def excused(self) -> bool:
        """Whether it is a known failure, or was not reached because of one."""
        return self.reported == "expected-fail"

    @property
    def blocks(self) -> bool:
        """Whether this requirement alone makes the run fail."""
        return blocks(self.reported, self.level)


def verdicts_in(scenario: ScenarioRecord) -> dict[str, Verdict]:
    """Return the verdicts of a scenario; a requirement with a finding but without a verdict fails."""
    # Explicit verdicts win: a known failure or a stand-in may have changed them.
    implied: dict[str, Verdict] = {finding.requirement: "fail" for finding in scenario.findings}
    return implied | scenario.requirements


def verdict_about(requirement: str, scenario: ScenarioRecord, level: Level | None) -> ReportedVerdict:
    """Return the word for a requirement in one scenario."""
    found = any(finding.requirement == requirement for finding in scenario.findings)
    return reported_verdict(verdicts_in(scenario)[requirement], level, known=requirement in scenario.known, found=found)


def by_requirement(scenarios: Iterable[ScenarioRecord]) -> dict[str, list[ScenarioRecord]]:
    """Group scenarios by the requirements for which they have a verdict or a finding."""
    found: dict[str, list[ScenarioRecord]] = {}
    for scenario in scenarios:
        for requirement in verdicts_in(scenario):
            found.setdefault(requirement, []).append(scenario)
    return found


def outcomes_of(
    scenarios: Iterable[ScenarioRecord], levels: Mapping[str, Level], stale: Mapping[str, str]
) -> dict[str, RequirementOutcome]:
    """Return the outcome of each requirement. `stale`: requirements that known.toml lists and that now pass."""
    return {
        requirement: _outcome(requirement, about, levels.get(requirement), stale)
        for requirement, about in by_requirement(scenarios).items()
    }


def _outcome(
    requirement: str, scenarios: Sequence[ScenarioRecord], level: Level | None, stale: Mapping[str, str]
) -> RequirementOutcome:
    scenarios = [record for record in scenarios if not _was_ended_by_a_warning(requirement, record)] or scenarios
    reported = worst_reported(verdict_about(requirement, scenario, level) for scenario in scenarios)
    # Only if it passes everywhere: an entry with `pass` in one scenario and `fail` in another is still needed.
    if requirement in stale and reported in ("pass", "info"):
        reported = "stale"
    return RequirementOutcome(
        requirement=requirement,
        level=level,
        verdict=worst(verdicts_in(scenario)[requirement] for scenario in scenarios),
        reported=reported,
    )


def _was_ended_by_a_warning(requirement: str, scenario: ScenarioRecord) -> bool:
    """Whether a failing SHOULD ended the scenario first: what it shows elsewhere counts, or it would fail the run."""
    return scenario.verdict == "warn" and not scenario.reason and verdicts_in(scenario)[requirement] == "unchecked"


def is_unattributed(scenario: ScenarioRecord) -> bool:
    """Whether a scenario's bad verdict is not explained by the verdicts of its requirements."""
    if scenario.verdict not in ("fail", "error", "inconclusive"):
        return False
    return not explains(verdicts_in(scenario).values(), scenario.verdict)


def explains(requirements: Iterable[Verdict], verdict: Verdict) -> bool:
    """Whether the verdicts of requirements explain a scenario's verdict; only an error explains an error."""
    verdicts = list(requirements)
    # A failing requirement does not explain that a driver broke, which has to be visible separately.
    if verdict == "error" or not verdicts:
        return verdict in verdicts
    return worst([*verdicts, verdict]) == worst(verdicts)
