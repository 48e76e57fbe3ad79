"""Tests that share something dear stay in one process: a JVM, a wheel, a compiled program."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("house")
def test_xdist_keeps_groups_together(request: pytest.FixtureRequest) -> None:
    """xdist's scheduler knows a group by the end of its tests' ids. pytest 9.2 with xdist 3.8 left it out."""
    grouping = request.config.getoption("loadgroup", default=False)
    assert not grouping or request.node.nodeid.endswith("@house")
