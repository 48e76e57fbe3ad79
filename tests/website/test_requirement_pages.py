"""Every requirement has a page that says all that the kit knows about it."""

from __future__ import annotations

import inspect

import pytest

from website.api_page import api_page
from website.assembly import known_sources
from website.links import requirement_path
from website.requirement_pages import RequirementSources, generated_pages, requirement_page


@pytest.fixture(scope="module")
def sources() -> RequirementSources:
    return known_sources()


@pytest.fixture(scope="module")
def pages(sources: RequirementSources) -> dict[str, str]:
    return generated_pages(sources)


def test_every_requirement_has_a_page_that_the_list_links_to(
    sources: RequirementSources, pages: dict[str, str]
) -> None:
    assert len(pages) == len(sources.ledger) + len(("requirements.md", "profiles.md"))
    for row in sources.ledger.values():
        assert row.statement in pages[requirement_path(row.id)]
        assert f"]({requirement_path(row.id)})" in pages["requirements.md"], row.id


def test_every_examined_requirement_is_in_one_profile_and_links_to_it(
    sources: RequirementSources, pages: dict[str, str]
) -> None:
    for row in sources.ledger.values():
        assert pages["profiles.md"].count(f"]({requirement_path(row.id)})") == int(row.examined), row.id
        assert ("](../profiles.md#" in pages[requirement_path(row.id)]) == row.examined, row.id


def test_every_scenario_of_a_requirement_is_on_its_page_with_its_source(
    sources: RequirementSources, pages: dict[str, str]
) -> None:
    for name, scenario in sources.scenarios.items():
        for row in scenario.requirements:
            page = pages[requirement_path(row)]
            assert f'"{name}: ' in page, (name, row)
            assert inspect.getsource(scenario.function).splitlines()[-1].strip() in page, (name, row)


def test_every_broken_client_is_on_the_pages_of_what_it_violates(
    sources: RequirementSources, pages: dict[str, str]
) -> None:
    for mutant in sources.mutants:
        for row in mutant.kills + mutant.warns:
            assert f"- `{mutant.name}`: {mutant.what}" in pages[requirement_path(row)], (mutant.name, row)


def test_a_page_links_to_what_is_recorded_of_node(sources: RequirementSources) -> None:
    page = requirement_page(sources.ledger.row("add.lifo"), sources)
    recorded = sources.vectors["queue.add"]
    assert recorded
    assert f"| `queue.add` | [{recorded}](../files/vectors/calls/queue.add.json) |" in page


def test_a_page_says_how_to_dispute_it_and_how_the_oracle_proves_it(sources: RequirementSources) -> None:
    disputed = requirement_page(sources.ledger.row("lock.token"), sources)
    assert "](../how-to/dispute-a-requirement.md)" in disputed
    assert ("explain lock.token --prove" in disputed) == ("lock.token" in sources.proven)
    [proven, *_] = sorted(sources.proven)
    assert f"explain {proven} --prove" in requirement_page(sources.ledger.row(proven), sources)


def test_the_interface_of_the_reference_names_each_thing_once() -> None:
    page = api_page()
    for name in ("Queue", "Worker", "FlowProducer", "JobTimeout", "classify", "Processor"):
        assert page.count(f"::: conformance.reference_impl.{name}\n") == 1
    assert page.index("## Classes") < page.index(".Queue\n") < page.index("## Errors") < page.index(".JobTimeout\n")
