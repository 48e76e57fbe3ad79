"""The one door for text of clients, jobs and Redis on its way to a terminal, or to the log of a CI system."""

from __future__ import annotations

from rich.text import Text

from conformance.pages.text import clip, visible
from conformance.problems import printable

LONGEST_IN_TERMINAL = 2_000
"""Characters of one text; the reports have all of it."""


def terminal_line(text: str) -> str:
    """Return foreign text as one line that controls neither a terminal nor a CI system. It may still contain markup."""
    return printable(visible(clip(text, LONGEST_IN_TERMINAL), keep_newlines=False))


def terminal_text(text: str, style: str = "") -> Text:
    """Return the same for rich, which takes it literally: `[/x]` in a plain string would be read as markup."""
    return Text(terminal_line(text), style=style)


def terminal_block(text: str, style: str = "") -> Text:
    """Return foreign text that may have several lines, for rich."""
    return Text(printable(visible(text)), style=style)


def terminal_parts(*parts: str | tuple[str, str]) -> Text:
    """Return one line of several parts for rich; a part with a style is a tuple."""
    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(*(terminal_text(text, style) for text, style in styled))
