"""Members that represent a whole container, and the order of lists, from digests alone. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from conformance.protocol.states import LIST_CONTAINERS, PRIORITY_FACTOR
from reports.diff.equality import JobDigests, Numbers
from reports.snapshot.digests.records import Flags, Keys, Positions
from reports.snapshot.digests.rows import CONTAINERS
from reports.snapshot.rows import as_text

_LISTS = [CONTAINERS.index(name) for name in LIST_CONTAINERS]
_DELAYED, _PRIORITIZED = (CONTAINERS.index(name) for name in ("delayed", "prioritized"))
_REPRESENTATIVE = (*_LISTS, _DELAYED, _PRIORITIZED)


@dataclass(frozen=True, order=True)
class FirstMember:
    """The member of a container that comes first: its rank, the number of its job, and the bucket of that job."""

    rank: float
    key: int
    bucket: int


QueueContainer: TypeAlias = tuple[str, str]
"""A queue, and the name of a container."""


@dataclass(frozen=True, kw_only=True)
class SideFacts:
    """Facts about one side of a bucket, or of several, that the checks of whole queues need.

    `largest`: the largest generated id of each queue. `firsts`: the member that comes first. `loose`: buckets with
    events that belong to no job.
    """

    largest: Mapping[str, int]
    firsts: Mapping[QueueContainer, FirstMember]
    loose: frozenset[int]


NO_FACTS = SideFacts(largest={}, firsts={}, loose=frozenset())


def merged_facts(parts: Iterable[SideFacts]) -> SideFacts:
    """The facts about all buckets together."""
    largest: dict[str, int] = {}
    firsts: dict[QueueContainer, FirstMember] = {}
    loose: set[int] = set()
    for part in parts:
        for queue, number in part.largest.items():
            largest[queue] = max(number, largest.get(queue, 0))
        for place, first in part.firsts.items():
            firsts[place] = min(first, firsts.get(place, first))
        loose |= part.loose
    return SideFacts(largest=largest, firsts=firsts, loose=frozenset(loose))


def facts_of(side: JobDigests, bucket: int) -> SideFacts:
    """The facts about one side of a bucket."""
    members = MemberColumns([side.tables["memberships"]] if "memberships" in side.tables else [])
    return SideFacts(
        largest=_largest_ids(side),
        firsts=members.firsts(bucket),
        loose=frozenset([bucket] if side.has_loose_events else []),
    )


def _largest_ids(side: JobDigests) -> dict[str, int]:
    jobs = side.tables.get("jobs")
    if jobs is None:
        return {}
    counted = jobs.select(["queue", "number"]).set_column(0, "queue", jobs.column("queue").cast(pa.string()))
    largest = counted.group_by("queue").aggregate([("number", "max")])
    names = largest.column("queue").combine_chunks().view(pa.binary()).to_pylist()
    numbers = largest.column("number_max").to_pylist()
    return {as_text(name): number for name, number in zip(names, numbers, strict=True) if number > 0}


class MemberColumns:
    """The members of lists, and of containers with jobs that are due later, as columns."""

    def __init__(self, parts: Sequence[pa.Table]) -> None:
        chosen = [
            part.filter(pa.array(np.isin(part.column("container").to_numpy(), _REPRESENTATIVE))) for part in parts
        ]
        found = [part.set_column(0, "queue", part.column("queue").cast(pa.string())) for part in chosen if len(part)]
        both = pa.concat_tables(found) if found else None
        coded = both.column("queue").combine_chunks().view(pa.binary()).dictionary_encode() if both else None
        self.queues: list[str] = [] if coded is None else [as_text(name) for name in coded.dictionary.to_pylist()]
        self.queue: Positions = np.empty(0, np.int64) if coded is None else coded.indices.to_numpy().astype(np.int64)
        self.key: Keys = np.empty(0, np.uint64) if both is None else both.column("key").to_numpy()
        self.container: Positions = (
            np.empty(0, np.int64) if both is None else both.column("container").to_numpy().astype(np.int64)
        )
        self._both = both

    def _number(self, name: str) -> Numbers:
        if self._both is None:
            return np.empty(0, np.float64)
        found: Numbers = self._both.column(name).cast(pa.float64(), safe=False).to_numpy()
        return found

    def firsts(self, bucket: int) -> dict[QueueContainer, FirstMember]:
        """Of each container the first: from the left, due first, or with the last counted priority."""
        counter = np.mod(self._number("score"), float(PRIORITY_FACTOR))
        is_counted = (counter > 0) & (counter < PRIORITY_FACTOR / 2)
        rank = np.where(self.container == _DELAYED, self._number("score"), self._number("position"))
        rank = np.where(self.container == _PRIORITIZED, np.where(is_counted, -counter, np.nan), rank)
        known = np.flatnonzero(~np.isnan(rank))
        order = known[np.lexsort((rank[known], self.container[known], self.queue[known]))]
        place = self.queue[order] * len(CONTAINERS) + self.container[order]
        _, first = np.unique(place, return_index=True)
        return {
            (self.queues[self.queue[row]], CONTAINERS[self.container[row]]): FirstMember(
                float(rank[row]), int(self.key[row]), bucket
            )
            for row in order[first].tolist()
        }

    def lists(self) -> set[QueueContainer]:
        """The lists that have members."""
        is_list = np.isin(self.container, _LISTS)
        places = np.unique(self.queue[is_list] * len(CONTAINERS) + self.container[is_list]).tolist()
        return {(self.queues[place // len(CONTAINERS)], CONTAINERS[place % len(CONTAINERS)]) for place in places}

    def positions(self, place: QueueContainer) -> tuple[Keys, Numbers]:
        """The jobs that are in a list once, by number in order, with their positions."""
        queue, container = place
        if queue not in self.queues:
            return np.empty(0, np.uint64), np.empty(0, np.float64)
        here: Flags = (self.queue == self.queues.index(queue)) & (self.container == CONTAINERS.index(container))
        keys, rows, counts = np.unique(self.key[here], return_index=True, return_counts=True)
        return keys[counts == 1], self._number("position")[here][rows[counts == 1]]


def shifts_of(sides: Sequence[JobDigests]) -> dict[QueueContainer, tuple[float, float]]:
    """For each list how far its common members have moved: the least and the most.

    If both are the same over all buckets, the order is the same: nothing has to be sorted.
    """
    left, right = (
        MemberColumns([side.tables["memberships"]] if "memberships" in side.tables else []) for side in sides
    )
    found: dict[QueueContainer, tuple[float, float]] = {}
    for place in left.lists() & right.lists():
        (keys, before), (others, after) = left.positions(place), right.positions(place)
        _, rows, there = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
        if len(rows):
            moved = after[there] - before[rows]
            found[place] = (float(moved.min()), float(moved.max()))
    return found


def reordered_lists(parts: Iterable[Mapping[QueueContainer, tuple[float, float]]]) -> list[QueueContainer]:
    """The lists whose common members have not all moved by the same number of places."""
    found: dict[QueueContainer, tuple[float, float]] = {}
    for part in parts:
        for place, (least, most) in part.items():
            known = found.get(place, (least, most))
            found[place] = (min(least, known[0]), max(most, known[1]))
    return sorted(place for place, (least, most) in found.items() if least != most)


@dataclass(frozen=True)
class StepBack:
    """A list in which the common jobs have another order on each side.

    `first`: a pair of neighbours of the expected side that the other side has in reverse order, the leftmost one, with
    the left neighbour in front. `steps`: how many such pairs there are.
    """

    place: QueueContainer
    first: tuple[int, int]
    steps: int


def step_back(
    place: QueueContainer, expected: MemberColumns, actual: MemberColumns, moved: Collection[int]
) -> StepBack | None:
    """The change of order in a list, without the jobs that moved; None if the order is the same."""
    left, right = (side.positions(place) for side in (expected, actual))
    keys, rows, others = np.intersect1d(left[0], right[0], assume_unique=True, return_indices=True)
    stayed = ~np.isin(keys, np.array(sorted(moved), np.uint64))
    order = np.argsort(left[1][rows][stayed])
    in_order, places = keys[stayed][order], right[1][others][stayed][order]
    back = np.flatnonzero(places[1:] < places[:-1])
    if not len(back):
        return None
    first = int(back[0])
    return StepBack(place, (int(in_order[first]), int(in_order[first + 1])), len(back))
