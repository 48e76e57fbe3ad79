"""Writes which test reached the place of a defect, in every process that a test starts."""

from __future__ import annotations

import os

FOLDER = "KIT_MUTATION_REACH"
_noted: set[tuple[int, str]] = set()


def note(number: int) -> None:
    """Append `number<TAB>phase<TAB>test` to this process's file, once per test."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    folder = os.environ.get(FOLDER)
    if folder and test and (number, test) not in _noted:
        _noted.add((number, test))
        name, _, phase = test.rpartition(" ")
        with open(f"{folder}/reach-{os.getpid()}", "a", encoding="utf-8") as file:  # noqa: PTH123 - no import of the kit
            file.write(f"{number}\t{phase.strip('()')}\t{name}\n")
