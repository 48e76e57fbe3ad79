"""The event stream: what is appended to it, and when it is trimmed.

Trimming is approximate in Redis (whole nodes of the stream go at once), so the model knows a stream's exact length only
as long as it is shorter than its limit.
"""

from __future__ import annotations

from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Count
from conformance.model.dispatch import CallContext, operation
from conformance.model.state import ModelState, QueueState
from conformance.observe.tables import Event
from conformance.protocol.job_fields import DEFAULT_MAX_EVENTS

MAX_EVENTS_FIELD = "opts.maxLenEvents"


def emit(state: ModelState, queue: QueueState, event_name: str, /, **fields: str) -> None:
    """Append an event; the order of the fields counts."""
    event = Event(queue=queue.name, id=f"0-{len(queue.events) + 1}", fields=(("event", event_name), *fields.items()))
    queue.events.append(event)
    state.journal.append(event)


def note_limit(queue: QueueState) -> None:
    """Scripts that append with a limit look it up in `meta`, and write the default there if it is missing."""
    queue.meta.setdefault(MAX_EVENTS_FIELD, str(DEFAULT_MAX_EVENTS))


def trim(state: ModelState, queue: QueueState, max_length: int) -> int:
    """XTRIM MAXLEN ~: how many entries went.

    Nothing goes from a stream that is short enough, and all goes where nothing may stay; in between it depends on where
    Redis put the limits of its nodes.
    """
    length = len(queue.events)
    if length <= max_length:
        return 0
    if max_length > 0:
        state.determined = False
        return 0
    queue.events.clear()
    return length


def emit_within_limit(state: ModelState, queue: QueueState, event_name: str, /, **fields: str) -> None:
    """Append an event as scripts do that also trim the stream to its limit."""
    note_limit(queue)
    emit(state, queue, event_name, **fields)
    trim(state, queue, int(queue.meta[MAX_EVENTS_FIELD]))


@operation(ops.TrimEvents)
def _trim_events(context: CallContext, op: ops.TrimEvents) -> Count:
    return Count(count=trim(context.state, context.queue, op.max_length))
