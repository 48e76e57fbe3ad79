"""The two transports of a driver: a child process with pipes, and an object in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, BinaryIO, Protocol, Self

from conformance.driver.breakdowns import Breakdowns
from conformance.driver.connection import HANDSHAKE_DEADLINE_MS, LOG_LINES, DriverSession
from conformance.driver.descendants import Descendants
from conformance.driver.errors import (
    ConnectionClosed,
    DriverBroken,
    DriverCrashed,
    DriverNotFound,
    OversizedLine,
    StdoutClosed,
)
from conformance.driver.messages import MAX_LINE_BYTES, excerpt
from conformance.driver.serve import END_OF_STACKS
from conformance.pages.terminal import terminal_line

CAPACITY_LINES = 200
COPIED_BYTES = 10_000_000
"""Bytes of one driver's log that its file gets: a driver that logs each command must not fill the disk."""
END_OF_COPY = b"(the driver logged more than this file keeps)\n"
LINE_BYTES = 4096
CLOSE_SECONDS = 10.0

ENDING_SECONDS = 1.0
"""A driver that closed its stdout is reported as still running after this time."""

STOP_SECONDS = 2.0

STACKS_SILENCE_SECONDS = 2.0
"""After this silence, the stacks of a driver that does not print `END_OF_STACKS` count as complete."""
STACKS_SECONDS = 10.0
LOOK_SECONDS = 0.05
ANSWER_LINES = 10_000

_LIVING: weakref.WeakSet[ChildProcess] = weakref.WeakSet()


def kill_all() -> None:
    """End all running drivers that this process has started, so that none of them writes to Redis any more."""
    # A copy: `kill` removes the connection from the set.
    for connection in list(_LIVING):
        connection.kill()


