"""What a participant answered, call by call: the first of the three observers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One call and how it ended. `outcome` is `ok` or the error code; `value` the answer as JSON values."""

    op: str
    outcome: str
    value: Any


class Transcript:
    """The answers of one participant in one scenario, in order."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self._silent = 0

    def note(self, op: str, outcome: str, value: Any) -> None:
        """Record an answer, unless the scenario is only polling."""
        if not self._silent:
            self.answers.append(Answer(op, outcome, value))

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Nothing is recorded inside: how often a poll asks depends on the machine."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1
