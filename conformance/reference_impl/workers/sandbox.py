"""Sandboxed processors: each slot of a worker runs its jobs in a separate process (upstream `sandbox.ts`).

A processor that blocks, leaks or crashes affects only its own job. A crash is a failed attempt with the reason of
Node.js. Cancelling a job (`Policy.job_timeout_s`, a forced close) kills its process; the next job gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from typing import Any, Final

from conformance.reference_impl.errors import CROSSING_ERRORS, ErrorCategory, InvalidArgument, SandboxedError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers.sandbox_frames import ASKABLE, HEADER, frame, unframed

CHILD_MODULE: Final = "conformance.reference_impl.workers.sandbox_child"

_END_WITHIN_S: Final = 2
"""A process that has closed its pipe should exit; after this time it is killed."""

_CROSSING: Final = {kind.__name__: kind for kind in CROSSING_ERRORS}


class Sandbox:
    """The processes of one worker: as many as jobs run at a time, each runs one job after the other.

    `processor` is `module:function`; only the processes import the module, with the worker's `sys.path`.
    Raises InvalidArgument for any other text.
    """

    def __init__(self, processor: str) -> None:
        module, _, function = processor.partition(":")
        names = (*module.split("."), *function.split("."))
        if not function or module == "__main__" or not all(name.isidentifier() for name in names):
            raise InvalidArgument(
                f"a sandboxed processor is 'module:function', importable by another process, not {processor!r}",
                field="processor",
                constraint="module:function",
            )
        self._processor = processor
        self._idle: list[SandboxProcess] = []
        self._started: list[SandboxProcess] = []

    async def process(self, job: Job, token: str) -> Any:
        """Run a job in a process; returns its result. Raises what the processor threw; SandboxedError for a crash."""
        process = await self._free_process()
        try:
            outcome = await process.run(job, token)
        except BaseException:
            process.kill()
            raise
        # Only after an answer: after a cancellation the pipe may still hold messages of the old job.
        self._idle.append(process)
        return result_of(outcome)

    async def close(self) -> None:
        """End the processes, and wait until they are gone."""
        for process in self._started:
            process.kill()
        for process in self._started:
            await process.ended()

    async def _free_process(self) -> SandboxProcess:
        while self._idle:
            process = self._idle.pop()
            # An idle process may have been killed from outside (out of memory) since its last job.
            if process.is_alive:
                return process
        self._started = [process for process in self._started if process.is_alive]
        process = SandboxProcess(
            await asyncio.create_subprocess_exec(sys.executable, "-m", CHILD_MODULE, stdin=PIPE, stdout=PIPE)
        )
        self._started.append(process)
        await process.prepare(self._processor)
        return process


class SandboxProcess:
    """The worker's side of the pipe to one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def prepare(self, processor: str) -> None:
        """Send the process its import path and processor."""
        await self._send({"path": sys.path, "processor": processor})

    @property
    def is_alive(self) -> bool:
        """Whether the process is not known to have ended."""
        return self._process.returncode is None

    async def run(self, job: Job, token: str) -> Mapping[str, Any]:
        """Return the outcome of a job; serves its requests until then. Raises SandboxedError for a crash."""
        await self._send({"job": job.toJSON(), "token": token})
        while True:
            message = await self._receive()
            if "ask" not in message:
                return message
            await self._send({"ask": message["ask"], **await _done_for(job, message)})

    def kill(self) -> None:
        """Kill the process."""
        # The process may have exited between its last message and this call.
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> int:
        """Wait until the process has ended; returns its exit code, negative for a signal."""
        return await self._process.wait()

    async def _send(self, message: Mapping[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(frame(message))
        with contextlib.suppress(ConnectionError):  # the exit code is reported when the answer is read
            await pipe.drain()

    async def _receive(self) -> dict[str, Any]:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            (length,) = HEADER.unpack(await pipe.readexactly(HEADER.size))
            return unframed(await pipe.readexactly(length))
        except asyncio.IncompleteReadError:
            raise SandboxedError(await self._last_words()) from None

    async def _last_words(self) -> str:
        try:
            # The pipe closes before the exit code is known; a child that only closed its output would never exit.
            code = await asyncio.wait_for(self.ended(), _END_WITHIN_S)
        except TimeoutError:
            self.kill()
            code = await self.ended()
        return exit_text(code)


async def _done_for(job: Job, message: Mapping[str, Any]) -> dict[str, Any]:
    """Call the method of the job that the process requests."""
    method = message["method"]
    # The request comes from user code in another process: it may call only what Node.js allows.
    if method not in ASKABLE:
        return {"refused": f"a sandboxed processor cannot call {method}"}
    try:
        return {"answer": await getattr(job, method)(*message["args"])}
    except Exception as error:  # noqa: BLE001 - raised in the processor instead
        return {"refused": str(error)}


def result_of(outcome: Mapping[str, Any]) -> Any:
    """Return the result of a processor.

    Raises its error: the errors that a worker handles keep their class, all others become SandboxedError.
    """
    if "failed" not in outcome:
        return outcome["completed"]
    failure = outcome["failed"]
    kind, message = _CROSSING.get(failure["kind"]), failure["message"]
    if kind is not None:
        error = kind(message)
        error.remote_stack = failure["stack"]
        raise error
    raise SandboxedError(
        message, stack=failure["stack"], category=failure["category"] and ErrorCategory(failure["category"])
    )


def exit_text(code: int) -> str:
    """Return the failure reason of a job whose process exited, in the words of Node.js."""
    if code >= 0:
        return f"Unexpected exit code: {code} signal: null"
    return f"Unexpected exit code: null signal: {signal.Signals(-code).name}"
