"""An event loop in a thread of its own, and how other threads ask it to do something."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from conformance.problems import EnvironmentProblem

DEADLINE_S = 10.0
"""Nothing that is asked of the loop takes long; if it does, something is broken."""

Answer = TypeVar("Answer")


class LoopThread:
    """Runs from its construction until `stop`. `failures`: errors that reached nobody else."""

    def __init__(self, name: str) -> None:
        self.failures: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def await_(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Carry out a coroutine in the loop. Raises what it raises."""
        return _result(asyncio.run_coroutine_threadsafe(work, self._loop))

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Call something in the loop, and return what it returns. Raises what it raises."""
        answer: concurrent.futures.Future[Answer] = concurrent.futures.Future()

        def work() -> None:
            try:
                answer.set_result(question())
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the thread that asked
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(work)
        return _result(answer)

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an error; not that asyncio, its last bytes sent, could not end a connection that was reset just then."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno == errno.ENOTCONN):
            self.failures.append(repr(error or context["message"]))


def _result(answer: concurrent.futures.Future[Answer]) -> Answer:
    try:
        return answer.result(DEADLINE_S)
    except concurrent.futures.TimeoutError:
        if answer.done():  # then it is not the loop that was late: what was asked for has itself timed out
            raise
        raise EnvironmentProblem(
            f"the tap did not react within {DEADLINE_S:g} s", hint="is this machine overloaded?"
        ) from None
