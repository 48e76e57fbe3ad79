"""Whether jobs run as often as they should: reasons for a second run, whose finish counts, and the counters."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checkers.histories.base import Finding, HistoryCheck, Tally, Unknown
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.keeping import NO_REST, NO_SNAPSHOT
from conformance.checkers.histories.lines import Event, RunEnded, Script
from conformance.checkers.histories.stories import JobStory
from conformance.observe.tables import parsed_json

NO_LOCK_CHECK = "0"
"""The token with which a script does not look at the lock (upstream `includes/removeLock.lua`)."""
ENDING = frozenset({"moveToFinished", "retryJob", "moveToDelayed", "moveJobFromActiveToWait", "moveToWaitingChildren"})
ROUNDING_MS = 2
"""An event stands at the end of its ms, and a fault may be healed in the same."""
FINAL = frozenset({"completed", "failed"})
PUTS_ITSELF_BACK = frozenset({"waits", "delays"})
"""Kinds of job whose processor moves them out of active without ending the attempt."""


def _duplicate_runs(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """A job runs again only after its run has failed, or after it has stalled while some fault could explain that."""
    for story in evidence.certain():
        tally.look()
        yield from _unreasonable_runs(evidence, story)
        begun, claimed = len(story.starts), sum(event.name == "active" for event in story.events)
        if begun > claimed > 0:
            message = f"{begun} runs began, and Redis told of {claimed} claims"
            yield Finding(message=message, job=story.label, lines=tuple(story.lines))


def _unreasonable_runs(evidence: Evidence, story: JobStory) -> Iterator[Finding]:
    """Walk through the life of a job with the reason, if any, why it may be claimed once more."""
    claimed: Event | None = None
    reason = "added"
    for line in story.lines:
        if isinstance(line, RunEnded) and line.outcome != "complete":
            reason = line.outcome
        elif isinstance(line, Event) and line.name == "stalled" and claimed is not None:
            if not evidence.excused(claimed.at_ms, line.at_ms, margin_ms=ROUNDING_MS):
                message = "stalled, although no fault has touched its worker"
                yield Finding(message=message, job=story.label, lines=tuple(story.lines))
            reason = "stalled"
        elif isinstance(line, Event) and line.name == "waiting" and line.fields.get("prev") in FINAL:
            reason = "retried"
        elif isinstance(line, Event) and line.name == "active":
            if not reason and not (
                claimed is not None and evidence.excused(claimed.at_ms, line.at_ms, margin_ms=ROUNDING_MS)
            ):
                message = "claimed again, although its run had neither failed nor stalled"
                yield Finding(message=message, job=story.label, lines=tuple(story.lines))
            claimed, reason = line, ""


def _tokens(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """Only who claimed a job last can end its run; who is refused changes nothing; the value is that of the last run.

    Calls that were on their way at the same time are not judged by their order.
    """
    seen = False
    for story in evidence.certain():
        scripts = [line for line in story.lines if isinstance(line, Script)]
        if not scripts:
            continue
        seen = True
        tally.look()
        yield from _foreign_ends(story, scripts)
        yield from _unsent_ends(story, scripts)
    if not seen:
        yield Unknown("nothing was recorded on the wire")


def _foreign_ends(story: JobStory, scripts: list[Script]) -> Iterator[Finding]:
    holder: Script | None = None
    for line in scripts:
        if line.claimed == story.id and line.accepted:
            holder = line
        elif holder and line.job == story.id and line.accepted and line.script in ENDING and line.token:
            foreign = line.token not in {holder.token, NO_LOCK_CHECK}
            if foreign and line.sent_ms is not None and line.sent_ms > holder.at_ms:
                message = f"{line.script} of {line.token} was accepted, although {holder.token} had claimed the job"
                yield Finding(message=message, job=story.label, lines=(holder, line))


def _unsent_ends(story: JobStory, scripts: list[Script]) -> Iterator[Finding]:
    """Every end that Redis tells of has a call that was accepted, or whose answer nobody has seen."""
    ends = [event for event in story.events if event.name in FINAL]
    calls = [line for line in scripts if line.script == "moveToFinished" and line.job == story.id]
    possible = [line for line in calls if line.accepted or line.fate not in {"answered", "answered-by-tap"}]
    if len(ends) > len(possible):
        message = f"Redis tells of {len(ends)} ends, and {len(possible)} calls can have brought them about"
        yield Finding(message=message, job=story.label, lines=(*calls, *ends))
    for event in ends:
        value = parsed_json(event.fields.get("returnvalue"))
        token = value.get("token") if isinstance(value, dict) else None
        if token and token not in {line.token for line in possible}:
            message = f"the value is that of {token}, whose finish was not accepted"
            yield Finding(message=message, job=story.label, lines=(*calls, event))


def _counters(evidence: Evidence, tally: Tally) -> Iterator[Finding | Unknown]:
    """`ats`, `stc` and `atm` of a job are the claims, stalls and ended attempts that Redis told of."""
    if evidence.snapshot is None:
        yield NO_SNAPSHOT
        return
    if not evidence.at_rest:
        yield NO_REST
        return
    hashes = {(job.queue, job.id): job for job in evidence.snapshot.jobs}
    for story in evidence.certain():
        job, events = hashes.get((story.queue, story.id)), story.events
        if job is None or not events or events[0].name != "added":
            continue
        tally.look()
        claims = sum(event.name == "active" for event in events)
        stalls = sum(event.name == "stalled" for event in events)
        least, most = _attempts(story, stalls)
        for field, low, high in (("ats", claims, claims), ("stc", stalls, stalls), ("atm", least, most)):
            number = job.number(field) or 0
            if not low <= number <= high:
                told = f"{low}" if low == high else f"{low} to {high}"
                message = f"{field} is {number:g}, and Redis told of {told}"
                yield Finding(message=message, job=story.label, lines=tuple(story.lines))


def _attempts(story: JobStory, stalls: int) -> tuple[int, int]:
    """How many attempts ended, at least and at most: a job that asked to be put back has not ended its attempt."""
    ended = sum(event.name in FINAL for event in story.events)
    back = sum(_is_return(event, before) for before, event in zip(story.events, story.events[1:], strict=False))
    most = ended + back - stalls
    asked_for = story.planned is not None and story.planned.kind in PUTS_ITSELF_BACK
    return (ended if asked_for else most), most


def _is_return(event: Event, before: Event) -> bool:
    """Whether the event brings a job back from active."""
    if event.name == "waiting":
        return event.fields.get("prev") == "active"
    return event.name == "delayed" and before.name in {"active", "progress"}


CHECKS = (
    HistoryCheck(name="duplicate-runs", predicate=_duplicate_runs),
    HistoryCheck(name="tokens", predicate=_tokens),
    HistoryCheck(name="counters", predicate=_counters),
)
