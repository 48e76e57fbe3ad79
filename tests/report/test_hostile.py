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

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conformance.pages import page
from conformance.pages.text import (
    SplitText,
    clip,
    clip_split,
    count,
    duration,
    moment,
    shape,
    split_difference,
    visible,
)
from conformance.report import json_summary, junit, markup, terminal, workflow_commands
from conformance.report.run_file import Run
from conformance.report.summary import Summary, summarise


def test_invisible_characters_are_written_out() -> None:
    assert visible("a\x1b[31m\u202eb\ud800\ufffe\t\r\n") == "a\\x1b[31m\\u202eb\\ud800\\ufffe\\t\\r\n"
    assert visible("a\nb", keep_newlines=False) == "a\\nb"
    assert visible("grün 日本 ✓") == "grün 日本 ✓"


@given(st.text(), st.text())
def test_parts_put_together_are_the_texts(expected: str, actual: str) -> None:
    left, right = split_difference(expected, actual)
    assert ("".join(left), "".join(right)) == (expected, actual)
    assert (left.before, left.after) == (right.before, right.after)
    assert (left.different == right.different) == (expected == actual)


def test_a_difference_is_located() -> None:
    assert split_difference("delay: 1000 ms", "delay: 15 ms") == (
        SplitText("delay: 1", "000", " ms"),
        SplitText("delay: 1", "5", " ms"),
    )


def test_long_texts_are_shortened_around_the_difference() -> None:
    left, _ = split_difference("a" * 100 + "X" + "b" * 100, "a" * 100 + "Y" + "b" * 100)
    assert "".join(clip_split(left, 5)) == "…aaaaaXbbbbb…"
    assert clip("abcdef", 3) == "abc… (6 characters)"
    assert clip("abc", 3) == "abc"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1700000000000", "1700000009999", True),
        ("id 0b3c7c5e-7a52-4f0a-9c5d-0123456789ab", "id 11111111-2222-4333-8444-555555555555", True),
        ("sha a1b2c3d4e5", "sha ffffffff00", True),
        ("-1", "-2", False),
        ("deadbeefs", "faceless", False),
        ("attempts 3", "attempts 4", False),
    ],
)
def test_shape_takes_out_what_is_volatile(one: str, other: str, same: bool) -> None:
    assert (shape(one) == shape(other)) == same


def test_words_for_people() -> None:
    assert [duration(ms) for ms in (0, 999, 1000, 59_949, 125_400)] == [
        "0 ms",
        "999 ms",
        "1.0 s",
        "59.9 s",
        "2 min 05 s",
    ]
    assert moment(1_700_000_000_000) == "2023-11-14 22:13:20 UTC"
    assert (count(1, "entry", "entries"), count(2, "entry", "entries"), count(0, "job")) == (
        "1 entry",
        "2 entries",
        "0 jobs",
    )


RENDERERS = [
    terminal.render_terminal,
    junit.render_junit,
    json_summary.render_json,
    markup.render_markdown,
    markup.render_html,
    json_summary.render_badge,
    workflow_commands.render_annotations,
]

FOREIGN_TAGS = {"iframe", "img", "svg", "textarea", "object", "embed", "link", "base"}
"""Tags that only payloads could bring in."""


LINK_OF_OURS = re.compile(r"#[A-Za-z0-9._-]+|causes/\d\d-[A-Za-z0-9._-]+\.md")
"""Within the page, and to the neighbouring texts."""


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
    """The effects of the payloads on a page."""
    found = Elements(page)
    tags = [tag for tag in found.tags if tag in FOREIGN_TAGS]
    handlers = [name for name, _ in found.attributes if name.startswith("on")]
    links = [
        value
        for name, value in found.attributes
        if name in ("href", "src", "action") and not LINK_OF_OURS.fullmatch(value or "")
    ]
    extra_scripts = ["script" for _ in found.scripts[1:]]
    return [*tags, *handlers, *map(str, links), *extra_scripts]


@pytest.fixture
def hostile(summary_of: Callable[[str], Summary]) -> Summary:
    return summary_of("hostile")


def test_html_lets_nothing_in(hostile: Summary) -> None:
    assert harm(markup.render_html(hostile)) == []


