"""Cells that were run and kept: a cell is run again only where something in it is of another version."""

from __future__ import annotations

from pathlib import Path

import msgspec

from conformance.gate.separate_run import RunEnding
from conformance.matrix.cells import Cell

CELL_FILE = "cell.json"
CELLS = "cells"
"""Folder of the site that holds a folder for each cell."""


class StoredCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cell that was run, beside its run file.

    `versions`: what the clients say of themselves (`node 6.7.0 (javascript; ioredis 5.4.1)`), the oracle's version, and
    the hash of the kit: as long as these and `settings` are the same, the cell need not be run again. `ended`: `run`
    where the run has a run file with a footer; else `problem` says in one line what was wrong. `ended_ms`: Unix ms.
    """

    client: str
    partner: str | None
    versions: dict[str, str]
    settings: dict[str, str]
    ended: RunEnding
    problem: str
    ended_ms: int
    took_ms: int

    @property
    def is_whole(self) -> bool:
        """Whether it has a run to show."""
        return self.ended == "run"


def cell_folder(out: Path, cell: Cell) -> Path:
    """Where a cell is kept."""
    return out / CELLS / cell.folder


def load_cell(out: Path, cell: Cell) -> StoredCell | None:
    """What is kept of a cell; None where that is nothing that can be read."""
    try:
        return msgspec.json.decode((cell_folder(out, cell) / CELL_FILE).read_bytes(), type=StoredCell)
    except (OSError, msgspec.DecodeError):
        return None


def store_cell(out: Path, cell: Cell, what: StoredCell) -> None:
    """Write down that a cell was run."""
    (cell_folder(out, cell) / CELL_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(what)) + b"\n")
