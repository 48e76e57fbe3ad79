"""The result of a comparison, as data: one row a feature, one cell for each way in which the versions share a queue."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from conformance.versions.mixed.judging import WORDS, Word

FORMAT = 1

Column = Literal["producers", "workers", "both"]
"""Which side is upgraded first, one client after the other; `both`: in any order."""

COLUMNS: tuple[Column, ...] = ("producers", "workers", "both")

SAFE: frozenset[Word] = frozenset({"nothing"})


class MixedCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The worst of all assignments. `newer`: the roles that have the newer version in it. `detail`: a sentence."""

    word: Word
    detail: str = ""
    newer: list[str] = []


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A feature. `unsupported`: why a version cannot take part; empty if both can."""

    feature: str
    cells: dict[Column, MixedCell] = {}
    unsupported: str = ""
    steps: list[dict[str, Any]] = []
    options: dict[str, Any] = {}

    @property
    def worst(self) -> Word:
        """The worst word of its cells."""
        return max((cell.word for cell in self.cells.values()), key=WORDS.index, default="nothing")


class MixedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="bullmq-mixed"):
    """A comparison. `clients`: how both are started. `absent`: features that neither version has."""

    format: int = FORMAT
    older: str
    newer: str
    clients: list[str]
    rows: list[Row]
    absent: list[str] = []
    took_ms: int = 0
    compared_ms: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether no cell is unsafe."""
        return all(row.worst in SAFE for row in self.rows)
