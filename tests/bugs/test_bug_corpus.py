"""The corpus of real bugs: what its rows must not contradict, and the page that is made from them."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest

from conformance.bugs import corpus
from conformance.bugs.corpus import BlindDraw, Bug, Port, corpus_of, load_blind_draw, load_corpus
from conformance.bugs.page import bugs_page, recall_text
from conformance.gate.selection import all_scenarios
from conformance.mutants.registry import MUTANTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "bugs.md"


def bug(bug_id: str = "node-1", **changes: Any) -> Bug:
    values: dict[str, Any] = {"fixed": "5.2.0", "before": "5.1.0", "harm": "A job is lost.", "area": "claiming"}
    return Bug(id=bug_id, **{**values, "visible": "state", **changes})


def test_every_row_is_whole_and_every_changelog_has_rows() -> None:
    rows = load_corpus()
    assert {row.port for row in rows.values()} == set(get_args(Port))
    assert len(rows) > 390
    assert all(row.harm.endswith(".") and len(row.harm) <= 160 for row in rows.values())


def test_planted_defects_exist() -> None:
    planted = {row.proof for row in load_corpus().values() if not row.is_proven_by_releases} - {""}
    assert planted <= set(MUTANTS)


def test_every_caught_bug_says_whether_fuzz_finds_it() -> None:
    assert [row.id for row in load_corpus().values() if row.status == "caught" and row.fuzz is None] == []


def test_a_selection_leaves_a_scenario_that_decides_the_requirement() -> None:
    # A run with the fix decides only what its scenarios are about: without such a scenario nothing shows the fix.
    about = defaultdict(set)
    for name, scenario in all_scenarios():
        for requirement in scenario.requirements:
            about[requirement].add(name)
    rows = [row for row in load_corpus().values() if row.status == "caught" and row.select]
    names = {row.id: re.split(r"[\[?*]", row.select)[0] for row in rows}
    assert names
    assert [row.id for row in rows if not any(name.startswith(names[row.id]) for name in about[row.requirement])] == []


def test_a_bug_that_another_port_proves_has_the_same_fix() -> None:
    rows = load_corpus()
    shared = [(row, rows[row.proof]) for row in rows.values() if row.is_proven_by_releases and row.proof in rows]
    assert shared
    assert all(
        (row.commit, row.requirement, other.proof) == (other.commit, other.requirement, corpus.RELEASES)
        for row, other in shared
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"visible": "inside"}, "only has a reason"),
        ({"reason": "because"}, "only has a reason"),
        ({"requirement": "no.such"}, "no requirement 'no.such'"),
        ({"proof": "releases"}, "a proof needs the requirement"),
        ({"proof": "releases", "requirement": "add.lifo", "before": ""}, "needs the release of the fix"),
        ({"fuzz": 0}, "only a caught bug"),
        ({"proof": "x", "requirement": "add.lifo", "visible": "inside", "reason": "y"}, "cannot be proven"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=f"bug node-1: .*{message}"):
        corpus_of([bug(**changes)])


def test_an_id_is_given_once() -> None:
    with pytest.raises(ValueError, match="two bugs have the id 'node-1'"):
        corpus_of([bug(), bug()])


def test_a_row_of_inside_is_not_visible() -> None:
    text = 'inside = [\n  {id = "node-1", harm = "It is slow.", area = "types", reason = "only types"},\n]'
    assert [(row.id, row.status) for row in corpus.read_bugs(text, "node")] == [("node-1", "not visible")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[bug]\nnode-1 = ["x", {area = 1}]', "bug node-1: Expected `str`"),
        ('[bug]\nnode-1 = ["x", {area = "flows"}, {area = "flows"}]', "bug node-1: two values of 'area'"),
        ('[bug]\nphp-1 = ["x", {area = "flows", visible = "state"}]', "php-1 belongs to another port"),
        ("[bug", "bugs of node: "),
    ],
)
def test_a_file_that_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corpus.read_bugs(text, "node")


def test_the_status_follows_from_the_row() -> None:
    assert bug().status == "open"
    assert bug(requirement="add.lifo", proof="releases").status == "caught"
    assert bug(visible="inside", reason="only types").status == "not visible"


@pytest.mark.parametrize(
    ("row", "url"),
    [
        (bug("node-4299"), "https://github.com/taskforcesh/bullmq/issues/4299"),
        (bug("python-2587-b"), "https://github.com/taskforcesh/bullmq/issues/2587"),
        (bug("node-5.61.2", commit="0a1b2c3d"), "https://github.com/taskforcesh/bullmq/commit/0a1b2c3d"),
        (bug("rust-2", repository="bogardt/bullmq-rs"), "https://github.com/bogardt/bullmq-rs/issues/2"),
    ],
)
def test_a_bug_can_be_looked_up(row: Bug, url: str) -> None:
    assert row.url == url


def test_the_page_counts_what_is_caught() -> None:
    rows = [
        bug("node-1", requirement="add.lifo", proof="releases", fuzz=0),
        bug("node-4", requirement="add.lifo", proof="releases", fuzz="unfound"),
        bug("node-5", requirement="add.lifo", proof="releases", fuzz="loop"),
        bug("node-2"),
        bug("python-3", visible="inside", reason="only types"),
    ]
    draw = BlindDraw(drawn=date(2026, 11, 26), seed="s", caught_then=0, ids=["node-1", "node-2"])
    page = bugs_page(corpus_of(rows), draw)
    assert "| node | 4 | 3 | 3 | 1 | 0 | 3 of 4 (75 %) |" in page
    assert "| python | 1 | 0 | 0 | 0 | 1 | none |" in page
    assert "of 2 visible bugs that were drawn on 2026-11-26 (seed s)" in page
    assert "0 were caught; now 1 are." in page
    assert "## Open\n\n- claiming: node-2\n" in page
    assert "| claiming | 1 | python-3: only types |" in page
    assert "of 3 caught bugs, 2 can be provoked by a sequence of calls" in page.replace("\n", " ")
    assert "finds 1 of them within a minute; 1 it did not find" in page.replace("\n", " ")
    assert "(loop 1)" in page
    assert recall_text(rows) == "3 of 4 (75 %)"


def test_the_page_is_the_one_of_the_corpus() -> None:
    assert PAGE.read_text("utf-8") == bugs_page(load_corpus(), load_blind_draw()), "`make generate` writes it"


def test_the_blind_draw_is_of_visible_bugs() -> None:
    draw = load_blind_draw()
    assert len(set(draw.ids)) == len(draw.ids)
    assert [bug_id for bug_id in draw.ids if load_corpus()[bug_id].status == "not visible"] == []
