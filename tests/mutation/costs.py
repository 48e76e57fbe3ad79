"""A pytest plugin (`-p tests.mutation.costs`): the CPU time of each test with its processes, and which fail."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

FOLDER = "KIT_MUTATION_COSTS"
FAILED = "KIT_MUTATION_FAILED"
"""The variable with the file that gets the name of a test that fails."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the name of a test that fails."""
    if report.failed and (path := os.environ.get(FAILED)):
        Path(path).write_text(report.nodeid, "utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Write one line per test: its id, CPU time (s) and wall time (s)."""
    if FOLDER not in os.environ:
        return (yield)
    cpu, wall = _cpu_s(), time.monotonic()
    try:
        return (yield)
    finally:
        line = {"test": item.nodeid, "cpu_s": _cpu_s() - cpu, "wall_s": time.monotonic() - wall}
        with (Path(os.environ[FOLDER]) / f"costs-{os.getpid()}").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _cpu_s() -> float:
    """CPU time of this process, of its ended children, and of its running descendants."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
