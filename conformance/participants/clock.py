"""A participant's clock: standing still where the driver can do that, running where it cannot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

FROZEN_START_MS = 1_700_000_000_000
"""Where a frozen clock starts (Unix ms): long past, so that a client that ignores `now_ms` is caught at once."""


class ParticipantClock(Protocol):
    """What scenarios may ask of time. All values are Unix ms or ms."""

    frozen: bool

    def now_ms(self) -> int:
        """The participant's present."""

    def call_ms(self) -> int | None:
        """What to send as `now_ms` with a call: None lets the driver's own clock run."""

    def pass_ms(self, duration: int) -> None:
        """Let this much time pass for the participant."""


class FrozenClock:
    """Stands still between calls and moves only when the scenario says so."""

    frozen = True

    def __init__(self, start_ms: int = FROZEN_START_MS) -> None:
        self._now = start_ms

    def now_ms(self) -> int:
        """The instant at which the clock stands (Unix ms)."""
        return self._now

    def call_ms(self) -> int | None:
        """Every call carries the frozen instant."""
        return self._now

    def pass_ms(self, duration: int) -> None:
        """Move the clock forward at once."""
        self._now += duration


class RunningClock:
    """The machine's own clock, for drivers without capability `clock` and for scenarios about real time."""

    frozen = False

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep

    def now_ms(self) -> int:
        """The machine's time (Unix ms)."""
        return time.time_ns() // 1_000_000

    def call_ms(self) -> int | None:
        """No instant is sent."""
        return None

    def pass_ms(self, duration: int) -> None:
        """Wait until the machine's clock shows `duration` ms more than now."""
        due = self.now_ms() + duration
        while (left := due - self.now_ms()) > 0:
            self._sleep(left / 1000)
