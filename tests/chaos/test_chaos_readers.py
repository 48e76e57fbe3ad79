"""Who listens to a client's handles, when these are closed and opened again in the same process."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from chaos.clients import ChaosWorker, ProcessorTimer
from chaos.processes import ClientProcess
from chaos.readers import ChaosReader
from chaos.recorder import HistoryRecorder
from chaos.workload import MAIN
from conformance.checkers.histories.history import EventReported, HandleChanged
from conformance.driver.errors import DriverBroken, EventTimeout
from conformance.driver.messages import DriverEvent

PATIENCE_S = 0.3
"""How long a listener that should not be there would have for the entry."""


class TalkativeConnection:
    """Gives its events to the first reader, and ends when it is reported to."""

    def __init__(self) -> None:
        self.events: queue.Queue[DriverEvent] = queue.Queue()
        self.has_ended = False

    def wait_event(self, *_: object, **__: object) -> DriverEvent:
        try:
            return self.events.get(timeout=0.02)
        except queue.Empty:
            if self.has_ended:
                raise DriverBroken("it has ended") from None
            raise EventTimeout("events", [], 20, []) from None


class OneProcess:
    """A client process of which only the connection counts; while a handle opens, `on_open` is called."""

    name = "worker-1"

    def __init__(self, on_open: Callable[[], None] = lambda: None) -> None:
        self.connection = TalkativeConnection()
        self.on_open = on_open

    def open(self, *_: object, **__: object) -> None:
        self.on_open()

    @property
    def itself(self) -> ClientProcess:
        return cast("ClientProcess", self)


def entry(number: int) -> DriverEvent:
    args: dict[str, Any] = {"event_id": f"{number}-0", "name": "added"}
    return DriverEvent(handle=f"events-{MAIN}", name="queue-event", args=args)


def until(happened: Callable[[], bool], seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline, seen()
        time.sleep(0.005)


def test_events_reported_while_a_reader_opens_again_are_its_own() -> None:
    recorder, numbers = HistoryRecorder(), iter([1, 3])

    def report_at_once() -> None:
        process.connection.events.put(entry(next(numbers)))
        deadline = time.monotonic() + PATIENCE_S
        while not process.connection.events.empty() and time.monotonic() < deadline:
            time.sleep(0.005)

    process, reader = OneProcess(report_at_once), ChaosReader(recorder, "bc")

    def reported() -> list[str]:
        return [line.entry for line in recorder.finish().lines if isinstance(line, EventReported)]

    reader.open(process.itself)
    process.connection.events.put(entry(2))
    reader.open(process.itself)
    until(lambda: reported() == ["1-0", "2-0", "3-0"], reported)
    process.connection.has_ended = True
    shown = [
        line.change if isinstance(line, HandleChanged) else line.entry
        for line in recorder.finish().lines
        if isinstance(line, HandleChanged | EventReported)
    ]
    assert shown == ["opened", "1-0", "2-0", "opened", "3-0"]


def test_one_thread_listens_to_a_handle_however_often_it_is_opened_on_a_connection() -> None:
    recorder, process = HistoryRecorder(), OneProcess()

    def listeners() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == f"{process.name} {MAIN}"]

    with ProcessorTimer() as timer:
        worker = ChaosWorker(process.itself, recorder, timer, "bc", {}, queues=(MAIN,))
        worker.open_handles(process.itself)
        worker.open_handles(process.itself)
        assert len(listeners()) == 1
        process.connection.has_ended = True
        until(lambda: not listeners(), listeners)
        process.connection = TalkativeConnection()
        worker.open_handles(process.itself)
        assert len(listeners()) == 1, "a restart has one of its own"
        worker.stop()
        until(lambda: not listeners(), listeners)
