"""The effects of a child's end on its parent.

A parent waits in `waiting-children` until no child is unprocessed. A failed child counts for one of four things, which
the child says by an option: it fails the parent, lets it go on at once, is ignored, or is forgotten. Without an option
the parent waits for ever.
"""

from __future__ import annotations

import json
from typing import Any

from conformance.model.events import emit
from conformance.model.order import mark_next_delay, priority_of, put_prioritized, put_waiting
from conformance.model.state import ModelState, QueueState
from conformance.model.texts import number_text
from conformance.protocol.states import delayed_score


def child_completed(state: ModelState, parent_key: str, child_key: str, returned: str, now_ms: int) -> None:
    """The parent gets the child's return value, and goes on if this was the last one."""
    queue, parent = state.locate(parent_key)
    queue.relations(parent).processed[child_key] = returned
    _release_if_complete(state, queue, parent, now_ms)


def child_failed(state: ModelState, link: str | None, child_key: str, reason: str, now_ms: int) -> None:
    """The effect of a failure on the parent, according to the child's options. `link`: the child's field `parent`."""
    if link is None:
        return
    said: dict[str, Any] = json.loads(link)
    queue, parent = state.locate(f"{said['queueKey']}:{said['id']}")
    if not any(said.get(flag) for flag in ("fpof", "cpof", "idof", "rdof")):
        return
    if not forget_unprocessed(queue, parent, child_key):
        return
    if said.get("fpof"):
        queue.relations(parent).failed.add(child_key, now_ms)
        _fail_parent(state, queue, parent, child_key, now_ms)
    elif said.get("cpof"):
        queue.relations(parent).ignored[child_key] = reason
        _release(state, queue, parent, now_ms)
    else:
        _release_if_complete(state, queue, parent, now_ms)
        if said.get("idof"):
            queue.relations(parent).ignored[child_key] = reason


def forget_unprocessed(queue: QueueState, parent: str, child_key: str) -> bool:
    """Take a child off the list of those that the parent waits for; whether it was on it."""
    unprocessed = queue.children(parent).unprocessed
    if child_key not in unprocessed:
        return False
    del unprocessed[child_key]
    return True


def _fail_parent(state: ModelState, queue: QueueState, parent: str, child_key: str, now_ms: int) -> None:
    """The next worker that takes the parent is to fail it at once (field `defa`)."""
    if parent not in queue.jobs:
        return
    fields = queue.hash(parent)
    waiting = queue.waiting_children.remove(parent)
    if not waiting and queue.delayed.remove(parent):
        waiting = True
        # A parent that must fail does not wait for its delay.
        fields["delay"] = number_text(0)
    if waiting:
        fields["defa"] = f"child {child_key} failed"
        _go_on(state, queue, parent, now_ms)
    # An active parent keeps running; its completion is refused because of the failed child.
    elif parent not in queue.failed:
        fields["defa"] = f"child {child_key} failed"


def _release_if_complete(state: ModelState, queue: QueueState, parent: str, now_ms: int) -> None:
    if not queue.children(parent).unprocessed:
        _release(state, queue, parent, now_ms)


def _release(state: ModelState, queue: QueueState, parent: str, now_ms: int) -> None:
    """Let a parent that waits for its children go on; one that does anything else is left alone."""
    if parent in queue.jobs and queue.waiting_children.remove(parent):
        _go_on(state, queue, parent, now_ms)


def _go_on(state: ModelState, queue: QueueState, parent: str, now_ms: int) -> None:
    """Put a parent where its delay and its priority want it, next to be taken if it has neither."""
    delay = float(queue.field(parent, "delay") or 0)
    if delay > 0:
        due = now_ms + delay
        # Without a tie-break, unlike all other delayed jobs: the script writes the bare score here.
        queue.delayed.add(parent, delayed_score(due))
        emit(state, queue, "delayed", jobId=parent, delay=number_text(due))
        mark_next_delay(queue)
        return
    priority = priority_of(queue, parent)
    if priority == 0:
        put_waiting(queue, parent, "right")
    else:
        put_prioritized(queue, parent, priority)
    emit(state, queue, "waiting", jobId=parent, prev="waiting-children")


def child_vanished(state: ModelState, parent_key: str, child_key: str, *, hard_in: QueueState | None = None) -> bool:
    """A child is removed, or unlinked: whether the parent had been waiting for it.

    A parent that waited for nothing else continues, regardless of its priority. `hard_in`: whole sets of this queue are
    being removed; then a parent in the same queue is removed too, and one in another queue goes on without an event.
    """
    queue, parent = state.locate(parent_key)
    if not forget_unprocessed(queue, parent, child_key):
        return False
    if queue.children(parent).unprocessed or not queue.waiting_children.remove(parent):
        return True
    if hard_in is queue:
        remove_with_child(state, queue, parent, child_key)
        return True
    put_waiting(queue, parent, "right")
    if hard_in is None:
        emit(state, queue, "waiting", jobId=parent, prev="waiting-children")
    return True


def remove_with_child(state: ModelState, queue: QueueState, parent: str, child_key: str) -> None:
    """Remove a parent together with its last child, and give free the deduplication id of the child."""
    leave_parent(state, queue, parent, hard=True)
    delete_job_keys(queue, parent)
    child_queue, child = state.locate(child_key)
    name = child_queue.field(child, "deid")
    if name is not None:
        queue.deduplications.pop(name, None)


def leave_parent(state: ModelState, queue: QueueState, job: str, *, hard: bool) -> None:
    """A job that is about to be removed leaves its parent, if that still exists."""
    parent_key = queue.field(job, "parentKey")
    if parent_key and state.exists(parent_key):
        child_vanished(state, parent_key, queue.key(job), hard_in=queue if hard else None)


def delete_job_keys(queue: QueueState, job: str) -> bool:
    """Delete a job's hash, log and children; its lock stays. Whether there was anything."""
    hash_there = queue.jobs.pop(job, None) is not None
    log_there = bool(queue.logs.pop(job, None))
    relations = queue.flow_relations.pop(job, None)
    return hash_there or log_there or (relations is not None and relations.exists())
