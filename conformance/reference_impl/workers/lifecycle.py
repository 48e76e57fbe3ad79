"""The states of a worker, and all changes from one to another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal


class WorkerState(Enum):
    """The states of a worker. A *run* lasts from a start (or resume) to the end of the loop."""

    READY = "ready"
    """No run: not started yet, or the last run has failed. Only `getNextJob` fetches."""
    RUNNING = "running"
    PAUSING = "pausing"
    """Fetches nothing; the run ends with the jobs that it has."""
    PAUSED = "paused"
    """Fetches nothing; no run."""
    FINISHING = "finishing"
    """Close was called; the run ends with the jobs that it has."""
    ABANDONING = "abandoning"
    """The running jobs are cancelled; they stay in active with their locks."""
    CLOSING = "closing"
    """Close was called; no run. The connections are being closed."""
    CLOSED = "closed"


Change = Literal["start", "end", "pause", "resume", "close", "abandon", "disconnect"]

TRANSITIONS: Final[Mapping[Change, Mapping[WorkerState, WorkerState]]] = {
    "start": {WorkerState.READY: WorkerState.RUNNING},
    "end": {
        WorkerState.RUNNING: WorkerState.READY,
        WorkerState.PAUSING: WorkerState.PAUSED,
        WorkerState.FINISHING: WorkerState.CLOSING,
        WorkerState.ABANDONING: WorkerState.CLOSING,
    },
    "pause": {WorkerState.READY: WorkerState.PAUSED, WorkerState.RUNNING: WorkerState.PAUSING},
    # Not from PAUSING: the second loop of a resumed worker would exceed the concurrency.
    "resume": {WorkerState.PAUSED: WorkerState.READY},
    "close": {
        WorkerState.READY: WorkerState.CLOSING,
        WorkerState.RUNNING: WorkerState.FINISHING,
        WorkerState.PAUSING: WorkerState.FINISHING,
        WorkerState.PAUSED: WorkerState.CLOSING,
    },
    "abandon": {
        WorkerState.RUNNING: WorkerState.ABANDONING,
        WorkerState.PAUSING: WorkerState.ABANDONING,
        WorkerState.FINISHING: WorkerState.ABANDONING,
    },
    "disconnect": {WorkerState.CLOSING: WorkerState.CLOSED},
}
"""The state after each change, by the state before. Others change nothing: the first close wins."""

OPEN: Final = (WorkerState.READY, WorkerState.RUNNING)
HAS_RUN: Final = (WorkerState.RUNNING, WorkerState.PAUSING, WorkerState.FINISHING, WorkerState.ABANDONING)
CLOSE_CALLED: Final = (WorkerState.FINISHING, WorkerState.ABANDONING, WorkerState.CLOSING, WorkerState.CLOSED)


class Lifecycle:
    """The state of one worker.

    `is_open`: it takes jobs. `has_run`: its loop runs. `is_closing`: close was called. `is_abandoning`: the running
    jobs are cancelled. The events are for those who wait: `without_run`, `close_called`, `closed`.
    """

    def __init__(self) -> None:
        self.without_run = asyncio.Event()
        self.close_called = asyncio.Event()
        self.closed = asyncio.Event()
        self._enter(WorkerState.READY)

    def apply(self, change: Change) -> bool:
        """Make a change; returns whether there was one to make."""
        following = TRANSITIONS[change].get(self.state)
        if following is None:
            return False
        self._enter(following)
        return True

    def _enter(self, state: WorkerState) -> None:
        self.state = state
        # Attributes, not properties: a worker at full load reads them several times per job.
        self.is_open = state in OPEN
        self.has_run = state in HAS_RUN
        self.is_closing = state in CLOSE_CALLED
        self.is_abandoning = state is WorkerState.ABANDONING
        _show(self.without_run, holds=not self.has_run)
        _show(self.close_called, holds=self.is_closing)
        _show(self.closed, holds=state is WorkerState.CLOSED)


def _show(event: asyncio.Event, *, holds: bool) -> None:
    if holds:
        event.set()
    else:
        event.clear()
