"""What the pages need to know of Markdown: lines outside of code, headings and their anchors, sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class CutPage:
    """A page without one of its sections, and that section by itself, its heading left out."""

    rest: str
    section: str


def cut(text: str, heading: str, instead: str) -> CutPage:
    """Take a section out of a page; its heading stays, with other words below. Raises ValueError without it."""
    lines = list(_lines(text))
    starts = [at for at, (line, prose) in enumerate(lines) if prose and _is_heading(line, heading)]
    if len(starts) != 1:
        raise ValueError(f"there are {len(starts)} headings {heading!r}, not one")
    start = starts[0]
    depth = _depth(lines[start][0])
    after = range(start + 1, len(lines))
    end = next((at for at in after if lines[at][1] and 0 < _depth(lines[at][0]) <= depth), len(lines))
    kept = [*(line for line, _ in lines[: start + 1]), "", instead, "", *(line for line, _ in lines[end:])]
    return CutPage("\n".join(kept) + "\n", "\n".join(line for line, _ in lines[start + 1 : end]).strip("\n") + "\n")


def _is_heading(line: str, heading: str) -> bool:
    found = _HEADING.match(line)
    return found is not None and found[2] == heading


def _depth(line: str) -> int:
    found = _HEADING.match(line)
    return len(found[1]) if found else 0
