"""What a participant answered, call by call: the first of the three observers."""

from __future__ import annotations

import threading
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
        self._of_thread = threading.local()

    def note(self, op: str, outcome: str, value: Any) -> None:
        """Record an answer, unless the scenario is only polling."""
        aside: list[Answer] | None = getattr(self._of_thread, "answers", None)
        if aside is not None:
            aside.append(Answer(op, outcome, value))
        elif not self._silent:
            self.answers.append(Answer(op, outcome, value))

    def take_over(self, answers: list[Answer]) -> None:
        """Record answers that were kept aside."""
        self.answers += answers

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Nothing is recorded inside: how often a poll asks depends on the machine."""
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    @contextmanager
    def aside(self, answers: list[Answer]) -> Iterator[None]:
        """Inside the block, what this thread notes goes to a list of its own."""
        self._of_thread.answers = answers
        try:
            yield
        finally:
            del self._of_thread.answers
