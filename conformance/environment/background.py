"""Something that goes on beside the rest, in a thread, for as long as a block is entered."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class BackgroundThread(ABC):
    """Something that runs in a thread of its own while a block is entered."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        """Set when it has to come to its end."""
        self._thread = threading.Thread(target=self.run, daemon=True, name=type(self).__name__)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and wait for the end."""
        self.stop()

    def stop(self) -> None:
        """The same; may be called again."""
        self.ended.set()
        if self._thread.is_alive():
            self._thread.join()

    @abstractmethod
    def run(self) -> None:
        """Work until `ended` is set."""
