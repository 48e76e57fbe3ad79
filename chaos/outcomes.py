"""How runs are ended, and what the history says of it: as planned, or as completed where a client cannot end one so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from chaos.recorder import HistoryRecorder
from conformance.checkers.histories.history import RunEnded
from conformance.driver.errors import DriverBroken, OperationFailed, OperationIndeterminate, OperationUnsupported
from conformance.driver.ops.worker import Outcome


class OutcomeRecorder:
    """Of one worker. Every client can complete a job and let it fail; what else it can is known once it was told to.

    Safe to use from any thread.
    """

    def __init__(self, recorder: HistoryRecorder) -> None:
        self._recorder = recorder
        self._possible: set[Outcome] = {"complete", "fail"}
        self._impossible: set[Outcome] = set()

    def end(self, outcome: Outcome, about: Mapping[str, str], tell: Callable[[Outcome], object]) -> None:
        """Tell the processor (`tell`) how its run ends, and record it. `about`: whose run it is."""
        ended_ms = self._recorder.now_ms()
        if outcome not in self._possible | self._impossible:
            if self._can(outcome, tell):
                self._recorder.put(RunEnded(at_ms=ended_ms, outcome=outcome, **about))
                return
            ended_ms = self._recorder.now_ms()
        # Before it is told: what comes of it may be in the history at once.
        told = "complete" if outcome in self._impossible else outcome
        self._recorder.put(RunEnded(at_ms=ended_ms, outcome=told, **about))
        _told(told, tell)

    def _can(self, outcome: Outcome, tell: Callable[[Outcome], object]) -> bool:
        can = _told(outcome, tell)
        (self._possible if can else self._impossible).add(outcome)
        return can


def _told(outcome: Outcome, tell: Callable[[Outcome], object]) -> bool:
    """Whether the client can end a run so; whether it has heard of it is not known."""
    try:
        with suppress(DriverBroken, OperationFailed, OperationIndeterminate):
            tell(outcome)
    except OperationUnsupported:
        return False
    return True
