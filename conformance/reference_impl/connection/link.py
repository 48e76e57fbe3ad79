"""Outages of Redis, as several connections of one client notice them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Protocol

from conformance.reference_impl.policy import ReconnectPolicy


class LinkOwner(Protocol):
    """The object that emits the events of the connection."""

    def emit(self, event: str, *args: Any) -> None:
        """Call the listeners."""
        ...


class Link:
    """Tracks an outage of Redis: its start, the failed attempts, and the time of the next one.

    Emits on its owner: `disconnected` (error) at the first loss; `reconnecting` (number) at every further attempt;
    `reconnected` (attempts, seconds); `unreachable` (attempts, error) once `max_attempts` are used up; `warning`
    (text).

    Losses before the next attempt is due count as the same attempt, because several connections and jobs notice the
    same outage.
    """

    def __init__(self, owner: LinkOwner, policy: ReconnectPolicy) -> None:
        self._owner = owner
        self._policy = policy
        self._failures = 0
        self._lost_at = 0.0
        self._next_attempt = 0.0
        self._reachable = asyncio.Event()
        self._reachable.set()

    @property
    def is_lost(self) -> bool:
        """Whether the last command did not get through."""
        return self._failures > 0

    @property
    def pause_s(self) -> float:
        """Seconds until the next attempt is due; 0 while Redis can be reached."""
        return max(self._next_attempt - time.monotonic(), 0) if self._failures else 0

    async def until_next_attempt(self, least_s: float) -> None:
        """Sleep for at least this time (s), and until the next attempt is due or another connection gets through.

        After a long outage the pause is many seconds: a worker would stay idle although its other connection works.
        """
        # The pause is 0 as soon as another connection has reached Redis again.
        await asyncio.sleep(least_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._reachable.wait(), self.pause_s)

    def lost(self, error: BaseException) -> None:
        """Note that a command did not get through."""
        now = time.monotonic()
        if self._failures and now < self._next_attempt:
            return
        self._failures += 1
        self._reachable.clear()
        # Monotonic, because the wall clock may be set during an outage.
        self._next_attempt = now + self._policy.delay_s(self._failures)
        if self._failures == 1:
            self._lost_at = now
            self._owner.emit("disconnected", error)
            return
        self._owner.emit("reconnecting", self._failures - 1)
        # `==`, not `>=`: `unreachable` closes the worker and must be emitted once.
        if self._failures - 1 == self._policy.max_attempts:
            self._owner.emit("unreachable", self._failures - 1, error)

    def restored(self) -> None:
        """Note that Redis can be reached again."""
        # Reset before emitting: a listener may send a command, which must not see the outage as continuing.
        attempts, self._failures = self._failures, 0
        self._reachable.set()
        self._owner.emit("reconnecting", attempts)
        self._owner.emit("reconnected", attempts, time.monotonic() - self._lost_at)

    def warn(self, text: str) -> None:
        """Emit a warning about the server."""
        self._owner.emit("warning", text)
