"""A participant's clock: frozen if the driver supports that (capability `clock`), else the machine's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

FROZEN_START_MS = 1_700_000_000_000
"""Start of a frozen clock (Unix ms): years ago, so that the timestamps of a client that ignores `now_ms` stand out."""

MINUTE_MS = 60_000


class MinuteEnded(Exception):
    """A minute of the machine's clock ended during steps that need a single one: they show nothing about the client."""


class ParticipantClock(Protocol):
    """A clock, as scenarios use it. Instants are Unix ms, durations ms."""

    frozen: bool
    ages_data: bool
    """Whether time may pass by making the data in Redis older (`participants/ageing.py`)."""

    def now_ms(self) -> int:
        """The current time of the participant."""

    def call_ms(self) -> int | None:
        """The `now_ms` to send with a call; None if the driver uses its own clock."""

    def pass_ms(self, duration: int) -> None:
        """Let `duration` ms pass for the participant."""


class FrozenClock:
    """A clock that only moves when the scenario moves it."""

    frozen = True
    ages_data = False

    def __init__(self, start_ms: int = FROZEN_START_MS) -> None:
        self._now = start_ms

    def now_ms(self) -> int:
        """The frozen instant (Unix ms)."""
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

    def __init__(self, sleep: Callable[[float], None] = time.sleep, *, ages_data: bool = False) -> None:
        self._sleep = sleep
        self.ages_data = ages_data

    def now_ms(self) -> int:
        """The machine's time (Unix ms)."""
        # The wall clock, not the monotonic one: BullMQ compares it with timestamps in Redis.
        return time.time_ns() // 1_000_000

    def call_ms(self) -> int | None:
        """No instant is sent."""
        return None

    def pass_ms(self, duration: int) -> None:
        """Wait until the machine's clock shows `duration` ms more than now."""
        # In a loop: the wall clock and `sleep` use different clocks, and a sleep may end a little early.
        due = self.now_ms() + duration
        while (left := due - self.now_ms()) > 0:
            self._sleep(left / 1000)


@contextmanager
def one_minute(clock: ParticipantClock, *, needs_ms: int) -> Iterator[None]:
    """Run the steps of the block within one minute of a running clock; a frozen clock stays in its minute anyway.

    If less than `needs_ms` of the minute is left, the block starts in the next one. Raises MinuteEnded if a minute
    ends during the block, also in place of the exception with which the block ends.
    """
    if clock.frozen:
        yield
        return
    left_ms = MINUTE_MS - clock.now_ms() % MINUTE_MS
    if left_ms < needs_ms:
        clock.pass_ms(left_ms)
    minute = clock.now_ms() // MINUTE_MS
    try:
        yield
    finally:
        # In `finally`: a wrong number of points is usually noticed first, and would count against the client.
        if clock.now_ms() // MINUTE_MS != minute:
            raise MinuteEnded("the steps need one minute of the clock, and it ended before they did")
