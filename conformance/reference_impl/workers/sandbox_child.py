"""The process of a sandboxed processor: `python -m conformance.reference_impl.workers.sandbox_child`.

It runs one job after the other, and exits as soon as its worker is gone. Output of the processor goes to standard
error, because standard output carries the messages to the worker (`sandbox_frames`).
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, BinaryIO

from conformance.reference_impl.emitter import accepted_arguments
from conformance.reference_impl.errors import CROSSING_ERRORS, BullMQError, known_category
from conformance.reference_impl.jobs.attempts import message_of, stack_of
from conformance.reference_impl.jobs.record import JobRecord
from conformance.reference_impl.workers.sandbox_frames import frame, read_frame

Ask = Callable[..., Awaitable[Any]]


class SandboxedJob(JobRecord):
    """A job as a sandboxed processor sees it: its values, and methods that the worker runs on request."""

    def bind(self, ask: Ask) -> None:
        """Set the function that sends requests to the worker."""
        self._ask = ask

    async def updateProgress(self, progress: Any) -> None:
        """Set the progress, any JSON value, and publish it."""
        await self._ask("updateProgress", progress)
        self.progress = progress

    async def log(self, row: str) -> int:
        """Append a log row; returns how many are kept."""
        return int(await self._ask("log", row))

    async def updateData(self, data: Any) -> None:
        """Replace the data."""
        await self._ask("updateData", data)
        self.data = data

    async def moveToDelayed(self, timestamp: float, token: str | None = None) -> None:
        """Delay the job until this Unix time (ms); the processor then throws DelayedError."""
        await self._ask("moveToDelayed", timestamp, token)

    async def moveToWait(self, token: str | None = None) -> int:
        """Put the job back; the processor then throws WaitingError."""
        return int(await self._ask("moveToWait", token))

    async def moveToWaitingChildren(self, token: str, opts: dict[str, Any] | None = None) -> bool:
        """Let the job wait for its children; if this returns True, the processor throws WaitingChildrenError."""
        return bool(await self._ask("moveToWaitingChildren", token, opts))

    async def getChildrenValues(self) -> dict[str, Any]:
        """Return values of the completed children."""
        return dict(await self._ask("getChildrenValues"))

    async def getIgnoredChildrenFailures(self) -> dict[str, str]:
        """Return failure reasons of the children whose failure does not fail this job."""
        return dict(await self._ask("getIgnoredChildrenFailures"))


class WorkerLine:
    """The process's side of the pipe."""

    def __init__(self, outgoing: BinaryIO) -> None:
        self._outgoing = outgoing
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Raises TypeError and ValueError for what is not JSON, before anything is sent."""
        self._outgoing.write(frame(message))
        # The worker waits for this message; a buffered one would deadlock both sides.
        self._outgoing.flush()

    async def ask(self, method: str, *args: Any) -> Any:
        """Let the worker call a method of the job; returns its result. Raises BullMQError if it was refused."""
        number = next(self._numbers)
        # Registered before sending: the listening thread may deliver the answer at once.
        self._asked[number] = asyncio.get_running_loop().create_future()
        self.send({"ask": number, "method": method, "args": list(args)})
        return await self._asked[number]

    def receive(self, message: dict[str, Any]) -> None:
        """Handle a message: an answer, or a job."""
        asked = self._asked.pop(message["ask"], None) if "ask" in message else None
        if asked is None:
            self.inbox.put_nowait(message)
        elif "refused" in message:
            asked.set_exception(BullMQError(message["refused"]))
        else:
            asked.set_result(message["answer"])


def load(processor: str) -> Callable[..., Any]:
    """Import `module:function`. Raises the errors of the import, and InvalidArgument if it is not a function."""
    module, _, name = processor.partition(":")
    function = getattr(importlib.import_module(module), name)
    takes = accepted_arguments(f"the processor {processor}", function, 2)
    return lambda job, token: function(*(job, token)[:takes])


async def serve(incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Run jobs until the worker is gone."""
    line, loop = WorkerLine(outgoing), asyncio.get_running_loop()
    # A thread, because a processor that blocks the event loop must not hide that the worker is gone.
    threading.Thread(target=_listen, args=(incoming, line, loop), daemon=True).start()
    first = await line.inbox.get()
    sys.path[:] = first["path"]
    while True:
        order = await line.inbox.get()
        await _run(first["processor"], order, line)


async def _run(processor: str, order: Mapping[str, Any], line: WorkerLine) -> None:
    try:
        job = SandboxedJob(**order["job"])
        job.bind(line.ask)
        value = load(processor)(job, order["token"])
        line.send({"completed": await value if inspect.isawaitable(value) else value})
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - any error of a processor fails its attempt
        line.send({"failed": _described(error)})


def _described(error: BaseException) -> dict[str, Any]:
    kinds = [kind.__name__ for kind in CROSSING_ERRORS if isinstance(error, kind)]
    return {
        "kind": kinds[0] if kinds else None,
        "message": message_of(error),
        "stack": stack_of(error),
        "category": known_category(error),
    }


def _listen(incoming: BinaryIO, line: WorkerLine, loop: asyncio.AbstractEventLoop) -> None:
    """Pass messages to the event loop; the end of the stream means that the worker is gone, so exit at once."""
    while (message := read_frame(incoming)) is not None:
        # Futures and the queue belong to the event loop's thread.
        loop.call_soon_threadsafe(line.receive, message)
    # Not sys.exit, which ends only this thread: the process would outlive its worker.
    os._exit(0)


def main() -> None:
    """Reserve standard input and output for the pipe, and replace them for the processor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the worker decides
    # Duplicated before 0 and 1 are replaced: a print in the processor would corrupt the length-prefixed messages.
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    asyncio.run(serve(incoming, outgoing))


if __name__ == "__main__":
    main()
