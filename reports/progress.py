"""Progress of a slow verb on stderr: parts, jobs per second and the time left, also in the log of a CI system."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, TypeAlias

from conformance.pages.terminal import terminal_text

SILENT_S = 2.0
"""A step that takes less shows nothing."""

LINE_EVERY_S = 5.0
"""Between two lines where stderr is not a terminal."""

REDRAW_EVERY_S = 0.2
"""Between two states of the one line on a terminal."""


class Progress:
    """The progress of one step. It is called as parts end, so the step needs no thread of its own."""

    def __init__(self, what: str, parts: int, out: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._parts = parts
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._began = self._shown = clock()
        self._done = self._jobs = 0
        self._has_shown = False

    def advance(self, parts: int = 1, *, jobs: int = 0) -> None:
        """Count parts that have ended, and the jobs in them; show it if the last time is long enough ago."""
        self._done += parts
        self._jobs += jobs
        now = self._clock()
        every = REDRAW_EVERY_S if self._is_terminal else LINE_EVERY_S
        if now - self._began >= SILENT_S and (not self._has_shown or now - self._shown >= every):
            self._shown, self._has_shown = now, True
            self._write(self.text(now))

    def text(self, now: float) -> str:
        """The line to show at a moment of the clock (s)."""
        elapsed = max(now - self._began, 1e-9)
        said = [f"{self._done} of {self._parts} parts"]
        if self._jobs:
            said.append(f"{self._jobs:,} jobs, {self._jobs / elapsed:,.0f} jobs/s")
        if 0 < self._done < self._parts:
            said.append(f"{elapsed * (self._parts - self._done) / self._done:.0f} s left")
        return f"{self._what}: {', '.join(said)}"

    def end(self) -> None:
        """Leave the last state on a line of its own."""
        if self._has_shown:
            self._write(self.text(self._clock()))
            if self._is_terminal:
                self._out.write("\n")

    def _write(self, text: str) -> None:
        shown = terminal_text(text)
        self._out.write(f"\r\x1b[K{shown}" if self._is_terminal else f"{shown}\n")
        self._out.flush()


Watch: TypeAlias = Callable[[str, int], AbstractContextManager[Progress]]
"""Starts to show the progress of a step, given its name and number of parts."""


@contextmanager
def shown(what: str, parts: int) -> Iterator[Progress]:
    """Show the progress of a step on stderr."""
    progress = Progress(what, parts, sys.stderr)
    try:
        yield progress
    finally:
        progress.end()


class _Nowhere(Progress):
    def _write(self, text: str) -> None:
        del text


@contextmanager
def unwatched(what: str, parts: int) -> Iterator[Progress]:
    """Show nothing."""
    yield _Nowhere(what, parts, sys.stderr)
