"""How fast a live store is read: in lots of a size, and up to a limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PageSizes:
    """How much Redis does at once: keys of SCAN, hashes, elements of a list or a sorted set, entries of a stream.

    `batch`: keys that become rows together, at least. `hashes`: 0 for those of a whole batch. `others`: keys of any
    type, read at one instant.
    """

    keys: int
    batch: int
    hashes: int
    others: int
    members: int
    events: int


FAST = PageSizes(keys=5000, batch=0, hashes=0, others=5000, members=50_000, events=5000)
GENTLE = PageSizes(keys=100, batch=2000, hashes=50, others=4, members=500, events=400)
"""Each takes Redis about a fifth of a millisecond, so that other clients hardly wait."""


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
        """Note that keys were read, after waiting until those before them have taken their time.

        The caller works on keys during their time. Other time in which nothing was read is not made up for: a burst
        would hurt the clients.
        """
        if self._per_s <= 0:
            return
        now = self._clock()
        self._sleep(max(0.0, self._free_at - now))
        self._free_at = max(self._free_at, now) + keys / self._per_s
