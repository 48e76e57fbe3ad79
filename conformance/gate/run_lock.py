"""A shared and exclusive lock over the processes of one run: scenarios run in parallel, or one runs alone.

Two lock files in one folder. A shared holder locks `entrance` for a moment and then shares `room`. An exclusive holder
keeps `entrance`, so that no new holder gets in, and locks `room` once all others have left. With one file alone, new
shared holders could keep an exclusive one waiting forever.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunLock:
    """Runs blocks in parallel (`shared`) or while no other block runs (`exclusive`). Do not nest them."""

    def __init__(self, folder: Path) -> None:
        self._entrance, self._room = folder / "entrance", folder / "room"

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Run next to other shared blocks."""
        with _locked(self._room, fcntl.LOCK_SH, after=self._entrance):
            yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait until no other block runs, and keep new ones waiting."""
        # The entrance first: in the other order, new shared holders could keep entering while this one waits for the
        # room.
        with _locked(self._entrance, fcntl.LOCK_EX), _locked(self._room, fcntl.LOCK_EX):
            yield


@contextmanager
def _locked(path: Path, kind: int, *, after: Path | None = None) -> Iterator[None]:
    """Hold the lock of a file. `after`: a file whose lock is acquired first, and released once this one is held."""
    # "ab" creates the file without truncating it: several processes open it at the same time.
    with path.open("ab") as handle:
        if after is None:
            fcntl.flock(handle, kind)
        else:
            # The entrance is only held until the room is entered, so that shared holders do not exclude each other.
            with _locked(after, fcntl.LOCK_EX):
                fcntl.flock(handle, kind)
        yield
