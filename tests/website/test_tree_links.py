"""Links of the tree become links of the site, and one that leads nowhere ends the build."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from website import assembly
from website.links import BrokenLink, TreeLinks
from website.markdown import title_of
from website.site_map import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree: a README, two pages, and a file outside of docs/."""
    pages = {
        "README.md": "# The kit\n",
        "docs/first.md": "# The first page\n",
        "docs/second.md": "# The second page\n",
        "docs/reference/requirements.md": "# Requirements\n",
        "docs/reference/versions/1-2.json": "{}",
        "code/schema.json": "{}",
    }
    for path, text in pages.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "page", "link", "expected"),
    [
        ("docs/first.md", "first.md", "[it](second.md#there)", "[it](second.md#there)"),
        ("docs/first.md", "first.md", "[home](../README.md#try-it)", "[home](index.md#try-it)"),
        ("docs/first.md", "first.md", "[them](reference/requirements.md#profiles)", "[them](profiles.md)"),
        ("README.md", "index.md", "[1 to 2](docs/reference/versions/1-2.json)", "[1 to 2](reference/versions/1-2.md)"),
        ("README.md", "index.md", "[docs/second.md](docs/second.md)", "[The second page](second.md)"),
        (
            "docs/first.md",
            "deep/first.md",
            "[its schema](../code/schema.json)",
            "[its schema](../files/code/schema.json)",
        ),
        ("docs/first.md", "first.md", "[Redis](https://redis.io)", "[Redis](https://redis.io)"),
        ("docs/first.md", "deep/first.md", "see `add.lifo`", "see [`add.lifo`](../requirements/add.lifo.md)"),
        ("docs/first.md", "first.md", "see `add.unknown`", "see `add.unknown`"),
    ],
)
def test_a_link_leads_to_the_same_thing_on_the_site(tree: Path, path: str, page: str, link: str, expected: str) -> None:
    assert TreeLinks(tree, ["add.lifo"]).rewrite(link, path, page) == f"{expected}\n"


def test_files_linked_outside_of_docs_are_copied(tree: Path) -> None:
    links = TreeLinks(tree)
    links.rewrite("[schema](../code/schema.json), [page](second.md)", "docs/first.md", "first.md")
    assert links.files == {"code/schema.json"}


def test_code_is_left_as_it_is(tree: Path) -> None:
    text = "```text\n[no link](nowhere.md) `add.lifo`\n```\n"
    assert TreeLinks(tree, ["add.lifo"]).rewrite(text, "docs/first.md", "first.md") == text


def test_a_link_that_leads_nowhere_is_named_with_its_page(tree: Path) -> None:
    with pytest.raises(BrokenLink, match=r"docs/first\.md: the link to gone\.md#there leads nowhere"):
        TreeLinks(tree).rewrite("see [it](gone.md#there)", "docs/first.md", "first.md")


def test_a_broken_link_ends_the_assembly_in_one_line(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_links: TreeLinks) -> dict[str, str]:
        return {"first.md": TreeLinks(tree).rewrite("[it](gone.md)", "docs/first.md", "first.md")}

    monkeypatch.setattr(assembly, "pages_of_tree", broken)
    monkeypatch.setattr(sys, "argv", ["assembly", str(tmp_path / "pages")])
    with pytest.raises(SystemExit) as ended:
        assembly.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "docs/first.md: the link to gone.md leads nowhere — fix the link, or write the page\n"
    )
    assert not (tmp_path / "pages").exists()


def test_every_page_of_the_tree_is_on_the_site_and_every_link_of_it_leads_somewhere() -> None:
    pages = assembly.pages_of_tree(TreeLinks(ROOT))
    assert {"index.md", "tutorial/first-gate.md", "how-to/ci.md", "reference/verdicts.md", "contributing.md"} <= set(
        pages
    )
    assert "# BullMQ 5.62.0 → 5.81.5\n" in pages["reference/versions/5.62.0-5.81.5.md"]
    assert all(title_of(text) for text in pages.values())


def places_in(navigation: object) -> set[str]:
    """The pages that a part of the navigation names, at any depth."""
    if isinstance(navigation, str):
        return {navigation}
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    assert isinstance(parts, Iterable)
    return set().union(*map(places_in, parts))


@pytest.mark.slow
def test_every_page_can_be_reached_from_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    folders = tuple(line.strip("/*") + "/" for line in settings["not_in_nav"].split())
    pages = {*assembly.pages_of_tree(TreeLinks(ROOT)), "requirements.md", "profiles.md", "api.md"}
    assert {page for page in pages if not page.startswith(folders)} == places_in(settings["nav"])
