"""Whether jobs are kept: nothing acknowledged is lost, nothing is there twice, nothing refused is there at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.checkers.base import View
from conformance.checkers.histories.base import Finding, HistoryCheck, Tally, Unknown
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.lines import Fail, Info, Ok
from conformance.checkers.histories.stories import CallStory, JobStory

NO_SNAPSHOT = Unknown("there is no snapshot of the end")
NO_REST = Unknown("the queues never came to rest, so that events and snapshot are of different times")


def _conservation(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """Every acknowledged job that is still there is in exactly one state."""
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    view = View(evidence.snapshot)
    for story in _acknowledged(evidence):
        if (story.queue, story.id) not in view.jobs or evidence.may_be_lost(story):
            continue  # the business of `durability`
        tally.look()
        states = view.states.get((story.queue, story.id), [])
        if len(states) != 1:
            where = " and ".join(states) or "in no state at all"
            yield Finding(message=f"acknowledged, and at the end {where}", job=story.label, lines=tuple(story.lines))
    for queue, job in view.states:
        if (queue, job) not in view.jobs and not evidence.rollbacks:
            yield Finding(message="its id is in a container, and there is no such job", job=f"{queue}:{job}")


def _durability(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """An acknowledged job is there, or its options or a call removed it, or a fault may have lost what is known of it.

    What may be lost depends on how Redis keeps its data, and every fault says it: nothing, what was written since some
    time, or everything.
    """
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    there = {(job.queue, job.id): job.fields.get("name") for job in evidence.snapshot.jobs}
    allowed = 0
    for story in _acknowledged(evidence):
        tally.look()
        if there.get((story.queue, story.id)) == story.name or _removed(evidence, story):
            continue
        if evidence.may_be_lost(story):
            allowed += 1
        else:
            op = evidence.calls_by_job[story.name].invoke.op if story.name in evidence.calls_by_job else "nobody"
            message = f"acknowledged by {op}, and gone"
            yield Finding(message=message, job=story.label, lines=tuple(story.lines))
    tally.facts["lost"] = allowed


def _indeterminate(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """A call that was answered happened once, one that failed never, and one that nobody knows about at most once.

    addBulk is a pipeline and no transaction: when it fails, some of its jobs may be there.
    """
    kept = _names_kept(evidence)
    for call in evidence.calls.values():
        for planned in call.invoke.jobs:
            stories = evidence.by_name.get(planned.name, [])
            if any(evidence.may_be_lost(story) for story in stories):
                continue
            tally.look()
            added = max(sum(_was_added(story) for story in stories), kept[planned.queue, planned.name])
            if added > _most(call):
                lines = tuple(line for story in stories for line in story.lines)
                answer = (call.answer,) if call.answer else ()
                yield Finding(
                    message=f"{call.invoke.op} was answered {_answered(call)}, and there are {added} such jobs",
                    job=f"{planned.queue}:{planned.name}",
                    lines=(call.invoke, *answer, *lines),
                )


def _names_kept(evidence: Evidence) -> Counter[tuple[str, str]]:
    """How many jobs of each queue and name are in Redis at the end."""
    jobs = evidence.snapshot.jobs if evidence.snapshot is not None else ()
    return Counter((job.queue, job.fields.get("name", "")) for job in jobs)


def _acknowledged(evidence: Evidence) -> Iterator[JobStory]:
    return (story for story in evidence.stories if story.acknowledged_ms is not None)


def _removed(evidence: Evidence, story: JobStory) -> bool:
    """By its own options, or by somebody who asked for it later."""
    ended = {event.name for event in story.events}
    if "removed" in ended or (story.planned is not None and not story.planned.kept and "completed" in ended):
        return True
    return evidence.may_be_removed(story)


def _was_added(story: JobStory) -> bool:
    return any(event.name == "added" for event in story.events)


def _most(call: CallStory) -> int:
    return 0 if isinstance(call.answer, Fail) and call.invoke.op != "queue.addBulk" else 1


def _answered(call: CallStory) -> str:
    if isinstance(call.answer, Ok):
        return "ok"
    return f"{'info' if isinstance(call.answer, Info) else 'fail'}" if call.answer else "not at all"


CHECKS = (
    HistoryCheck(name="conservation", predicate=_conservation),
    HistoryCheck(name="durability", predicate=_durability),
    HistoryCheck(name="indeterminate", predicate=_indeterminate),
)
