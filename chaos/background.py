"""What goes on beside a run, in threads."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """Something that goes on in a thread of its own while a block is entered."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        """Set when it has to come to its end."""
        self._thread = threading.Thread(target=self.go_on, daemon=True, name=type(self).__name__)

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
    def go_on(self) -> None:
        """Work until `ended` is set."""
