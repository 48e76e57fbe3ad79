"""The two containers that Python lacks: Redis' sorted set, and a value with a time to live."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

MADE_ID = "00000000-0000-4000-8000-"
"""How ids begin that stand for random ones."""


class SortedSet:
    """Members by ascending score; equal scores by the bytes of the member, as in Redis.

    Ids that are drawn at random have no known place among equal scores. `guessed` tells that an order was asked for
    which depends on that, since it was set to False.
    """

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}
        self.guessed = False

    def __contains__(self, member: object) -> bool:
        return member in self._scores

    def __len__(self) -> int:
        return len(self._scores)

    def __iter__(self) -> Iterator[str]:
        return iter(self.members())

    def copy(self) -> SortedSet:
        """An independent copy."""
        duplicate = SortedSet()
        duplicate._scores = dict(self._scores)
        return duplicate

    def add(self, member: str, score: float) -> None:
        """Insert a member, or move it to another score."""
        self._scores[member] = float(score)

    def remove(self, member: str) -> bool:
        """Whether the member was there."""
        return self._scores.pop(member, None) is not None

    def score(self, member: str) -> float | None:
        """The member's score; None where it is no member."""
        return self._scores.get(member)

    def members(self) -> list[str]:
        """All members in order."""
        return [member for member, _ in self.items()]

    def items(self) -> list[tuple[str, float]]:
        """Members with scores, in order."""
        ordered = sorted(self._scores.items(), key=lambda item: (item[1], item[0].encode("utf-8", "surrogatepass")))
        for (left, lower), (right, higher) in pairwise(ordered):
            self.guessed |= lower == higher and (MADE_ID in left or MADE_ID in right)
        return ordered

    def between(self, low: float = -math.inf, high: float = math.inf) -> list[str]:
        """Members whose score lies in [low, high], in order."""
        return [member for member, score in self.items() if low <= score <= high]

    def first_score(self) -> float | None:
        """The lowest score; None for an empty set."""
        return min(self._scores.values(), default=None)

    def pop_first(self) -> str | None:
        """Take out the first member; None for an empty set."""
        members = self.members()
        if not members:
            return None
        del self._scores[members[0]]
        return members[0]

    def clear(self) -> None:
        """Take out everything."""
        self._scores.clear()


@dataclass(slots=True)
class Expiring:
    """A string key. `due_ms`: when the server lets it expire, by the server's clock; None: never."""

    value: str
    due_ms: int | None = None

    def ttl_ms(self, server_ms: int) -> int:
        """Time to live as PTTL tells it: -1 for a key that does not expire."""
        return -1 if self.due_ms is None else self.due_ms - server_ms


def list_range(items: list[str], start: int, end: int) -> list[str]:
    """LRANGE and ZRANGE by index: both ends included, negative ones counted from the right."""
    size = len(items)
    first = max(start + size if start < 0 else start, 0)
    last = end + size if end < 0 else end
    return items[first : last + 1] if last >= first else []
