"""The blocks of code in a page, and the remark before each that says what becomes of its commands.

<!-- executed: tests/action/test_gate.py -->
<!-- not executed: takes half an hour -->
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,})(?P<language>\S*)\s*$")
HEADING = re.compile(r"^(?P<marks>#+) (?P<title>.+?)\s*$")
REMARK = re.compile(r"<!-- (?P<kind>executed|not executed): (?P<what>.+?) -->")
COMMANDS = ("sh", "console")
"""Languages whose blocks are commands."""


@dataclass(frozen=True, kw_only=True)
class CodeBlock:
    """One fenced block. `line`: of its first fence, from 1. `remark`: the comment before it, empty if there is none.

    `section`: the titles of the headings above it, the outermost first.
    """

    page: Path
    line: int
    language: str
    text: str
    remark: str
    section: tuple[str, ...] = ()

    @property
    def is_commands(self) -> bool:
        """Whether a reader is meant to run it."""
        return self.language in COMMANDS

    @property
    def place(self) -> str:
        """For people: `ci.md:12`."""
        return f"{self.page.name}:{self.line}"

    @property
    def test(self) -> str:
        """The path of the test that executes it; empty if none does."""
        found = REMARK.fullmatch(self.remark)
        return found["what"] if found and found["kind"] == "executed" else ""


def blocks_of(page: Path) -> Iterator[CodeBlock]:
    """Every block of a page, in order. Raises ValueError for one without an end."""
    lines = page.read_text("utf-8").splitlines()
    position = 0
    section: list[tuple[int, str]] = []
    while position < len(lines):
        fence = FENCE.match(lines[position])
        if fence is None:
            if heading := HEADING.match(lines[position]):
                depth = len(heading["marks"])
                section = [*((above, title) for above, title in section if above < depth), (depth, heading["title"])]
            position += 1
            continue
        closing = f"{fence['indent']}{fence['marks']}"
        end = next((at for at in range(position + 1, len(lines)) if lines[at].rstrip() == closing), None)
        if end is None:
            raise ValueError(f"{page}:{position + 1}: this block has no end")
        yield CodeBlock(
            page=page,
            line=position + 1,
            language=fence["language"],
            text=textwrap.dedent("\n".join(lines[position + 1 : end])) + "\n",
            remark=_before(lines, position),
            section=tuple(title for _, title in section),
        )
        position = end + 1


def _before(lines: list[str], position: int) -> str:
    """The nearest line above that is not empty, if it is a remark."""
    above = next((line.strip() for line in reversed(lines[:position]) if line.strip()), "")
    return above if REMARK.fullmatch(above) else ""


def commands_of(page: Path, test: str) -> list[CodeBlock]:
    """The blocks of a page that a test says it executes."""
    return [block for block in blocks_of(page) if block.is_commands and block.test == test]
