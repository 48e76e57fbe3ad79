"""Something that a participant does while the scenario goes on: a call that a tap holds, or two that race."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from conformance.gate.expect import Mismatch
from conformance.gate.participants.transcript import Answer, Transcript

Value = TypeVar("Value")


class Pending(Generic[Value]):
    """Runs in a thread from its construction. What the client answers is noted when `result` is asked for.

    So the order of the transcript is that of the scenario, and not of the race.
    """

    def __init__(self, work: Callable[[], Value], transcript: Transcript) -> None:
        self._work = work
        self._transcript = transcript
        self._answers: list[Answer] = []
        self._values: list[Value] = []
        self.failure: BaseException | None = None
        """What it raised, if it has come to its end so."""
        self._thread = threading.Thread(target=self._run, name="meanwhile", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return not self._thread.is_alive()

    def result(self, *, within_ms: int = 8000) -> Value:
        """Wait for what it returns. Raises what it raised, or Mismatch when `within_ms` have passed."""
        self._thread.join(within_ms / 1000)
        if not self.done:
            raise Mismatch("the call comes to its end", expected=f"within {within_ms} ms", actual="it still waits")
        self._transcript.take_over(self._answers)
        self._answers = []
        if self.failure is not None:
            raise self.failure
        return self._values[0]

    def settle(self, *, within_ms: int) -> None:
        """Wait for its end, whatever it is: the scenario is over."""
        self._thread.join(within_ms / 1000)

    def _run(self) -> None:
        with self._transcript.aside(self._answers):
            try:
                self._values.append(self._work())
            except BaseException as failure:  # noqa: BLE001  (it belongs to whoever asks for the result)
                self.failure = failure
