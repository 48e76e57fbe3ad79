"""The client's own event readers, one in each of its processes: what they tell is recorded, entry by entry."""

from __future__ import annotations

import threading

from chaos.processes import ClientProcess
from chaos.recorder import HistoryRecorder
from chaos.workload import MAIN
from conformance.checkers.histories.history import EntryTold, HandleChange, HandleChanged
from conformance.driver.errors import DriverBroken, EventTimeout, OperationFailed, OperationUnsupported

HANDLE = f"events-{MAIN}"
POLL_MS = 200
BLOCK_MS = 1000
"""`blockingTimeout`: a tenth of BullMQ's default, as all times of a run are shorter."""


class ChaosReader:
    """A QueueEvents of one process, opened again with every start of the process."""

    def __init__(self, recorder: HistoryRecorder, prefix: str) -> None:
        self._recorder = recorder
        self._prefix = prefix

    def open(self, process: ClientProcess) -> None:
        """Open it and listen in a thread; a client without event readers has none. Raises what `open` raises else."""
        options = {"blockingTimeout": BLOCK_MS}
        try:
            process.open(HANDLE, "events", MAIN, self._prefix, options=options)
        except (OperationFailed, OperationUnsupported) as error:
            self._note(process, "absent", str(error).splitlines()[0])
            return
        self._note(process, "opened")
        threading.Thread(target=self._listen, args=(process,), daemon=True, name=f"{process.name} reader").start()

    def _note(self, process: ClientProcess, change: HandleChange, error: str = "") -> None:
        now_ms = self._recorder.now_ms()
        line = HandleChanged(at_ms=now_ms, process=process.name, role="events", queue=MAIN, change=change, error=error)
        self._recorder.put(line)

    def _listen(self, process: ClientProcess) -> None:
        """Until the driver ends; a restart has a reader of its own."""
        connection = process.connection
        while True:
            try:
                event = connection.wait_event(HANDLE, names={"queue-event", "error"}, deadline_ms=POLL_MS)
            except EventTimeout:
                continue
            except DriverBroken:
                return
            if event.name == "queue-event":
                entry, name = str(event.args.get("event_id")), str(event.args.get("name"))
                told = EntryTold(
                    at_ms=self._recorder.now_ms(), process=process.name, queue=MAIN, entry=entry, name=name
                )
                self._recorder.put(told)
