"""What a report knows about a requirement besides its verdict: the part of a ledger row that is printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from conformance.gate.records import Level
from conformance.ledger.loader import load_ledger


class RequirementRow(Protocol):
    """A ledger row, as far as reports read it. `conformance.ledger.loader.Requirement` is one."""

    @property
    def level(self) -> Level:
        """MUST, SHOULD or MAY."""

    @property
    def area(self) -> str:
        """Short name of its area."""

    @property
    def statement(self) -> str:
        """The rule in one sentence."""

    @property
    def source(self) -> str:
        """Upstream Lua script or file that says so."""


Rows = Mapping[str, RequirementRow]
"""Ledger rows by requirement id. A report of a run whose ids are not in it still works, with less to say."""

NO_ROWS: Rows = {}


def examined_rows() -> Rows:
    """The rows of the kit's ledger that scenarios look at; what cannot be examined is no part of a run's report."""
    return {row.id: row for row in load_ledger().values() if row.examined}
