"""Which slow tests run depends on nothing but the share and the seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.test_groups import run_pytest
from tests.slow import not_drawn

pytest_plugins = ["pytester"]

MODULE = """
import pytest

def test_quick(): ...

@pytest.mark.slow
@pytest.mark.parametrize("number", range(400))
def test_alone(number): ...
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    pytester.makepyfile(test_some=MODULE)
    return pytester.inline_genitems(pytester.path)[0]


def test_all_or_none(items: list[pytest.Item]) -> None:
    assert not_drawn(items, 1, "") == []
    assert [item.name for item in items if item not in not_drawn(items, 0, "")] == ["test_quick"]


def test_a_share_is_drawn_and_every_seed_draws_other_tests(items: list[pytest.Item]) -> None:
    draws = [frozenset(not_drawn(items, 0.25, f"commit {number}")) for number in range(60)]
    assert all(240 < len(draw) < 360 for draw in draws)
    assert len(set(draws)) == 60
    assert not frozenset.intersection(*draws), "some tests are never drawn"


def test_an_added_test_does_not_change_the_draw(items: list[pytest.Item]) -> None:
    draw = not_drawn(items, 0.25, "seed")
    assert not_drawn(items[1:200] + items[201:], 0.25, "seed") == [item for item in draw if item is not items[200]]


def test_the_closing_lines_name_what_was_not_run(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(MODULE)
    none = run_pytest(tmp_path, "-n", "2", "--dist", "loadgroup", "--slow-share", "0")
    assert "400 slow tests, " in none
    assert "`make test-all` runs everything" in none
    some = run_pytest(tmp_path, "-n", "2", "--dist", "loadgroup", "--slow-share", "0.5", "--slow-seed", "x")
    assert "test_some.py: test_alone[" in some
    assert "not run" not in run_pytest(tmp_path)
