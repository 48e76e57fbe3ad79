"""Who runs scenarios side by side, and who runs one while all others wait: over the processes of one run.

Two lock files in one folder. Everybody passes the first, one by one, and then shares the second; who wants to be alone
keeps the first, so that nobody else comes in, and takes the second once all have left.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turnstile:
    """Blocks that run side by side (`together`), and such that run while no other does (`alone`). Do not nest them."""

    def __init__(self, folder: Path) -> None:
        self._entrance, self._room = folder / "entrance", folder / "room"

    @contextmanager
    def together(self) -> Iterator[None]:
        """Beside others that run together."""
        with _locked(self._room, fcntl.LOCK_SH, after=self._entrance):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else runs: who does is waited for, and who comes waits."""
        with _locked(self._entrance, fcntl.LOCK_EX), _locked(self._room, fcntl.LOCK_EX):
            yield


@contextmanager
def _locked(path: Path, kind: int, *, after: Path | None = None) -> Iterator[None]:
    """Hold the lock of a file; it is asked for only once that of `after` was had."""
    with path.open("ab") as handle:
        if after is None:
            fcntl.flock(handle, kind)
        else:
            with _locked(after, fcntl.LOCK_EX):
                fcntl.flock(handle, kind)
        yield
