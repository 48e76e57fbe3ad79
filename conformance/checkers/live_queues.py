"""Checks of a live queue over several looks. Pure, without a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from conformance.checkers.base import ViolationDetail
from conformance.checkers.queue_looks import QueueLook, WorkerConnection
from conformance.checkers.table import check
from conformance.pages.text import count, duration

FEWEST_LOOKS = 3
"""Looks that a finding about a span of time needs."""

LOOKS_AT_BUSY_WORKERS = 8
"""A worker that takes jobs one after the other holds a lock in at least one of this many looks."""

MINUTE_MS = 60_000
MOST_EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class WatchLimits:
    """From when on something is a finding; times in ms.

    `deaf_ms`: jobs wait and no worker takes one. `growth_ms`, `growth_jobs`: the backlog grows by that many jobs in
    that time, without a break. `stalls`: in a minute. `settle_ms`: a schedule has no next iteration.
    """

    deaf_ms: int
    growth_ms: int
    growth_jobs: int
    stalls: int
    settle_ms: int

    @property
    def span_ms(self) -> int:
        """How long looks are needed."""
        return max(self.deaf_ms, self.growth_ms, self.settle_ms, MINUTE_MS)


@dataclass(frozen=True, kw_only=True)
class QueueLooks:
    """Readings of one queue in the order of time, at least one; the newest is judged."""

    queue: str
    looks: Sequence[QueueLook]
    limits: WatchLimits


@check("deaf-workers")
def _deaf_workers(view: QueueLooks) -> Iterator[ViolationDetail]:
    """Connected workers take jobs that wait: not all of them are idle, and none next to others that work."""
    waited = _trailing(view.looks, lambda look: look.is_claimable)
    unclaimed = _without_claims(waited)
    if _lasts(unclaimed, view.limits.deaf_ms):
        yield from _deaf_queue(view.queue, unclaimed)
    elif _lasts(waited, view.limits.deaf_ms) and len(waited) >= LOOKS_AT_BUSY_WORKERS:
        silent = _more_than_holders(
            [worker for worker in _constant_workers(waited) if _is_silent(worker, waited)], waited
        )
        if silent:
            said = f"{count(len(silent), 'worker')} did nothing for {_span_text(waited)} while others took jobs"
            yield _found("deaf", view.queue, waited, len(silent), said, *map(worker_text, silent))


def _deaf_queue(queue: str, looks: Sequence[QueueLook]) -> Iterator[ViolationDetail]:
    """No job was claimed in these looks."""
    newest = looks[-1]
    jobs = f"{count(newest.waiting, 'job')} waited for {_span_text(looks)}"
    if not any(look.workers for look in looks):
        yield _found("no-worker", queue, looks, newest.waiting, f"{jobs}, and no worker is connected")
        return
    constant = _constant_workers(looks)
    listening = [worker for worker in constant if worker.is_blocked or _was_blocked(worker, looks)]
    elsewhere = [worker for worker in constant if worker not in listening]
    deaf = [*listening, *_more_than_holders(elsewhere, looks)] if constant else list(newest.workers)
    if deaf:
        marker = "the marker is set" if newest.has_marker else "the marker is missing"
        said = f"{jobs}, {marker}, and {count(len(deaf), 'worker')} took none"
        yield _found("deaf", queue, looks, len(deaf), said, *map(worker_text, deaf))


def _without_claims(looks: Sequence[QueueLook]) -> Sequence[QueueLook]:
    """The newest looks between which no job was claimed."""
    start = 0
    for number, (earlier, later) in enumerate(pairwise(looks), 1):
        if later.events.active or not (later.events.complete or earlier.next_jobs == later.next_jobs):
            start = number
    return looks[start:]


def _constant_workers(looks: Sequence[QueueLook]) -> list[WorkerConnection]:
    """The workers that were connected in all looks, as the newest shows them."""
    always = set.intersection(*({worker.place for worker in look.workers} for look in looks))
    return [worker for worker in looks[-1].workers if worker.place in always]


def _was_blocked(worker: WorkerConnection, looks: Sequence[QueueLook]) -> bool:
    return any(seen.place == worker.place and seen.is_blocked for look in looks for seen in look.workers)


def _is_silent(worker: WorkerConnection, looks: Sequence[QueueLook]) -> bool:
    """Whether the connection neither waited nor sent anything in the whole span."""
    return worker.idle_s * 1000 >= _span_ms(looks) - 1000 and not _was_blocked(worker, looks)


def _more_than_holders(workers: list[WorkerConnection], looks: Sequence[QueueLook]) -> list[WorkerConnection]:
    """Of workers that do not listen, those that hold no job either; which of them is unknown, so the idlest count.

    A worker whose jobs take all of its concurrency does not listen, but it holds the locks of these jobs.
    """
    holders = frozenset[str]()
    for look in looks:
        if look.holders is None:
            return []
        holders |= look.holders
    idlest = sorted(workers, key=lambda worker: -worker.idle_s)
    return idlest[: max(0, len(workers) - len(holders))]


def worker_text(worker: WorkerConnection) -> str:
    """A worker as an operator finds it: name, address, and since when it is idle."""
    name = f"{worker.name} " if worker.name else ""
    state = "waits" if worker.is_blocked else "idle"
    return f"{name}{worker.address} ({state} for {worker.idle_s} s)"


@check("growing-backlog")
def _growing_backlog(view: QueueLooks) -> Iterator[ViolationDetail]:
    """The backlog does not grow: in some quarter of the span it was not above that of the quarter before."""
    newest, limits = view.looks[-1], view.limits
    inside = [look for look in view.looks if newest.at_ms - look.at_ms <= limits.growth_ms]
    covers = view.looks[0].at_ms <= newest.at_ms - limits.growth_ms
    if not covers or any(look.is_paused for look in inside):
        return
    quarter_ms = limits.growth_ms / 4
    quarters: list[list[int]] = [[], [], [], []]
    for look in inside:
        quarters[min(3, int((newest.at_ms - look.at_ms) / quarter_ms))].append(look.backlog)
    if not all(quarters):
        return
    lowest = [min(quarter) for quarter in reversed(quarters)]
    grown = lowest[-1] - lowest[0]
    if grown >= limits.growth_jobs and all(earlier < later for earlier, later in pairwise(lowest)):
        said = f"the backlog grew from {lowest[0]:,} to {newest.backlog:,} jobs in {duration(limits.growth_ms)}"
        yield _found("growing", view.queue, inside, newest.backlog - lowest[0], said)


@check("stalled-jobs")
def _stalls(view: QueueLooks) -> Iterator[ViolationDetail]:
    """Few jobs stalled in the last minute."""
    inside = [look for look in view.looks if view.looks[-1].at_ms - look.at_ms < MINUTE_MS]
    stalled = sum(look.events.stalled for look in inside)
    if stalled >= view.limits.stalls:
        first = next(look for look in inside if look.events.stalled)
        said = f"{count(stalled, 'job')} stalled in the last minute"
        yield _found("stalls", view.queue, [first], stalled, said)


@check("overdue-now")
def _overdue_jobs(view: QueueLooks) -> Iterator[ViolationDetail]:
    """No delayed job is past its time and the grace."""
    newest = view.looks[-1]
    if newest.overdue:
        late = f"{count(newest.overdue, 'delayed job')} overdue, the first by {duration(newest.overdue_ms)}"
        since = replace(newest, at_ms=newest.at_ms - newest.overdue_ms)
        yield _found("overdue", view.queue, [since], newest.overdue, late)


@check("ended-schedules")
def _ended_schedules(view: QueueLooks) -> Iterator[ViolationDetail]:
    """Every schedule has a next iteration."""
    run = _trailing(view.looks, lambda look: bool(look.dead_schedules))
    if not _lasts(run, view.limits.settle_ms):
        return
    settled = [look for look in run if run[-1].at_ms - look.at_ms <= view.limits.settle_ms] or list(run)
    # One look more than the span has, so that the whole span is covered.
    covering = run[-len(settled) - 1 :]
    ended = sorted(frozenset.intersection(*(look.dead_schedules for look in covering)))
    if ended:
        said = f"{count(len(ended), 'schedule')} without a next iteration"
        yield _found("schedule", view.queue, covering, len(ended), said, *(name for name, _ in ended))


def _trailing(looks: Sequence[QueueLook], holds: Callable[[QueueLook], bool]) -> Sequence[QueueLook]:
    """The newest looks for which a condition holds without a break."""
    start = len(looks)
    while start and holds(looks[start - 1]):
        start -= 1
    return looks[start:]


def _span_ms(looks: Sequence[QueueLook]) -> int:
    return looks[-1].at_ms - looks[0].at_ms if looks else 0


def _span_text(looks: Sequence[QueueLook]) -> str:
    return duration(_span_ms(looks))


def _lasts(looks: Sequence[QueueLook], least_ms: int) -> bool:
    return len(looks) >= FEWEST_LOOKS and _span_ms(looks) >= least_ms


def _found(
    damage: str, queue: str, looks: Sequence[QueueLook], number: int, message: str, *examples: str
) -> ViolationDetail:
    return ViolationDetail(
        where="queue",
        key=queue,
        message=message,
        damage=damage,
        since_ms=looks[0].at_ms,
        number=number,
        examples=examples[:MOST_EXAMPLES],
    )
