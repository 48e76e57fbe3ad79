"""Whether things happen in time: nothing early, lateness bounded, work going on soon after every fault."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from conformance.checkers.histories.base import Finding, HistoryCheck, Tally, Unknown
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.lines import Event
from conformance.checkers.histories.stories import JobStory, Window, server_ms
from conformance.observe.tables import as_number

ROUNDING_MS = 2
"""Times in events are whole ms, and a due job may be promoted within its ms (`(now + 1) * 4096 - 1`)."""


def _timing(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """A delayed job is not promoted before it is due, and not much later; it is not due before its delay has passed.

    Where a clock is off by so much, times may be off by as much. While a fault is on, and until work goes on after it,
    jobs may be late.
    """
    for story in evidence.certain():
        yield from _due_time(evidence, story)
        delayed: Event | None = None
        for event in story.events:
            if event.name == "delayed":
                delayed = event
            elif event.name == "waiting" and event.fields.get("prev") == "delayed" and delayed is not None:
                tally.look()
                yield from _promotion(evidence, story, delayed, event, tally)
                delayed = None


def _due_time(evidence: Evidence, story: JobStory) -> Iterator[Finding]:
    first = next((event for event in story.events if event.name == "delayed"), None)
    invoked = evidence.invoked_ms.get(story.name)
    if first is None or invoked is None or story.planned is None or not story.planned.delay_ms:
        return
    due = as_number(first.fields.get("delay"))
    earliest = evidence.unix_ms(invoked) + story.planned.delay_ms
    skew = evidence.skew_ms(invoked, first.at_ms)
    if due is not None and due < earliest - skew - ROUNDING_MS:
        message = f"due {earliest - due:.0f} ms before its delay of {story.planned.delay_ms:g} ms has passed"
        yield Finding(message=message, job=story.label, lines=(first,))


def _promotion(evidence: Evidence, story: JobStory, delayed: Event, promoted: Event, tally: Tally) -> Iterator[Finding]:
    due = as_number(delayed.fields.get("delay"))
    if due is None or (story.planned is not None and story.planned.kind == "moved"):
        return
    late = server_ms(promoted) - due
    skew = evidence.skew_ms(delayed.at_ms, promoted.at_ms)
    if late < -skew - ROUNDING_MS:
        message = f"promoted {-late:.0f} ms before it was due"
        yield Finding(message=message, job=story.label, lines=(delayed, promoted))
    due_ms = due - evidence.history.header.unix_offset_ms
    allowed = evidence.bounds.late_ms + skew + _held_up_ms(evidence, due_ms, promoted.at_ms)
    tally.facts["latest promotion (ms)"] = max(late, tally.facts.get("latest promotion (ms)", 0))
    if late > allowed:
        message = f"promoted {late:.0f} ms after it was due, which is more than {allowed:.0f} ms"
        yield Finding(message=message, job=story.label, lines=(delayed, promoted))


def _held_up_ms(evidence: Evidence, since_ms: float, until_ms: float) -> float:
    """For how long faults, and the time until work goes on after them, may have held up something."""
    return sum(
        min(window.ended_ms + _resume_ms(evidence, window), until_ms) - max(window.began_ms, since_ms)
        for window in evidence.windows
        if window.touches(since_ms, until_ms, margin_ms=_resume_ms(evidence, window))
    )


def _resume_ms(evidence: Evidence, window: Window) -> float:
    return evidence.bounds.resume_ms if window.resume_ms is None else window.resume_ms


def _progress(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """After the healing of each fault work goes on within its bound, and in the end all work is done.

    Only judged where jobs were ready to run, and no other fault was on meanwhile.
    """
    ends = [phase for phase in evidence.phases if phase.name in {"quiescent", "stuck"}]
    if not ends:
        yield Unknown("the run broke off before its end")
    for phase in ends:
        tally.look()
        if phase.name == "stuck" and evidence.is_torn:
            yield Unknown("keys were evicted, and work that needed them was left undone")
        elif phase.name == "stuck":
            yield Finding(message=f"work was left undone: {phase.seen}", lines=(phase,))
    signs = sorted(
        event.at_ms
        for story in evidence.stories
        for event in story.events
        if event.name in {"active", "completed", "failed"}
    )
    stories = [story for story in evidence.stories if not evidence.may_be_removed(story)]
    ready = sorted(at for story in stories if (at := _ready_ms(story)) is not None)
    done = sorted(_done_ms(story) for story in stories if _ready_ms(story) is not None)
    for window in evidence.windows:
        healed, patience = window.ended_ms, _resume_ms(evidence, window)
        waiting = bisect_right(ready, healed) - bisect_right(done, healed)
        if not patience or math.isinf(healed) or waiting <= 0:
            continue
        # Times of events are whole ms, cut off.
        position = bisect_left(signs, healed - 1)
        resumed = signs[position] - healed if position < len(signs) else math.inf
        others = [each for each in evidence.windows if each is not window]
        if any(other.touches(healed, healed + patience) for other in others):
            continue
        tally.look()
        if math.isfinite(resumed):
            tally.facts["resumed after (ms)"] = max(resumed, tally.facts.get("resumed after (ms)", 0))
        if resumed > patience:
            after = f"{resumed:.0f} ms" if math.isfinite(resumed) else "never"
            message = f"{waiting} jobs were ready when {window.fault} was healed; work went on after: {after}"
            yield Finding(message=message, lines=tuple(_around(evidence, window)))


def _ready_ms(story: JobStory) -> float | None:
    """When it could first be claimed."""
    return next((event.at_ms for event in story.events if event.name == "waiting"), None)


def _done_ms(story: JobStory) -> float:
    finals = [event.at_ms for event in story.events if event.name in {"completed", "failed", "removed"}]
    return finals[-1] if finals else math.inf


def _around(evidence: Evidence, window: Window) -> Iterator[Event]:
    """The first events after a window."""
    later = (line for line in evidence.history.lines if isinstance(line, Event) and line.at_ms >= window.ended_ms)
    for _, event in zip(range(5), later, strict=False):
        yield event


CHECKS = (
    HistoryCheck(name="timing", predicate=_timing),
    HistoryCheck(name="progress", predicate=_progress, even_torn=True),
)
