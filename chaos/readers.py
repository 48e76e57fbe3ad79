"""The client's own event readers, one in each of its processes. Every entry that they report is recorded."""

from __future__ import annotations

import threading

from chaos.processes import CALL_DEADLINE_MS, ClientProcess
from chaos.recorder import HistoryRecorder
from chaos.workload import MAIN
from conformance.checkers.histories.history import EventReported, HandleChange, HandleChanged
from conformance.driver.errors import DriverBroken, EventTimeout, OperationFailed, OperationUnsupported

HANDLE = f"events-{MAIN}"
# Short, so that a closed reader is noticed soon.
POLL_MS = 200
BLOCK_MS = 1000
"""`blockingTimeout`: a tenth of BullMQ's default, as all times of a run are shorter."""


class ChaosReader:
    """The QueueEvents of one process. It is opened again with every start, and after the clock was set back."""

    def __init__(self, recorder: HistoryRecorder, prefix: str) -> None:
        self._recorder = recorder
        self._prefix = prefix
        self._listener: threading.Thread | None = None
        self._closed = threading.Event()

    def open(self, process: ClientProcess) -> None:
        """Open it and listen in a thread, unless the client has no event readers. Raises what `open` raises."""
        self._hear_out_the_last()
        # Time from before the call: it may report an entry before the driver answers the call that opens it.
        asked_ms = self._recorder.now_ms()
        try:
            process.open(HANDLE, "events", MAIN, self._prefix, options={"blockingTimeout": BLOCK_MS})
        except (OperationFailed, OperationUnsupported) as error:
            self._note(process, "absent", asked_ms, str(error).splitlines()[0])
            return
        self._note(process, "opened", asked_ms)
        self._closed = threading.Event()
        self._listener = threading.Thread(
            target=self._listen, args=(process, self._closed), daemon=True, name=f"{process.name} reader"
        )
        self._listener.start()

    def _hear_out_the_last(self) -> None:
        """Record all reports of the previous reader before the next one opens: they may share a connection."""
        # Set before joining: the listener ends when it has nothing left to read.
        self._closed.set()
        if self._listener is not None:
            # With a deadline, because a listener of a dead process may hang in its last call.
            self._listener.join(CALL_DEADLINE_MS / 1000)

    def _note(self, process: ClientProcess, change: HandleChange, at_ms: float, error: str = "") -> None:
        line = HandleChanged(at_ms=at_ms, process=process.name, role="events", queue=MAIN, change=change, error=error)
        self._recorder.put(line)

    def _listen(self, process: ClientProcess, closed: threading.Event) -> None:
        """Listen until the driver ends, or the reader is closed and drained; the next reader has its own listener."""
        connection = process.connection
        while True:
            try:
                event = connection.wait_event(HANDLE, names={"queue-event", "error"}, deadline_ms=POLL_MS)
            except EventTimeout:
                # Only after a timeout: until then, reports of the closed reader are still on their way.
                if closed.is_set():
                    return
                continue
            except DriverBroken:
                return
            if event.name == "queue-event":
                entry, name = str(event.args.get("event_id")), str(event.args.get("name"))
                report = EventReported(
                    at_ms=self._recorder.now_ms(), process=process.name, queue=MAIN, entry=entry, name=name
                )
                self._recorder.put(report)
