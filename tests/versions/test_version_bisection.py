"""The search for releases finds the first changed one, shares its runs, and reports what it cannot find."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from conformance.versions.bisection import BisectionResult, find_releases

RELEASES = [f"5.{number}.0" for number in range(100)]


class Past:
    """Releases with a past: each change is there from its release on. `asked`: the checked releases, in order."""

    def __init__(self, **since: str) -> None:
        self.since = since
        self.asked: list[str] = []
        self.unclear: set[str] = set()

    def look(self, release: str, sought: Collection[str]) -> dict[str, bool | None]:
        self.asked.append(release)
        place = RELEASES.index(release)
        found: dict[str, bool | None] = {target: place >= RELEASES.index(self.since[target]) for target in sought}
        return {target: None if target in self.unclear else held for target, held in found.items()}

    def find(self, **guesses: str) -> dict[str, BisectionResult]:
        sought = {target: {guesses[target]} if target in guesses else set() for target in self.since}
        return find_releases(sought, RELEASES, self.look, lambda _text: None)


@pytest.mark.parametrize("place", [1, 2, 37, 98, 99])
def test_the_first_release_that_is_changed_is_found(place: int) -> None:
    past = Past(change=RELEASES[place])
    assert past.find() == {"change": BisectionResult(RELEASES[place - 1], RELEASES[place])}
    assert len(past.asked) <= 8


def test_both_neighbours_were_checked() -> None:
    past = Past(change="5.37.0")
    past.find()
    assert {"5.36.0", "5.37.0"} <= set(past.asked)


def test_changes_of_one_release_are_sought_together() -> None:
    alone, many = Past(a="5.37.0"), Past(a="5.37.0", b="5.37.0", c="5.37.0")
    alone.find()
    many.find()
    assert many.asked == alone.asked


def test_a_right_guess_is_all_that_is_checked() -> None:
    past = Past(change="5.37.0")
    assert past.find(change="5.37.0")["change"].release == "5.37.0"
    assert past.asked == ["5.37.0", "5.36.0"]


def test_a_wrong_guess_does_no_harm() -> None:
    assert Past(change="5.37.0").find(change="5.80.0") == {"change": BisectionResult("5.36.0", "5.37.0")}
    assert Past(change="5.37.0").find(change="7.0.0") == {"change": BisectionResult("5.36.0", "5.37.0")}


def test_a_difference_that_the_first_release_shows_is_not_a_change() -> None:
    assert Past(change="5.0.0").find() == {"change": BisectionResult(unknown="5.0.0 does so against itself as well")}


def test_an_unclear_change_has_no_release_and_stops_no_other() -> None:
    past = Past(a="5.37.0", b="5.37.0")
    past.unclear = {"a"}
    found = past.find()
    assert found["a"].unknown.endswith("it is not clear")
    assert found["b"].release == "5.37.0"
