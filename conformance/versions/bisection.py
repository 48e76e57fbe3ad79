"""Finds the releases that introduced changes: one binary search for all changes, which share the runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Target = TypeVar("Target")


Probe = Callable[[str, Collection[Target]], Mapping[Target, bool | None]]
"""Runs one release: for each target, whether that release has the change; None if it is unclear."""


@dataclass(frozen=True)
class BisectionResult:
    """The release of a change: `release` shows it, and `last_before`, the release before, does not. Both were run.

    If it was not found, both are empty, and `unknown` is the reason.
    """

    last_before: str = ""
    release: str = ""
    unknown: str = ""


@dataclass
class _Interval:
    """Indices in the list of releases: `low` is unchanged, `high` is changed. -1: no unchanged release is known."""

    low: int
    high: int
    unclear: str = ""

    @property
    def middle(self) -> int | None:
        """The next release to run; None at the end of the search."""
        if self.unclear or self.high - self.low <= 1:
            return None
        return (self.low + self.high) // 2


def find_releases(
    targets: Mapping[Target, Collection[str]],
    releases: Sequence[str],
    look: Probe[Target],
    announce: Callable[[str], None],
) -> dict[Target, BisectionResult]:
    """The release of each change. `releases`: oldest first; the last one is known to have all changes.

    `targets`: each change with the releases that the ledger names for it; these and the releases before them are run
    first. A change that the first release already shows has no release, and `unknown` says so. For an intermittent
    change, one of its releases is found.
    """
    search = _Search(releases, look, announce, {target: _Interval(-1, len(releases) - 1) for target in targets})
    # The releases that the ledger names come first: if they are right, two runs per change are enough.
    for guess, release in enumerate(releases):
        guessed = [target for target, guesses in targets.items() if release in guesses]
        search.ask(guess, guessed)
        # The release before it too: only both together prove where the change came.
        search.ask(guess - 1, guessed)
    for _ in releases:  # each run rules out at least one release, for at least one change
        place = search.next_place()
        if place is None:
            break
        search.ask(place, search.intervals)
    return {target: search.found(target) for target in targets}


@dataclass
class _Search(Generic[Target]):
    releases: Sequence[str]
    look: Probe[Target]
    announce: Callable[[str], None]
    intervals: dict[Target, _Interval]

    def next_place(self) -> int | None:
        """The middle of the widest interval: its result also narrows all overlapping intervals."""
        widest = sorted(self.intervals.values(), key=lambda interval: interval.low - interval.high)
        return next((middle for interval in widest if (middle := interval.middle) is not None), None)

    def ask(self, place: int, among: Collection[Target]) -> None:
        """Run one release for the targets whose interval contains it."""
        inside = [(target, self.intervals[target]) for target in among]
        # A release outside an interval cannot narrow it.
        asked = [target for target, it in inside if it.low < place < it.high and not it.unclear]
        if not asked:
            return
        self.announce(f"running {self.releases[place]} for {len(asked)} of {len(self.intervals)} changes")
        answers = self.look(self.releases[place], asked)
        for target in asked:
            self._narrow(self.intervals[target], place, answers.get(target))

    def _narrow(self, interval: _Interval, place: int, changed: bool | None) -> None:
        release = self.releases[place]
        # Further runs could not decide it, because the search would need this one's result.
        if changed is None:
            interval.unclear = f"with {release} it is not clear"
        elif changed and place == 0:
            interval.unclear = f"{release} does so against itself as well"
        elif changed:
            interval.high = place
        else:
            interval.low = place

    def found(self, target: Target) -> BisectionResult:
        interval = self.intervals[target]
        if interval.unclear:
            return BisectionResult(unknown=interval.unclear)
        return BisectionResult(self.releases[interval.low], self.releases[interval.high])
