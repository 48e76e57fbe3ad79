"""The one door for text of clients, jobs and Redis on its way into a page of Markdown."""

from __future__ import annotations

import re

from conformance.pages.terminal import terminal_line
from conformance.pages.text import visible
from conformance.problems import printable

_CODE = re.compile(r"[`|]")
_LINK = re.compile(r"\](?=[(\[])|!(?=\[)")


class MarkdownText(str):
    """A text that is escaped already."""

    __slots__ = ()


def markdown_words(text: str) -> MarkdownText:
    """Return a text as words of one line, for a cell of a table as well: no element, link or image; code stays code."""
    line = printable(visible(" ".join(text.split()), keep_newlines=False)).replace("|", "\\|")
    return MarkdownText(_LINK.sub(r"\\\g<0>", line.replace("<", "&lt;").replace("*", "\\*")))


def markdown_code(text: str) -> MarkdownText:
    """Return a text as code of one line: nothing in it is markup, and it breaks no table."""
    line = " ".join(terminal_line(text).split())
    return MarkdownText(f"`{_CODE.sub(lambda found: {'`': chr(39)}.get(found[0], chr(92) + found[0]), line)}`")


def only_escaped(value: object) -> object:
    """Return the value of an expression in a template, escaped unless it is already."""
    return markdown_words(value) if isinstance(value, str) and not isinstance(value, MarkdownText) else value
