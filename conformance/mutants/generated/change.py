"""A change to a text: which bytes are replaced by what; the name by which it is found again; how people read it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Language = Literal["lua", "python"]
_DIGEST_LENGTH = 10


@dataclass(frozen=True)
class Edit:
    """The bytes from `start` to `end` (of the text in UTF-8) become `replacement`."""

    start: int
    end: int
    replacement: str

    def applied(self, text: bytes) -> bytes:
        """The changed text."""
        return text[: self.start] + self.replacement.encode() + text[self.end :]


@dataclass(frozen=True)
class Place:
    """A piece of code whose execution the baseline notes: `first` to `last`, inclusive.

    In Python they are lines, in Lua the first byte of a statement, twice.
    """

    file: str
    first: int
    last: int


@dataclass(frozen=True)
class GeneratedMutant:
    """One change that breaks a client, if it is not an equivalent one.

    `file`: name of the script, or path of the module below `reference_impl`. `line` is for people: `key` does not
    depend on it. `places`: a case that passes none of them cannot notice the change.
    """

    language: Language
    file: str
    function: str
    line: int
    operator: str
    edit: Edit
    places: tuple[Place, ...]
    key: str

    @property
    def area(self) -> str:
        """The script, or the module: what survivors are counted by."""
        return f"{self.language} {self.file}"

    def code(self, text: bytes) -> str:
        """The line that it changes in this text, of Python; nothing of Lua, whose text is not stored."""
        return lines_of_change(text, self.edit)[0][0].strip() if self.language == "python" else ""


@dataclass(frozen=True)
class Candidate:
    """A change that an operator proposes, before it has a key."""

    operator: str
    edit: Edit
    function: str
    places: tuple[Place, ...]


def named_mutants(language: Language, file: str, text: bytes, found: Iterable[Candidate]) -> list[GeneratedMutant]:
    """Give every candidate its key: file, function, operator, and a hash of the lines before and after.

    Unrelated edits of the file leave keys alone. Equal lines in one function are distinguished by their order.
    """
    seen: dict[str, int] = {}
    mutants = []
    for candidate in sorted(found, key=lambda each: (each.edit.start, each.edit.end, each.operator)):
        key = f"{language}/{file}/{candidate.function}/{candidate.operator}/{_digest(text, candidate.edit)}"
        seen[key] = seen.get(key, 0) + 1
        mutants.append(
            GeneratedMutant(
                language,
                file,
                candidate.function,
                line_of(text, candidate.edit.start),
                candidate.operator,
                candidate.edit,
                candidate.places,
                key if seen[key] == 1 else f"{key}.{seen[key]}",
            )
        )
    return mutants


def line_of(text: bytes, position: int) -> int:
    """The line of a byte, counted from 1."""
    return text.count(b"\n", 0, position) + 1


def lines_of_change(text: bytes, edit: Edit) -> tuple[list[str], list[str]]:
    """The whole lines that the edit touches, before and after it."""
    start = text.rfind(b"\n", 0, edit.start) + 1
    end = text.find(b"\n", edit.end)
    before = text[start : end if end >= 0 else len(text)]
    after = Edit(edit.start - start, edit.end - start, edit.replacement).applied(before)
    return before.decode().splitlines(), after.decode().splitlines()


def _digest(text: bytes, edit: Edit) -> str:
    before, after = lines_of_change(text, edit)
    normal = "\n->\n".join(re.sub(r"\s+", " ", "\n".join(lines)).strip() for lines in (before, after))
    return hashlib.sha256(normal.encode()).hexdigest()[:_DIGEST_LENGTH]
