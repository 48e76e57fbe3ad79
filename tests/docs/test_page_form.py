"""Pages are short enough to read, and their lines short enough to review."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 250
MOST_COLUMNS = 132
GENERATED = (
    *("docs/reference/kill-matrix.md", "docs/reference/requirements.md", "docs/reference/versions/"),
    "tests/report/golden/",
)

PAGES = [
    page
    for page in subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).splitlines()
    if not page.startswith(GENERATED)
]


def too_long(text: str) -> list[str]:
    """The lines of prose that are too long; tables, code and pictures cannot be wrapped."""
    prose = text.split("```")[::2]
    return [
        line
        for line in "".join(prose).splitlines()
        if len(line) > MOST_COLUMNS and not line.lstrip().startswith(("|", "![", "    "))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short_and_so_are_its_lines(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert too_long(text) == []
    assert len(text.splitlines()) <= MOST_LINES


def test_a_long_line_is_found_outside_of_tables_and_code_only() -> None:
    long = "word " * 30
    assert too_long(f"{long}\n| {long} |\n```sh\n{long}\n```\n![{long}](a.svg)\n1. {long}") == [long, f"1. {long}"]
