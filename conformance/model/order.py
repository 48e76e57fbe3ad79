"""The place of a job that is ready: lists, priorities, delays, and the wake-up markers.

- Jobs without priority wait in `wait` (in `paused` while the queue is paused), and are taken before all others.
- Jobs with a priority wait in `prioritized`: lower numbers first, equal ones in the order of a counter.
- Delayed jobs wait in `delayed` until they are due: up to 4096 jobs of one millisecond stay in order.
- A marker wakes sleeping workers: there is work (member `0`), or there will be some at a time (member `1`).
"""

from __future__ import annotations

from typing import Literal

from conformance.model.events import emit
from conformance.model.state import ModelState, QueueState
from conformance.model.texts import number_text
from conformance.protocol.states import DELAY_FACTOR, PRIORITY_FACTOR, delayed_score

ListEnd = Literal["left", "right"]
"""`left`: behind all others. `right`: next to be taken."""

PROMOTED_AT_ONCE = 1000
"""The most due jobs that one call promotes."""


def is_paused(queue: QueueState) -> bool:
    """Whether the queue is paused: the field in `meta` counts, with any value."""
    return "paused" in queue.meta


def is_maxed(queue: QueueState) -> bool:
    """Whether the queue-wide concurrency is used up."""
    limit = queue.meta.get("concurrency")
    return limit is not None and len(queue.active) >= float(limit)


def is_held_back(queue: QueueState) -> bool:
    """Whether no worker may start a job now; then no worker needs to be woken either."""
    return is_paused(queue) or is_maxed(queue)


def waiting_list(queue: QueueState) -> list[str]:
    """The list that waiting jobs are in."""
    return queue.paused if is_paused(queue) else queue.wait


def push(items: list[str], job: str, side: ListEnd) -> None:
    """LPUSH or RPUSH."""
    items.insert(0 if side == "left" else len(items), job)


def remove_first(items: list[str], job: str) -> bool:
    """LREM 1: take out the leftmost occurrence. Whether there was one."""
    if job not in items:
        return False
    items.remove(job)
    return True


def remove_last(items: list[str], job: str) -> bool:
    """LREM -1: take out the rightmost occurrence. Whether there was one."""
    if job not in items:
        return False
    del items[len(items) - 1 - items[::-1].index(job)]
    return True


def mark_work(queue: QueueState) -> None:
    """Wake a worker."""
    queue.marker["0"] = 0


def mark_next_delay(queue: QueueState) -> None:
    """Mark for the workers when the next delayed job is due (ms, may be fractional)."""
    score = queue.delayed.first_score()
    if score is not None:
        queue.marker["1"] = score / DELAY_FACTOR


def put_waiting(queue: QueueState, job: str, side: ListEnd) -> None:
    """Let a job wait, and wake a worker unless none may start."""
    held_back = is_held_back(queue)
    push(waiting_list(queue), job, side)
    if not held_back:
        mark_work(queue)


def put_prioritized(queue: QueueState, job: str, priority: float) -> None:
    """Let a job wait behind all others of its priority."""
    queue.prioritized.add(job, next_priority_score(queue, priority))
    if not is_held_back(queue):
        mark_work(queue)


def put_first_of_priority(queue: QueueState, job: str, priority: float) -> None:
    """Let a job wait before all others of its priority; no worker is woken."""
    queue.prioritized.add(job, priority * PRIORITY_FACTOR)


def next_priority_score(queue: QueueState, priority: float) -> float:
    """The score behind all jobs of this priority."""
    queue.priority_counter = (queue.priority_counter or 0) + 1
    return priority * PRIORITY_FACTOR + queue.priority_counter % PRIORITY_FACTOR


def priority_of(queue: QueueState, job: str) -> float:
    """A job's priority; 0 where it has none."""
    try:
        return float(queue.field(job, "priority") or 0)
    except ValueError:
        return 0


def delay_score(queue: QueueState, from_ms: float, delay_ms: float) -> tuple[float, float]:
    """Score and due time (ms) of a job that is delayed from this time on."""
    due = from_ms + delay_ms if delay_ms > 0 else from_ms
    lowest, highest = delayed_score(due), delayed_score(due + 1) - 1
    taken = queue.delayed.between(lowest, highest)
    if not taken:
        return lowest, due
    last = queue.delayed.score(taken[-1]) or lowest
    # Saturates: from the 4097th job of one ms on, equal scores leave the order to the member's bytes.
    return min(last + 1, highest), due


def promote_due(state: ModelState, queue: QueueState, now_ms: int) -> None:
    """Let the delayed jobs whose time has come wait. Every call that looks for work starts with this."""
    # Up to the last score of this ms: the low 12 bits only order jobs of the same ms.
    due = queue.delayed.between(0, delayed_score(now_ms + 1) - 1)[:PROMOTED_AT_ONCE]
    held_back = is_held_back(queue)
    for job in due:
        queue.delayed.remove(job)
    for job in due:
        priority = priority_of(queue, job)
        if priority == 0:
            push(waiting_list(queue), job, "left")
        else:
            queue.prioritized.add(job, next_priority_score(queue, priority))
        emit(state, queue, "waiting", jobId=job, prev="delayed")
        queue.hash(job)["delay"] = number_text(0)
    if due and not held_back:
        mark_work(queue)
