"""What looks at each row of the ledger: scenarios, and mutants that show that they can fail. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from conformance.ledger.loader import STATUSES, Ledger, Requirement, Status

MISSING_SCENARIO = "no scenario"
MISSING_MUTANT = "no mutant"
MISSING_CLAIM = "claim without row"


@dataclass(frozen=True, kw_only=True)
class AreaCoverage:
    """Numbers of one area. `with_scenario` and `with_mutant` count rows, like `by_status`."""

    area: str
    by_status: Mapping[Status, int]
    with_scenario: int
    with_mutant: int
    missing_scenarios: int

    @property
    def rows(self) -> int:
        """How many rows there are in all."""
        return sum(self.by_status.values())


@dataclass(frozen=True, order=True)
class Gap:
    """Something that is missing: `kind` is one of the `MISSING_` words, `id` a row or a claim, `why` may be empty."""

    kind: str
    id: str
    why: str = ""


@dataclass(frozen=True)
class Coverage:
    """The whole ledger, by area, and everything that is missing."""

    areas: tuple[AreaCoverage, ...]
    gaps: tuple[Gap, ...]


def coverage_of(
    ledger: Ledger,
    claims: Collection[str],
    scenarios: Mapping[str, Collection[str]],
    mutants: Mapping[str, Collection[str]],
) -> Coverage:
    """Compute the coverage. `scenarios` and `mutants` are names by row id; every one of `claims` needs a row."""
    areas = tuple(_area(area, ledger, scenarios, mutants) for area in ledger.areas)
    return Coverage(areas, tuple(sorted(_gaps(ledger, claims, scenarios, mutants))))


def _area(
    area: str, ledger: Ledger, scenarios: Mapping[str, Collection[str]], mutants: Mapping[str, Collection[str]]
) -> AreaCoverage:
    rows = [row for row in ledger.values() if row.area == area]
    return AreaCoverage(
        area=area,
        by_status={status: sum(row.status == status for row in rows) for status in STATUSES},
        with_scenario=sum(bool(scenarios.get(row.id)) for row in rows),
        with_mutant=sum(bool(mutants.get(row.id)) for row in rows),
        missing_scenarios=sum(_wants_scenario(row, scenarios) for row in rows),
    )


def _gaps(
    ledger: Ledger,
    claims: Collection[str],
    scenarios: Mapping[str, Collection[str]],
    mutants: Mapping[str, Collection[str]],
) -> Iterator[Gap]:
    reached = ledger.by_claim()
    yield from (Gap(MISSING_CLAIM, claim) for claim in claims if claim not in reached)
    for row in ledger.values():
        if _wants_scenario(row, scenarios):
            yield Gap(MISSING_SCENARIO, row.id, row.reason)
        elif scenarios.get(row.id) and not mutants.get(row.id):
            yield Gap(MISSING_MUTANT, row.id)


def _wants_scenario(row: Requirement, scenarios: Mapping[str, Collection[str]]) -> bool:
    return (row.examined or row.lacks_scenario) and not scenarios.get(row.id)
