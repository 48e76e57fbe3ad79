"""CPU starvation of a process: the time its threads were runnable but not scheduled (`/proc/PID/task/*/schedstat`).

A deadline is for the driver and not for the machine, so the kit adds this time to it. Without `/proc` the time is
unknown, and deadlines stay unchanged.
"""

from __future__ import annotations

import os
from contextlib import suppress

_LONGEST = 100
"""Bytes: enough for the three numbers of a `schedstat`."""


def thread_waits_s(pid: int) -> dict[str, float]:
    """Seconds that each thread of a process has been runnable but not scheduled since its start; empty if unknown.

    Called many times a second: `os` functions take a quarter of pathlib's time.
    """
    waits = {}
    # A thread may end between the listing and the read.
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - see above
            with suppress(OSError, IndexError, ValueError):
                waits[thread] = int(_read(f"/proc/{pid}/task/{thread}/schedstat").split()[1]) / 1e9
    return waits


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _LONGEST)
    finally:
        os.close(file)


class RunQueue:
    """Starvation of processes since the last query."""

    def __init__(self) -> None:
        self._waits: dict[int, dict[str, float]] = {}

    def newly_waited_s(self, pid: int | None) -> float:
        """Starvation in seconds of the most starved thread since the last query; 0 if there was none."""
        if pid is None:
            return 0.0
        before, after = self._waits.get(pid), thread_waits_s(pid)
        self._waits[pid] = after
        # The first query only sets the base: earlier starvation did not delay this call.
        if before is None:
            return 0.0
        # The maximum, not the sum: threads wait at the same time, and the slowest one delays the answer.
        return max((waited - before.get(thread, 0.0) for thread, waited in after.items()), default=0.0)
