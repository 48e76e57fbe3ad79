"""The queue (upstream `src/classes/queue.ts`): it adds jobs, controls the queue and reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from redis.exceptions import ResponseError

from conformance.protocol import keys as names
from conformance.protocol.job_fields import DEFAULT_MAX_EVENTS
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.reference_impl.connection.connection import maybe_text
from conformance.reference_impl.queue_admin import QueueAdmin
from conformance.reference_impl.queue_base import QueueBase
from conformance.reference_impl.queue_getters import QueueGetters
from conformance.reference_impl.queue_producer import QueueProducer
from conformance.reference_impl.telemetry.interface import SpanKind

VERSION: Final = f"bullmq:{BULLMQ_VERSION}"
"""The library version that this client writes to `meta`: it behaves exactly as this BullMQ version."""


class Queue(QueueProducer, QueueAdmin, QueueGetters):
    """A queue: add jobs, read them, control them.

    `meta` (event limit and version) is written before the first command, unless
    `opts["skipMetasUpdate"]`. Local events: waiting, paused, resumed, removed, cleaned, progress, and those of
    QueueBase.
    """

    EVENTS: ClassVar[Mapping[str, int]] = {
        **QueueBase.EVENTS,
        "waiting": 1,
        "paused": 0,
        "resumed": 0,
        "removed": 1,
        "cleaned": 2,
        "progress": 2,
    }

    async def close(self) -> None:
        """Close the connection when the calls that are under way have ended."""
        with self.trace(SpanKind.INTERNAL, "close"):
            try:
                await self.connection.until_idle()
            finally:
                await super().close()

    async def getVersion(self) -> str | None:
        """Return the library that last opened the queue, as `<library>:<version>`."""
        return maybe_text(await self.connection.command("HGET", self.keys.key(names.META), "version"))

    def _opening(self) -> Callable[[], Awaitable[None]] | None:
        return None if self.opts.get("skipMetasUpdate") else self._write_meta

    def _wait_unsent_s(self) -> float:
        return self.policy.wait_unsent_s

    async def _write_meta(self) -> None:
        events = (self.opts.get("streams") or {}).get("events") or {}
        limit = events.get("maxLen", DEFAULT_MAX_EVENTS)
        fields = ("opts.maxLenEvents", limit, "version", VERSION)
        # As in Node.js a refusal is ignored here; the operation itself then raises.
        with contextlib.suppress(ResponseError):
            # `at_once`, because this runs inside the opening that other commands wait for.
            await self.connection.at_once("HMSET", self.keys.key(names.META), *fields)
