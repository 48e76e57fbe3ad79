"""For how long a process was ready to run, and the machine did not let it: `/proc/PID/task/*/schedstat`.

A deadline is about the driver, and not about the machine. Where there is no `/proc` nobody can tell, and a deadline is
what it says.
"""

from __future__ import annotations

import os
from contextlib import suppress

_LONGEST = 100
"""Bytes. Three numbers stand in a `schedstat`."""


def thread_waits_s(pid: int) -> dict[str, float]:
    """For how long in its life each thread of a process was ready and not let run; empty where nobody can tell.

    Asked for many times a second: this way takes a quarter of pathlib's time.
    """
    waits = {}
    # Threads end while they are asked.
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
    """How long processes newly waited to be let run: since they were last asked about."""

    def __init__(self) -> None:
        self._waits: dict[int, dict[str, float]] = {}

    def newly_waited_s(self, pid: int | None) -> float:
        """Of the thread that waited longest; nothing for a process that was not seen before, or that there is not."""
        if pid is None:
            return 0.0
        before, after = self._waits.get(pid), thread_waits_s(pid)
        self._waits[pid] = after
        if before is None:
            return 0.0
        return max((waited - before.get(thread, 0.0) for thread, waited in after.items()), default=0.0)
