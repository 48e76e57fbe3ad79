"""The client objects that the kit has opened, and the processors of managed workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from conformance.driver.serve import OpError
from conformance.reference_impl.clock import AdjustableClock
from conformance.reference_impl.driver.observed import Observed
from conformance.reference_impl.driver.sandbox_start import START
from conformance.reference_impl.driver.views import Json, connection_of, job_view, raw
from conformance.reference_impl.errors import (
    BullMQError,
    DelayedError,
    RateLimitError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.policy import Policy, ReconnectPolicy
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_base import QueueBase
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.job_runner import Processor
from conformance.reference_impl.workers.worker import Worker

FORCE_CLOSE_S: Final = 2
"""How long `reset` waits for one handle."""

_PATIENT: Final = Policy(wait_unsent_s=6, reconnect=ReconnectPolicy(longest_s=1))
"""Calls wait for Redis, as those of Node.js do, but not longer than the kit waits for their answers."""

DEFAULT_MESSAGE: Final = "failed on request"

_JOB_EVENTS: Final = ("active", "completed", "failed")
_PLAIN_EVENTS: Final = ("drained", "paused", "resumed", "closed")

AnyClient = QueueBase[Any] | FlowProducer
Client = TypeVar("Client", bound=AnyClient)


class EmitEvent(Protocol):
    """Sends an event of a handle to the kit."""

    def __call__(self, handle: str, name: str, args: Json | None = None) -> None:
        """Send it."""
        ...


@dataclass
class ReferenceHandle:
    """One opened object.

    `claimed`: jobs of a manual worker, as they were fetched. `asked`: jobs of processor `ask` that wait for `resolve`.
    `observed`: its metrics and logs, if it was opened with `library`.
    """

    name: str
    client: AnyClient
    claimed: dict[str, Job] = field(default_factory=dict)
    asked: defaultdict[str, deque[asyncio.Future[Json]]] = field(default_factory=lambda: defaultdict(deque))
    observed: Observed | None = None

    def kept(self) -> Observed:
        """Return its metrics and logs. Raises OpError if it was opened without `library`."""
        if self.observed is None:
            raise OpError("invalid-argument", f"{self.name} was opened without library")
        return self.observed

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


class ReferenceHandles:
    """All open handles, and what is needed to open one. `scripts` is called once, when the first handle opens."""

    def __init__(self, emit: EmitEvent, clock: AdjustableClock, scripts: Callable[[], ScriptTexts]) -> None:
        self._emit = emit
        self._clock = clock
        self._scripts = scripts
        self._open: dict[str, ReferenceHandle] = {}

    def named(self, name: str | None) -> ReferenceHandle:
        """Return an open handle. Raises OpError."""
        handle = self._open.get(name or "")
        if handle is None:
            raise OpError("invalid-argument", f"no handle is called {name}")
        return handle

    def client(self, name: str | None, kind: type[Client]) -> Client:
        """Return the object of a handle. Raises OpError if it is of another kind."""
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
        options = {
            **(args.get("options") or {}),
            "prefix": args["prefix"],
            "connection": connection_of(args["redis"]),
        }
        if args["role"] in {"queue", "flow"} and not args["redis"].get("fail_fast"):
            options["policy"] = _PATIENT
        observed = Observed(passing=RequestedFailure) if args.get("library") else None
        handle = openers[args["role"]](name, args, {**options, **(observed.options if observed else {})})
        handle.observed = observed
        if not args.get("unheard"):
            self._forward_errors(name, handle.client)
        # Before it is connected: a second `open` of the name must be refused meanwhile.
        self._open[name] = handle
        try:
            if not options.get("skipWaitingForReady"):
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
        """Operation `reset`; the server resets the clock."""
        handles = list(self._open.values())
        # Removed before they are closed: a concurrent call must not find a handle that is closing.
        self._open.clear()
        await asyncio.gather(*(_abandon(handle) for handle in handles))
        return None

    def _queue(self, name: str, args: Json, options: Json) -> ReferenceHandle:
        queue = Queue(args["queue"], options, scripts=self._scripts(), clock=self._clock)
        queue.on("removed", lambda job_id: self._emit(name, "removed", {"job": job_id}))
        queue.on("progress", lambda job, _progress: self._emit(name, "progress", {"job": getattr(job, "id", job)}))
        for event in ("paused", "resumed"):
            queue.on(event, lambda event=event: self._emit(name, event))
        return ReferenceHandle(name, queue)

    def _worker(self, name: str, args: Json, options: Json) -> ReferenceHandle:
        kind = args.get("processor") or "manual"
        holder: list[ReferenceHandle] = []
        ask = AskProcessor(lambda: holder[0].asked, lambda event: self._emit(name, "job", event))
        settings = args.get("processor_args") or {}
        chosen = sandboxed(settings) if kind == "sandboxed" else make_processor(kind, settings, ask)
        worker = Worker(args["queue"], chosen, options, scripts=self._scripts(), clock=self._clock)
        if settings.get("start", "").endswith("-once"):
            worker.once("failed", lambda *_: os.environ.update({START: ""}))
        holder.append(ReferenceHandle(name, worker))
        self._forward_worker_events(name, worker)
        return holder[0]

    def _events(self, name: str, args: Json, options: Json) -> ReferenceHandle:
        reader = QueueEvents(args["queue"], options, scripts=self._scripts(), clock=self._clock)

        def entry(event: str, fields: Json, entry_id: str) -> None:
            self._emit(name, "queue-event", {"name": event, "event_id": entry_id, "fields": dict(fields)})

        reader.on("*", entry)
        return ReferenceHandle(name, reader)

    def _flow(self, name: str, _args: Json, options: Json) -> ReferenceHandle:
        producer = FlowProducer(options, scripts=self._scripts(), clock=self._clock)
        return ReferenceHandle(name, producer)

    def _forward_errors(self, name: str, client: AnyClient) -> None:
        client.on("error", lambda error: self._emit(name, "error", {"message": str(error)}))

    def _forward_worker_events(self, name: str, worker: Worker) -> None:
        for event in _JOB_EVENTS:
            worker.on(event, lambda job, *_, event=event: self._emit(name, event, {"job": job.id}))
        worker.on("stalled", lambda job_id, *_: self._emit(name, "stalled", {"job": job_id}))
        for plain in _PLAIN_EVENTS:
            worker.on(plain, lambda *_, plain=plain: self._emit(name, plain))


async def _abandon(handle: ReferenceHandle) -> None:
    with contextlib.suppress(Exception):
        # A server that a scenario has stopped would otherwise keep `reset` past its deadline.
        async with asyncio.timeout(FORCE_CLOSE_S):
            await handle.close(force=True)


class RequestedFailure(BullMQError):
    """The kit wants the job to fail."""


class AskProcessor:
    """Sends each job to the kit and waits for its `resolve`."""

    def __init__(
        self, asked: Callable[[], defaultdict[str, deque[asyncio.Future[Json]]]], emit: Callable[[Json], None]
    ) -> None:
        self._asked = asked
        self._emit = emit

    async def process(self, job: Job, token: str) -> Any:
        """Processor `ask`."""
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        # Stored before the event is sent, because the kit may resolve the job at once.
        self._asked()[job.known_id].append(answer)
        self._emit({"job": job_view(job), "token": token})
        resolved = await answer
        return await _OUTCOMES[resolved["outcome"]](resolved, job, token)


def resolve_asked(asked: defaultdict[str, deque[asyncio.Future[Json]]], args: Json) -> None:
    """Operation `resolve`: end the processor that has waited longest with this job. Raises OpError."""
    if args["outcome"] not in _OUTCOMES:
        raise OpError("invalid-argument", f"no such outcome: {args['outcome']}")
    waiting = asked.get(args["job"])
    while waiting:
        answer = waiting.popleft()
        # Cancelled by a forced close: the next run of the same job gets the outcome.
        if not answer.done():
            answer.set_result(args)
            return
    raise OpError("invalid-argument", f"job {args['job']} does not wait for an answer")


def sandboxed(settings: Json) -> str:
    """Return the processor for a process of its own, and let the processes know how to start."""
    os.environ[START] = settings.get("start", "")
    return "conformance.reference_impl.driver.sandboxed:process"


def make_processor(kind: str, args: Json, ask: AskProcessor) -> Processor | None:
    """Choose the processor of a kind, None for a manual worker. Raises OpError for an unknown kind."""
    if kind == "manual":
        return None
    message = args.get("message", DEFAULT_MESSAGE)
    known: dict[str, Processor] = {
        "ask": ask.process,
        "noop": _noop,
        "echo": _echo,
        "sleep": lambda _job, _token: asyncio.sleep(args.get("ms", 0) / 1000),
        "fail": lambda job, _token: _fail_until(job, args.get("times", 1), message),
        "throw": lambda _job, _token: _throw(message),
        "progress": lambda job, _token: _report(job, args.get("values", [])),
        "steps": _follow_steps,
    }
    if kind not in known:
        raise OpError("invalid-argument", f"no such processor: {kind}")
    return known[kind]


def _noop(_job: Job, _token: str) -> None:
    return None


def _echo(job: Job, _token: str) -> Any:
    return job.data


def _throw(message: str) -> None:
    raise RequestedFailure(message)


def _fail_until(job: Job, attempts: int, message: str) -> None:
    if job.attemptsMade < attempts:
        raise RequestedFailure(message)


async def _report(job: Job, values: list[Any]) -> None:
    for value in values:
        await job.updateProgress(value)


async def _follow_steps(job: Job, _token: str) -> Any:
    """Run the steps in the job's data."""
    steps = job.data.get("steps", []) if isinstance(job.data, dict) else []
    for step in steps:
        match step["do"]:
            case "progress":
                await job.updateProgress(step["value"])
            case "log":
                await job.log(step["row"])
            case "sleep":
                await asyncio.sleep(step["ms"] / 1000)
            case "fail":
                if "until_attempt" not in step or job.attemptsMade < step["until_attempt"]:
                    raise RequestedFailure(step["message"])
            case "unrecoverable":
                raise UnrecoverableError(step["message"])
            case "return":
                return step["value"]
            case unknown:
                raise RequestedFailure(f"unknown step: {unknown}")
    return None


