"""Cancellation of a scenario: every wait of its participants checks it and stops."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

LOOK_EVERY_MS = 50
"""How often a wait that blocks on something else (a thread, a driver) checks whether the scenario was cancelled."""


class Cancelled(Exception):
    """The scenario was ended from outside; the text is the reason. Not a finding about the client."""


class Cancellation:
    """A flag that is set once, when the rest of a scenario is no longer wanted, and checked by every wait.

    All participants of one scenario share one object. Thread-safe; the first reason stays.
    """

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._set = threading.Event()
        self._reason = ""

    @property
    def reason(self) -> str:
        """Why the scenario was cancelled; empty if it was not."""
        return self._reason

    def cancel(self, reason: str) -> None:
        """Cancel the scenario: every wait raises Cancelled within `LOOK_EVERY_MS`, and no further call starts."""
        # A time limit and a failure of the other side may cancel at once; the report names the first cause.
        with self._deciding:
            self._reason = self._reason or reason
            self._set.set()

    def check(self) -> None:
        """Raise Cancelled if the scenario was cancelled."""
        # The reason is set before the event, so a waiter that sees the event also sees the reason.
        if self._set.is_set():
            raise Cancelled(self._reason)

    def sleep(self, seconds: float) -> None:
        """Sleep. Raises Cancelled as soon as the scenario is cancelled."""
        # On the event, not time.sleep: a cancelled scenario ends at once instead of after the pause.
        self._set.wait(seconds)
        self.check()

    def slices(self, within_ms: int) -> Iterator[int]:
        """Split a wait of `within_ms` into slices of at most `LOOK_EVERY_MS`. Yields the ms of each slice.

        The last slice is the rest, and may be 0: a last look after the deadline. Raises Cancelled between slices.
        """
        ends = time.monotonic() + within_ms / 1000
        # Each slice is computed from the clock: waits overshoot, and many short ones would add up.
        left_ms = within_ms
        while left_ms > LOOK_EVERY_MS:
            self.check()
            yield LOOK_EVERY_MS
            left_ms = math.ceil((ends - time.monotonic()) * 1000)
        self.check()
        yield max(0, left_ms)
