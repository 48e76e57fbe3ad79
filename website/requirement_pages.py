"""The pages that are made from the ledger: one for each requirement, the list of all, and the profiles."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.ledger.loader import Ledger, Requirement
from conformance.ledger.operations import OperationTable
from conformance.ledger.overview import HOW_TO_READ, PROFILES, contents_table, facts_of, profiles_table
from conformance.ledger.profiles import Profile, ProfileTable
from conformance.mutants.registry import Mutant
from conformance.participants.marks import Scenario
from website.links import requirement_path
from website.markdown import anchor_of


@dataclass(frozen=True, kw_only=True)
class RequirementSources:
    """The sources of the pages about requirements.

    `scenarios` by id (`area/name`). `vectors`: how many calls of each operation are recorded. `proven`: rows with a
    proof that runs on the oracle.
    """

    ledger: Ledger
    profiles: ProfileTable
    operations: OperationTable
    scenarios: Mapping[str, Scenario]
    mutants: Sequence[Mutant]
    vectors: Mapping[str, int]
    proven: frozenset[str]

    def scenarios_of(self, row: Requirement) -> dict[str, Scenario]:
        """The scenarios that name a requirement, by id."""
        return {name: found for name, found in self.scenarios.items() if row.id in found.requirements}

    def mutants_of(self, row: Requirement) -> list[Mutant]:
        """The broken clients that violate a requirement, and are noticed."""
        return [mutant for mutant in self.mutants if row.id in mutant.kills + mutant.warns]

    def profile_of(self, row: Requirement) -> Profile | None:
        """The profile that a requirement belongs to; None for one that no scenario checks."""
        return self.profiles.profile_of(row.id) if row.examined else None


def generated_pages(sources: RequirementSources) -> dict[str, str]:
    """Every page that is made from the ledger, by its place on the site."""
    pages = {requirement_path(row.id): requirement_page(row, sources) for row in sources.ledger.values()}
    return {"requirements.md": _all_requirements(sources.ledger), "profiles.md": _all_profiles(sources), **pages}


def requirement_page(row: Requirement, sources: RequirementSources) -> str:
    """All about one requirement."""
    area = sources.ledger.areas[row.area]
    lines = [
        f"# {row.id}",
        "",
        f"[Requirements](../requirements.md) / [{area}](../requirements.md#{anchor_of(area)})",
        "",
        f"**{row.level}** ({row.status}). {row.statement}",
        "",
        *_facts(row, sources.profile_of(row)),
        "",
        *_scenarios(row, sources.scenarios_of(row)),
        *_mutants(sources.mutants_of(row)),
        *_recorded(row, sources),
        *_dispute(row, is_proven=row.id in sources.proven),
    ]
    return "\n".join(lines) + "\n"


def _facts(row: Requirement, profile: Profile | None) -> Iterator[str]:
    facts = facts_of(row, profile)
    if profile is not None:
        facts["Profile"] = f"[{profile.name}](../profiles.md#{profile.name}), {profile.title}"
    if row.owns:
        facts["Differences at"] = ", ".join(f"`{pattern}`" for pattern in row.owns) + " count against it"
    yield from (f"- {name}: {text}" for name, text in facts.items())


def _scenarios(row: Requirement, scenarios: Mapping[str, Scenario]) -> Iterator[str]:
    yield "## Scenarios\n"
    if not scenarios:
        yield "No scenario tests it.\n"
        return
    yield f"`bullmq-conformance run --select {row.id} -- ./my-driver` runs:\n"
    for name, scenario in scenarios.items():
        yield f'??? example "{_quoted(name)}: {_quoted(scenario.title)} (tier {scenario.tier})"'
        yield "    ```python"
        yield from (f"    {line}".rstrip() for line in inspect.getsource(scenario.function).rstrip().splitlines())
        yield "    ```\n"


def _quoted(text: str) -> str:
    return text.replace('"', "'")


def _mutants(mutants: Sequence[Mutant]) -> Iterator[str]:
    if not mutants:
        return
    yield "## Mutants that it catches\n"
    yield from (f"- `{mutant.name}`: {mutant.what}" for mutant in mutants)
    yield ""


def _recorded(row: Requirement, sources: RequirementSources) -> Iterator[str]:
    recorded = sorted(name for name in sources.operations.about(row.id) if name in sources.vectors)
    if not recorded:
        return
    yield "## Recorded calls of Node\n"
    yield "The [test vectors](../how-to/vectors.md) of its operations, for any rule:\n"
    yield "| operation | recorded calls |"
    yield "|---|---:|"
    for name in recorded:
        yield f"| `{name}` | [{sources.vectors[name]}](../files/vectors/calls/{name}.json) |"
    yield ""


def _dispute(row: Requirement, *, is_proven: bool) -> Iterator[str]:
    yield "## Is it wrong?\n"
    if is_proven:
        yield f"`bullmq-conformance explain {row.id} --prove` shows on real BullMQ what it does.\n"
    yield "[How to dispute a requirement](../how-to/dispute-a-requirement.md)."


def _all_requirements(ledger: Ledger) -> str:
    places = {area: f"#{anchor_of(title)}" for area, title in ledger.areas.items()}
    parts = ["# Requirements", "", HOW_TO_READ, *contents_table(ledger, places)]
    for area, title in ledger.areas.items():
        parts += [f"## {title}", "", *_table(row for row in ledger.values() if row.area == area), ""]
    return "\n".join(parts)


def _table(rows: Iterator[Requirement]) -> Iterator[str]:
    yield "| requirement | level | status | statement |"
    yield "|---|---|---|---|"
    for row in rows:
        yield f"| [{row.id}]({requirement_path(row.id)}) | {row.level} | {row.status} | {_in_cell(row.statement)} |"


def _in_cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _all_profiles(sources: RequirementSources) -> str:
    introduction = PROFILES.removeprefix("## ")
    parts = [f"# {introduction}", *profiles_table(sources.ledger, sources.profiles)]
    for profile in sources.profiles.values():
        rows = (row for row in sources.ledger.values() if sources.profile_of(row) == profile)
        parts += [f"## {profile.name}", "", f"{profile.title[:1].upper()}{profile.title[1:]}.", "", *_table(rows), ""]
    return "\n".join(parts)
