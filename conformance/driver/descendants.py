"""The processes that a driver has started, also those that left its session and its process group.

They inherit a variable of the driver's environment. A process that has erased its environment is found by its parents,
as long as these live.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator

import psutil

MARK = "BULLMQ_CONFORMANCE_DRIVER"
"""The variable; its value is unique to one driver process."""
END_S = 3.0
"""How long killed processes may take to disappear."""
STEP_S = 0.005
_LISTING = threading.Lock()
"""psutil keeps the processes that it has listed, for all threads together."""


class Descendants:
    """The processes of one driver. Its environment must contain `variables`."""

    def __init__(self) -> None:
        self._value = secrets.token_hex(16)
        self._noted: set[psutil.Process] = set()

    @property
    def variables(self) -> dict[str, str]:
        """Variables that the driver's environment must contain."""
        return {MARK: self._value}

    def note(self, driver: int) -> None:
        """Remember the children of a running driver, and theirs: an orphan with another environment is not found."""
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(driver)
            self._noted |= {process, *process.children(recursive=True)}

    def end(self) -> list[str]:
        """Kill all that are left. Returns those that cannot be ended, with their command lines."""
        deadline = time.monotonic() + END_S
        # Until none is found: one may have started another just before its end.
        while (left := self._left()) and time.monotonic() < deadline:
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(STEP_S)
        return [f"process {process.pid} ({_command_of(process)})" for process in left]

    def _left(self) -> list[psutil.Process]:
        # Twice: a process has no environment for a moment while it replaces its program.
        for delay_s in (0.0, STEP_S):
            time.sleep(delay_s)
            with _LISTING:
                if left := list(self._seen()):
                    return left
        return []

    def _seen(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            # It may end meanwhile, or belong to another user.
            with contextlib.suppress(psutil.Error):
                is_ours = process in self._noted or process.environ().get(MARK) == self._value
                if is_ours and process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
                    yield process


def _command_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return "it has ended meanwhile"
