"""The last phase of a run: doubtful scenarios are repeated, one by one, when no process has another scenario left.

All processes of the run share a lock file. A process holds it shared while it runs its scenarios, and exclusively while
it repeats its doubtful ones. The file has the end of the phase (Unix s), which the first process to enter it decides.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SHARE_OF_RUN = 0.1
LEAST_S = 30.0
"""The phase may take this share of the run before it, or this time (s) if that is more."""


class LastPhase:
    """The last phase of one run, as one of its processes sees it. `folder`: shared by the processes."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "last-phase"
        self._started_s = time.time()

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """Keep the last phase from starting while the scenarios of this process run."""
        with _locked(self._file, fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[float]:
        """Wait for the last phase and for the processes before this one. Yields the end of the phase (Unix s)."""
        with _locked(self._file, fcntl.LOCK_EX) as file:
            # The wall clock, because a monotonic clock of one process means nothing to the others.
            ends_s = float(file.read() or 0.0)
            if not ends_s:
                now_s = time.time()
                ends_s = now_s + max(LEAST_S, SHARE_OF_RUN * (now_s - self._started_s))
                file.write(f"{ends_s}")
                file.flush()
            yield ends_s


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[IO[str]]:
    # "a+" creates the file without truncating it: several processes open it at the same time.
    with path.open("a+") as file:
        fcntl.flock(file, kind)
        file.seek(0)
        yield file
