"""Writes a history while the run goes on. Safe to use from any thread."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from chaos.run_errors import CannotRecord
from conformance.checkers.histories.history import (
    History,
    HistoryFooter,
    HistoryHeader,
    HistoryLine,
    decode_history,
    encode,
    in_order,
)
from conformance.problems import EnvironmentProblem, UsageProblem


class HistoryRecorder:
    """The history of one run; also its clock.

    With `path`, every line is only written to the file: a long run does not keep its history in memory until it is
    judged.
    """

    def __init__(self, path: Path | None = None) -> None:
        # Both clocks at one instant, because events have Redis's wall-clock time and all other lines the monotonic one.
        self._start_s, self.unix_offset_ms = both_clocks()
        self._lines: list[HistoryLine] = []
        self._count = 0
        self._path = path
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._file = _opened(path) if path is not None else None
        self._refused: OSError | None = None
        self.header = HistoryHeader()
        self.listeners: list[Callable[[HistoryLine], None]] = []
        """Called with every line, on the thread that records it, in no particular order."""
        self.is_started = False
        """Whether the header was written."""

    def now_ms(self) -> float:
        """Ms since the start of the run."""
        return self.at_ms(time.monotonic())

    def at_ms(self, monotonic_s: float) -> float:
        """A time of `time.monotonic()` as ms since the start of the run."""
        return round((monotonic_s - self._start_s) * 1000, 3)

    def of_unix_ms(self, unix_ms: float) -> float:
        """A wall-clock time as ms since the start of the run."""
        return round(unix_ms - self.unix_offset_ms, 3)

    def number(self) -> int:
        """A number that no other call or fault of this run has."""
        return next(self._numbers)

    def start(self, header: HistoryHeader) -> None:
        """Write the header: before any line."""
        self.header, self.is_started = header, True
        self._write(encode(header))

    def put(self, line: HistoryLine) -> None:
        """Record a line."""
        # One lock for counting and writing, so that the footer's number of lines is right.
        with self._lock:
            self._count += 1
            if self._file is None:
                self._lines.append(line)
            self._write(encode(line))
        # Outside the lock, because a listener may take its own locks.
        for listener in self.listeners:
            listener(line)

    def since(self, count: int) -> list[HistoryLine]:
        """The lines after the first `count`; none if they are in a file."""
        with self._lock:
            return self._lines[count:]

    def finish(self) -> History:
        """Write the footer and return the whole history, ordered by time. Raises CannotRecord."""
        with self._lock:
            self._write(encode(HistoryFooter(at_ms=self.now_ms(), lines=self._count)))
            self.insist()
            if self._file is not None and self._path is not None:
                self.close()
                # Read back and not kept in memory: a run of hours would not fit.
                return read_history(self._path)
            return History(self.header, in_order(self._lines))

    def insist(self) -> None:
        """Raise CannotRecord if the disk refused a line. Most lines come from threads whose errors would be lost."""
        if self._refused is not None:
            what = f"cannot write the history {self._path}: {self._refused.strerror}"
            raise CannotRecord(what, hint="free some space on the disk, or choose another --out") from self._refused

    def close(self) -> None:
        """Close the file of an aborted run, without a footer."""
        if self._file is not None:
            with suppress(OSError):  # `insist` raises it
                self._file.close()
            self._file = None

    def _write(self, row: bytes) -> None:
        if self._file is None or self._refused is not None:
            return
        try:
            self._file.write(row)
            # Flushed for every line, so that the file of a killed run is complete up to the last one.
            self._file.flush()
        except OSError as error:
            # Kept for `insist`: an exception here would only end the thread that records.
            self._refused = error


def both_clocks(tries: int = 20) -> tuple[float, float]:
    """The monotonic clock (s) and the wall clock (Unix ms) at one instant.

    A busy machine may interrupt the process for some ms between the two readings, so the closest of several pairs wins.
    """
    pairs: list[tuple[float, float, float]] = []
    for _ in range(tries):
        before_s, unix_ms = time.monotonic(), time.time_ns() / 1e6
        # The shortest pair was interrupted least.
        pairs.append((time.monotonic() - before_s, before_s, unix_ms))
    _, monotonic_s, unix_ms = min(pairs)
    return monotonic_s, unix_ms


def read_history(path: Path) -> History:
    """Read a recorded history. Raises UsageProblem if there is none."""
    try:
        return decode_history(path.read_bytes().splitlines(), str(path))
    except OSError as error:
        raise UsageProblem(f"cannot read {path}: {error.strerror}", hint="give the history.jsonl of a run") from error


def _opened(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror}", hint="choose another --out") from error