class ChildProcess(DriverSession):
    """A driver in a child process; create it with `ChildProcess.start`. The command never goes through a shell."""

    def __init__(
        self,
        command: Sequence[str],
        process: subprocess.Popen[bytes],
        log: DriverLog,
        descendants: Descendants,
        *,
        seed: int,
        breakdowns: Breakdowns | None = None,
    ) -> None:
        super().__init__(shlex.join(command), seed=seed, breakdowns=breakdowns)
        self.command = list(command)
        self._process = process
        self._descendants = descendants
        self._log = log
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ended_by_kit = False
        self._stdout_ended = False
        _LIVING.add(self)
        assert process.stdin is not None
        assert process.stdout is not None
        # After all fields are set: both threads use them at once.
        _in_background(self._read_lines, process.stdout)
        _in_background(self._write_lines, process.stdin)

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        seed: int,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        handshake_deadline_ms: int = HANDSHAKE_DEADLINE_MS,
        log_file: Path | None = None,
        breakdowns: Breakdowns | None = None,
    ) -> Self:
        """Start a driver and do the handshake.

        `env` is added to the kit's own environment. `log_file` gets a copy of the driver's stderr. `breakdowns`: the
        record of earlier processes of this driver. Raises DriverBroken.
        """
        descendants = Descendants()
        process = _spawn(command, {**(env or {}), **descendants.variables}, cwd)
        assert process.stderr is not None
        log = DriverLog(process.stderr, copy_to=log_file)
        connection = cls(command, process, log, descendants, seed=seed, breakdowns=breakdowns)
        try:
            connection._shake_hands(handshake_deadline_ms)
        except BaseException:
            connection.kill()
            raise
        return connection

    @property
    def pid(self) -> int:
        """Process id of the driver, also the id of its process group."""
        return self._process.pid

    def log_tail(self, lines: int = LOG_LINES) -> list[str]:
        """Return the last lines that the driver wrote to stderr (at most 200 are kept)."""
        return self._log.tail(lines)

    def stacks(self) -> list[str]:
        """The stacks of the driver's threads, which it prints to stderr on SIGQUIT.

        Java and Go programs and those of `driver.serve` do that; others print nothing. SIGQUIT ends most programs.
        """
        # Before the signal: the first lines may arrive before `kill` returns.
        answer = self._log.listen()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self._process.pid, signal.SIGQUIT)
        return self._log.whole(answer, last_line=END_OF_STACKS)

    def close(self) -> bool:
        """Close the driver's stdin; after `CLOSE_SECONDS`, kill its process group.

        Returns whether the driver exited by itself. May be called again, also after the driver broke.
        """
        # Set first: otherwise the reading thread would report the end of stdout as a crash.
        self._ended_by_kit = True
        self._descendants.note(self._process.pid)
        self._outbox.put(None)
        try:
            self._process.wait(CLOSE_SECONDS)
            exited = True
        except subprocess.TimeoutExpired:
            exited = False
        self.kill()
        return exited

    def kill(self) -> None:
        """Kill the driver and all processes that it started (SIGKILL), also those that left its session.

        A process that cannot be ended is named on stderr.
        """
        self.kill_group()
        for left in self._descendants.end():
            print(
                terminal_line(f"the driver {self.label} has left {left}, which cannot be ended: end it by hand"),
                file=sys.stderr,
            )
        _LIVING.discard(self)

    def kill_group(self) -> None:
        """Kill the driver and its process group only: processes that left its session go on until `kill`."""
        self._ended_by_kit = True
        if self._process.poll() is None:
            self._descendants.note(self._process.pid)
        # The group can outlive its leader (a wrapper such as npx), so it is killed even if the leader has ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # Reaps the process; SIGKILL cannot be ignored, so this returns soon.
        self._process.wait()
        self._outbox.put(None)
        self._mailbox.break_with(self._broken(ConnectionClosed()))

    @property
    def _process_id(self) -> int:
        return self._process.pid

    def _request_stacks(self) -> None:
        self._ended_by_kit = True  # SIGQUIT ends many programs; that is not a crash
        self.stacks()

    def _send(self, line: bytes) -> None:
        self._outbox.put(line)

    def _ending(self) -> DriverBroken | None:
        # Before stdout: a process that ended also closed its stdout, and the crash explains it.
        code = self._process.poll()
        if code is not None:
            return self._crashed(code)
        return StdoutClosed(self._mailbox.activity()) if self._stdout_ended else None

    def _crashed(self, code: int, unfinished: bytes = b"") -> DriverCrashed:
        rest = excerpt(unfinished) if unfinished else ""
        return DriverCrashed(_ending_text(code), self._mailbox.activity(), returncode=code, unfinished=rest)

    def _read_lines(self, stdout: IO[bytes]) -> None:
        """Fill the mailbox until stdout ends or a line breaks the protocol."""
        try:
            with stdout:
                self._end_of_stdout(self._read_until_end(stdout))
        except DriverBroken as problem:
            self._give_up(problem)

    def _read_until_end(self, stdout: IO[bytes]) -> bytes:
        """Return the text after the last newline. Raises DriverBroken."""
        # One byte more than allowed shows an oversized line without reading all of it.
        while line := stdout.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise OversizedLine(MAX_LINE_BYTES, excerpt(line))
            if not line.endswith(b"\n"):
                return line
            self._mailbox.receive(line.rstrip(b"\r\n"))
        return b""

    def _end_of_stdout(self, unfinished: bytes) -> None:
        """Distinguish a crash from a closed stdout. Raises DriverBroken unless the kit ended the driver."""
        self._stdout_ended = True
        try:
            # The pipe closes some moments before the exit code is known.
            code = self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            if not self._ended_by_kit:
                raise StdoutClosed(self._mailbox.activity()) from None
            return
        if not self._ended_by_kit:
            # The log is read by another thread, and its last lines usually explain the crash.
            self._log.wait_for_end(ENDING_SECONDS)
            raise self._crashed(code, unfinished)

    def _write_lines(self, stdin: IO[bytes]) -> None:
        """Write the lines in a separate thread: a driver that does not read must not block a caller."""
        # A driver that ended is reported by the reader, which also has its exit code.
        with contextlib.suppress(BrokenPipeError), stdin:
            while (line := self._outbox.get()) is not None:
                stdin.write(line)
                # Per line: the driver answers only what it has received.
                stdin.flush()


