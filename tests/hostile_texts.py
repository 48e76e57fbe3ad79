"""Texts that a driver, a job or Redis may choose to harm a reader of reports, and what no report may do with them."""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree as ET

HOSTILE = {
    "escape": "\x1b[31mred\x1b]0;title\x07",
    "closing-markup": "id[/x]",
    "markup": "[abc]kept[bold]",
    "link": "[link=https://example.org]click[/link]",
    "annotation": "1\n::error file=a.py::planted",
    "annotation-first": "::error::planted",
    "group": "##[error]planted",
    "nul": "a\x00b",
    "override": "a\u202eb",
    "cdata": "]]><planted/>",
    "html": "<script>planted()</script>\"'><img src=x onerror=planted()>",
    "table": "a | b |\n| c | d",
    "newlines": "one\r\ntwo\n\nthree",
    "surrogate": "a\udc80b",
    "noncharacter": "a\uffffb",
    "markdown": "`code` **bold** [link](https://example.org) ![image](https://example.org)",
    "long": "x" * 100_000,
}
"""Each under a name, for the ids of tests."""


def harm_in_terminal(printed: str) -> list[str]:
    """Return the parts of a text that a terminal or a CI system would execute."""
    found = [f"{ord(each):#x}" for each in printed if each != "\n" and unicodedata.category(each) in {"Cc", "Cf", "Cs"}]
    found += re.findall(r"(?m)^\s*::.*", printed) + re.findall(r"##\[.*", printed)
    return found


def harm_in_html(page: str) -> list[str]:
    """Elements that a page has because of a text."""
    return re.findall(r"<script>planted|<img src=x|<planted", page)


def cells_of_rows(markdown: str) -> set[int]:
    """The numbers of cells that the rows of a table have, without those behind a backslash."""
    rows = [row for row in markdown.splitlines() if row.startswith("|")]
    return {len(re.findall(r"(?<!\\)\|", row)) for row in rows}


def insist_on_xml(document: str) -> None:
    """Fail unless a document can be read, and has no element of a text."""
    root = ET.fromstring(document)  # noqa: S314 - the kit wrote it
    assert root.find(".//planted") is None
