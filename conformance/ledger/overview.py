"""The ledger as a whole: what scenarios and mutants cover of it, and its index as a page. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from conformance.ledger.loader import REQUIREMENT_SET, STATUSES, LaterText, Ledger, Requirement, Status
from conformance.ledger.profiles import Profile, ProfileTable
from conformance.protocol.versions import in_range

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
class CoverageGap:
    """Something that is missing: `kind` is one of the `MISSING_` words, `id` a row or a claim, `why` may be empty."""

    kind: str
    id: str
    why: str = ""


@dataclass(frozen=True)
class LedgerCoverage:
    """The whole ledger, by area, and everything that is missing."""

    areas: tuple[AreaCoverage, ...]
    gaps: tuple[CoverageGap, ...]


def coverage_of(
    ledger: Ledger,
    claims: Collection[str],
    scenarios: Mapping[str, Collection[str]],
    mutants: Mapping[str, Collection[str]],
) -> LedgerCoverage:
    """Compute the coverage. `scenarios` and `mutants` are names by row id; every one of `claims` needs a row."""
    areas = tuple(_area_coverage(area, ledger, scenarios, mutants) for area in ledger.areas)
    return LedgerCoverage(areas, tuple(sorted(_gaps(ledger, claims, scenarios, mutants))))


def _area_coverage(
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
) -> Iterator[CoverageGap]:
    reached = ledger.by_claim()
    yield from (CoverageGap(MISSING_CLAIM, claim) for claim in claims if claim not in reached)
    for row in ledger.values():
        if _wants_scenario(row, scenarios):
            yield CoverageGap(MISSING_SCENARIO, row.id, row.reason)
        elif scenarios.get(row.id) and not mutants.get(row.id) and in_range(REQUIREMENT_SET, row.versions):
            yield CoverageGap(MISSING_MUTANT, row.id)


def _wants_scenario(row: Requirement, scenarios: Mapping[str, Collection[str]]) -> bool:
    return (row.examined or row.lacks_scenario) and not scenarios.get(row.id)


INTRODUCTION = """\
# Requirements

The rules of each area are in the file that the table links to. `bullmq-conformance explain ID` prints everything
about one rule: both sides of a dispute, sources, profile, claims, scenarios. `make site` builds a page for each rule.
`bullmq-conformance ledger page` prints this index.
"""

HOW_TO_READ = f"""\
Every rule that the kit knows about clients of BullMQ, by its stable id, in the words of {REQUIREMENT_SET}; where newer
releases differ, the rule says from which one on. `MUST` fails a run, `SHOULD` warns, `MAY` informs. The status of a
rule says how it is checked:

- **tested**: a scenario checks it.
- **disputed**: the written specification and real BullMQ say different things; both are given. If another client can
  see it in Redis, the behaviour of BullMQ is the requirement; if only the library's user sees it, the specification is.
  `bullmq-conformance explain ID --prove` shows what BullMQ does.
- **measured**: `bench` decides it, by the limits that `explain` prints; times depend on the machine.
- **client-only**: only the user of one library sees it, so the kit does not judge it.
- **untestable**: no scenario checks it, for the reason given; `scenario missing` means that one could.

Claims are the numbered statements of the specification (`conformance/ledger/claims.txt`); each belongs to one rule.
`bullmq-conformance explain ID` takes the id of a rule or of a claim, and also names scenarios.
"""


def requirements_page(ledger: Ledger, profiles: ProfileTable) -> str:
    """The index of the rules as Markdown, whose areas link to the files of the ledger. The site has a page per rule."""
    places = {area: f"../../conformance/ledger/{area}.yaml" for area in ledger.areas}
    parts = [INTRODUCTION, HOW_TO_READ, *contents_table(ledger, places), PROFILES, *profiles_table(ledger, profiles)]
    return "\n".join(parts).rstrip("\n") + "\n"


PROFILES = """\
## Profiles

Clients are judged per profile. Every rule that a scenario checks belongs to one profile: to the one whose behaviour it
judges, whichever client brings its jobs into their states. A driver claims a profile by declaring all that it needs;
`wire` needs nothing, because it is about every client, and makes no client conformant by itself. A profile that adds a
few rules to another one also needs that other one to hold.
"""


def profiles_table(ledger: Ledger, profiles: ProfileTable) -> Iterator[str]:
    """Lines of a Markdown table: each profile, how many rules a run checks, and what a driver has to declare for it."""
    rows = profiles.rows_by_profile(
        row.id for row in ledger.values() if row.examined and in_range(REQUIREMENT_SET, row.versions)
    )
    yield "| profile | what it is about | rules | needs |"
    yield "|---|---|---:|---|"
    for profile in profiles.values():
        needed = ", ".join(f"`{name}`" for name in (*profile.operations, *profile.capabilities))
        where = (" and a Redis Cluster" if profile.needs else "") + (
            f"; conformant as {profile.base}" if profile.base else ""
        )
        yield f"| {profile.name} | {profile.title} | {len(rows[profile.name])} | {needed}{where} |"
    yield ""


def contents_table(ledger: Ledger, places: Mapping[str, str]) -> Iterator[str]:
    """Lines of a Markdown table: each area, with a link to its place, and how many rules it has of each status."""
    yield "| area | rules | " + " | ".join(STATUSES) + " |"
    yield "|---|---:|" + "---:|" * len(STATUSES)
    for area, title in ledger.areas.items():
        rows = [row for row in ledger.values() if row.area == area]
        counts = [sum(row.status == status for row in rows) for status in STATUSES]
        yield f"| [{title}]({places[area]}) | {len(rows)} | " + " | ".join(map(str, counts)) + " |"
    yield ""


def facts_of(row: Requirement, profile: Profile | None) -> dict[str, str]:
    """Further facts about a rule, by name, without empty ones."""
    facts = {
        "The specification": row.paper,
        f"BullMQ {REQUIREMENT_SET}": row.oracle,
        "No scenario" if row.status != "client-only" else "Not judged": row.reason,
        "Measured by": f"bullmq-conformance bench {row.bench}" if row.bench else "",
        "Stated in": row.source,
        "Profile": profile.name if profile and row.examined else "",
        "Claims": ", ".join(row.claims),
        "Holds for": f"BullMQ {row.versions}" if row.versions else "",
        **{f"From {text.since} on": " ".join(filter(None, _changed_words(text))) for text in row.later},
    }
    return {name: text for name, text in facts.items() if text}


def _changed_words(text: LaterText) -> Iterator[str]:
    yield text.statement
    yield f"The specification: {text.paper}" if text.paper else ""
    yield f"BullMQ: {text.oracle}" if text.oracle else ""
    yield f"({text.source})" if text.source else ""
