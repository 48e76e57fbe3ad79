"""`pytest chaos/`: every fault, crash point and mutant. Five processes by default: most of the time is waiting."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from chaos.results import ResultRow
from conformance.environment.prepare import Environment, EnvironmentOptions, prepare
from conformance.environment.prerequisites import CHECKS, required_names

PROCESSES = 5
CLIENTS = "reference,node"
LONGEST_FIRST = ("away-20s", "soak", "containers", "crash_points", "mutants")
"""What is in the names of tests that take longest: begun first, so that nobody waits for one of them in the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which clients."""
    parser.addoption("--chaos-clients", default=CLIENTS, help="comma-separated; default: %(default)s")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use several processes unless the user says how many."""
    if "PYTEST_XDIST_WORKER" in os.environ or not config.pluginmanager.hasplugin("xdist"):
        return
    if config.option.numprocesses is None and not config.option.usepdb and not config.option.collectonly:
        config.option.numprocesses = PROCESSES
        config.option.dist = "worksteal"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take a client run for each."""
    if "client" in metafunc.fixturenames:
        metafunc.parametrize("client", metafunc.config.getoption("--chaos-clients").split(","))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that take longest first."""
    items.sort(key=lambda item: next((rank for rank, part in enumerate(LONGEST_FIRST) if part in item.nodeid), 99))


@pytest.fixture(scope="session")
def environment() -> Iterator[Environment]:
    """Node, the pinned package, the official scripts, a Redis program."""
    with prepare(EnvironmentOptions(), redis="program") as prepared:
        yield prepared


@pytest.fixture
def docker() -> None:
    """Skip where no docker engine answers, unless the run insists on one (`BULLMQ_CONFORMANCE_REQUIRE=docker`)."""
    missing = CHECKS["docker"]("")
    if missing and "docker" in required_names(""):
        pytest.fail(f"docker is required and missing: {missing}")
    if missing:
        pytest.skip(f"no docker engine answers: {missing}")


def complaint(result: ResultRow) -> str:
    """What speaks against the client, for the message of a failed test; empty if nothing does."""
    rows = [f"memory of {process}: {much}" for process, much in result.growth.items()]
    for name in filter(result.cells.get, result.failed):
        for found in result.cells[name].findings[:5]:
            rows += [f"{name}: {found.job} {found.message}", *(f"    {line}" for line in found.lines[-8:])]
    errors = [f"{process} was told: {said}" for process, told in result.errors.items() for said in told]
    return "\n".join([*rows, *(errors if rows else []), f"reproduce: {result.reproduce}"]) if rows else ""
