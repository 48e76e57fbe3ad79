"""A cache of the tables that this process has written to a snapshot, for the comparison that follows. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

MOST_BYTES = 512 * 1024 * 1024
"""Of all tables together; what comes after that is read from its file again."""


@dataclass
class _Cache:
    """Tables by the path of their file. `size`: of all of them, in bytes."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    size: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str, table: pa.Table) -> None:
        with self.lock:
            self.size += table.nbytes
            if self.size <= MOST_BYTES:
                self.tables[path] = table


_BLOCKS: list[_Cache] = []


@contextmanager
def table_cache() -> Iterator[None]:
    """Cache the tables that this process writes in this block. No other process may change their files meanwhile."""
    _BLOCKS.append(_Cache())
    try:
        yield
    finally:
        _BLOCKS.pop()


def cache_table(path: str, table: pa.Table) -> None:
    """Cache a table that was written to this path, if a block is open and there is room."""
    if _BLOCKS:
        _BLOCKS[-1].add(path, table)


def cached_table(path: str) -> pa.Table | None:
    """The table that was written to this path; None if it has to be read."""
    return _BLOCKS[-1].tables.get(path) if _BLOCKS else None
