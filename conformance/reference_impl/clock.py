"""The clock of the client: every time that the client writes comes from one `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of the current time."""

    def now_ms(self) -> int:
        """Unix time in whole milliseconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Unix time in whole milliseconds."""
        return time.time_ns() // 1_000_000


class AdjustableClock:
    """The machine's clock, or a fixed instant while one is set."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._instant: int | None = None

    def now_ms(self) -> int:
        """Unix time in whole milliseconds."""
        return self._system.now_ms() if self._instant is None else self._instant

    def stop_at(self, instant_ms: int | None) -> None:
        """Stop the clock at this instant (Unix ms); None lets it run again."""
        self._instant = instant_ms
