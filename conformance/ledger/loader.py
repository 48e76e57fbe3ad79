"""Reads the ledger: every requirement, by its stable named id, from the YAML files next to this module.

A file holds one area: `area`, `title`, and `rows` with `id`, `level`, `statement` and `source` (the upstream Lua script
or file that says so). The written specification was taken apart into claims (`claims.txt`); each claim belongs to
exactly one row, which names it in `claims`. The `status` of a row says how it is checked:

    tested       a scenario checks it (the default)
    disputed     the specification (`paper`) and real BullMQ (`oracle`) say different things. If another client can
                 see it in Redis, the oracle is the requirement; if only the library's user sees it, the paper is.
                 A scenario checks it, unless `reason` says why none does
    client-only  only the user of one library sees it; no other client can, so the kit does not judge it
    measured     `bench` decides it, by the limits in its own `bench`; times depend on the machine, so no scenario can
    untestable   no scenario checks it; `reason` says why, and `scenario missing` that one could

`owns` are glob patterns of locators: a difference at an owned locator counts against that row, whichever scenario found
it.

Rows can hold for a range of versions of BullMQ: `since` and `until` (the first release for which the row no longer
holds). If a release does the same thing in another way, the row stays, and `later` has the texts from that release on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Literal, get_args

import msgspec

from conformance.ledger.yaml_files import read_yaml
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.protocol.versions import check_range, in_range

REQUIREMENT_SET = BULLMQ_VERSION
"""The version of BullMQ whose behaviour the rows state unless a later text says otherwise."""

SCENARIO_MISSING = "scenario missing"
"""Start of the `reason` of a row that could have a scenario and has none yet."""

STORE_CHECKS_FILE = "store_checks.yaml"

TABLES = ("operations.yaml", "profiles.yaml", STORE_CHECKS_FILE)
"""Files next to the areas, with other tables."""

Level = Literal["MUST", "SHOULD", "MAY"]
Status = Literal["tested", "disputed", "measured", "client-only", "untestable"]
STATUSES: tuple[Status, ...] = get_args(Status)


class LaterText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The texts of a row that change with release `since`."""

    since: str
    statement: str = ""
    source: str = ""
    paper: str = ""
    oracle: str = ""


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row as it is written down. `bench`: options of `bench`, with the limits that decide it."""

    id: str
    level: Level
    statement: str
    source: str
    status: Status = "tested"
    reason: str = ""
    paper: str = ""
    oracle: str = ""
    claims: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()
    bench: str = ""
    since: str = ""
    until: str = ""
    later: tuple[LaterText, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a row that does not say what its status asks for."""
        if self.status == "disputed" and not (self.paper and self.oracle):
            raise ValueError(f"{self.id} is disputed: it has to state both paper and oracle")
        if self.status in ("client-only", "untestable") and not self.reason:
            raise ValueError(f"{self.id} is {self.status}: it has to give a reason")
        if self.status == "measured" and not self.bench:
            raise ValueError(f"{self.id} is measured: it has to give the limits of `bench`")
        if self.status == "tested" and self.reason:
            raise ValueError(f"{self.id} is tested and gives a reason why not")
        for release in filter(None, (self.since, self.until, *(text.since for text in self.later))):
            check_range(f">={release}")


class AreaFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One YAML file."""

    area: str
    title: str
    rows: tuple[LedgerRow, ...]


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One rule that a client must, should or may follow.

    `bench`: options of `bench`, with the limits that decide it; empty for most.
    `since`, `until`: the releases of BullMQ that it holds for, the second one excluded; empty for no limit.
    """

    id: str
    area: str
    level: Level
    statement: str
    source: str
    oracle: str
    claims: tuple[str, ...]
    owns: tuple[str, ...]
    status: Status = "tested"
    reason: str = ""
    paper: str = ""
    bench: str = ""
    since: str = ""
    until: str = ""
    later: tuple[LaterText, ...] = ()

    @property
    def versions(self) -> str:
        """The range of versions that it holds for, as in `>=5.65.0,<6.0.0`; empty for all."""
        return ",".join([f">={self.since}"] * bool(self.since) + [f"<{self.until}"] * bool(self.until))

    def as_of(self, version: str) -> Requirement:
        """The same in the words that hold for a version."""
        row = self
        for text in self.later:
            if in_range(version, f">={text.since}"):
                words = msgspec.structs.asdict(text)
                row = replace(row, **{name: said for name, said in words.items() if said and name != "since"})
        return row

    @property
    def examined(self) -> bool:
        """Whether a scenario must check it."""
        return self.status in ("tested", "disputed") and not self.reason

    @property
    def lacks_scenario(self) -> bool:
        """Whether a scenario could check it, but does not exist yet."""
        return self.reason.startswith(SCENARIO_MISSING)


class Ledger(Mapping[str, Requirement]):
    """All requirements by id, in the order of the files."""

    def __init__(self, requirements: list[Requirement], areas: dict[str, str]) -> None:
        self._rows = {row.id: row for row in requirements}
        self.areas = areas
        """Title of each area, by its short name."""
        if len(self._rows) != len(requirements):
            ids = [row.id for row in requirements]
            twice = sorted({name for name in ids if ids.count(name) > 1})
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

    def by_claim(self) -> dict[str, Requirement]:
        """The row that each claim belongs to."""
        return {claim: row for row in self._rows.values() for claim in row.claims}

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


@lru_cache
def load_ledger(version: str = "") -> Ledger:
    """Read every area file: the rows that hold for a version of BullMQ, in the words that do.

    Without a version: all rows of all versions, in the words of the pinned one. Raises ValueError, naming the file, for
    a row that is not well-formed.
    """
    areas, rows = _areas_and_rows()
    if version:
        rows = tuple(row.as_of(version) for row in rows if in_range(version, row.versions))
    return Ledger(list(rows), areas)


def examined_rows(version: str = REQUIREMENT_SET) -> dict[str, Requirement]:
    """The rows that a run against this oracle must decide: every share and count is of these. "": of all versions."""
    return {row.id: row for row in load_ledger(version).values() if row.examined}


@lru_cache(maxsize=1)
def load_claims() -> dict[str, str]:
    """Every claim of the written specification, with the verdict on it: HOLDS, DIFFERS, LIBRARY, OBSOLETE, UNTESTED."""
    lines = (files("conformance.ledger") / "claims.txt").read_text("utf-8").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return dict(pairs)


@lru_cache(maxsize=1)
def _areas_and_rows() -> tuple[dict[str, str], tuple[Requirement, ...]]:
    """Titles of the areas and all rows: read once, for all versions."""
    return _read_folder(files("conformance.ledger"))


def _read_folder(folder: Traversable) -> tuple[dict[str, str], tuple[Requirement, ...]]:
    requirements: list[Requirement] = []
    areas: dict[str, str] = {}
    for path in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if path.name.endswith(".yaml") and path.name not in TABLES:
            area = read_yaml(path, AreaFile)
            areas[area.area] = area.title
            requirements += [Requirement(area=area.area, **msgspec.structs.asdict(row)) for row in area.rows]
    return areas, tuple(requirements)
