"""The options that a call asked for, against the history of its jobs: a table of options, and what shows each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from conformance.checkers.histories.base import CheckStatistics, HistoryCheck, HistoryFinding, Judged
from conformance.checkers.histories.evidence import ROUNDING_MS, Evidence, JobHistory, server_ms
from conformance.checkers.histories.history import PlannedJob, RunEnded
from conformance.observe.tables import Job, Snapshot, parsed_json
from conformance.protocol.job_fields import DEDUPLICATION_ID, PARENT_KEY, PRIORITY

MOVED = "moved"
"""The kind of job whose options a later call changes."""


@dataclass(frozen=True)
class _Asked:
    """A job, what its call asked for, and what Redis has of it at the end (None: it is gone, or was not read)."""

    evidence: Evidence
    job: JobHistory
    planned: PlannedJob
    stored: Job | None
    prefix: str

    @cached_property
    def stored_opts(self) -> Mapping[str, Any] | None:
        """Its stored options; None if they are unknown."""
        if self.stored is None:
            return None
        opts = parsed_json(self.stored.fields.get("opts"))
        return opts if isinstance(opts, dict) else {}

    def opts_differ(self, option: str, asked: Any) -> str:
        """The difference between a stored option and what was asked for; empty if there is none, or it is unknown."""
        if self.stored_opts is None or self.stored_opts.get(option) == asked:
            return ""
        return f"stored is {self.stored_opts.get(option)!r}"


Shown: TypeAlias = Callable[[_Asked], str]
"""The sign that an option was not kept; empty if there is none."""


def _delay(asked: _Asked) -> str:
    """The first transition is `delayed`, and no claim comes before the delay has passed since the call."""
    job, evidence = asked.job, asked.evidence
    transitions = [event for event in job.events if event.name != "added"]
    if len(transitions) < len(job.events) and transitions and transitions[0].name != "delayed":
        return f"its first state was {transitions[0].name}"
    invoked = evidence.invoked_ms.get(job.name)
    claimed = next((event for event in job.events if event.name == "active"), None)
    if claimed is None or invoked is None:
        return ""
    early_ms = evidence.unix_ms(invoked) + asked.planned.delay_ms - server_ms(claimed)
    # The due time comes from the clock of the producer, and the promotion from that of a worker.
    if early_ms <= evidence.skew_ms(invoked, claimed.at_ms) + ROUNDING_MS:
        return ""
    return f"it was claimed {early_ms:.0f} ms before that had passed"


def _priority(asked: _Asked) -> str:
    """The stored priority; `order` judges the claims."""
    if asked.stored is None or asked.stored.number(PRIORITY) == asked.planned.priority:
        return ""
    return f"stored is {asked.stored.fields.get(PRIORITY)!r}"


def _lifo(asked: _Asked) -> str:
    """The stored option; `order` judges the claims."""
    return asked.opts_differ("lifo", asked=True)


def _attempts(asked: _Asked) -> str:
    """The stored option; `outcomes` judges permanent failures."""
    return asked.opts_differ("attempts", asked.planned.attempts)


def _single_attempt(asked: _Asked) -> str:
    """A job with one attempt does not run again after a failed run."""
    failed = next((line for line in asked.job.lines if isinstance(line, RunEnded) and line.outcome == "fail"), None)
    stalls = any(event.name == "stalled" for event in asked.job.events)
    # After a stall it is unknown which of two runs has failed, and a retry by a call is not an attempt.
    if (
        failed is None
        or stalls
        or any(event.fields.get("prev") in {"failed", "completed"} for event in asked.job.events)
    ):
        return ""
    again = [event for event in asked.job.events if event.name == "active" and event.at_ms > failed.at_ms + ROUNDING_MS]
    return "it was claimed again after its run had failed" if again else ""


def _backoff(asked: _Asked) -> str:
    """The stored option; `timing` judges the time until the next attempt."""
    if asked.stored_opts is None:
        return ""
    stored = asked.stored_opts.get("backoff")
    # A client may store further fields.
    found = (stored.get("type"), stored.get("delay")) if isinstance(stored, dict) else None
    return "" if found == ("fixed", asked.planned.backoff_ms) else f"stored is {stored!r}"


def _parent(asked: _Asked) -> str:
    """The stored key of the parent; `parents` judges its release."""
    parents = asked.evidence.by_name.get(asked.planned.parent, [])
    # With two jobs of a name it is unknown to which of them the child belongs.
    if asked.stored is None or len(parents) != 1:
        return ""
    key = asked.stored.fields.get(PARENT_KEY, "")
    expected = f"{asked.prefix}:{parents[0].queue}:{parents[0].id}"
    return "" if key == expected else f"stored is {key!r}"


def _retention(asked: _Asked) -> str:
    """A job that was to be removed when it completes is gone then: the same script does both."""
    is_done = any(event.name == "completed" for event in asked.job.events)
    return "it has completed, and is still there" if is_done and asked.stored is not None else ""


@dataclass(frozen=True)
class _Option:
    """One option: the plans that ask for it, the value in words, and what shows that it was not kept."""

    name: str
    asks: Callable[[PlannedJob], bool]
    value: Callable[[PlannedJob], str]
    broken: Shown


TABLE = (
    _Option("delay", lambda plan: plan.delay_ms > 0, lambda plan: f"{plan.delay_ms:g} ms", _delay),
    _Option("priority", lambda plan: plan.priority > 0, lambda plan: str(plan.priority), _priority),
    _Option("lifo", lambda plan: plan.lifo, lambda _plan: "true", _lifo),
    _Option("attempts", lambda plan: plan.attempts > 1, lambda plan: str(plan.attempts), _attempts),
    _Option("attempts", lambda plan: plan.attempts == 1, lambda _plan: "1", _single_attempt),
    _Option("backoff", lambda plan: plan.backoff_ms > 0, lambda plan: f"{plan.backoff_ms:g} ms", _backoff),
    _Option("parent", lambda plan: bool(plan.parent), lambda plan: plan.parent, _parent),
    _Option("removeOnComplete", lambda plan: not plan.kept, lambda _plan: "true", _retention),
)
"""Every option that the workload sends. Deduplicated jobs are not planned by name: `_deduplication_id`."""


def _options(evidence: Evidence, statistics: CheckStatistics) -> Iterator[Judged]:
    """A job has the options that its call asked for, also after a lost connection.

    Delay, priority, lifo, attempts, back-off, deduplication, parent and retention, each by what shows it: the events of
    the job, or its hash at the end.
    """
    rows, prefix = _stored(evidence.snapshot), evidence.snapshot.prefix if evidence.snapshot is not None else ""
    for job in evidence.certain():
        if job.planned is None or job.planned.kind == MOVED:
            continue
        asked = _Asked(evidence, job, job.planned, rows.get((job.queue, job.id, job.name)), prefix)
        for option in TABLE:
            if option.asks(job.planned):
                statistics.count()
                statistics.seen[option.name] += 1
                if shown := option.broken(asked):
                    message = f"{option.name} was to be {option.value(job.planned)}, and {shown}"
                    yield HistoryFinding(message=message, job=job.label, lines=tuple(job.lines))
    yield from _deduplication_ids(evidence, rows)


def _stored(snapshot: Snapshot | None) -> dict[tuple[str, str, str], Job]:
    """The jobs at the end by queue, id and name: after a loss, an id may belong to another job."""
    jobs = snapshot.jobs if snapshot is not None else ()
    return {(job.queue, job.id, job.fields.get("name", "")): job for job in jobs}


def _deduplication_ids(evidence: Evidence, rows: Mapping[tuple[str, str, str], Job]) -> Iterator[HistoryFinding]:
    """Jobs that were added under a deduplication id, and are named after it, have it stored."""
    calls = evidence.calls.values()
    asked = {str(call.invocation.args["deduplication"]) for call in calls if "deduplication" in call.invocation.args}
    for (queue, job_id, name), job in rows.items():
        stored = job.fields.get(DEDUPLICATION_ID, "")
        if name in asked and stored != name:
            yield HistoryFinding(
                message=f"deduplication was to be {name}, and stored is {stored!r}", job=f"{queue}:{job_id} ({name})"
            )


OPTION_CHECKS = (HistoryCheck(name="options", predicate=_options, least=20),)
