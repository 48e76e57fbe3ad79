"""A changed module reports when it comes to the change, for every kind of statement that is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.mutants.generated.arrival import ARRIVED, Arrival, ArrivingScripts, with_arrival
from conformance.reference_impl.scripts.runner import ScriptTexts

TEXT = '''
"""A module."""
from __future__ import annotations
LIMIT = 3
def used(number: int, most: int = 9) -> int:
    """A function."""
    if number > LIMIT:
        return most
    elif number > 2 or sum(each for each in (1, 2)) > 5:
        number += 1
    def inner() -> int:
        return -7
    try:
        return inner() if number else int("x")
    except ValueError:
        return 11
'''.strip()


@pytest.mark.parametrize(
    ("changed", "argument", "arrives"),
    [
        ("= 3", 1, True),
        ("most: int", 1, True),
        ("number > LIMIT", 1, True),
        ("return most", 1, False),
        ("return most", 4, True),
        ("number > 2", 4, False),
        ("number > 2", 1, True),
        ("(1, 2)", 1, True),
        ("+= 1", 1, False),
        ("+= 1", 3, True),
        ("-7", 1, True),
        ("-7", 0, False),
        ("11", 1, False),
        ("11", 0, True),
    ],
)
def test_it_reports_its_arrival(changed: str, argument: int, *, arrives: bool) -> None:
    arrivals: list[int] = []
    module: dict[str, Any] = {ARRIVED: lambda: arrivals.append(1)}
    exec(compile(with_arrival(TEXT.encode(), TEXT.index(changed)), "module", "exec"), module)  # noqa: S102 - as a loader
    module["used"](argument)
    assert bool(arrivals) == arrives


def test_the_file_is_made_once(tmp_path: Path) -> None:
    arrival = Arrival(tmp_path / "arrived")
    arrival()
    (tmp_path / "arrived").unlink()
    arrival()
    assert list(tmp_path.iterdir()) == []
    Arrival(None)()


def test_a_changed_script_is_reached_when_it_is_wanted(scripts: ScriptTexts) -> None:
    arrivals: list[int] = []
    watched = ArrivingScripts(scripts, "drain", lambda: arrivals.append(1))
    assert (list(watched), len(watched)) == (list(scripts), len(scripts))
    assert (watched["pause"], arrivals) == (scripts["pause"], [])
    assert (watched["drain"], arrivals) == (scripts["drain"], [1])
