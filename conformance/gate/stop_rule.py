"""Stopping a run early: the budget is used up, or a scenario failed under --fail-fast.

Running scenarios finish, and no new one starts. All processes of a run share the rule: the deadline is in the object,
and a failure is a file, because xdist's workers share nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

BUDGET_USED = "the budget is used up"
SOMETHING_FAILED = "a scenario has failed, and --fail-fast was asked for"


@dataclass(frozen=True)
class StopRule:
    """When a run starts no further scenario; sent to xdist workers as JSON.

    `deadline_ms`: Unix ms, None without a budget. `marker`: file that exists once a scenario has failed; empty without
    --fail-fast.
    """

    deadline_ms: float | None = None
    marker: str = ""

    @staticmethod
    def after(budget_ms: float | None, *, started_ms: float, fail_fast: bool, folder: Path) -> StopRule:
        """Return the rule of a run that started at `started_ms` (Unix ms). `folder`: private folder of the run."""
        deadline = None if budget_ms is None else started_ms + budget_ms
        return StopRule(deadline, str(folder / "failed") if fail_fast else "")

    @property
    def reason(self) -> str:
        """Why no further scenario starts; empty while the run goes on."""
        if self.marker and Path(self.marker).exists():
            return SOMETHING_FAILED
        # Wall-clock time, because a monotonic clock of one process means nothing to xdist's other workers.
        return BUDGET_USED if self.deadline_ms is not None and time.time() * 1000 >= self.deadline_ms else ""

    def note_failure(self) -> None:
        """Record that a scenario has failed."""
        if self.marker:
            Path(self.marker).touch()
