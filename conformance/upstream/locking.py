"""One process at a time: an exclusive lock on a file, released by the system when its holder dies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt

    def _take(handle: IO[bytes], *, wait: bool) -> None:
        msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(handle: IO[bytes], *, wait: bool) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def exclusive(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file at `path`; `on_wait` is called once if another process has it."""
    with path.open("ab") as handle:
        try:
            _take(handle, wait=False)
        except OSError:
            on_wait()
            _take(handle, wait=True)
        yield
