"""An event loop in its own thread, and calls into it from other threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from conformance.problems import EnvironmentProblem

DEADLINE_S = 10.0
"""All calls into the loop are short, so a slower one means that something is broken."""

Answer = TypeVar("Answer")


class LoopThread:
    """A loop that runs from its construction until `stop`. `failures`: errors without another handler."""

    def __init__(self, name: str) -> None:
        self.failures: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._failed)
        # Daemon: a tap that was never stopped must not keep the kit from exiting.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def await_(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine in the loop. Raises its errors."""
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Call a function in the loop and return its result. Raises its errors."""
        answer: concurrent.futures.Future[Answer] = concurrent.futures.Future()

        def work() -> None:
            try:
                answer.set_result(question())
            except Exception as error:  # noqa: BLE001 - the calling thread gets it
                answer.set_exception(error)

        # call_soon alone would not wake the selector: the call would wait for the next byte from a socket.
        self._loop.call_soon_threadsafe(work)
        return _result(answer)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        # Bounded: a loop that hangs must not hang the run; the thread is a daemon.
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an error of the loop."""
        # Except ENOTCONN: asyncio reports it if the peer has just reset a connection that the tap is closing.
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno == errno.ENOTCONN):
            self.failures.append(repr(error or context["message"]))


def _result(answer: concurrent.futures.Future[Answer]) -> Answer:
    try:
        return answer.result(DEADLINE_S)
    except concurrent.futures.TimeoutError:
        if answer.done():  # then the called function itself has timed out, and not the loop
            raise
        raise EnvironmentProblem(
            f"the tap did not react within {DEADLINE_S:g} s", hint="check whether this machine is overloaded"
        ) from None
