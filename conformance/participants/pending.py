"""Work of a scenario that runs in a thread of its own, such as a call that a tap holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from conformance.driver.sending import tell_when_sent
from conformance.findings import Timing
from conformance.participants.cancellation import Cancellation
from conformance.participants.expect import Mismatch
from conformance.participants.transcript import RecordedCall, Transcript

Value = TypeVar("Value")


class Pending(Generic[Value]):
    """Work that runs in a thread from its construction on.

    Its calls join the transcript when the scenario calls `result`, so the order of the transcript is the order of the
    scenario and does not depend on which thread was faster.
    """

    def __init__(self, work: Callable[[], Value], transcript: Transcript, cancellation: Cancellation) -> None:
        self._work = work
        self._transcript = transcript
        self._cancellation = cancellation
        self._calls: list[RecordedCall] = []
        self._values: list[Value] = []
        self.failure: BaseException | None = None
        """The exception that the work raised, if any."""
        self._sent = threading.Event()
        # A daemon: a call that never ends must not keep the whole run from ending.
        self._thread = threading.Thread(target=self._run, name="meanwhile", daemon=True)
        # Last: the thread uses all fields above.
        self._thread.start()

    @property
    def was_replaced(self) -> bool:
        """Whether the oracle has done a part of it as the client's stand-in."""
        return any(call.by == "stand-in" for call in self._calls)

    @property
    def done(self) -> bool:
        """Whether the work has ended."""
        return not self._thread.is_alive()

    def wait_until_sent(self, *, within_ms: int = 8000) -> None:
        """Wait until its first call is on its way to the driver, or it has ended. Raises Cancelled or Mismatch."""
        for slice_ms in self._cancellation.slices(within_ms):
            if self._sent.wait(slice_ms / 1000):
                return
        raise Mismatch("the kit sends the call", expected=f"within {within_ms} ms", actual="not sent")

    def result(self, *, within_ms: int = 8000) -> Value:
        """Wait for the result of the work.

        Raises what the work raised, Cancelled, or Mismatch if it has not ended after `within_ms`.
        """
        self._transcript.step = "waiting for the end of a call"
        for slice_ms in self._cancellation.slices(within_ms):
            # In slices, because join itself cannot be cancelled.
            self._thread.join(slice_ms / 1000)
            if self.done:
                break
        else:
            raise Mismatch(
                "the call ends",
                expected=f"within {within_ms} ms",
                actual="still waiting",
                timing=Timing.of_wait(within_ms),
            )
        self._transcript.steps += self._calls
        # `result` may be called twice: the calls must join the transcript only once.
        self._calls = []
        if self.failure is not None:
            raise self.failure
        return self._values[0]

    def settle(self, *, within_ms: int) -> None:
        """Wait up to `within_ms` for the end, without using the result: the scenario is over."""
        self._thread.join(within_ms / 1000)

    def _run(self) -> None:
        tell_when_sent(self._sent)
        with self._transcript.collected(self._calls):
            try:
                self._values.append(self._work())
            except BaseException as failure:  # noqa: BLE001  (the caller of `result` gets it)
                self.failure = failure
        self._sent.set()
