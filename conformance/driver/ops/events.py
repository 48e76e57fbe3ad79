"""Events that a driver sends by itself, by role of the handle.

Role worker:
    `job`        {"job": JobView, "token": str}      processor `ask`: waits for `resolve`
    `active` | `completed` | `failed` | `stalled`    {"job": id}    the client's local worker events
    `drained` | `paused` | `resumed` | `closed`      {}
    `error`      {"message": str}                    what the client's error listener would be told

Role events (BullMQ's QueueEvents, one per stream entry that the client delivered):
    `queue-event` {"name": stream event name, "event_id": stream id, "fields": {...}}   fields as the client gives them
    `error`       {"message": str}
"""

from __future__ import annotations

from typing import Any

import msgspec

from conformance.driver.ops.base import JobView, Nothing


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a worker's `job` event."""

    job: JobView
    token: str


class JobIdEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a worker's `active`, `completed`, `failed` and `stalled` events."""

    job: str


class ErrorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of an `error` event."""

    message: str


class QueueEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a `queue-event`."""

    name: str
    event_id: str
    fields: dict[str, Any]


EVENT_ARGS: dict[str, type[Any]] = {
    "job": JobEvent,
    "active": JobIdEvent,
    "completed": JobIdEvent,
    "failed": JobIdEvent,
    "stalled": JobIdEvent,
    "drained": Nothing,
    "paused": Nothing,
    "resumed": Nothing,
    "closed": Nothing,
    "error": ErrorEvent,
    "queue-event": QueueEvent,
}
"""Arguments of every event that the kit knows. Others are kept as they are: a driver may be newer than the kit."""