def _spawn(command: Sequence[str], env: Mapping[str, str], cwd: Path | str | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            cwd=cwd,
            start_new_session=True,  # Ctrl-C only reaches the kit, and the kit can kill the whole group
        )
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DriverNotFound(command[0] if command else "", reason) from error


def _in_background(handle_pipe: Callable[[IO[bytes]], None], pipe: IO[bytes]) -> None:
    threading.Thread(target=handle_pipe, args=(pipe,), daemon=True, name=f"driver {handle_pipe.__name__}").start()


def _ending_text(code: int) -> str:
    """`exit code 3`, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


class DriverLog:
    """Reads stderr in a separate thread, so that a full pipe never blocks a driver that logs much.

    `copy_to` gets every byte up to COPIED_BYTES (appended). If it cannot be written, the copy is skipped silently: the
    log is not evidence.
    """

    def __init__(self, stderr: IO[bytes], *, copy_to: Path | None = None) -> None:
        self._lines: deque[str] = deque(maxlen=CAPACITY_LINES)
        self._answer: list[str] | None = None
        self._copy_to = copy_to
        self._thread = threading.Thread(target=self._read, args=(stderr,), daemon=True, name="driver log")
        self._thread.start()

    def tail(self, lines: int) -> list[str]:
        """Return the last lines, without their newlines. Bytes that are not UTF-8 become escapes."""
        return list(self._lines)[-lines:]

    def listen(self) -> list[str]:
        """A list to which all further lines are appended. `tail` keeps only the last ones, and may lose the first."""
        answer: list[str] = []
        self._answer = answer
        return answer

    def whole(self, answer: list[str], *, last_line: str) -> list[str]:
        """The list of `listen` up to `last_line`, which a driver of `driver.serve` prints at the end.

        The output of other drivers counts as complete when they have ended or were silent for a while.
        """
        started = newest = time.monotonic()
        seen = 0
        while time.monotonic() - newest < STACKS_SILENCE_SECONDS and time.monotonic() - started < STACKS_SECONDS:
            # Doubles as the pause between two looks, and ends early when the driver's log ends.
            self._thread.join(LOOK_SECONDS)
            # Before the check of the thread: the end of the log may come together with the last line.
            if last_line in answer:
                return answer[: answer.index(last_line)]
            if not self._thread.is_alive():
                break
            if len(answer) > seen:
                seen, newest = len(answer), time.monotonic()
        return answer[-CAPACITY_LINES:]

    def wait_for_end(self, seconds: float) -> None:
        """Wait up to `seconds` until everything is read."""
        self._thread.join(seconds)

    def _read(self, stderr: IO[bytes]) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(stderr)
            copy: BinaryIO | None = None
            left = COPIED_BYTES
            # Limited: a driver that logs without newlines must not fill the memory.
            while line := stderr.readline(LINE_BYTES):
                # Only now, so that a silent driver leaves no file.
                copy = copy or self._open_copy(stack)
                text = line.decode("utf-8", errors="backslashreplace").rstrip("\r\n")
                # deque.append is atomic, so `tail` needs no lock.
                self._lines.append(text)
                if self._answer is not None and len(self._answer) < ANSWER_LINES:
                    self._answer.append(text)
                if copy is not None and left > 0:
                    left -= len(line)
                    with contextlib.suppress(OSError):
                        copy.write(line if left > 0 else END_OF_COPY)

    def _open_copy(self, stack: contextlib.ExitStack) -> BinaryIO | None:
        if self._copy_to is None:
            return None
        with contextlib.suppress(OSError):
            self._copy_to.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: if the kit is killed, the log still explains why.
            return stack.enter_context(self._copy_to.open("ab", buffering=0))
        return None


class LineHandler(Protocol):
    """The driver's end of the lines, such as `serve.DriverServer`. All methods but `attach` run in the event loop."""

    def attach(self, write: Callable[[bytes], None]) -> None:
        """Send bytes to the kit with `write`, which may be called from any thread."""

    def receive(self, line: bytes) -> None:
        """Handle one line of the kit, newline included."""

    def cancel(self) -> None:
        """Cancel all running calls."""


