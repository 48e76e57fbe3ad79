"""What the system tells of the client's processes while a run goes on: resident memory, and whether they may run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from chaos.background import Background
from chaos.recorder import Recorder
from conformance.checkers.histories.history import History
from conformance.checkers.histories.lines import Sample, Starved

PERIOD_S = 1.0
STARVED_SHARE = 0.7
"""Who wanted to run for so much of a period, and was not let, may lose a lock by it."""
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


def waited_to_run_s(pid: int) -> float | None:
    """For how long in its life the first thread of a process was ready and not let run; None where nobody can tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


class ProcessWatch(Background):
    """Samples once a second, in a thread: memory, and `starved` where the machine is so busy that a client may be late.

    `pids`: asked every time, because processes come and go.
    """

    def __init__(self, recorder: Recorder, pids: Callable[[], Mapping[str, int]]) -> None:
        super().__init__()
        self._recorder = recorder
        self._pids = pids
        self._waited: dict[int, float] = {}

    def go_on(self) -> None:
        """Work until the end."""
        last_ms = self._recorder.now_ms()
        while not self.ended.wait(PERIOD_S):
            pids, now_ms = self._pids(), self._recorder.now_ms()
            share = max(map(self._newly_waited_s, pids.values()), default=0.0) * 1000 / (now_ms - last_ms)
            if share > STARVED_SHARE:
                self._recorder.put(Starved(at_ms=now_ms, since_ms=last_ms))
            last_ms = now_ms
            found = {name: resident_bytes(pid) for name, pid in {KIT: os.getpid(), **pids}.items()}
            memory = {f"{name}": size for name, size in found.items() if size is not None}
            self._recorder.put(Sample(at_ms=self._recorder.now_ms(), memory=memory))

    def _newly_waited_s(self, pid: int) -> float:
        """Since it was last asked for; nothing for a process that was not seen before."""
        before, after = self._waited.get(pid), waited_to_run_s(pid)
        if after is None:
            return 0.0
        self._waited[pid] = after
        return 0.0 if before is None else after - before


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
