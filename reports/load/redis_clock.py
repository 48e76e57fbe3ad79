"""The clock of the Redis server, as this process can read it at any time: a load is timed by this clock alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from conformance.servers.connection import connect_node
from conformance.servers.setting import RedisUrl

PROBES = 9
"""How often Redis is asked; the fastest answer is the most precise."""


@dataclass(frozen=True, kw_only=True)
class RedisClock:
    """`ahead_s`: by how much the server's clock is ahead of this machine's monotonic one.

    Ids of events are taken from the server's clock: an instant of this clock and the id of an event can be compared,
    independent of the clocks of executors.
    """

    ahead_s: float

    def now_ms(self) -> float:
        """Unix ms."""
        return (time.monotonic() + self.ahead_s) * 1000

    def sleep_until(self, unix_ms: float) -> None:
        """Return at that instant, or at once where it has passed."""
        remaining = unix_ms - self.now_ms()
        if remaining > 0:
            time.sleep(remaining / 1000)


def read_redis_clock(address: RedisUrl) -> RedisClock:
    """Ask the first node for its time. Raises redis errors."""
    with connect_node(address, address.nodes[0]) as client:
        return clock_from(lambda: _seconds(client.time()))


def clock_from(ask: Callable[[], float]) -> RedisClock:
    """The clock behind a function that asks for the time in s: of its answers the one that took least counts."""
    answers: list[tuple[float, float]] = []
    for _ in range(PROBES):
        before = time.monotonic()
        reply = ask()
        after = time.monotonic()
        answers.append((after - before, reply - (before + after) / 2))
    return RedisClock(ahead_s=min(answers)[1])


def _seconds(reply: tuple[int, int]) -> float:
    return reply[0] + reply[1] / 1_000_000
