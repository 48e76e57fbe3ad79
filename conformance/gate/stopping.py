"""Ending a run before its end: the budget is used up, or something failed and that is enough.

No scenario is broken off: those that have begun come to their end, and no other is begun. Every process of a run asks
the same: the instant is in the object, and that something failed is a file, because xdist's workers share nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

BUDGET_USED = "the budget is used up"
SOMETHING_FAILED = "a scenario has failed, and --fail-fast was asked for"


@dataclass(frozen=True)
class Stopping:
    """When a run begins no other scenario; crosses to xdist workers as JSON.

    `deadline_ms`: Unix ms, None for no budget. `marker`: the file that is there once a scenario has failed, empty where
    the run goes on all the same.
    """

    deadline_ms: float | None = None
    marker: str = ""

    @staticmethod
    def after(budget_ms: float | None, *, began_ms: float, fail_fast: bool, folder: Path) -> Stopping:
        """Of a run that began then (Unix ms); `folder` is its own."""
        deadline = None if budget_ms is None else began_ms + budget_ms
        return Stopping(deadline, str(folder / "failed") if fail_fast else "")

    @property
    def reason(self) -> str:
        """Why nothing else is begun; empty as long as the run goes on."""
        if self.marker and Path(self.marker).exists():
            return SOMETHING_FAILED
        return BUDGET_USED if self.deadline_ms is not None and time.time() * 1000 >= self.deadline_ms else ""

    def note_failure(self) -> None:
        """A scenario has failed."""
        if self.marker:
            Path(self.marker).touch()
