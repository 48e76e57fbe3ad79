"""Tests marked `slow`: `make test` leaves them out, `make test-all` runs them, and CI a share that the commit draws.

A test is slow if it needs more CPU time than the defects that only it finds are worth (`python -m tests.mutation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any

import pytest

HOW_TO_RUN = "make test-all"


def not_drawn(items: Iterable[pytest.Item], share: float, seed: str) -> list[pytest.Item]:
    """Return the slow tests that do not run; `share` is from 0 to 1.

    The draw depends on the test's name and the seed only, so an added test does not change whether another one runs.
    """
    return [item for item in items if item.get_closest_marker("slow") and _number(seed, item.nodeid) >= share]


def _number(seed: str, name: str) -> float:
    """A number from 0 to less than 1, evenly distributed."""
    return int.from_bytes(sha256(f"{seed}:{name}".encode()).digest()[:6]) / 2**48


class SlowTests:
    """The pytest plugin that leaves slow tests out, and says so at the end."""

    def __init__(self, share: float, seed: str) -> None:
        self._share, self._seed = share, seed
        self._left_out: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect what is not drawn. A test with a JVM is slow without a mark."""
        for item in items:
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.slow)
        some = not_drawn(items, self._share, self._seed)
        if some:
            config.hook.pytest_deselected(items=some)
            ids = set(map(id, some))
            items[:] = [item for item in items if id(item) not in ids]
        self._left_out = [item.nodeid for item in some]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the names from a process of xdist to the one that prints the summary."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["slow_left_out"] = self._left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive them: every process collects the same tests."""
        self._left_out = getattr(node, "workeroutput", {}).get("slow_left_out", self._left_out)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how many tests were left out and how to run them; with a share, also their names."""
        if not self._left_out:
            return
        terminalreporter.section("not run")
        if self._share:
            for line in names_by_module(self._left_out):
                terminalreporter.write_line(line)
        terminalreporter.write_line(
            f"{len(self._left_out)} slow tests, the whole tiers on both clients, chaos, proofs of bugs, and mutants "
            f"were not run: `{HOW_TO_RUN}` runs everything"
        )


def names_by_module(ids: Sequence[str]) -> list[str]:
    """One line per module: its path, and the names of its tests."""
    parts = [node_id.partition("::")[::2] for node_id in ids]
    return [
        f"{module}: {', '.join(name for _, name in group)}"
        for module, group in groupby(parts, key=lambda part: part[0])
    ]
