"""Reads the ledger: every requirement, by its stable named id, from the YAML files beside this module.

A file holds one area: `area`, and `rows` with `id`, `level`, `statement`, `source` (the upstream Lua script or file
that says so), optionally `oracle` (what Node does where the sentence is not enough), `claims` (ids of the written
specification) and `owns`: glob patterns of locators. A difference at an owned locator speaks against that row,
whichever scenario met it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Literal

import msgspec
import yaml

REQUIREMENT_SET = "5.62.0"
"""The requirement set of this ledger: the BullMQ version whose behaviour the rows state."""


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row as it is written down."""

    id: str
    level: Literal["MUST", "SHOULD", "MAY"]
    statement: str
    source: str
    oracle: str = ""
    claims: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()


class AreaFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One YAML file."""

    area: str
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One rule that a client must, should or may follow."""

    id: str
    area: str
    level: Literal["MUST", "SHOULD", "MAY"]
    statement: str
    source: str
    oracle: str
    claims: tuple[str, ...]
    owns: tuple[str, ...]


class Ledger(Mapping[str, Requirement]):
    """All requirements by id, in the order of the files."""

    def __init__(self, requirements: list[Requirement], areas: dict[str, str]) -> None:
        self._rows = {row.id: row for row in requirements}
        self.areas = areas
        """Title of each area, by its short name."""
        if len(self._rows) != len(requirements):
            ids = [row.id for row in requirements]
            twice = sorted({one for one in ids if ids.count(one) > 1})
            raise ValueError(f"ledger rows with the same id: {', '.join(twice)}")

    def __getitem__(self, requirement: str) -> Requirement:
        return self._rows[requirement]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, requirement: str) -> Requirement:
        """The requirement of this id. Raises KeyError where there is none."""
        return self._rows[requirement]

    def owner_of(self, locator: str, *, among: Collection[str] | None = None) -> Requirement | None:
        """The requirement (`among` these ids) with the longest pattern that matches, None where there is none."""
        owners = [
            (len(pattern.replace("*", "")), row)
            for row in self._rows.values()
            if among is None or row.id in among
            for pattern in row.owns
            if fnmatchcase(locator, pattern)
        ]
        return max(owners, key=lambda owner: owner[0])[1] if owners else None


@lru_cache(maxsize=1)
def load_ledger() -> Ledger:
    """Read every area file. Raises ValueError, naming the file, for a row that is not well-formed."""
    requirements: list[Requirement] = []
    areas: dict[str, str] = {}
    for path in sorted(files("conformance.ledger").iterdir(), key=lambda entry: entry.name):
        if path.name.endswith(".yaml"):
            area = _read(path.name, path.read_text("utf-8"))
            areas[area.area] = area.title
            requirements += [Requirement(area=area.area, **msgspec.structs.asdict(row)) for row in area.rows]
    return Ledger(requirements, areas)


def _read(name: str, text: str) -> AreaFile:
    try:
        return msgspec.convert(yaml.safe_load(text), AreaFile)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"ledger file {name}: {error}") from error
