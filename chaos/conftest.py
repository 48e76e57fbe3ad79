"""`pytest chaos/`: every fault, crash point and mutant. Five processes by default: the tests mostly wait."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from chaos.results import ResultRow
from conformance.environment.prepare import Environment, EnvironmentOptions, prepare
from conformance.environment.prerequisites import CHECKS, required_names

PROCESSES = 5
CLIENTS = "reference,node"
LONGEST_FIRST = ("away-20s", "soak", "containers", "crash_points", "mutants")
"""Parts of the names of the longest tests. They are started first, so that the run does not end with one of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options for the clients and the number of tests."""
    parser.addoption("--chaos-clients", default=CLIENTS, help="comma-separated; default: %(default)s")
    parser.addoption("--chaos-sample", type=int, default=0, help="run this many tests, by the seed; default: all")
    parser.addoption("--chaos-seed", default="0", help="draws the sample; default: %(default)s")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use five processes unless the user gives a number."""
    if "PYTEST_XDIST_WORKER" in os.environ or not config.pluginmanager.hasplugin("xdist"):
        return
    if config.option.numprocesses is None and not config.option.usepdb and not config.option.collectonly:
        config.option.numprocesses = PROCESSES
        config.option.dist = "worksteal"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with a `client` argument for each client."""
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client", metafunc.config.getoption("--chaos-clients").split(","))


def pytest_report_header(config: pytest.Config) -> str:
    """Print the sample and its seed, so that it can be repeated."""
    size, seed = config.getoption("--chaos-sample"), config.getoption("--chaos-seed")
    return f"chaos: {f'a sample of {size}, --chaos-seed {seed}' if size else 'everything'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the sample, and put the longest tests first."""
    size = config.getoption("--chaos-sample")
    if 0 < size < len(items):
        chosen = set(random.Random(config.getoption("--chaos-seed")).sample(items, size))
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
    items.sort(key=lambda item: next((rank for rank, part in enumerate(LONGEST_FIRST) if part in item.nodeid), 99))


@pytest.fixture(scope="session")
def environment() -> Iterator[Environment]:
    """Node, the pinned package, the official scripts, a Redis program."""
    with prepare(EnvironmentOptions(), redis="program") as prepared:
        yield prepared


@pytest.fixture
def docker() -> None:
    """Skip if no Docker engine answers, unless the run requires one (`BULLMQ_CONFORMANCE_REQUIRE=docker`)."""
    missing = CHECKS["docker"]("")
    if missing and "docker" in required_names(""):
        pytest.fail(f"docker is required and missing: {missing}")
    if missing:
        pytest.skip(f"no docker engine answers: {missing}")


def complaint(result: ResultRow) -> str:
    """The findings that count against the client, for the message of a failed test; empty if there are none."""
    rows = [f"memory of {process}: {much}" for process, much in result.growth.items()]
    for name in filter(result.cells.get, result.failed):
        for found in result.cells[name].findings[:5]:
            rows += [f"{name}: {found.job} {found.message}", *(f"    {line}" for line in found.lines[-8:])]
    errors = [f"{process} received: {error}" for process, errors in result.errors.items() for error in errors]
    return "\n".join([*rows, *(errors if rows else []), f"reproduce: {result.reproduce}"]) if rows else ""
