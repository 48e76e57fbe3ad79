"""Disturbances by the machine, of which a run is innocent: drivers are suspended for a while, or all cores are busy."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Event, Thread

import psutil

STOPPED_S = 0.5
CALM_S = 1.0
"""Between two rounds in which every driver is stopped once: on 2 cores each stands still every 3 s."""
BUSY_PROCESSES = 16
BUSY_LOOP = [sys.executable, "-I", "-S", "-c", "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"]
"""Ends with its starter, however that process ends."""
DRIVER_WORDS = ("conformance.reference_impl.driver", "driver.mjs")


def drivers_of(run: int) -> list[psutil.Process]:
    """The drivers that a run, given by its process id, has started up to now."""
    with suppress(psutil.Error):
        return [child for child in psutil.Process(run).children(recursive=True) if _is_driver(child)]
    return []


def _is_driver(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any(word.endswith(DRIVER_WORDS) for word in process.cmdline())
    return False


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """The process stands still inside the block (SIGSTOP, SIGCONT); one that has ended is left alone."""
    with suppress(psutil.Error):
        process.suspend()
    try:
        yield
    finally:
        with suppress(psutil.Error):
            process.resume()


@contextmanager
def stopped_drivers(run: int) -> Iterator[None]:
    """While the block lasts, the drivers of a run are stopped in turns."""
    ended = Event()

    def rounds() -> None:
        while not ended.wait(CALM_S):
            drivers = drivers_of(run)
            random.shuffle(drivers)
            for driver in drivers:
                with stopped(driver):
                    ended.wait(STOPPED_S)

    thread = Thread(target=rounds, name="stops drivers")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def busy_cores(_run: int) -> Iterator[list[psutil.Process]]:
    """While the block lasts, these processes are always runnable."""
    # Each in a session of its own: Linux shares the cores between sessions first, and all of them would count as one.
    processes = [subprocess.Popen(BUSY_LOOP, start_new_session=True) for _ in range(BUSY_PROCESSES)]
    try:
        yield [psutil.Process(process.pid) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


DISTURBANCES: dict[str, Callable[[int], AbstractContextManager[object]]] = {
    "stopped-drivers": stopped_drivers,
    "busy-cores": busy_cores,
}
"""By the name that the command line takes; each is given the process id of the run."""
