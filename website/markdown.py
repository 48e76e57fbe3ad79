"""Markdown for the site: lines outside of code blocks, headings and their anchors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_FENCE = re.compile(r"^ *(`{3,})")
_HEADING = re.compile(r"^(#+) (.+)$")


def anchor_of(heading: str) -> str:
    """The anchor under which GitHub and mkdocs find a heading."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return re.sub(r" +", "-", kept.strip())


def title_of(text: str) -> str:
    """The first heading of a page. Raises ValueError where there is none."""
    for line in prose_lines(text):
        if found := _HEADING.match(line):
            return found[2]
    raise ValueError("a page without a heading")


def prose_lines(text: str) -> Iterator[str]:
    """The lines that are not inside of a fenced block."""
    return (line for line, is_prose in _lines(text) if is_prose)


def map_prose(text: str, change: Callable[[str], str]) -> str:
    """Change every line that is not inside of a fenced block."""
    return "\n".join(change(line) if is_prose else line for line, is_prose in _lines(text)) + "\n"


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    fence = ""
    for line in text.splitlines():
        marks = _FENCE.match(line)
        if fence:
            yield line, False
            fence = "" if line.strip() == fence else fence
        else:
            yield line, marks is None
            fence = marks[1] if marks else ""
