"""Ending a scenario from outside: whatever waits on its behalf looks here, and stops waiting."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator

LOOK_EVERY_MS = 50
"""How long a wait that only one thing can wake goes on before it asks whether it is still wanted."""


class Cancelled(Exception):
    """The scenario was ended from outside; the text is the reason. It says nothing about the client."""


class Cancellation:
    """Set once, by whoever knows that the rest of a scenario is not wanted; looked at by everything that waits.

    One object serves all participants of one scenario. Thread-safe; the first reason stays.
    """

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._set = threading.Event()
        self._reason = ""

    @property
    def reason(self) -> str:
        """Why the scenario was ended; empty while it may go on."""
        return self._reason

    def cancel(self, reason: str) -> None:
        """End the scenario: every wait raises Cancelled within `LOOK_EVERY_MS`, and no other call is begun."""
        with self._deciding:
            self._reason = self._reason or reason
            self._set.set()

    def check(self) -> None:
        """Raise Cancelled if the scenario was ended."""
        if self._set.is_set():
            raise Cancelled(self._reason)

    def sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the scenario. Raises Cancelled."""
        self._set.wait(seconds)
        self.check()

    def slices(self, within_ms: int) -> Iterator[int]:
        """Cut a wait of `within_ms` into short ones: how many ms to wait each time, the last being the rest.

        Raises Cancelled in between.
        """
        ends = time.monotonic() + within_ms / 1000
        left_ms = within_ms
        while left_ms > LOOK_EVERY_MS:
            self.check()
            yield LOOK_EVERY_MS
            left_ms = math.ceil((ends - time.monotonic()) * 1000)
        self.check()
        yield max(0, left_ms)
