"""For how long a process was ready to run, and the machine did not let it: `/proc/PID/task/*/schedstat`.

A deadline is about the driver, and not about the machine. Where there is no `/proc` nobody can tell, and a deadline is
what it says.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def thread_waits_s(pid: int) -> dict[str, float]:
    """For how long in its life each thread of a process was ready and not let run; empty where nobody can tell."""
    waits = {}
    # Threads end while they are asked.
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, IndexError, ValueError):
                waits[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waits


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
