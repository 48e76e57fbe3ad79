"""A table of named things, filled by decorators: `@fault`, `@mutant`, `@operation`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from conformance.problems import UsageProblem

Entry = TypeVar("Entry")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageProblem:
    """The problem to raise for a name that is not in a table, with the closest names, or else with all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names)
    hint = f"did you mean {' or '.join(close)}?" if close else f"use one of {', '.join(names)}"
    return UsageProblem(f"unknown {kind} {name!r}", hint=hint)


def names_matching(kind: str, pattern: str, known: Iterable[str]) -> list[str]:
    """The names that a name or glob matches. Raises UsageProblem, with the closest names, if there are none."""
    names = list(known)
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        raise unknown_name(kind, pattern, names)
    return matches


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by unique name, in the order of registration, or `by_name`.

    `package`: its modules register the entries. They are imported at the first lookup, in alphabetical order, so that
    the order of the entries does not depend on who imports what.
    """

    def __init__(self, kind: str, *, package: str = "", by_name: bool = False) -> None:
        self.kind = kind
        self._package = package
        self._by_name = by_name
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> None:
        """Register an entry. Raises ValueError if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._entries[name] = entry

    def find(self, name: str) -> Entry:
        """One entry. Raises UsageProblem for an unknown name."""
        if name not in self:
            raise unknown_name(self.kind, name, self)
        return self[name]

    def matching(self, patterns: str) -> list[Entry]:
        """The entries that a comma-separated list of names and globs selects, each once.

        Raises UsageProblem for a pattern that selects nothing.
        """
        selected: dict[str, Entry] = {}
        for pattern in filter(None, (part.strip() for part in patterns.split(","))):
            selected |= {name: self[name] for name in names_matching(self.kind, pattern, self)}
        return list(selected.values())

    def __getitem__(self, name: str) -> Entry:
        return self._complete()[name]

    def __iter__(self) -> Iterator[str]:
        entries = self._complete()
        return iter(sorted(entries) if self._by_name else entries)

    def __len__(self) -> int:
        return len(self._complete())

    def _complete(self) -> dict[str, Entry]:
        if self._package:
            package = importlib.import_module(self._package)
            for module in sorted(entry.name for entry in pkgutil.iter_modules(package.__path__)):
                importlib.import_module(f"{self._package}.{module}")
            # Only now: a thread that asks meanwhile waits at the lock of the import instead of reading half a table.
            self._package = ""
        return self._entries
