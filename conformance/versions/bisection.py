"""In which release each of many changes came: one binary search for all of them, which shares what is played. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Target = TypeVar("Target")


Probe = Callable[[str, Collection[Target]], Mapping[Target, bool | None]]
"""Plays one release: for each thing that is targets, whether that release is changed; None for what is not clear."""


@dataclass(frozen=True)
class BisectionResult:
    """Where a change came: `release` shows it, and `last_before`, the release before, does not. Both were looked at.

    Where it was not found, both are empty, and `unknown` says why.
    """

    last_before: str = ""
    release: str = ""
    unknown: str = ""


@dataclass
class _Interval:
    """Places in the list of releases: at `low` it is unchanged, at `high` changed; -1: not even the first was seen."""

    low: int
    high: int
    unclear: str = ""

    @property
    def middle(self) -> int | None:
        """Where to look next; None when the search has ended."""
        if self.unclear or self.high - self.low <= 1:
            return None
        return (self.low + self.high) // 2


def find_releases(
    targets: Mapping[Target, Collection[str]],
    releases: Sequence[str],
    look: Probe[Target],
    announce: Callable[[str], None],
) -> dict[Target, BisectionResult]:
    """The release in which each change came. `releases`: oldest first; the last one has been seen to be changed.

    `targets`: each change with the releases in which somebody says that it came; they and the releases before them are
    looked at first. What the first release shows as well has no release, and `unknown` says it. A change that came,
    went and came again is found where it came once.
    """
    search = _Search(releases, look, announce, {each: _Interval(-1, len(releases) - 1) for each in targets})
    for guess, release in enumerate(releases):
        guessed = [each for each, guesses in targets.items() if release in guesses]
        search.ask(guess, guessed)
        search.ask(guess - 1, guessed)
    for _ in releases:  # each question rules at least one release out, for at least one change
        place = search.next_place()
        if place is None:
            break
        search.ask(place, search.intervals)
    return {each: search.found(each) for each in targets}


@dataclass
class _Search(Generic[Target]):
    releases: Sequence[str]
    look: Probe[Target]
    announce: Callable[[str], None]
    intervals: dict[Target, _Interval]

    def next_place(self) -> int | None:
        """The middle of the widest interval: what is learned there is learned for all intervals around it."""
        widest = sorted(self.intervals.values(), key=lambda interval: interval.low - interval.high)
        return next((middle for interval in widest if (middle := interval.middle) is not None), None)

    def ask(self, place: int, among: Collection[Target]) -> None:
        """Probe at one release for those whose interval it is in."""
        inside = [(each, self.intervals[each]) for each in among]
        asked = [each for each, it in inside if it.low < place < it.high and not it.unclear]
        if not asked:
            return
        self.announce(f"looking at {self.releases[place]} for {len(asked)} of {len(self.intervals)} changes")
        answers = self.look(self.releases[place], asked)
        for each in asked:
            self._narrow(self.intervals[each], place, answers.get(each))

    def _narrow(self, interval: _Interval, place: int, changed: bool | None) -> None:
        release = self.releases[place]
        if changed is None:
            interval.unclear = f"with {release} it is not clear"
        elif changed and place == 0:
            interval.unclear = f"{release} does so against itself as well"
        elif changed:
            interval.high = place
        else:
            interval.low = place

    def found(self, each: Target) -> BisectionResult:
        interval = self.intervals[each]
        if interval.unclear:
            return BisectionResult(unknown=interval.unclear)
        return BisectionResult(self.releases[interval.low], self.releases[interval.high])
