"""Long tests that take turns by day, because all of them every day would take longer than CI has.

`@pytest.mark.turns(days=5)` on a test or a module: each test has its turn on one of five days. Without the option
`--turns-of DAY`, pytest runs all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from zlib import crc32

import pytest


def without_a_turn(items: Sequence[pytest.Item], *, day: int) -> list[pytest.Item]:
    """Return the tests whose turn is on another day than `day` (any number that grows by one each day).

    The tests of a module are dealt out to the days in their order. With `together=True` the tests that share what they
    prepare have their turn on the same day: those of a group of pytest-xdist, else all cases of a function.
    """
    marked = [item for item in items if item.get_closest_marker("turns")]
    return [
        item
        for path, of_module in groupby(marked, key=lambda item: item.path)
        for place, together in enumerate(_together(list(of_module)))
        for item in together
        if (place + crc32(path.stem.encode()) - day) % _days(item)
    ]


def _together(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    parts: dict[str, list[pytest.Item]] = {}
    for item in items:
        parts.setdefault(_sharing(item), []).append(item)
    return list(parts.values())


def _sharing(item: pytest.Item) -> str:
    if not _marker(item).get("together"):
        return item.nodeid
    group = item.get_closest_marker("xdist_group")
    return str(group.args[0]) if group else item.nodeid.partition("[")[0]


def _days(item: pytest.Item) -> int:
    return int(str(_marker(item)["days"]))


def _marker(item: pytest.Item) -> Mapping[str, object]:
    marker = item.get_closest_marker("turns")
    assert marker is not None
    return marker.kwargs
