"""Suspicious places of a store with their causes, and how many there are of each. No Spark."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from conformance.checkers.base import ViolationDetail, is_plausible_ms
from conformance.checkers.jobs import TIMES
from conformance.checkers.production import StoreView
from conformance.checkers.snapshot_checks import broken
from conformance.checkers.table import StoreCheck
from reports.diff.checks import written_by

MOST_KEPT = 10_000
"""Suspicions of each cause and queue that are kept, and read again in a live store; the others are only counted.

For each queue, so that the jobs on their way in a busy one do not push out what another has; and first those that no
client has changed for the longest time, because jobs on their way have just been changed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A place that breaks a check.

    `key`: the queue and the rest of the key, or the whole key of something foreign. `other`: the key of another job
    that it is about. `since_ms`: since when it must have been so, Unix ms; `not_before_ms`: the last time in the job's
    own fields; None if the store does not show it.
    """

    cause: str
    check: str
    place: str
    severity: str
    key: str
    message: str
    other: str = ""
    since_ms: float | None = None
    not_before_ms: float | None = None

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """The same in all looks that find the same damage."""
        return self.cause, self.key, self.place, self.other


@dataclass(kw_only=True)
class SuspicionTally:
    """Counts by cause and by check, and some suspicions of each cause and queue."""

    counts: Counter[str] = field(default_factory=Counter)
    by_check: Counter[str] = field(default_factory=Counter)
    kept: defaultdict[tuple[str, str], list[Suspicion]] = field(default_factory=lambda: defaultdict(list))

    def add(self, found: Iterable[Suspicion]) -> None:
        """Count suspicions."""
        places: defaultdict[tuple[str, str], list[Suspicion]] = defaultdict(list)
        for suspicion in found:
            places[suspicion.cause, suspicion.key.partition(":")[0]].append(suspicion)
            self.counts[suspicion.cause] += 1
            self.by_check[suspicion.check] += 1
        for place, listed in places.items():
            self._keep(place, listed)

    def merge(self, other: SuspicionTally) -> None:
        """Count everything that another part of the store has."""
        self.counts += other.counts
        self.by_check += other.by_check
        for place, listed in other.kept.items():
            self._keep(place, listed)

    def _keep(self, place: tuple[str, str], listed: Iterable[Suspicion]) -> None:
        self.kept[place] = heapq.nsmallest(MOST_KEPT, [*self.kept[place], *listed], key=_by_age)

    @property
    def total(self) -> int:
        """The number of suspicions."""
        return self.counts.total()

    @property
    def all_kept(self) -> list[Suspicion]:
        """The kept ones of all causes."""
        return [suspicion for _, listed in sorted(self.kept.items()) for suspicion in listed]

    @property
    def kept_by_cause(self) -> dict[str, list[Suspicion]]:
        """The kept ones of each cause."""
        found: dict[str, list[Suspicion]] = {}
        for suspicion in self.all_kept:
            found.setdefault(suspicion.cause, []).append(suspicion)
        return found


def _by_age(found: Suspicion) -> tuple[float, tuple[str, str, str, str]]:
    return found.not_before_ms or 0, found.identity


def suspicions(view: StoreView, checks: Sequence[StoreCheck]) -> Iterator[Suspicion]:
    """Everything that breaks one of these checks, of those that hold for the version of BullMQ that wrote the store."""
    for check, detail in broken(view, checks, written_by(view.snapshot)):
        yield _suspicion(check, detail, view)


def _suspicion(check: StoreCheck, detail: ViolationDetail, view: StoreView) -> Suspicion:
    return Suspicion(
        cause=check.damage_of(detail),
        check=check.name,
        place=detail.where,
        severity=detail.severity or check.severity,
        key=detail.key,
        message=detail.message,
        other=detail.other,
        since_ms=detail.since_ms,
        not_before_ms=_last_time(view, detail.key),
    )


def _last_time(view: StoreView, key: str) -> float | None:
    """The last time in the fields of a job: then a client still changed it."""
    queue, _, name = key.partition(":")
    job = view.jobs.get((queue, name))
    times = [job.number(time) for time in TIMES] if job is not None else []
    return max((time for time in times if time is not None and is_plausible_ms(time)), default=None)
