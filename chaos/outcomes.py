"""Outcomes of runs: as planned, or `complete` if the client does not support the planned outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from chaos.recorder import HistoryRecorder
from conformance.checkers.histories.history import RunEnded
from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.driver.ops.worker import Outcome


class OutcomeRecorder:
    """Ends the runs of one worker, and records how. Safe to use from any thread.

    Every client can complete and fail a job. Whether it supports another outcome is known after the first attempt.
    """

    def __init__(self, recorder: HistoryRecorder) -> None:
        self._recorder = recorder
        self._possible: set[Outcome] = {"complete", "fail"}
        self._impossible: set[Outcome] = set()

    def end(self, outcome: Outcome, about: Mapping[str, str], send: Callable[[Outcome], object]) -> None:
        """Send the outcome to the processor (`send`), and record it. `about`: the run."""
        ended_ms = self._recorder.now_ms()
        if outcome not in self._possible | self._impossible:
            if self._can(outcome, send):
                self._recorder.put(RunEnded(at_ms=ended_ms, outcome=outcome, **about))
                return
            ended_ms = self._recorder.now_ms()
        # Recorded before it is sent: the effects of the outcome may be in the history at once.
        sent = "complete" if outcome in self._impossible else outcome
        self._recorder.put(RunEnded(at_ms=ended_ms, outcome=sent, **about))
        _sent(sent, send)

    def _can(self, outcome: Outcome, send: Callable[[Outcome], object]) -> bool:
        can = _sent(outcome, send)
        (self._possible if can else self._impossible).add(outcome)
        return can


def _sent(outcome: Outcome, send: Callable[[Outcome], object]) -> bool:
    """Whether the client supports the outcome. It is unknown whether a client that just died received it."""
    try:
        with suppress(DriverBroken, OperationFailed, OperationIndeterminate):
            send(outcome)
    except OperationUnsupported:
        return False
    return True