def test_an_unescaped_page_is_noticed(hostile: Summary, monkeypatch: pytest.MonkeyPatch) -> None:
    careless = page.page_environment("conformance.report").overlay(autoescape=False)
    monkeypatch.setattr(page, "page_environment", lambda _package: careless)
    found = harm(markup.render_html(hostile))
    assert {"img", "onerror", "script"} <= set(found)


def test_html_names_its_only_script_by_hash(hostile: Summary) -> None:
    page = Elements(markup.render_html(hostile))
    policy = next(
        value or "" for name, value in page.attributes if name == "content" and "default-src" in (value or "")
    )
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_html_asks_for_nothing_on_the_network(summary_of: Callable[[str], Summary]) -> None:
    page = markup.render_html(summary_of("full"))
    assert re.findall(r"""(?:src|href|url|@import)\s*[=(]?\s*["']?(?:https?:)?//""", page) == []
    assert harm(page) == []


def test_html_shows_templates_as_text(hostile: Summary) -> None:
    assert "{{ 7 * 7 }} {% include &#39;x&#39; %}" in markup.render_html(hostile)


def test_links_of_the_matrix_lead_somewhere(hostile: Summary) -> None:
    attributes = Elements(markup.render_html(hostile)).attributes
    targets = {value for name, value in attributes if name == "id"}
    links = [str(value)[1:] for name, value in attributes if name == "href" and str(value).startswith("#")]
    assert {requirement.id for requirement in hostile.requirements if "<" not in requirement.id} <= set(links)
    assert {f"cause-{cause.number}" for cause in hostile.causes} <= set(links)
    assert set(links) <= targets


def test_junit_is_well_formed(hostile: Summary) -> None:
    root = ET.fromstring(junit.render_junit(hostile))  # noqa: S314 - the kit's own output is what is being checked
    names = [case.get("name") for case in root.iter("testcase")]
    assert "error<script>" in names
    assert root.find(".//failure") is not None


def test_markdown_stays_text(hostile: Summary) -> None:
    rendered = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(markup.render_markdown(hostile))
    page = Elements(rendered)
    assert harm(rendered) == []
    assert set(page.tags) <= {
        *("h2", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "code", "pre"),
        *("blockquote", "ul", "li"),
    }
    assert rendered.count("<details>") == rendered.count("</details>")


def test_markdown_tables_keep_their_columns(hostile: Summary) -> None:
    parts = [part.splitlines() for part in markup.render_markdown(hostile).split("\n\n")]
    tables = [rows for rows in parts if rows[:1] and rows[0].startswith("|")]
    assert [{row.count("|") for row in rows} for rows in tables] == [{5}, {6}]


@pytest.mark.parametrize("render", RENDERERS, ids=lambda render: render.__module__.rpartition(".")[2])
def test_no_report_carries_control_characters(render: Callable[[Summary], str], hostile: Summary) -> None:
    found = {character for character in render(hostile) if unicodedata.category(character) in ("Cc", "Cf")}
    assert found <= {"\n", "\t"}


def test_json_keeps_the_exact_text(hostile: Summary, run_path: Callable[[str], Path]) -> None:
    document = json.loads(json_summary.render_json(hostile))
    records = [json.loads(line) for line in run_path("hostile").read_bytes().splitlines()]
    (requirement,) = [
        requirement for requirement in document["requirements"] if requirement["id"] == "add.options.encoding"
    ]
    assert requirement["findings"][1]["example"] == records[1]["findings"][1]


def test_terminal_shows_markup_as_text(hostile: Summary) -> None:
    assert "[bold red]rich markup[/bold red]" in terminal.render_terminal(hostile)


def test_no_line_of_the_terminal_report_is_an_order_for_a_ci_system(summary_of: Callable[[str], Summary]) -> None:
    summary = summary_of("full")
    [scenario] = [scenario for scenario in summary.run.scenarios if scenario.id == "lock.stale"]
    [finding] = scenario.findings
    hostile = msgspec.structs.replace(finding, actual="ok\n::error::owned", message="no\n  ::add-mask::e\n##[error]x")
    broken = msgspec.structs.replace(scenario, findings=[hostile])
    run = Run(header=summary.run.header, scenarios=(broken,), footer=summary.run.footer)
    text = terminal.render_terminal(summarise(run))
    assert "error::owned" in text
    assert re.findall(r"(?m)^\s*::.*|##\[", text) == []
