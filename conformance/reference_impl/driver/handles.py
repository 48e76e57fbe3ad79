"""The client objects that the kit has opened."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from conformance.driver.serve import OpError
from conformance.reference_impl.clock import AdjustableClock
from conformance.reference_impl.driver import processors
from conformance.reference_impl.driver.views import Json, address
from conformance.reference_impl.flows.flow_producer import FlowProducer
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.base import QueueBase
from conformance.reference_impl.queues.events import QueueEvents
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker

FORCE_CLOSE_S: Final = 2
"""How long `reset` waits for one handle."""

_JOB_EVENTS: Final = ("active", "completed", "failed")
_PLAIN_EVENTS: Final = ("drained", "paused", "resumed", "closed")

AnyClient = QueueBase | FlowProducer
Client = TypeVar("Client", bound=AnyClient)


class Emit(Protocol):
    """Sends an event of a handle to the kit."""

    def __call__(self, handle: str, name: str, args: Json | None = None) -> None:
        """Send it."""
        ...


@dataclass
class Handle:
    """One opened object.

    `claimed`: jobs of a manual worker, as they were fetched. `asked`: jobs that wait for `resolve`.
    """

    name: str
    client: AnyClient
    claimed: dict[str, Job] = field(default_factory=dict)
    asked: defaultdict[str, deque[asyncio.Future[Json]]] = field(default_factory=lambda: defaultdict(deque))

    def hold(self, job: Job | None) -> Job | None:
        """Remember a job that a manual worker has fetched."""
        if job is not None:
            self.claimed[job.known_id] = job
        return job

    async def close(self, *, force: bool) -> None:
        """Close as the client's user would."""
        if isinstance(self.client, Worker):
            await self.client.close(force)
        else:
            await self.client.close()


class Handles:
    """All open handles, and what is needed to open one. `scripts` is asked once, when the first handle opens."""

    def __init__(self, emit: Emit, clock: AdjustableClock, scripts: Callable[[], ScriptTexts]) -> None:
        self._emit = emit
        self._clock = clock
        self._scripts = scripts
        self._open: dict[str, Handle] = {}

    def named(self, name: str | None) -> Handle:
        """Answer an open handle. Raises OpError."""
        handle = self._open.get(name or "")
        if handle is None:
            raise OpError("invalid-argument", f"no handle is called {name}")
        return handle

    def client(self, name: str | None, kind: type[Client]) -> Client:
        """Answer the object behind a handle. Raises OpError where it is of another kind."""
        client = self.named(name).client
        if not isinstance(client, kind):
            raise OpError("invalid-argument", f"{name} is a {type(client).__name__}, not a {kind.__name__}")
        return client

    async def open(self, name: str | None, args: Json) -> Json | None:
        """Operation `open`."""
        if not name or name in self._open:
            raise OpError("invalid-argument", f"handle {name} is already open" if name else "open needs a handle")
        openers = {"queue": self._queue, "worker": self._worker, "events": self._events, "flow": self._flow}
        if args["role"] not in openers:
            raise OpError("invalid-argument", f"no such role: {args['role']}")
        options = {**(args.get("options") or {}), "prefix": args["prefix"], "connection": address(args["redis"])}
        handle = openers[args["role"]](name, args, options)
        self._open[name] = handle
        try:
            await handle.client.waitUntilReady()
        except Exception:
            self._open.pop(name, None)
            await _abandon(handle)
            raise
        return None

    async def close(self, name: str | None, args: Json) -> Json | None:
        """Operation `close`."""
        handle = self.named(name)
        await handle.close(force=bool(args.get("force")))
        self._open.pop(handle.name, None)
        return None

    async def reset(self, _name: str | None, _args: Json) -> Json | None:
        """Operation `reset`: the clock is set free by the server."""
        handles = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(_abandon(handle) for handle in handles))
        return None

    def _queue(self, name: str, args: Json, options: Json) -> Handle:
        queue = Queue(args["queue"], options, scripts=self._scripts(), clock=self._clock)
        self._tell_errors(name, queue)
        return Handle(name, queue)

    def _worker(self, name: str, args: Json, options: Json) -> Handle:
        kind = args.get("processor") or "manual"
        holder: list[Handle] = []
        ask = processors.Asker(lambda: holder[0].asked, lambda event: self._emit(name, "job", event))
        chosen = processors.make(kind, args.get("processor_args") or {}, ask)
        worker = Worker(args["queue"], chosen, options, scripts=self._scripts(), clock=self._clock)
        holder.append(Handle(name, worker))
        self._tell_errors(name, worker)
        self._tell_worker_events(name, worker)
        return holder[0]

    def _events(self, name: str, args: Json, options: Json) -> Handle:
        reader = QueueEvents(args["queue"], options, scripts=self._scripts(), clock=self._clock)
        self._tell_errors(name, reader)

        def entry(event: str, fields: Json, entry_id: str) -> None:
            self._emit(name, "queue-event", {"name": event, "event_id": entry_id, "fields": dict(fields)})

        reader.on("*", entry)
        return Handle(name, reader)

    def _flow(self, name: str, _args: Json, options: Json) -> Handle:
        producer = FlowProducer(options, scripts=self._scripts(), clock=self._clock)
        self._tell_errors(name, producer)
        return Handle(name, producer)

    def _tell_errors(self, name: str, client: AnyClient) -> None:
        client.on("error", lambda error: self._emit(name, "error", {"message": str(error)}))

    def _tell_worker_events(self, name: str, worker: Worker) -> None:
        for event in _JOB_EVENTS:
            worker.on(event, lambda job, *_, event=event: self._emit(name, event, {"job": job.id}))
        worker.on("stalled", lambda job_id, *_: self._emit(name, "stalled", {"job": job_id}))
        for event in _PLAIN_EVENTS:
            worker.on(event, lambda *_, event=event: self._emit(name, event))


async def _abandon(handle: Handle) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(FORCE_CLOSE_S):
            await handle.close(force=True)
