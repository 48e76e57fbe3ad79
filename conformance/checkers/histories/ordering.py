"""Whether jobs are claimed in the order that BullMQ documents."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator

from conformance.checkers.histories.base import Finding, HistoryCheck, Tally, Unknown
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.lines import Event
from conformance.checkers.histories.stories import JobStory

ELSEWHERE = frozenset({"waits", "delays", "moved"})
"""Kinds of job that are moved in ways that events do not tell."""


class _Line:
    """What waits in one queue, as far as its events tell. Each step costs O(log n)."""

    def __init__(self) -> None:
        self.wait: OrderedDict[str, bool] = OrderedDict()
        """From the next to the last; False: the place is not known."""
        self._classes: list[tuple[int, int, str]] = []
        self._prioritized: dict[str, tuple[int, int, str]] = {}
        self._inserted = 0

    def to_end(self, job: str, *, certain: bool = True) -> None:
        """Behind all that wait."""
        self.wait[job] = certain
        self.wait.move_to_end(job)

    def to_front(self, job: str) -> None:
        """Next to run."""
        self.wait[job] = True
        self.wait.move_to_end(job, last=False)

    def to_class(self, job: str, priority: int) -> None:
        """Behind the others of this priority."""
        self._inserted += 1
        entry = (priority, self._inserted, job)
        heapq.heappush(self._classes, entry)
        self._prioritized[job] = entry

    def take(self, job: str) -> bool | None:
        """Take a job out; whether it was its turn, None where nobody can tell."""
        if job in self.wait:
            return self._take_waiting(job)
        entry = self._prioritized.get(job)
        if entry is None:
            return None
        while self._prioritized.get(self._classes[0][2]) != self._classes[0]:
            heapq.heappop(self._classes)  # taken out before
        first = self._classes[0] == entry
        del self._prioritized[job]
        return first and not any(self.wait.values())

    def _take_waiting(self, job: str) -> bool | None:
        ahead = next((other for other, certain in self.wait.items() if certain or other == job), job)
        return (ahead == job) if self.wait.pop(job) else None

    def forget(self) -> None:
        """Nothing is known any more."""
        self.wait.clear()
        self._classes.clear()
        self._prioritized.clear()


def _order(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """The next job is the oldest in `wait` (newest of those put in front), and if none waits the first prioritized one.

    Put in front are LIFO jobs, recovered jobs and released parents; promoted and retried ones go to the end.
    """
    for queue, rows in evidence.events_by_queue.items():
        waiting = _Line()
        forget_at = sorted(until for _, until in evidence.rollbacks)
        for index, (event, story) in enumerate(rows):
            if forget_at and event.at_ms >= forget_at[0]:
                forget_at.pop(0)
                waiting.forget()
            if event.name == "waiting":
                following = rows[index + 1][0] if index + 1 < len(rows) else None
                _place(waiting, event, story, following)
            elif event.name == "active":
                turn = waiting.take(event.job)
                if turn is None or (story is not None and evidence.may_be_lost(story)):
                    continue
                tally.look()
                if not turn:
                    message = f"claimed before its turn; before it came {_heads(waiting)}"
                    yield Finding(message=message, job=story.label if story else f"{queue}:{event.job}", lines=(event,))
            elif event.name == "removed":
                waiting.take(event.job)


def _place(waiting: _Line, event: Event, story: JobStory | None, following: Event | None) -> None:
    """Put a job where its event says that it goes."""
    planned = story.planned if story is not None else None
    prev = event.fields.get("prev")
    stalled = following is not None and following.name == "stalled" and following.job == event.job
    if stalled:
        waiting.to_front(event.job)
    elif planned is None or planned.kind in ELSEWHERE:
        waiting.to_end(event.job, certain=False)
    elif planned.priority and prev not in {"completed", "failed"}:
        waiting.to_class(event.job, planned.priority)
    elif prev == "waiting-children" or (planned.lifo and prev in {None, "active", "failed"}):
        waiting.to_front(event.job)
    else:
        waiting.to_end(event.job)


def _heads(waiting: _Line) -> str:
    return ", ".join(list(waiting.wait)[:3]) or "another priority"


CHECKS = (HistoryCheck(name="order", predicate=_order),)
