"""Which requirement speaks about which operation of the driver protocol: `operations.yaml`, read and looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import filter as matching
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Any

import msgspec

from conformance.ledger.loader import load_ledger
from conformance.ledger.yaml_files import read_yaml

WORKER_RUN = "worker.run"
"""The loop of a managed worker: not an operation of the protocol, but something that a client does."""

EVENTS_READ = "events.read"
"""The loop of a reader of the event stream."""

OPERATIONS_FILE = "operations.yaml"


class OperationEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One operation as it is written down; a list inside `about` is one that several operations share."""

    row: str
    about: list[Any]


@dataclass(frozen=True)
class OperationTable:
    """Rows by operation and operations by row. `rows`: the plainest of each operation; `rows_about`: all of them."""

    rows: Mapping[str, str]
    rows_about: Mapping[str, frozenset[str]]

    @cached_property
    def _operations(self) -> Mapping[str, frozenset[str]]:
        named = {row for rows in self.rows_about.values() for row in rows}
        return {row: frozenset(op for op, rows in self.rows_about.items() if row in rows) for row in named}

    def row_of(self, op: str) -> str:
        """The row that says what the operation does at its plainest. Raises KeyError for an unknown operation."""
        return self.rows[op]

    def about(self, row: str) -> frozenset[str]:
        """The operations that the row is about; empty if it is about none in particular."""
        return self._operations.get(row, frozenset())


@lru_cache(maxsize=1)
def load_operations() -> OperationTable:
    """Read the table. Raises ValueError for an entry that is not well-formed or names what the ledger has not."""
    return table_of(read_yaml(files("conformance.ledger") / OPERATIONS_FILE, dict[str, OperationEntry]), load_ledger())


def table_of(entries: Mapping[str, OperationEntry], rows: Iterable[str]) -> OperationTable:
    """The table of these entries over these rows. Raises ValueError for a row or pattern that matches none of them."""
    known = list(rows)
    # Operations share whole lists of patterns: each pattern is looked for once.
    found = cache(lambda pattern: tuple(matching(known, pattern)))
    about = {op: frozenset(_rows_of(op, entry, found)) for op, entry in entries.items()}
    for op, entry in entries.items():
        if entry.row not in about[op]:
            raise ValueError(f"{OPERATIONS_FILE}: the row {entry.row!r} of {op} has to be among those about it")
    return OperationTable({op: entry.row for op, entry in entries.items()}, about)


def _rows_of(op: str, entry: OperationEntry, found: Callable[[str], tuple[str, ...]]) -> Iterator[str]:
    for pattern in _flat(entry.about):
        if not found(pattern):
            raise ValueError(f"{OPERATIONS_FILE}: {pattern!r} of {op} matches no row")
        yield from found(pattern)


def _flat(patterns: list[Any]) -> Iterator[str]:
    for pattern in patterns:
        if isinstance(pattern, list):
            yield from _flat(pattern)
        else:
            yield str(pattern)
