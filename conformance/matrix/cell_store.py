"""Stored results of cells: a cell is only run again if the version of a participant has changed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from conformance.gate.separate_run import RunEnding
from conformance.matrix.cells import Cell

CELL_FILE = "cell.json"
CELLS = "cells"
"""Folder of the site that holds a folder for each cell."""


class StoredCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one cell, stored next to its run file.

    `versions`: of the clients as they report them (`node 6.7.0 (javascript; ioredis 5.4.1)`), of the oracle, and the
    hash of the kit. While these and `settings` are the same, the cell is not run again. `ended`: `run` if the run file
    has a footer; else `problem` describes the error in one line. `ended_ms`: Unix ms.
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
    """The folder of a cell."""
    return out / CELLS / cell.folder


def load_cell(out: Path, cell: Cell) -> StoredCell | None:
    """The stored result of a cell; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((cell_folder(out, cell) / CELL_FILE).read_bytes(), type=StoredCell)
    # An unreadable result only costs the time to run the cell again.
    except (OSError, msgspec.DecodeError):
        return None


def store_cell(out: Path, cell: Cell, what: StoredCell) -> None:
    """Store the result of a cell."""
    (cell_folder(out, cell) / CELL_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(what)) + b"\n")
