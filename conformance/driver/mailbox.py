"""What a driver has sent and nobody has taken yet: results by call id, events by handle. Thread-safe, no I/O."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Collection

from conformance.driver.errors import DriverBroken, EventTimeout, HandshakeFailed, WrongId
from conformance.driver.lines import decode
from conformance.driver.messages import DriverLine, Event, Ready, Result

LARGEST_STEP = 9


class Mailbox:
    """Filled by the reader of one driver, emptied by any number of callers.

    As soon as the driver breaks, every caller gets the same `DriverBroken`; what came before can still be taken.
    """

    def __init__(self, seed: int) -> None:
        self._changed = threading.Condition()
        # Ids go up by irregular steps, so that a driver that counts by itself instead of copying them is found out.
        self._random = random.Random(seed)
        self._last_id = 0
        self._open: dict[int, str] = {}
        self._results: dict[int, Result] = {}
        self._events: dict[str, list[Event]] = {}
        self._ready: Ready | None = None
        self._broken: DriverBroken | None = None

    @property
    def broken(self) -> DriverBroken | None:
        """What is wrong with the driver, if something is."""
        return self._broken

    def receive(self, line: bytes) -> None:
        """Take in one line, without its newline. Raises DriverBroken for a line that breaks the protocol."""
        message = decode(line)
        with self._changed:
            self._store(message)
            self._changed.notify_all()

    def break_with(self, problem: DriverBroken) -> DriverBroken:
        """Note that the driver is unusable and wake everybody. The first problem stays; it is returned."""
        with self._changed:
            if self._broken is None:
                self._broken = problem
            self._changed.notify_all()
            return self._broken

    def activity(self) -> str:
        """Say what the driver is busy with, for messages."""
        with self._changed:
            if self._ready is None:
                return "the handshake"
            return ", ".join(self._open.values()) or "no call"

    def open_call(self, op: str) -> int:
        """Expect the result of a call and return its id."""
        with self._changed:
            self._last_id += self._random.randint(1, LARGEST_STEP)
            self._open[self._last_id] = op
            return self._last_id

    def wait_ready(self, deadline_ms: int) -> Ready | None:
        """Return the driver's first line, or None when it did not come in time. Raises DriverBroken."""
        with self._changed:
            self._wait(lambda: self._ready is not None, deadline_ms)
            return self._ready

    def wait_result(self, call_id: int, deadline_ms: int) -> Result | None:
        """Return the result of a call, or None when it did not come in time. Raises DriverBroken."""
        with self._changed:
            self._wait(lambda: call_id in self._results, deadline_ms)
            return self._results.pop(call_id, None)

    def wait_event(
        self, handle: str, names: Collection[str], deadline_ms: int, where: Callable[[Event], bool] | None
    ) -> Event:
        """Take the first matching event of a handle; all others stay, in order. Raises EventTimeout, DriverBroken."""

        def position() -> int | None:
            for index, event in enumerate(self._events.get(handle, ())):
                if event.name in names and (where is None or where(event)):
                    return index
            return None

        with self._changed:
            self._wait(lambda: position() is not None, deadline_ms)
            index = position()
            if index is None:
                raise EventTimeout(handle, names, deadline_ms, self._events.get(handle, ()))
            return self._events[handle].pop(index)

    def take_events(self, handle: str) -> list[Event]:
        """All events of a handle that nobody has taken yet."""
        with self._changed:
            return self._events.pop(handle, [])

    def forget_events(self) -> None:
        """Drop the events of every handle."""
        with self._changed:
            self._events.clear()

    def _wait(self, arrived: Callable[[], bool], deadline_ms: int) -> None:
        """Wait until it has arrived, the deadline (ms from now) has passed or the driver broke; raises the last."""
        deadline = time.monotonic() + deadline_ms / 1000
        while not arrived():
            if self._broken is not None:
                raise self._broken.with_traceback(None)
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not self._changed.wait(remaining):
                return

    def _store(self, message: DriverLine) -> None:
        if isinstance(message, Ready):
            self._store_ready(message)
        elif self._ready is None:
            raise HandshakeFailed(
                "its first line is not `ready`", hint="answer the line `hello` with `ready` before anything else"
            )
        elif isinstance(message, Result):
            self._store_result(message)
        else:
            self._events.setdefault(message.handle, []).append(message)

    def _store_ready(self, ready: Ready) -> None:
        if self._ready is not None:
            raise HandshakeFailed("it sent `ready` twice", hint="send `ready` once, as the answer to `hello`")
        self._ready = ready

    def _store_result(self, result: Result) -> None:
        if result.id not in self._open:
            raise WrongId(result.id, self._open)
        del self._open[result.id]
        self._results[result.id] = result
