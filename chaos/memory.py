"""Resident memory of the kit and of the client's processes while a run goes on, and whether a client's grows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Self

from chaos.recorder import Recorder
from conformance.checkers.histories.history import History
from conformance.checkers.histories.lines import Sample

PERIOD_S = 1.0
KIT = "kit"
MOST_GROWTH = 1.5
LEAST_GROWTH_BYTES = 32 * 1024 * 1024
"""Less than this is no growth: caches fill, heaps are not given back at once."""
FEWEST_SAMPLES = 20


def resident_bytes(pid: int) -> int | None:
    """Resident memory of a process; None where that cannot be told (it is gone, or the system has no /proc)."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Samples once a second, in a thread. `pids`: asked every time, because processes come and go."""

    def __init__(self, recorder: Recorder, pids: Callable[[], Mapping[str, int]]) -> None:
        self._recorder = recorder
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="memory watch")

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            found = {name: resident_bytes(pid) for name, pid in {KIT: os.getpid(), **self._pids()}.items()}
            memory = {f"{name}": size for name, size in found.items() if size is not None}
            self._recorder.put(Sample(at_ms=self._recorder.now_ms(), memory=memory))


def growth(history: History) -> dict[str, str]:
    """Processes of the client whose memory grew, with how much. The kit keeps the history, and is not judged.

    The median of the last fifth is compared with that of the second; a process with few samples is not judged.
    """
    sizes: dict[str, list[int]] = {}
    for line in history.lines:
        if isinstance(line, Sample):
            for name, size in line.memory.items():
                sizes.setdefault(name, []).append(size)
    found = {}
    for name, series in sizes.items():
        if name == KIT or len(series) < FEWEST_SAMPLES:
            continue
        fifth = len(series) // 5
        before, after = median(series[fifth : 2 * fifth]), median(series[-fifth:])
        if after > before * MOST_GROWTH and after - before > LEAST_GROWTH_BYTES:
            found[name] = f"{before / 2**20:.0f} MiB to {after / 2**20:.0f} MiB"
    return found
