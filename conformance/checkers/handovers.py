"""Jobs that two clients pass to each other: none is lost, and none runs twice without a reason. Pure.

Both clients are judged together, by the final state of the queue and by its event stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from conformance.checkers.base import SnapshotView
from conformance.findings import NOBODY_BLAMED, Finding, Severity
from conformance.observe.tables import Event, Snapshot
from conformance.protocol.keys import PAUSED

LOST = "handover.lost"
"""Locator of a job that no worker will ever get."""
TWICE = "handover.twice"
"""Locator of a job that was started again without a reason."""

_SAYS_WHY_AGAIN = frozenset({"waiting", "delayed", "stalled", "waiting-children", "added"})
"""Events after which a job may be started again."""
_IS_OVER = frozenset({"completed", "failed", "removed", "cleaned", "retries-exhausted"})
"""Events after which a job may be gone."""

_Detail = Iterator[tuple[str, str, str]]
"""Queue, id, and problem."""


def check_handover(snapshot: Snapshot, *, removals: bool, who: str) -> list[Finding]:
    """Jobs that are lost or ran twice. `removals`: whether a client was asked to remove jobs. `who`: who did what."""
    view = SnapshotView(snapshot)
    lost = [_finding(LOST, "lost-job", "lost-jobs", detail, who) for detail in _lost(view, removals=removals)]
    twice = [
        _finding(TWICE, "ran-twice", "wrong-behaviour", detail, who, place=place) for *detail, place in _twice(view)
    ]
    return [*lost, *twice]


def _lost(view: SnapshotView, *, removals: bool) -> _Detail:
    # Sorted, so that the findings of two runs can be compared.
    for queue, job in sorted(view.jobs):
        states = view.states.get((queue, job), [])
        if not states:
            yield queue, job, "it is in no list and in no set from which a worker takes jobs"
        # A running queue is served from `wait` only, so nothing ever claims this job.
        elif states == [PAUSED] and "paused" not in view.snapshot.meta(queue):
            yield queue, job, "it is left in `paused` although the queue runs"
    for row in view.snapshot.deduplications:
        if row.next is not None and not view.has_unfinished(row.queue, row.id):
            yield row.queue, row.next.get("jid", "(kept back)"), f"it is kept back in `dn:{row.id}` and never stored"
    # If a client was asked to remove jobs, a job may rightly be gone without an event of its end.
    for queue, job, events_of_job in [] if removals else _stories(view):
        names = {event.name for event in events_of_job}
        if "added" in names and not names & _IS_OVER and (queue, job) not in view.jobs:
            yield queue, job, "it was added, never ended, and there is nothing left of it"


def _twice(view: SnapshotView) -> Iterator[tuple[str, str, str, str]]:
    """Yield each job that was started again, and the event that is wrong: the second start, or what should say why."""
    for queue, job, events_of_job in _stories(view):
        started = 0
        for event in events_of_job:
            # Any reason resets the count: one stalled check may explain one more start, not two.
            started = started + 1 if event.name == "active" else 0 if event.name in _SAYS_WHY_AGAIN else started
            if started > 1:
                names = [story.name for story in events_of_job]
                silent = names.count("active") == 2 and not _SAYS_WHY_AGAIN & {*names[names.index("active") :]}
                wrong = "event.waiting" if silent else "event.active"
                yield queue, job, "it was started again, and no event says why", wrong
                # One finding per job is enough: every further start has the same cause.
                break


def _stories(view: SnapshotView) -> Iterator[tuple[str, str, list[Event]]]:
    """The events of each job, oldest first."""
    events_of_job: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in view.snapshot.events:
        if event.job:
            events_of_job[event.queue, event.job].append(event)
    yield from ((queue, job, events) for (queue, job), events in sorted(events_of_job.items()))


_STATES: dict[str, Callable[[str], str]] = {
    LOST: "job {} is lost".format,
    TWICE: "job {} ran twice".format,
}


def _finding(
    where: str, kind: str, severity: Severity, detail: Sequence[str], who: str, *, place: str = "membership.state"
) -> Finding:
    queue, job, wrong = detail
    return Finding(
        requirement=NOBODY_BLAMED,
        source="invariant",
        kind=kind,
        severity=severity,
        where=where,
        key=f"{queue}:{job}",
        expected="every job is run once, or is where a worker will find it",
        actual=f"{_STATES[where](job)}: {wrong}",
        message=f"{_STATES[where](job)}: {wrong}; {who}",
        place=place,
    )
