"""Run a command, and measure its time, its processor time and the memory of all its processes."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

import psutil
from rich.console import Console

CONSOLE: Final = Console(stderr=True)
# Five samples a second are enough for a peak that lasts for seconds.
SAMPLE_S: Final = 0.2


@dataclass(frozen=True)
class Ran:
    """A finished command.

    `cpu_s`: processor time (s) of all its processes; `peak_mb`: their peak resident memory together (MB).
    """

    seconds: float
    cpu_s: float
    peak_mb: float
    code: int
    output: str


def ran(words: Sequence[str]) -> Ran:
    """Run a command and measure its processor time and its memory."""
    CONSOLE.print(" ".join(words), style="dim")
    started, spent_s, peak, ended = time.monotonic(), _children_s(), [0.0], Event()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        watch = Thread(target=_watch, args=(process.pid, peak, ended))
        watch.start()
        output, _ = process.communicate()
        ended.set()
        watch.join()
    seconds, cpu_s = time.monotonic() - started, _children_s() - spent_s
    CONSOLE.print(f"  {seconds:.1f} s, {cpu_s:.1f} CPU-s, {peak[0]:.0f} MB, exit {process.returncode}", style="dim")
    return Ran(seconds, cpu_s, peak[0], process.returncode, output)


def _children_s() -> float:
    """Processor time (s) of all processes that this one has waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _watch(pid: int, peak: list[float], ended: Event) -> None:
    while not ended.wait(SAMPLE_S):
        peak[0] = max(peak[0], _resident_mb(pid))


def _resident_mb(pid: int) -> float:
    # A process may end between listing it and reading its memory.
    total = 0
    try:
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            total += member.memory_info().rss
    except psutil.Error:
        pass
    return total / 2**20
