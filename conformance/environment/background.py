"""A background thread that runs for the duration of a `with` block."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class BackgroundThread(ABC):
    """A thread that runs during a `with` block."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        """Set when the thread must end."""
        self._thread = threading.Thread(target=self.run, daemon=True, name=type(self).__name__)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread and wait for its end."""
        self.stop()

    def stop(self) -> None:
        """Stop the thread and wait for its end. May be called again."""
        self.ended.set()
        if self._thread.is_alive():
            # Waits without limit: `run` checks `ended`, and its last results must be complete before they are read.
            self._thread.join()

    @abstractmethod
    def run(self) -> None:
        """Work until `ended` is set."""
