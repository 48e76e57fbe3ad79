"""A driver in a child process, spoken to over its stdin and stdout.

The driver must not outlive the kit, not even a kit that was killed with SIGKILL: it sees the end of its stdin then and
has to leave. `close` gives it two seconds for that, then ends its whole process group.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from conformance.driver.connection import HANDSHAKE_DEADLINE_MS, LOG_LINES, Session
from conformance.driver.errors import (
    ConnectionClosed,
    DriverBroken,
    DriverCrashed,
    DriverNotFound,
    OversizedLine,
    StdoutClosed,
)
from conformance.driver.lines import excerpt
from conformance.driver.log import DriverLog
from conformance.driver.messages import MAX_LINE_BYTES

CLOSE_SECONDS = 2.0
ENDING_SECONDS = 1.0
"""How long a driver may take between closing its stdout and ending before that counts as living on."""


class ChildProcess(Session):
    """Start with `ChildProcess.start`. The command is a list and never goes through a shell."""

    def __init__(self, command: Sequence[str], process: subprocess.Popen[bytes], log: DriverLog, *, seed: int) -> None:
        super().__init__(shlex.join(command), seed=seed)
        self.command = list(command)
        self._process = process
        self._log = log
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ended_by_kit = False
        self._stdout_ended = False
        assert process.stdin is not None
        assert process.stdout is not None
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
    ) -> Self:
        """Start a driver and shake hands with it.

        `env` is added to the kit's own environment. `log_file` gets a copy of the driver's stderr. Raises DriverBroken.
        """
        process = _spawn(command, env, cwd)
        assert process.stderr is not None
        connection = cls(command, process, DriverLog(process.stderr, copy_to=log_file), seed=seed)
        try:
            connection._shake_hands(handshake_deadline_ms)
        except BaseException:
            connection.kill()
            raise
        return connection

    @property
    def pid(self) -> int:
        """Process id of the driver, which is the id of its process group too."""
        return self._process.pid

    def log_tail(self, lines: int = LOG_LINES) -> list[str]:
        """Return the last lines that the driver wrote to stderr (at most 200 are kept)."""
        return self._log.tail(lines)

    def close(self) -> bool:
        """Let the driver see the end of its stdin; after two seconds, end its process group.

        Returns whether the driver left by itself. May be called again, and after the driver broke.
        """
        self._ended_by_kit = True
        self._outbox.put(None)
        try:
            self._process.wait(CLOSE_SECONDS)
            left = True
        except subprocess.TimeoutExpired:
            left = False
        self.kill()
        return left

    def kill(self) -> None:
        """End the driver and everything that it started (SIGKILL to the process group)."""
        self._ended_by_kit = True
        # The group can outlive its leader (a wrapper such as npx), so it is told even when the leader has ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._outbox.put(None)
        self._mailbox.break_with(self._broken(ConnectionClosed()))

    def _send(self, line: bytes) -> None:
        self._outbox.put(line)

    def _ending(self) -> DriverBroken | None:
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
        """Return what came after the last newline. Raises DriverBroken."""
        while line := stdout.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise OversizedLine(MAX_LINE_BYTES, excerpt(line))
            if not line.endswith(b"\n"):
                return line
            self._mailbox.receive(line.rstrip(b"\r\n"))
        return b""

    def _end_of_stdout(self, unfinished: bytes) -> None:
        """Tell a crash from a stdout that was merely closed. Raises DriverBroken unless the kit ended the driver."""
        self._stdout_ended = True
        try:
            code = self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            if not self._ended_by_kit:
                raise StdoutClosed(self._mailbox.activity()) from None
            return
        if not self._ended_by_kit:
            self._log.wait_for_end(ENDING_SECONDS)
            raise self._crashed(code, unfinished)

    def _write_lines(self, stdin: IO[bytes]) -> None:
        """Write what is sent, in a thread of its own: a driver that does not read must not hold up a caller."""
        with contextlib.suppress(BrokenPipeError), stdin:
            while (line := self._outbox.get()) is not None:
                stdin.write(line)
                stdin.flush()


def _spawn(command: Sequence[str], env: Mapping[str, str] | None, cwd: Path | str | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            start_new_session=True,  # Ctrl-C is for the kit, and the whole group can be ended at once
        )
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DriverNotFound(command[0] if command else "", reason) from error


def _in_background(work: Callable[[IO[bytes]], None], pipe: IO[bytes]) -> None:
    threading.Thread(target=work, args=(pipe,), daemon=True, name=f"driver {work.__name__}").start()


def _ending_text(code: int) -> str:
    """`exit code 3`, or the signal's name."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
