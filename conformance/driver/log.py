"""The log of a driver: its stderr, of which the last lines are kept for messages."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from pathlib import Path
from typing import IO, BinaryIO

CAPACITY_LINES = 200
LINE_BYTES = 4096


class DriverLog:
    """Reads stderr in a thread of its own, so that a driver that logs much is never held up.

    `copy_to` gets every byte (appended); a copy that cannot be written is given up silently, the log is no evidence.
    """

    def __init__(self, stderr: IO[bytes], *, copy_to: Path | None = None) -> None:
        self._lines: deque[str] = deque(maxlen=CAPACITY_LINES)
        self._copy_to = copy_to
        self._thread = threading.Thread(target=self._read, args=(stderr,), daemon=True, name="driver log")
        self._thread.start()

    def tail(self, lines: int) -> list[str]:
        """Return the last lines, without their newlines. Bytes that are not UTF-8 are shown as escapes."""
        return list(self._lines)[-lines:]

    def wait_for_end(self, seconds: float) -> None:
        """Wait until everything is read, at most so long: what a driver says last tells most."""
        self._thread.join(seconds)

    def _read(self, stderr: IO[bytes]) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(stderr)
            copy = self._open_copy(stack)
            while line := stderr.readline(LINE_BYTES):
                self._lines.append(line.decode("utf-8", errors="backslashreplace").rstrip("\r\n"))
                if copy is not None:
                    with contextlib.suppress(OSError):
                        copy.write(line)

    def _open_copy(self, stack: contextlib.ExitStack) -> BinaryIO | None:
        if self._copy_to is None:
            return None
        with contextlib.suppress(OSError):
            self._copy_to.parent.mkdir(parents=True, exist_ok=True)
            return stack.enter_context(self._copy_to.open("ab", buffering=0))
        return None
