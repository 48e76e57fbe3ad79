"""Findings that say the same thing, counted once.

One wrong field shows up in every scenario that reads the field. What differs only by volatile texts (times, UUIDs) is
one finding with occurrences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from conformance.gate.records import Finding, ScenarioRecord, Severity
from conformance.report.text import Parted, part, shape

SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True, kw_only=True)
class FindingGroup:
    """The same finding in one or more scenarios. `example` is its first occurrence."""

    example: Finding
    occurrences: int
    scenarios: tuple[str, ...]
    """Ids of the scenarios that met it, each once, in the order of the run."""
    reproduce: str
    """The command line that shows the example again; empty where the run did not write one down."""

    @property
    def parted(self) -> tuple[Parted, Parted]:
        """Expected and actual, split around their difference."""
        return part(self.example.expected, self.example.actual)


def group_findings(requirement: str, scenarios: Iterable[ScenarioRecord]) -> tuple[FindingGroup, ...]:
    """Group the findings against one requirement, the most severe first, then in the order of the run."""
    met: dict[tuple[str, ...], list[tuple[Finding, ScenarioRecord]]] = {}
    for scenario in scenarios:
        for finding in scenario.findings:
            if finding.requirement == requirement:
                met.setdefault(_identity(finding), []).append((finding, scenario))
    groups = [_group(occurrences) for occurrences in met.values()]
    return tuple(sorted(groups, key=lambda group: SEVERITIES.index(group.example.severity)))


def _identity(finding: Finding) -> tuple[str, ...]:
    return (finding.where, finding.kind, shape(finding.expected), shape(finding.actual))


def _group(occurrences: list[tuple[Finding, ScenarioRecord]]) -> FindingGroup:
    finding, scenario = occurrences[0]
    return FindingGroup(
        example=finding,
        occurrences=len(occurrences),
        scenarios=tuple(dict.fromkeys(scenario.id for _, scenario in occurrences)),
        reproduce=scenario.reproduce,
    )
