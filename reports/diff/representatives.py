"""Members that represent a whole container, and the order of lists, from digests alone. No Spark."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conformance.protocol.states import LIST_CONTAINERS, PRIORITY_FACTOR
from reports.diff.columns import Flags, Positions
from reports.diff.prefilter import Numbers
from reports.snapshot.digests.library import Keys
from reports.snapshot.digests.rows import CONTAINERS

_LISTS = [CONTAINERS.index(name) for name in LIST_CONTAINERS]
_DELAYED, _PRIORITIZED = (CONTAINERS.index(name) for name in ("delayed", "prioritized"))
# No array of pyarrow: making one imports pandas, which not every verb that imports this needs.
_REPRESENTATIVE = (*_LISTS, _DELAYED, _PRIORITIZED)


@dataclass(frozen=True)
class FirstMember:
    """The member of a container that comes first, by the number of its job."""

    queue: str
    container: str
    key: int


@dataclass(frozen=True)
class StepBack:
    """A list in which the common jobs have another order on each side.

    `first`: a pair of neighbours of the expected side that the other side has in reverse order, the leftmost one, with
    the left neighbour in front. `steps`: how many such pairs there are.
    """

    queue: str
    container: str
    first: tuple[int, int]
    steps: int


def representative_members(digests: pa.Table | None) -> pa.Table | None:
    """The members of lists, and of containers with jobs that are due later. None where there are none."""
    if digests is None:
        return None
    found = digests.filter(pc.is_in(digests.column("container"), value_set=pa.array(_REPRESENTATIVE, pa.uint8())))
    return found.set_column(0, "queue", found.column("queue").cast(pa.string())) if len(found) else None


class RepresentativeMembers:
    """Such members of a whole store, as columns."""

    def __init__(self, parts: Sequence[pa.Table]) -> None:
        both = pa.concat_tables(parts) if parts else None
        coded = both.column("queue").combine_chunks().view(pa.binary()).dictionary_encode() if both else None
        names = coded.dictionary.to_pylist() if coded is not None else []
        self.queues: list[str] = [name.decode("utf-8", "surrogateescape") for name in names]
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

    def firsts(self) -> list[FirstMember]:
        """Of each container the first: from the left, due first, or with the last counted priority."""
        counter = np.mod(self._number("score"), float(PRIORITY_FACTOR))
        is_counted = (counter > 0) & (counter < PRIORITY_FACTOR / 2)
        rank = np.where(self.container == _DELAYED, self._number("score"), self._number("position"))
        rank = np.where(self.container == _PRIORITIZED, np.where(is_counted, -counter, np.nan), rank)
        known = np.flatnonzero(~np.isnan(rank))
        order = known[np.lexsort((rank[known], self.container[known], self.queue[known]))]
        place = self.queue[order] * len(CONTAINERS) + self.container[order]
        _, first = np.unique(place, return_index=True)
        return [
            FirstMember(self.queues[self.queue[row]], CONTAINERS[self.container[row]], int(self.key[row]))
            for row in order[first].tolist()
        ]

    def positions(self, queue: str, container: str) -> tuple[Keys, Numbers]:
        """The jobs that are in a list once, by number in order, and where they stand."""
        if queue not in self.queues:
            return np.empty(0, np.uint64), np.empty(0, np.float64)
        here: Flags = (self.queue == self.queues.index(queue)) & (self.container == CONTAINERS.index(container))
        keys, rows, counts = np.unique(self.key[here], return_index=True, return_counts=True)
        return keys[counts == 1], self._number("position")[here][rows[counts == 1]]


def steps_back(
    expected: RepresentativeMembers, actual: RepresentativeMembers, moved: Collection[int]
) -> list[StepBack]:
    """Each list in which the common jobs, without those that moved, have another order on each side."""
    lists = [(queue, name) for queue in expected.queues for name in LIST_CONTAINERS]
    found = (_steps_back(queue, name, expected, actual, moved) for queue, name in lists)
    return [each for each in found if each is not None]


def _steps_back(
    queue: str, container: str, expected: RepresentativeMembers, actual: RepresentativeMembers, moved: Collection[int]
) -> StepBack | None:
    left, right = (side.positions(queue, container) for side in (expected, actual))
    keys, rows, others = np.intersect1d(left[0], right[0], assume_unique=True, return_indices=True)
    stayed = ~np.isin(keys, np.array(sorted(moved), np.uint64))
    order = np.argsort(left[1][rows][stayed])
    in_order, places = keys[stayed][order], right[1][others][stayed][order]
    back = np.flatnonzero(places[1:] < places[:-1])
    if not len(back):
        return None
    first = int(back[0])
    return StepBack(queue, container, (int(in_order[first]), int(in_order[first + 1])), len(back))
