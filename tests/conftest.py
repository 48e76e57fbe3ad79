"""What holds for all tests of the kit."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from conformance import garbage

Missing = Callable[[str, str], NoReturn]

REQUIRED = "BULLMQ_CONFORMANCE_REQUIRE"
"""Comma-separated names of what must be there; what is missing is then a failure. CI sets it."""

# How long an example takes depends on what else the machine does; performance is measured in `benchmarks/`.
settings.register_profile("kit", deadline=None)
settings.load_profile("kit")


SPARK = "spark"
"""The group of the tests that share one JVM."""

LONG = (
    "end_to_end/test_limited_clients.py",
    "chaos/test_chaos_campaign.py",
    "packaging/test_gate.py",
    "cli/test_cli_signals.py",
    "fuzz/test_fuzz_campaign.py",
    "end_to_end/test_whole_runs.py",
    "chaos/test_chaos_runs.py",
    "mutants/test_mutants_matrix.py",
    "mutants/test_generated_hunts.py",
    "cli/test_cli_runs.py",
    "cli/test_cli_endings.py",
)
"""Modules that take longer than others (the longest test first): begun early, and shared between processes."""

_HERE = Path(__file__).parent
_SCENARIOS = _HERE.parent / "conformance"
_MATRIX = _HERE / "mutants" / "test_mutants_matrix.py"
PLAYERS = {"scenarios": 2, "matrix": 3}
"""So many processes play what mostly waits.

Each has an oracle, a client and a Redis of its own to start and to warm up; and if all of them waited at one time,
nobody would be left for whom the processors could work.
"""


def pytest_configure(config: pytest.Config) -> None:
    """Heed signals that whoever began this has ignored (a shell that begins it in the background, nohup).

    The programs that tests interrupt would ignore them as well. And tests are begun in the order of this file: xdist
    would begin with the modules that have most tests, and end with the longest.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    config.option.loadscopereorder = False
    garbage.seldom_looked_for()


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
    """Keep a module in one process, which prepares once what its tests share, and begin with what takes longest."""
    ranks = {module: _rank(module) for module in {item.path for item in items}}
    played = {
        "scenarios": [item for item in items if ranks[item.path] < 0],
        "matrix": [item for item in items if item.path == _MATRIX],
    }
    for name, tests in played.items():
        for number, item in enumerate(tests):
            item.add_marker(pytest.mark.xdist_group(f"{name}-{number % PLAYERS[name]}"))
    by_itself = {
        module: pytest.mark.xdist_group(module.relative_to(_HERE).as_posix())
        for module, rank in ranks.items()
        if rank == len(LONG) and _HERE in module.parents
    }
    place = {}
    for item in items:
        group = item.get_closest_marker("xdist_group")
        if group is None and item.path in by_itself:
            item.add_marker(by_itself[item.path])
        place[item] = (group is None or group.args != (SPARK,), ranks[item.path])
    items.sort(key=place.__getitem__)


def _rank(module: Path) -> int:
    """The place of a module in LONG, or behind all of them; scenarios before all, because they mostly wait."""
    if _SCENARIOS in module.parents:
        return -1
    name = module.relative_to(_HERE).as_posix() if _HERE in module.parents else ""
    return LONG.index(name) if name in LONG else len(LONG)


@pytest.fixture(scope="session")
def missing() -> Missing:
    """Skip the test because of what this machine lacks, or fail it if that is required: name and reason."""

    def give_up(name: str, reason: str) -> NoReturn:
        if name in os.environ.get(REQUIRED, "").split(","):
            pytest.fail(f"{reason}, but {REQUIRED} names {name}")
        pytest.skip(reason)

    return give_up
