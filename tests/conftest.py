"""Settings for all tests of the kit."""

from __future__ import annotations

import gc
import math
import os
import signal
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from conformance.environment import garbage
from tests.slow import SlowTests

Missing = Callable[[str, str], NoReturn]

REQUIRED = "BULLMQ_CONFORMANCE_REQUIRE"
"""Comma-separated names of what must be there; what is missing is then a failure. CI sets it."""

# How long an example takes depends on what else the machine does; performance is measured in `benchmarks/`. Examples
# are the same in every run: new ones are the work of `fuzz`.
settings.register_profile("kit", deadline=None, derandomize=True)
settings.load_profile("kit")

SPARK = "spark"
"""The group of the tests that share one JVM."""

_HERE = Path(__file__).parent
_SCENARIOS = _HERE.parent / "conformance"
SCENARIO_PROCESSES = 2
"""Processes that run the scenarios. Each needs an oracle, a client and a Redis to start and to warm up."""


def pytest_configure(config: pytest.Config) -> None:
    """Restore signal handlers, and keep the order of the tests.

    A shell that starts pytest in the background, or nohup, ignores signals, and the programs that tests interrupt would
    inherit that. xdist would start with the modules that have most tests and end with the longest ones.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    config.option.loadscopereorder = False
    config.addinivalue_line(
        "markers",
        "long(place, processes=None): a module that takes long: it starts early, in the order of the places, and its "
        "tests are shared between all processes, or that many",
    )
    config.addinivalue_line("markers", "slow: not part of `make test`, but of `make test-all`")
    config.pluginmanager.register(SlowTests(config.getoption("slow_share"), config.getoption("slow_seed")))
    garbage.raise_thresholds()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for slow tests, and that with which a second run repeats the skipped ones."""
    parser.addoption(
        "--slow-share", metavar="SHARE", type=float, default=1.0, help="share of the slow tests that run, from 0 to 1"
    )
    parser.addoption(
        "--slow-seed", metavar="TEXT", default="", help="draws them: a commit runs the same ones every time"
    )
    parser.addoption(
        "--write-skipped",
        metavar="FILE",
        help="write the ids of the tests that were skipped, one a line: `pytest @FILE` runs them on another machine",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the ids of the skipped tests, without the group that xdist appends to them."""
    if path := config.getoption("write_skipped"):
        skipped = [report.nodeid for report in terminalreporter.stats.get("skipped", [])]
        Path(path).write_text("".join(f"{_without_group(node_id)}\n" for node_id in skipped), "utf-8")


def _without_group(node_id: str) -> str:
    name, bracket, rest = node_id.rpartition("]")
    return name + bracket + rest.split("@")[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among thousands of tests, neither while they are collected nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, and keep each other module in one process, which prepares once what it shares."""
    places = {item: _place(item) for item in items}
    for number, item in enumerate(items):
        group = _group(item, number)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (not _is_in_group(item, SPARK), places[item]))


def _place(item: pytest.Item) -> float:
    """Scenarios first, because they mostly wait; then the modules marked `long` in their order, then all others."""
    long = item.get_closest_marker("long")
    return 0 if _is_scenario(item.path) else float(long.args[0]) if long else math.inf


def _group(item: pytest.Item, number: int) -> str:
    """The name of the process that runs this test; empty: any process.

    Tests that mostly wait are limited to a few processes: if all processes waited, the cores would be idle.
    """
    if _is_scenario(item.path):
        return f"scenarios-{number % SCENARIO_PROCESSES}"
    long = item.get_closest_marker("long")
    if long is None:
        return _module(item.path)
    if "processes" in long.kwargs:
        return f"{item.path.stem}-{number % long.kwargs['processes']}"
    return ""


@cache
def _is_scenario(path: Path) -> bool:
    return _SCENARIOS in path.parents


@cache
def _module(path: Path) -> str:
    return path.relative_to(_HERE).as_posix() if _HERE in path.parents else ""


def _is_in_group(item: pytest.Item, name: str) -> bool:
    group = item.get_closest_marker("xdist_group")
    return group is not None and group.args == (name,)


@pytest.fixture(scope="session")
def missing() -> Missing:
    """Skip the test because of what this machine lacks, or fail it if that is required: name and reason."""

    def give_up(name: str, reason: str) -> NoReturn:
        if name in os.environ.get(REQUIRED, "").split(","):
            pytest.fail(f"{reason}, but {REQUIRED} names {name}")
        pytest.skip(reason)

    return give_up
