"""How fast a live store is read: up to a limit, and slower while its server is busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


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

TIMELY_SHARE = 0.9
"""Before reading, this share of the replies took `usual_s` or less."""

PROMPT_S, TOLERATED_S = 0.0006, 0.0001
"""A reply within the first is never late, because there are other readers too; else one so much later than usual."""

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.00025, 0.002
"""The longest is about ten times a lot: reading ends in time on a machine that is always busy."""

LOOK_EVERY_S = 0.25
USED_PER_S = 50
"""Between two looks; with fewer commands of other clients per second, a server counts as unused: no client waits."""

OWN_COMMANDS = frozenset({"scan", "hgetall", "type", "pttl", "echo", "xrange", "zrange", "lrange", "smembers", "info"})
"""Commands that read a store. Other clients may send them too, but rarely these alone."""

LOTS_OF_A_PING = 4
LONGER, SHORTER = 2.0, 0.9
"""Factors of the pause after a late reply and a timely one. It stays the same if an eighth of the replies is late."""


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


class ReadServer(Protocol):
    """The server that is read."""

    def ping(self) -> None:
        """Wait for the reply to a command that takes no time."""

    def commands_of_others(self) -> int | None:
        """How many commands other than `OWN_COMMANDS` it has executed since it started; None if it does not say."""
        ...


class GivingWay:
    """Pauses between small lots of commands, the longer the more replies are late: then other clients wait too.

    `usual_s`: how long a reply took before reading started. A server without other clients is read without pauses:
    replies are then late only because readers and server share a machine.
    """

    def __init__(
        self,
        usual_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._late_s = max(PROMPT_S, usual_s + TOLERATED_S)
        self._clock = clock
        self._sleep = sleep
        self._pause_s = 0.0
        self._lots = 0
        self._look: tuple[float, int | None] | None = None
        self._is_used = True

    def before(self, server: ReadServer) -> None:
        """Pause before a lot; now and then let the server reply to a command that takes no time."""
        if self._look is None or self._clock() - self._look[0] >= LOOK_EVERY_S:
            self._look_at(server)
        if not self._is_used:
            return
        if self._lots % LOTS_OF_A_PING == 0:
            self._judge(server.ping)
        self._lots += 1
        # A shorter sleep takes longer than it says.
        if self._pause_s >= SHORTEST_PAUSE_S / 2:
            self._sleep(self._pause_s)

    def _look_at(self, server: ReadServer) -> None:
        """Find out whether others use the server. The first look only counts."""
        now, commands = self._clock(), server.commands_of_others()
        before, known = self._look or (now, None)
        # Fewer than before: somebody has reset the statistics.
        is_unused = commands is not None and known is not None and 0 <= commands - known < USED_PER_S * (now - before)
        self._is_used = not is_unused
        self._look = now, commands

    def _judge(self, ping: Callable[[], None]) -> None:
        began = self._clock()
        ping()
        if self._clock() - began > self._late_s:
            self._pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, self._pause_s * LONGER))
        else:
            self._pause_s *= SHORTER
