"""Job data is hostile: nothing that a client sent may style, hide, run or break anything in a report."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

import conformance.report.html as html_report
from conformance.report import badge, json_summary, junit, markdown, terminal
from conformance.report.summary import Summary

RENDERERS = [terminal.render, junit.render, json_summary.render, markdown.render, html_report.render, badge.render]

FOREIGN_TAGS = {"iframe", "img", "svg", "textarea", "object", "embed", "link", "base"}
"""Tags that only payloads could bring in."""


class Elements(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts and not self.scripts[-1]:
            self.scripts[-1] = data


def harm(page: str) -> list[str]:
    """What the payloads achieved on a page."""
    found = Elements(page)
    tags = [tag for tag in found.tags if tag in FOREIGN_TAGS]
    handlers = [name for name, _ in found.attributes if name.startswith("on")]
    links = [
        value
        for name, value in found.attributes
        if name in ("href", "src", "action") and not (value or "").startswith("#")
    ]
    extra_scripts = ["script" for _ in found.scripts[1:]]
    return [*tags, *handlers, *map(str, links), *extra_scripts]


@pytest.fixture
def hostile(summary_of: Callable[[str], Summary]) -> Summary:
    return summary_of("hostile")


def test_html_lets_nothing_in(hostile: Summary) -> None:
    assert harm(html_report.render(hostile)) == []


def test_an_unescaped_page_is_noticed(hostile: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    escaping = html_report._environment()
    careless = escaping.overlay(autoescape=False)
    monkeypatch.setattr(html_report, "_environment", lambda: careless)
    found = harm(html_report.render(hostile))
    assert {"img", "onerror", "script"} <= set(found)


def test_html_names_its_only_script_by_hash(hostile: Summary) -> None:
    page = Elements(html_report.render(hostile))
    policy = next(
        value or "" for name, value in page.attributes if name == "content" and "default-src" in (value or "")
    )
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_html_asks_for_nothing_on_the_network(summary_of: Callable[[str], Summary]) -> None:
    page = html_report.render(summary_of("full"))
    assert re.findall(r"""(?:src|href|url|@import)\s*[=(]?\s*["']?(?:https?:)?//""", page) == []
    assert harm(page) == []


def test_html_shows_templates_as_text(hostile: Summary) -> None:
    assert "{{ 7 * 7 }} {% include &#39;x&#39; %}" in html_report.render(hostile)


def test_links_of_the_matrix_lead_somewhere(hostile: Summary) -> None:
    attributes = Elements(html_report.render(hostile)).attributes
    targets = {value for name, value in attributes if name == "id"}
    links = [str(value)[1:] for name, value in attributes if name == "href"]
    assert len(links) == len(hostile.requirements)
    assert set(links) <= targets


def test_junit_is_well_formed(hostile: Summary) -> None:
    root = ET.fromstring(junit.render(hostile))  # noqa: S314 - the kit's own output is what is being checked
    names = [case.get("name") for case in root.iter("testcase")]
    assert "error<script>" in names
    assert root.find(".//failure") is not None


def test_markdown_stays_text(hostile: Summary) -> None:
    rendered = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(markdown.render(hostile))
    page = Elements(rendered)
    assert harm(rendered) == []
    assert set(page.tags) <= {
        *("h2", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "code", "pre"),
        *("blockquote", "ul", "li"),
    }
    assert rendered.count("<details>") == rendered.count("</details>")


def test_markdown_tables_keep_their_columns(hostile: Summary) -> None:
    rows = [line for line in markdown.render(hostile).splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {5}


@pytest.mark.parametrize("render", RENDERERS, ids=lambda render: render.__module__.rpartition(".")[2])
def test_no_report_carries_control_characters(render: Callable[[Summary], str], hostile: Summary) -> None:
    found = {character for character in render(hostile) if unicodedata.category(character) in ("Cc", "Cf")}
    assert found <= {"\n", "\t"}


def test_json_keeps_the_exact_text(hostile: Summary, run_path: Callable[[str], Path]) -> None:
    document = json.loads(json_summary.render(hostile))
    records = [json.loads(line) for line in run_path("hostile").read_text().splitlines()]
    (requirement,) = [one for one in document["requirements"] if one["id"] == "add.options.encoding"]
    assert requirement["findings"][1]["example"] == records[1]["findings"][1]


def test_terminal_shows_markup_as_text(hostile: Summary) -> None:
    assert "[bold red]rich markup[/bold red]" in terminal.render(hostile)
