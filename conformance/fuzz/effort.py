"""How much work a run has been for the machine, whatever else the machine does."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SHARE = 0.3
"""Of the time that playing takes, this process needs about half on an idle machine; the drivers and Redis the rest."""
PATIENCE = 6


@dataclass(frozen=True)
class Allowance:
    """Time for a piece of work: so many seconds on an idle machine, and longer where others keep the processor busy.

    At the longest, `PATIENCE` times as long.
    """

    seconds: float
    _begun: float = field(default_factory=time.monotonic)
    _used: float = field(default_factory=time.process_time)

    @property
    def over(self) -> bool:
        """Whether it is used up."""
        passed = time.monotonic() - self._begun
        if passed <= self.seconds:
            return False
        return time.process_time() - self._used > self.seconds * SHARE or passed > self.seconds * PATIENCE
