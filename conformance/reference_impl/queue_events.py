"""Reader of the event stream of a queue, and a producer of events of the user's own (upstream `queue-events*.ts`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from conformance.protocol.keys import EVENT_READER_SUFFIX, EVENTS
from conformance.reference_impl import js_values
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection, flat_mapping, is_connection_problem, text
from conformance.reference_impl.option_types import AnyOptions, ClientOptions, LinkEvent, QueueEventsOptions
from conformance.reference_impl.queue_base import QueueBase, refuse_outside_of_a_loop
from conformance.reference_impl.scripts.runner import ScriptTexts

_JSON_FIELDS: Final = {"progress": "data", "completed": "returnvalue"}
"""The only values that are parsed; every other field stays text, numbers too."""

_STREAM_EVENTS: Final = (
    *("added", "waiting", "active", "completed", "failed", "delayed", "progress", "stalled", "paused", "resumed"),
    *("removed", "cleaned", "waiting-children", "retries-exhausted", "duplicated", "debounced", "deduplicated"),
)
_ONLY_NEW: Final = "$"
_REST_AFTER_ERROR_S: Final = 5
"""Pause after an error reply, for example of a server without memory: a retry at once would flood the log."""


class QueueEvents(QueueBase[str]):
    """Emits every entry of the stream under the name of its event: `listener(fields, entry_id)`.

    An entry about a job is also emitted as `<event>:<job id>`, which waitUntilFinished uses. `opts["lastEventId"]`:
    start after this entry instead of now; `opts["blockingTimeout"]`: ms per read (10000).
    """

    EVENTS: ClassVar[Mapping[str, int]] = {
        **QueueBase.EVENTS,
        **dict.fromkeys(_STREAM_EVENTS, 2),
        "drained": 1,
        "*": 3,
    }

    def __init__(
        self,
        name: str,
        opts: QueueEventsOptions | ClientOptions | AnyOptions | None = None,
        *,
        scripts: ScriptTexts | str | Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        chosen: dict[str, Any] = {"blockingTimeout": 10_000, "autorun": True, **(opts or {})}
        super().__init__(name, chosen, scripts=scripts, clock=clock)
        reader_name = self.client_name(EVENT_READER_SUFFIX)
        # A separate socket: XREAD BLOCK would hold up every other command on it.
        self._reader = Connection(self.address, name=reader_name, watch=self.link)
        self.on("unreachable", self._give_up)
        self._last_id: str | None = self._opts.get("lastEventId")
        self._task: asyncio.Task[None] | None = None
        if self._opts["autorun"]:
            refuse_outside_of_a_loop(self, "`autorun`", "run")
            self._task = asyncio.create_task(self.run())

    async def waitUntilReady(self) -> None:
        """Connect and fix the start: every event after this call returns will be emitted."""
        await super().waitUntilReady()
        await self._find_start()

    async def run(self) -> None:
        """Read until close. Retries after a lost connection, from the last entry that was emitted."""
        while not self.closing:
            try:
                await self._find_start()
                await self._read()
            except Exception as error:  # noqa: BLE001 - emitted; reading goes on
                if is_connection_problem(error):
                    await self.link.until_next_attempt(self.policy.reconnect.first_s)
                else:
                    self.emit("error", error)
                    await asyncio.sleep(_REST_AFTER_ERROR_S)

    async def close(self) -> None:
        """Stop reading."""
        self._closing = True
        if self._task is not None:
            # Without waiting for the read, which may block for `blockingTimeout`; reading has no effect in Redis.
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._reader.close()
        await super().close()

    async def _give_up(self, _attempts: int, error: BaseException) -> None:
        self.emit("error", error)
        await self.close()

    async def _find_start(self) -> None:
        """Resolve `$` to a stream id once: with `$` in each read, entries written between two reads would be missed."""
        if self._last_id is None or self._last_id == _ONLY_NEW:
            newest = await self.connection.command("XREVRANGE", self.keys.key(EVENTS), "+", "-", "COUNT", 1)
            # Checked again: `run` and `waitUntilReady` do this concurrently, and the later reply would skip entries.
            if self._last_id is None or self._last_id == _ONLY_NEW:
                self._last_id = text(newest[0][0]) if newest else "0-0"

    async def _read(self) -> None:
        key, block = self.keys.key(EVENTS), self.opts["blockingTimeout"]
        reply = await self._reader.command("XREAD", "BLOCK", block, "STREAMS", key, self._last_id)
        for entry_id, fields in reply[0][1] if reply else ():
            # Before the listeners: if one of them closes or fails, the entry is not emitted a second time.
            self._last_id = text(entry_id)
            self._emit_entry(flat_mapping(fields), self._last_id)

    def _emit_entry(self, fields: dict[str, Any], entry_id: str) -> None:
        event = str(fields.pop("event", ""))
        parsed = _JSON_FIELDS.get(event)
        if parsed in fields:
            fields[parsed] = js_values.parse(fields[parsed])
        self.emit("*", event, fields, entry_id)
        if event == "drained":
            self.emit(event, entry_id)
            return
        self.emit(event, fields, entry_id)
        if fields.get("jobId"):
            self.emit(f"{event}:{fields['jobId']}", fields, entry_id)


class QueueEventsProducer(QueueBase[LinkEvent]):
    """Adds events of the user's own to the stream of a queue."""

    async def publishEvent(self, argsObj: Mapping[str, Any], maxEvents: int = 1000) -> None:
        """Add an event `argsObj["eventName"]` with the other fields; keeps about `maxEvents` entries in the stream."""
        fields = {"event": argsObj["eventName"], **{name: argsObj[name] for name in argsObj if name != "eventName"}}
        pairs = [part for field in fields.items() for part in field]
        await self.connection.command("XADD", self.keys.key(EVENTS), "MAXLEN", "~", maxEvents, "*", *pairs)
