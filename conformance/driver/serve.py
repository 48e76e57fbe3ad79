"""The driver's side of the protocol for clients written in Python.

A driver creates a `DriverServer` with one async handler per operation and calls `run()`:

    async def add(handle: str | None, args: dict[str, Any]) -> dict[str, Any]:
        job = await queues[handle].add(args["name"], json.loads(args["data_raw"]), args["opts"])
        return {"id": job.id}

    DriverServer(client={"name": "mine", "language": "python", "version": "1.0"}, capabilities=[],
                 ops={"open": open_handle, "close": close_handle, "reset": reset, "queue.add": add}).run()

This file only imports the standard library (Python 3.10 or newer), so that it can be copied, or loaded by its path, in
an environment without the kit. All output of the driver and the client goes to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 16 * 1024 * 1024
"""The longest line of the protocol (bytes, the newline included)."""

END_OF_STACKS = "that is where everything stands"
"""The last line of the stacks that a driver prints on SIGQUIT."""

Json = dict[str, Any]
Handler = Callable[["str | None", Json], Awaitable["Json | None"]]
"""Carries out one operation on a handle (None for operations of the driver itself) and returns the answer's fields."""


class OpError(Exception):
    """The operation did not succeed.

    `code` is one of the protocol's error codes. `status` is `fail` (it certainly did not happen) or `info` (it is
    unknown whether it happened); `definite` is the same for the single error, and False for every `info`.
    """

    def __init__(self, code: str, message: str, definite: bool = True, status: str = "fail") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.definite = definite and status == "fail"


class Unsupported(Exception):
    """The client has no such operation, or not with these arguments."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DriverServer:
    """Answers the kit's calls. Every call runs in its own task, so a slow call does not delay the others.

    `client` is the `client` object of the line `ready`; its `packages` are versions of libraries by name. The keys of
    `ops` are the declared operations. `on_clock` is called before an operation with the instant (Unix ms) at which the
    client's clock must stop, and with None when the clock must run again (after `reset`). Without `on_clock`, do not
    declare the capability `clock`.
    """

    def __init__(
        self,
        *,
        client: Mapping[str, Any],
        capabilities: Sequence[str],
        ops: Mapping[str, Handler],
        on_clock: Callable[[int | None], None] | None = None,
    ) -> None:
        self.client = dict(client)
        self.capabilities = list(capabilities)
        self.ops = dict(ops)
        self.seed = 0
        self._on_clock = on_clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._write_lock = threading.Lock()
        self._write: Callable[[bytes], None] = _discard

    def run(self) -> None:
        """Serve stdin and stdout until stdin ends, then exit immediately: the kit may be dead by then."""
        output = _take_stdout()
        asyncio.run(self._serve_stdin(output))

    def emit(self, handle: str, name: str, args: Json | None = None) -> None:
        """Send an event of a handle. May be called from any thread."""
        self._send({"type": "event", "handle": handle, "name": name, "args": args or {}})

    def attach(self, write: Callable[[bytes], None]) -> None:
        """Send all lines to `write` (a line per call, newline included) instead of stdout."""
        self._write = write

    def receive(self, line: bytes) -> None:
        """Handle one line of the kit. Call it inside a running event loop, because a call becomes a task."""
        message = json.loads(line)
        if message["type"] == "hello":
            self.seed = message["seed"]
            self._send(self._ready())
        elif message["type"] == "call":
            task = asyncio.get_running_loop().create_task(self._answer(message), name=f"call {message['op']}")
            # Kept, because the event loop holds only weak references to tasks.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel all open calls; they stay unanswered."""
        # Before the cancellations: a call that the client cancels itself gets an answer, these do not.
        self._stopping = True
        for task in list(self._tasks):
            task.cancel()

    def _ready(self) -> Json:
        return {
            "type": "ready",
            "protocol": PROTOCOL_VERSION,
            "client": self.client,
            "ops": sorted(self.ops),
            "capabilities": self.capabilities,
        }

    async def _answer(self, call: Json) -> None:
        outcome = await self._outcome(call)
        try:
            self._send({"type": "result", "id": call["id"], **outcome})
        except (TypeError, ValueError):  # the handler returned something that is not JSON
            traceback.print_exc(file=sys.stderr)
            failure = _failure("other", f"the driver's answer to {call['op']} is not JSON", status="info")
            self._send({"type": "result", "id": call["id"], **failure})
        except OverflowError as error:
            failure = _failure("too-long", f"the answer to {call['op']}: {error}", status="info")
            self._send({"type": "result", "id": call["id"], **failure})

    async def _outcome(self, call: Json) -> Json:
        op = call["op"]
        handler = self.ops.get(op)
        if handler is None:
            return {"status": "unsupported", "reason": f"no operation {op}"}
        try:
            # Set here and not in `receive`: a later call may already be there, and would move the clock first.
            self._set_clock(call.get("now_ms"))
            value = await handler(call.get("handle"), call.get("args") or {})
        except Unsupported as unsupported:
            return {"status": "unsupported", "reason": unsupported.reason}
        except OpError as error:
            return _failure(error.code, error.message, status=error.status, definite=error.definite)
        except asyncio.CancelledError:
            if self._stopping:
                raise
            # The command may have reached Redis before the cancellation, so the outcome is unknown.
            return _failure("other", f"{op} was cancelled inside the client", status="info")
        except Exception as error:  # noqa: BLE001 - any exception of a client is an answer
            traceback.print_exc(file=sys.stderr)
            return _failure("other", f"{type(error).__name__}: {error}")
        finally:
            # In `finally`: the clock must run again even if closing a handle failed.
            if op == "reset":
                self._run_clock()
        return {"status": "ok", "value": {} if value is None else value}

    def _set_clock(self, now_ms: int | None) -> None:
        if now_ms is not None and self._on_clock is not None:
            self._on_clock(now_ms)

    def _run_clock(self) -> None:
        if self._on_clock is not None:
            self._on_clock(None)

    def _send(self, message: Json) -> None:
        line = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # A lone surrogate cannot be UTF-8; as an escape it would be refused by the kit, so it becomes a question mark.
        encoded = line.encode("utf-8", errors="replace") + b"\n"
        if len(encoded) > MAX_LINE_BYTES:
            raise OverflowError(f"a line of {len(encoded)} bytes is longer than the protocol allows")
        # `emit` may be called from threads of the client: without the lock two lines could be mixed.
        with self._write_lock:
            self._write(encoded)

    async def _serve_stdin(self, output: int) -> None:
        self.attach(lambda line: _write_all(output, line))
        loop = asyncio.get_running_loop()
        # Before reading: the kit may ask for stacks as soon as it has sent a call.
        _print_stacks_on_sigquit(loop, self._tasks)
        ended: asyncio.Future[int] = loop.create_future()
        threading.Thread(
            target=_read_lines, args=(sys.stdin.buffer, loop, self._receive_safely, ended), daemon=True
        ).start()
        exit_code = await ended
        self.cancel()
        await asyncio.sleep(0)  # one turn of the loop, in which the tasks get their cancellation
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        # Not sys.exit: threads or open connections of the client could keep the driver alive without its kit.
        os._exit(exit_code)

    def _receive_safely(self, line: bytes) -> None:
        try:
            self.receive(line)
        except (ValueError, KeyError, TypeError) as error:
            print(f"not a line of the protocol: {error!r}: {line[:200]!r}", file=sys.stderr)


