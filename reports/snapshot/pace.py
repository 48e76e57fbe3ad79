"""A limit on how fast a live store is read."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Lets its caller take a number of keys per second, and sleeps if it is faster. 0: no limit."""

    def __init__(
        self,
        keys_per_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_s = keys_per_s
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def take(self, keys: float) -> None:
        """Note that keys were read, and wait until the next may be."""
        if self._per_s <= 0:
            return
        now = self._clock()
        # Time in which nothing was read is not made up for: a burst would hurt the clients.
        self._free_at = max(self._free_at, now) + keys / self._per_s
        self._sleep(max(0.0, self._free_at - now))
