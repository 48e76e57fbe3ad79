"""Keeps pytest's own output off the screen: the program shows a run in its own words."""

from __future__ import annotations

import io

import pytest
from _pytest.terminal import TerminalReporter


class QuietPytest:
    """Sends what pytest would print into `output`, where it is found if pytest itself breaks."""

    def __init__(self) -> None:
        self.output = io.StringIO()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Replace the reporter by one that writes elsewhere; xdist and others still find it under its name."""
        manager = config.pluginmanager
        loud = manager.get_plugin("terminalreporter")
        if loud is not None:
            manager.unregister(loud)
            manager.register(TerminalReporter(config, self.output), "terminalreporter")
