"""Every long test that takes turns by day has its turn."""

from __future__ import annotations

import pytest

from tests.turns import without_a_turn

pytest_plugins = ["pytester"]

MODULE = """
import pytest
pytestmark = pytest.mark.turns(days=3)

@pytest.mark.parametrize("number", range(7))
def test_alone(number): ...

@pytest.mark.turns(days=2, together=True)
@pytest.mark.xdist_group("pair")
@pytest.mark.parametrize("number", range(2))
def test_pair(number): ...

@pytest.mark.turns(days=2, together=True)
@pytest.mark.parametrize("number", range(2))
def test_cases(number): ...
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    """Those of two functions have their turns together, and one takes none."""
    pytester.makepyfile(test_daily="def test_daily(): ...", test_long=MODULE)
    return pytester.inline_genitems(pytester.path)[0]


def test_each_has_one_turn_and_others_run_every_day(items: list[pytest.Item]) -> None:
    run = [
        {item.name for item in items} - {item.name for item in without_a_turn(items, day=day)}
        for day in range(20_000, 20_006)
    ]
    turns = {item.name: sum(item.name in names for names in run) for item in items}
    assert turns == {
        "test_daily": 6,
        **{f"test_alone[{number}]": 2 for number in range(7)},
        **{f"test_pair[{number}]": 3 for number in range(2)},
        **{f"test_cases[{number}]": 3 for number in range(2)},
    }


@pytest.mark.parametrize("together", ["test_pair", "test_cases"])
def test_those_that_share_something_have_theirs_on_the_same_day(items: list[pytest.Item], together: str) -> None:
    for day in range(20_000, 20_002):
        left_out = {item.name for item in without_a_turn(items, day=day)}
        assert (f"{together}[0]" in left_out) == (f"{together}[1]" in left_out)


def test_a_day_deals_out_a_part(items: list[pytest.Item]) -> None:
    left_out = [item.name for item in without_a_turn(items, day=20_000) if item.name.startswith("test_alone")]
    assert 4 <= len(left_out) <= 5
