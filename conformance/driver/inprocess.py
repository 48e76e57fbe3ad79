"""A driver that is a Python object: for tests, mutants and fuzzing.

It sees and sends the same bytes as a driver in a child process, and they are checked in the same way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol, Self

from conformance.driver.connection import HANDSHAKE_DEADLINE_MS, LOG_LINES, Session
from conformance.driver.errors import ConnectionClosed, DriverBroken, DriverCrashed, OversizedLine
from conformance.driver.lines import excerpt
from conformance.driver.messages import MAX_LINE_BYTES

STOP_SECONDS = 2.0


class LineHandler(Protocol):
    """A driver's side of the lines; `serve.DriverServer` is one. All methods but `attach` run in the event loop."""

    def attach(self, write: Callable[[bytes], None]) -> None:
        """Send bytes to the kit with `write`, which may be called from any thread."""

    def receive(self, line: bytes) -> None:
        """Handle one line of the kit, newline included."""

    def cancel(self) -> None:
        """Give up everything that is going on."""


class InProcess(Session):
    """Start with `InProcess.start`."""

    def __init__(self, handler: LineHandler, *, seed: int, label: str) -> None:
        super().__init__(label, seed=seed)
        self._handler = handler
        self._unfinished = b""
        self._feeding = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"driver {label}")
        handler.attach(self._feed)
        self._thread.start()

    @classmethod
    def start(
        cls,
        handler: LineHandler,
        *,
        seed: int = 0,
        label: str = "in-process",
        handshake_deadline_ms: int = HANDSHAKE_DEADLINE_MS,
    ) -> Self:
        """Run the handler in an event loop of its own and shake hands with it. Raises DriverBroken."""
        connection = cls(handler, seed=seed, label=label)
        try:
            connection._shake_hands(handshake_deadline_ms)
        except BaseException:
            connection.kill()
            raise
        return connection

    def log_tail(self, lines: int = LOG_LINES) -> list[str]:  # noqa: ARG002 - the interface has it
        """Nothing: such a driver writes to the kit's own stderr."""
        return []

    def close(self) -> bool:
        """End the driver."""
        self.kill()
        return True

    def kill(self) -> None:
        """Cancel what is going on and stop the event loop; a handler that blocks it is left behind in its thread."""
        self._mailbox.break_with(self._broken(ConnectionClosed()))
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECONDS)

    def _send(self, line: bytes) -> None:
        self._loop.call_soon_threadsafe(self._receive, line)

    def _ending(self) -> DriverBroken | None:
        return None if self._thread.is_alive() else DriverCrashed("its event loop stopped", self._mailbox.activity())

    def _receive(self, line: bytes) -> None:
        try:
            self._handler.receive(line)
        except Exception as error:  # noqa: BLE001 - in a child process, this would have ended the driver
            self._give_up(DriverCrashed(f"{type(error).__name__}: {error}", self._mailbox.activity()))

    def _feed(self, data: bytes) -> None:
        """Take what the handler wrote, as if it came through a pipe."""
        with self._feeding:
            try:
                self._split(data)
            except DriverBroken as problem:
                self._give_up(problem)

    def _split(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._check_length(len(line) + 1, line)
            self._mailbox.receive(line.rstrip(b"\r"))
        self._check_length(len(self._unfinished), self._unfinished)

    def _check_length(self, length: int, line: bytes) -> None:
        if length > MAX_LINE_BYTES:
            raise OversizedLine(MAX_LINE_BYTES, excerpt(line))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _stop(self) -> None:
        self._handler.cancel()
        self._loop.call_soon(self._loop.stop)  # one turn later, so that cancelled tasks end before the loop does