async def _complete(answer: Json, _job: Job, _token: str) -> Any:
    return raw(answer.get("value_raw"))


async def _fail(answer: Json, _job: Job, _token: str) -> Any:
    raise RequestedFailure(answer.get("message", DEFAULT_MESSAGE))


async def _unrecoverable(answer: Json, _job: Job, _token: str) -> Any:
    raise UnrecoverableError(answer.get("message", DEFAULT_MESSAGE))


async def _delay(answer: Json, job: Job, token: str) -> Any:
    await job.moveToDelayed(job.owner.clock.now_ms() + answer.get("ms", 0), token)
    raise DelayedError


async def _wait_again(_answer: Json, job: Job, token: str) -> Any:
    await job.moveToWait(token)
    raise WaitingError


async def _wait_for_children(answer: Json, job: Job, token: str) -> Any:
    if await job.moveToWaitingChildren(token):
        raise WaitingChildrenError
    # No child was pending, so the processor continues, and ends here.
    return raw(answer.get("value_raw"))


async def _rate_limit(answer: Json, job: Job, _token: str) -> Any:
    if isinstance(job.owner, Worker):
        await job.owner.rateLimit(answer.get("ms", 0))
    raise RateLimitError


_OUTCOMES: dict[str, Callable[[Json, Job, str], Awaitable[Any]]] = {
    "complete": _complete,
    "fail": _fail,
    "unrecoverable": _unrecoverable,
    "delay": _delay,
    "wait": _wait_again,
    "waiting-children": _wait_for_children,
    "rate-limit": _rate_limit,
}