class InProcess(DriverSession):
    """A driver inside this process; create it with `InProcess.start`."""

    def __init__(self, handler: LineHandler, *, seed: int, label: str, breakdowns: Breakdowns | None = None) -> None:
        super().__init__(label, seed=seed, breakdowns=breakdowns)
        self._handler = handler
        self._unfinished = b""
        # Handlers write from any thread: without the lock, parts of two lines could be joined.
        self._feeding = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"driver {label}")
        # Before the thread starts, so that no line of the handler is discarded.
        handler.attach(self._feed)
        self._thread.start()

    @classmethod
    def start(
        cls,
        handler: LineHandler,
        *,
        seed: int = 0,
        label: str = "in-process",
        handshake_deadline_ms: int = HANDSHAKE_DEADLINE_MS,
        breakdowns: Breakdowns | None = None,
    ) -> Self:
        """Run the handler in its own event loop and do the handshake. Raises DriverBroken."""
        connection = cls(handler, seed=seed, label=label, breakdowns=breakdowns)
        try:
            connection._shake_hands(handshake_deadline_ms)
        except BaseException:
            connection.kill()
            raise
        return connection

    def log_tail(self, lines: int = LOG_LINES) -> list[str]:  # noqa: ARG002 - part of the interface
        """Empty: such a driver writes to the kit's own stderr."""
        return []

    def close(self) -> bool:
        """End the driver."""
        self.kill()
        return True

    def kill(self) -> None:
        """Cancel running calls and stop the event loop. A handler that blocks the loop keeps its thread."""
        self._mailbox.break_with(self._broken(ConnectionClosed()))
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._stop)
        # If the driver broke the protocol, its own thread calls this, and a thread cannot join itself.
        if threading.current_thread() is not self._thread:
            # Bounded: a handler that blocks the loop would hang the kit; the thread is a daemon.
            self._thread.join(STOP_SECONDS)

    @property
    def _process_id(self) -> None:
        return None

    def _request_stacks(self) -> None:
        """Does nothing: there is no separate process."""

    def _send(self, line: bytes) -> None:
        self._loop.call_soon_threadsafe(self._receive, line)

    def _ending(self) -> DriverBroken | None:
        return None if self._thread.is_alive() else DriverCrashed("its event loop stopped", self._mailbox.activity())

    def _receive(self, line: bytes) -> None:
        try:
            self._handler.receive(line)
        except Exception as error:  # noqa: BLE001 - in a child process, this would have ended the driver
            self._give_up(DriverCrashed(f"{type(error).__name__}: {error}", self._mailbox.activity()))

    def _feed(self, data: bytes) -> None:
        """Take bytes that the handler wrote, as if from a pipe."""
        with self._feeding:
            try:
                self._split(data)
            except DriverBroken as problem:
                self._give_up(problem)

    def _split(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._check_length(len(line) + 1, line)
            self._mailbox.receive(line.rstrip(b"\r"))
        # Checked without waiting for the newline, which may never come.
        self._check_length(len(self._unfinished), self._unfinished)

    def _check_length(self, length: int, line: bytes) -> None:
        if length > MAX_LINE_BYTES:
            raise OversizedLine(MAX_LINE_BYTES, excerpt(line))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def _stop(self) -> None:
        self._handler.cancel()
        self._loop.call_soon(self._loop.stop)  # one turn later, so that cancelled tasks end before the loop
