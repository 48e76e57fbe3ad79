"""How much work a run has been for the machine, whatever else the machine does."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

SHARE = 0.3
"""Of the time that playing takes, this process needs about half on an idle machine; the drivers and Redis the rest."""
PATIENCE = 6


@dataclass(frozen=True)
class Allowance:
    """Time for a piece of work: so many seconds on an idle machine, and longer where others keep the processor busy.

    At the longest, `PATIENCE` times as long.
    """

    seconds: float
    _begun: float = field(default_factory=time.monotonic)
    _used: float = field(default_factory=time.process_time)

    @property
    def over(self) -> bool:
        """Whether it is used up."""
        passed = time.monotonic() - self._begun
        if passed <= self.seconds:
            return False
        return time.process_time() - self._used > self.seconds * SHARE or passed > self.seconds * PATIENCE


def processor_s() -> float:
    """Processor time that this process and everything below it have used (s)."""
    return sum(_used_s(pid) for pid in _family(os.getpid()))


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    below = [int(child) for child in _text(children).split()]
    threads = [path for path in Path(f"/proc/{pid}/task").glob("*/children") if path != children]
    below += [int(child) for path in threads for child in _text(path).split()]
    return [pid, *(member for child in below for member in _family(child))]


def _used_s(pid: int) -> float:
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    ticks = sum(map(int, fields[11:13])) if fields else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _text(path: Path) -> str:
    """A file of /proc; empty where the process has ended meanwhile."""
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""
