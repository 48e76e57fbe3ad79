"""Compare jobs: their presence, state, order, and fields. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from conformance.observe.compare.values import compare_fields, same
from conformance.observe.differences import Difference, difference
from conformance.observe.layout import LISTS, STATES
from conformance.observe.tables import Job, Membership, Snapshot, as_number

JobKey: TypeAlias = tuple[str, str]
"""Queue and job id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Which jobs only one side has. What belongs to such a job is no further difference."""

    missing: frozenset[JobKey]
    extra: frozenset[JobKey]

    def explains(self, queue: str, job: str) -> bool:
        """Whether a row about this job is explained by the job's being missing or too many."""
        return (queue, job) in self.missing or (queue, job) in self.extra

    def touches(self, queue: str) -> bool:
        """Whether a job of the queue is missing or too many, so that counters and markers differ for that reason."""
        return any(name == queue for name, _ in self.missing | self.extra)


def presence_of(expected: Snapshot, actual: Snapshot) -> Presence:
    """Compare which job hashes exist."""
    left, right = _by_key(expected), _by_key(actual)
    return Presence(missing=frozenset(left.keys() - right.keys()), extra=frozenset(right.keys() - left.keys()))


def compare_jobs(expected: Snapshot, actual: Snapshot, presence: Presence) -> Iterator[Difference]:
    """Missing and extra jobs, and the fields of the others."""
    left, right = _by_key(expected), _by_key(actual)
    left_states, right_states = _states(expected), _states(actual)
    for key in sorted(presence.missing):
        yield difference("missing-job", "job", _text(key), _described(left[key], left_states[key]), None)
    for key in sorted(presence.extra):
        yield difference("extra-job", "job", _text(key), None, _described(right[key], right_states[key]))
    for key in sorted(left.keys() & right.keys()):
        yield from compare_fields("job", _text(key), left[key].fields, right[key].fields)


def compare_memberships(expected: Snapshot, actual: Snapshot, presence: Presence) -> Iterator[Difference]:
    """State of each job, then order of each list, then scores, then the stalled set."""
    left, right = _states(expected), _states(actual)
    moved: set[JobKey] = set()
    for key in sorted(left.keys() | right.keys()):
        if left[key] != right[key] and not presence.explains(*key):
            moved.add(key)
            yield difference(
                _state_kind(left[key], right[key]), "membership.state", _text(key), list(left[key]), list(right[key])
            )
    yield from _compare_orders(expected, actual, moved, presence)
    yield from _compare_scores(expected, actual, presence)
    yield from _compare_stalled(expected, actual, presence)


def _state_kind(expected: tuple[str, ...], actual: tuple[str, ...]) -> str:
    """A job in no container is lost, one in two may run twice; else it is only somewhere else."""
    if expected and not actual:
        return "no-state"
    return "two-states" if len(actual) > max(1, len(expected)) else "wrong-state"


def _states(snapshot: Snapshot) -> Mapping[JobKey, tuple[str, ...]]:
    """The containers of every job, one entry per occurrence, in a fixed order."""
    found: defaultdict[JobKey, tuple[str, ...]] = defaultdict(tuple)
    for row in sorted(
        snapshot.memberships, key=lambda row: STATES.index(row.container) if row.container in STATES else -1
    ):
        if row.container != "stalled":
            found[row.queue, row.job] = (*found[row.queue, row.job], row.container)
    return found


def _compare_orders(
    expected: Snapshot, actual: Snapshot, moved: set[JobKey], presence: Presence
) -> Iterator[Difference]:
    """One difference per list whose common jobs stand in another order."""
    for queue in sorted({*expected.queues, *actual.queues}):
        for container in LISTS:
            left = _comparable(expected, queue, container, moved, presence)
            right = _comparable(actual, queue, container, moved, presence)
            if left != right:
                yield difference("wrong-order", f"membership.{container}.order", f"{queue}:{container}", left, right)


def _comparable(snapshot: Snapshot, queue: str, container: str, moved: set[JobKey], presence: Presence) -> list[str]:
    members = snapshot.members(queue, container)
    return [job for job in members if (queue, job) not in moved and not presence.explains(queue, job)]


def _compare_scores(expected: Snapshot, actual: Snapshot, presence: Presence) -> Iterator[Difference]:
    """Scores of the jobs that are in the same sorted set on both sides, unless a field already shows the difference."""
    left, right = _scored(expected), _scored(actual)
    jobs_left, jobs_right = _by_key(expected), _by_key(actual)
    for key in sorted(left.keys() & right.keys()):
        queue, container, job = key
        if presence.explains(queue, job) or same(left[key].score, right[key].score):
            continue
        if not _follows(left[key], jobs_left.get((queue, job)), right[key], jobs_right.get((queue, job))):
            where = f"membership.{container}.score"
            yield difference("wrong-value", where, f"{queue}:{job}", left[key].score, right[key].score)


def _follows(left: Membership, left_job: Job | None, right: Membership, right_job: Job | None) -> bool:
    """Whether the scores differ by just as much as the fields that they are made from."""
    if left_job is None or right_job is None:
        return False
    shares = [_beyond_fields(left, left_job), _beyond_fields(right, right_job)]
    return shares[0] is not None and shares[0] == shares[1]


def _beyond_fields(row: Membership, job: Job) -> float | None:
    """What is left of a score when the fields it is made from are taken away; None where that cannot be told."""
    score = as_number(row.score)
    if row.container == "delayed":
        timestamp, delay = job.number("timestamp"), job.number("delay")
        base = None if timestamp is None or delay is None else (timestamp + max(delay, 0)) * 4096
    elif row.container in {"completed", "failed"}:
        base = job.number("finishedOn")
    else:
        base = None
    return None if score is None or base is None else score - base


def _compare_stalled(expected: Snapshot, actual: Snapshot, presence: Presence) -> Iterator[Difference]:
    left, right = (
        {(row.queue, row.job) for row in side.memberships if row.container == "stalled"} for side in (expected, actual)
    )
    for key in sorted(left ^ right):
        if not presence.explains(*key):
            kind = "missing-member" if key in left else "extra-member"
            sides = ("in stalled", None) if key in left else (None, "in stalled")
            yield difference(kind, "membership.stalled", _text(key), *sides)


def _by_key(snapshot: Snapshot) -> dict[JobKey, Job]:
    return {(job.queue, job.id): job for job in snapshot.jobs}


def _scored(snapshot: Snapshot) -> dict[tuple[str, str, str], Membership]:
    return {(row.queue, row.container, row.job): row for row in snapshot.memberships if row.score is not None}


def _described(job: Job, states: tuple[str, ...]) -> str:
    return f"{job.fields.get('name', '')} in {', '.join(states) or 'no container'}"


def _text(key: JobKey) -> str:
    return ":".join(key)
