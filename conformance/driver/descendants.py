"""The processes that a driver has started, also those that left its session and its process group.

They inherit a variable of the driver's environment, which `/proc` shows. A process that has erased its environment is
found by its parents, as long as these live. On systems without `/proc`, only the process group is ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "BULLMQ_CONFORMANCE_DRIVER"
"""The variable; its value is unique to one driver process."""
END_S = 3.0
"""How long killed processes may take to disappear."""
STEP_S = 0.005
PROC = Path("/proc")


class ProcessId(NamedTuple):
    """A process: its number can be used again, but not with the same start (clock ticks since boot)."""

    pid: int
    started: int


class Descendants:
    """The processes of one driver. Its environment must contain `variables`."""

    def __init__(self) -> None:
        self._value = secrets.token_hex(16)
        self._noted: set[ProcessId] = set()

    @property
    def variables(self) -> dict[str, str]:
        """Variables that the driver's environment must contain."""
        return {MARK: self._value}

    def note(self, driver: int) -> None:
        """Remember the children of a running driver, and theirs: an orphan with another environment is not found."""
        parents = dict(_parents())
        family = {driver}
        # Processes are not listed in the order of their births, so each pass may find a further generation.
        while found := {process.pid for process, parent in parents.items() if parent in family} - family:
            family |= found
        self._noted |= {process for process in parents if process.pid in family}

    def end(self) -> list[str]:
        """Kill all that are left. Returns those that cannot be ended, with their command lines."""
        deadline = time.monotonic() + END_S
        # Until none is found: one may have started another just before its end.
        while (left := list(self._left())) and time.monotonic() < deadline:
            for process in left:
                _kill(process)
            time.sleep(STEP_S)
        return [f"process {process.pid} ({_command_of(process.pid)})" for process in left]

    def _left(self) -> Iterator[ProcessId]:
        text = f"{MARK}={self._value}".encode()
        for process, _ in _parents():
            if process in self._noted or text in _environment_of(process.pid):
                yield process


def _kill(process: ProcessId) -> None:
    # By a descriptor, and checked afterwards: the number may belong to another process by now.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if _status_of(process.pid)[0] == process:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def _parents() -> Iterator[tuple[ProcessId, int]]:
    """All running processes, each with the number of its parent."""
    with contextlib.suppress(OSError):
        for name in os.listdir(PROC):  # noqa: PTH208 - a path for each process costs more than the rest
            if name.isdigit():
                # It may end while this reads.
                with contextlib.suppress(OSError):
                    process, parent, state = _status_of(int(name))
                    if state not in "ZX":
                        yield process, parent


def _status_of(pid: int) -> tuple[ProcessId, int, str]:
    """Its id, its parent and its state. Raises OSError if it has ended."""
    # After the name of the program, which may contain anything: state, parent; the 20th is the start.
    state, parent, *more = (PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return ProcessId(pid, int(more[17])), int(parent), state


def _environment_of(pid: int) -> bytes:
    """Its first environment; empty for a process of another user."""
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "environ").read_bytes()
    return b""


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return "it has ended meanwhile"