def _print_stacks_on_sigquit(loop: asyncio.AbstractEventLoop, calls: set[asyncio.Task[None]]) -> None:
    """On SIGQUIT, as in Java and Go, print the stack of every thread and the awaited calls of every task to stderr."""
    if not hasattr(signal, "SIGQUIT"):
        return
    # Python itself prints the threads, so that it works even if the loop hangs.
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
        loop.add_signal_handler(signal.SIGQUIT, _print_tasks, loop, calls)
    with contextlib.suppress(ValueError, RuntimeError, AttributeError):
        faulthandler.register(signal.SIGQUIT, chain=True)


def _print_tasks(loop: asyncio.AbstractEventLoop, calls: set[asyncio.Task[None]]) -> None:
    # The kit's open calls last, because the end of a log is read first.
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task in calls):
        print(f"task {task.get_name()} waits in", file=sys.stderr)
        for line in _awaited(task.get_coro()):
            print(f"  {line}", file=sys.stderr)
    print(END_OF_STACKS, file=sys.stderr, flush=True)


def _awaited(coroutine: Any) -> Iterator[str]:
    """The position of a coroutine, of the coroutine that it awaits, and so on; asyncio shows only the first."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


def _failure(code: str, message: str, *, status: str = "fail", definite: bool | None = None) -> Json:
    definite = status == "fail" if definite is None else definite
    return {"status": status, "error": {"code": code, "message": message, "definite": definite}}


def _read_lines(
    source: BinaryIO, loop: asyncio.AbstractEventLoop, receive: Callable[[bytes], None], ended: asyncio.Future[int]
) -> None:
    """Pass every line of the kit to the loop. Runs in its own thread, because reading a pipe blocks."""
    exit_code = 0
    while line := source.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            exit_code = 1
            break
        # One callback per line keeps the order of the kit's calls.
        loop.call_soon_threadsafe(receive, line)
    loop.call_soon_threadsafe(ended.set_result, exit_code)


def _take_stdout() -> int:
    """Reserve stdout for the protocol: all other output, also of C code and child processes, goes to stderr."""
    # Text that is already buffered would otherwise end up in the protocol's pipe.
    sys.stdout.flush()
    # Duplicated before descriptor 1 is redirected: afterwards only this one leads to the kit.
    output = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return output


def _write_all(descriptor: int, data: bytes) -> None:
    """Write to the kit. Ignores a closed pipe: the end of stdin will end the driver."""
    view = memoryview(data)
    with contextlib.suppress(BrokenPipeError):
        while view:
            # os.write may write only a part: a pipe holds 64 KiB, and a line may be 16 MiB.
            view = view[os.write(descriptor, view) :]


def _discard(_line: bytes) -> None:
    """The output until the server is attached to one."""
