"""Whether events tell a life that a job can have, and whether parents go on when their children have ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.checkers.base import View
from conformance.checkers.histories.base import Finding, HistoryCheck, Tally, Unknown
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.lines import Event, RunEnded
from conformance.checkers.histories.stories import JobStory

ALLOWED: Mapping[str, frozenset[str]] = {
    "added": frozenset({""}),
    "waiting": frozenset({"added", "delayed", "active", "failed", "completed", "waiting-children"}),
    "delayed": frozenset({"added", "active", "delayed"}),
    "waiting-children": frozenset({"added", "active"}),
    "active": frozenset({"waiting"}),
    "completed": frozenset({"active"}),
    "failed": frozenset({"active"}),
    "removed": frozenset({"added", "waiting", "delayed", "active", "failed", "completed", "waiting-children"}),
}
"""From which states an event may lead; the event's name is the state after it."""
CONTAINERS: Mapping[str, frozenset[str]] = {
    "waiting": frozenset({"wait", "paused", "prioritized"}),
    "removed": frozenset(),
}
"""Where a job is after the event; by default in the container of the event's name."""


def _events(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """The events of a job tell transitions that exist, each from where the last one led, and the end agrees with them.

    A `stalled` follows directly upon the return to wait that it tells of.
    """
    view = View(evidence.snapshot) if evidence.snapshot is not None and evidence.at_rest else None
    if view is None:
        yield Unknown("the last events could not be compared with a snapshot")
    for story in evidence.certain():
        if not story.events:
            continue
        tally.look()
        yield from _life(story)
        if view is not None:
            yield from _end(story, view)


def _life(story: JobStory) -> Iterator[Finding]:
    state = "" if story.events[0].name == "added" else "?"
    before: Event | None = None
    for event in story.events:
        if event.name == "stalled" and (before is None or before.fields.get("prev") != "active"):
            yield Finding(message="`stalled` without a return to wait", job=story.label, lines=tuple(story.events))
        if event.name not in ALLOWED:
            continue
        prev = event.fields.get("prev")
        if state != "?" and state not in ALLOWED[event.name]:
            message = f"`{event.name}` of a job that is {state or 'not there'}"
            yield Finding(message=message, job=story.label, lines=tuple(story.events))
        elif event.name == "waiting" and prev and state not in {"?", prev}:
            message = f"`waiting` from {prev}, and the job was {state}"
            yield Finding(message=message, job=story.label, lines=tuple(story.events))
        state, before = event.name, event


def _end(story: JobStory, view: View) -> Iterator[Finding]:
    told = [event.name for event in story.events if event.name in ALLOWED]
    states = view.states.get((story.queue, story.id), [])
    if not told or len(states) != 1 or told[-1] == "added":
        return
    expected = CONTAINERS.get(told[-1], frozenset({told[-1]}))
    if states[0] not in expected:
        message = f"the last event is `{told[-1]}`, and the job is in {states[0]}"
        yield Finding(message=message, job=story.label, lines=tuple(story.events[-3:]))


def _parents(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """A parent leaves waiting-children exactly once, not before its last child has completed, and knows all of them."""
    families: dict[str, list[str]] = {}
    for planned in evidence.planned.values():
        if planned.parent:
            families.setdefault(planned.parent, []).append(planned.name)
    for parent, children in families.items():
        stories = [story for name in (parent, *children) for story in evidence.by_name.get(name, [])]
        mothers = evidence.by_name.get(parent, [])
        if len(mothers) != 1 or any(evidence.may_be_lost(story) for story in stories):
            continue
        tally.look()
        yield from _release(mothers[0], [story for story in stories if story is not mothers[0]], len(children))
        yield from _processed(evidence, mothers[0], children)


def _release(parent: JobStory, children: list[JobStory], expected: int) -> Iterator[Finding]:
    releases = [
        event for event in parent.events if event.name == "waiting" and event.fields.get("prev") == "waiting-children"
    ]
    ends = [event for child in children for event in child.events if event.name == "completed"]
    lines = tuple(sorted((*releases, *ends), key=lambda event: event.at_ms))
    if len(releases) > 1:
        yield Finding(message=f"left waiting-children {len(releases)} times", job=parent.label, lines=lines)
    elif releases and sum(_was_done(child, releases[0].at_ms) for child in children) < expected:
        yield Finding(message=f"left before its {expected} children had completed", job=parent.label, lines=lines)
    elif not releases and len(ends) == expected and any(event.name == "waiting-children" for event in parent.events):
        yield Finding(message="still waits, and all its children have completed", job=parent.label, lines=lines)


def _was_done(child: JobStory, at_ms: float) -> bool:
    """Whether it had completed by then, or was about to: one script stores its end and releases the parent."""
    return any(
        line.at_ms <= at_ms
        for line in child.lines
        if (isinstance(line, Event) and line.name == "completed")
        or (isinstance(line, RunEnded) and line.outcome == "complete")
    )


def _processed(evidence: Evidence, parent: JobStory, children: list[str]) -> Iterator[Finding]:
    """A completed parent has the values of all its children."""
    if evidence.snapshot is None or not any(event.name == "completed" for event in parent.events):
        return
    rows = [row for row in evidence.snapshot.dependencies if (row.queue, row.parent) == (parent.queue, parent.id)]
    values = sum(row.kind == "processed" for row in rows)
    if rows and values != len(children):
        message = f"has {values} values of its {len(children)} children"
        yield Finding(message=message, job=parent.label, lines=tuple(parent.events))


CHECKS = (HistoryCheck(name="events", predicate=_events), HistoryCheck(name="parents", predicate=_parents))
