"""What holds for all tests of the kit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import settings

Missing = Callable[[str, str], NoReturn]

REQUIRED = "BULLMQ_CONFORMANCE_REQUIRE"
"""Comma-separated names of what must be there; what is missing is then a failure. CI sets it."""

# How long an example takes depends on what else the machine does; performance is measured in `benchmarks/`.
settings.register_profile("kit", deadline=None)
settings.load_profile("kit")


def pytest_configure() -> None:
    """Heed signals that whoever began this has ignored (a shell that begins it in the background, nohup).

    The programs that tests interrupt would ignore them as well.
    """
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that need Spark, which one process runs one by one: nobody should wait for it at the end."""
    items.sort(key=lambda item: not any(mark.args == ("spark",) for mark in item.iter_markers("xdist_group")))


@pytest.fixture
def missing() -> Missing:
    """Skip the test because of what this machine lacks, or fail it if that is required: name and reason."""

    def give_up(name: str, reason: str) -> NoReturn:
        if name in os.environ.get(REQUIRED, "").split(","):
            pytest.fail(f"{reason}, but {REQUIRED} names {name}")
        pytest.skip(reason)

    return give_up
