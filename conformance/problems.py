"""Problems that a user can solve. They are printed as one line and never as a traceback."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Foreign text, escaped so that it cannot control a terminal or a CI system.

    GitHub runs a line that starts with `::` (or contains `##[`) as a workflow command, and terminals interpret control
    characters.
    """
    shown = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return re.sub(r"(?m)^(\s*):(?=:)", r"\1\:", shown).replace("##[", "#\\#[")


class Problem(Exception):
    """Something outside the kit is wrong.

    `what`: the problem and its place; `hint`: what to do next. Each subclass sets the exit code of the program.
    """

    exit_code = 3

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what} — {self.hint}" if self.hint else self.what


class UsageProblem(Problem):
    """The command line, or a file named on it, is wrong: exit code 2."""

    exit_code = 2


class EnvironmentProblem(Problem):
    """Node, Redis, a driver or the disk does not work: exit code 3."""

    exit_code = 3


class Undecidable(Problem):
    """The question cannot be decided, which is known before anything runs: exit code 4."""

    exit_code = 4


class NothingSelected(Problem):
    """The selection matches no scenario: exit code 5."""

    exit_code = 5
