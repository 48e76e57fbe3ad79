"""The client's objects that the kit has opened, and the processors of managed workers.

Processors take (job, token) and no third parameter, because the client counts parameters to see whether a processor
wants an abort signal.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from bullmq import Job
from kit import OpError, Unsupported, job_view, parse, text_of
from versions import error_class, has

Json = dict[str, Any]

ABANDON_SECONDS = 1.0
"""How long (s) `reset` waits for one object to close its sockets."""

LOCAL_EVENTS_OF_A_JOB = ("active", "completed", "failed")
LOCAL_EVENTS_WITHOUT = ("drained", "paused", "resumed", "closed")
Processor = Callable[[Job, str], Awaitable[Any]]
DEFAULT_MESSAGE = "failed on request"

MISSING_OUTCOMES = {
    "wait": "this client has no Job.moveToWait and no WaitingError",
    "rate-limit": "this client has no Worker.rateLimit and no RateLimitError",
}
if not has(Job, "moveToDelayed"):
    MISSING_OUTCOMES["delay"] = "this version of the client has no Job.moveToDelayed and no DelayedError"


@dataclass
class OfficialHandle:
    """One object of the client, with its jobs and tasks."""

    name: str
    role: str
    object: Any
    send: Callable[[str, Json], None]
    """Sends an event (name, arguments) of this handle to the kit."""
    held: dict[str, Job] = field(default_factory=dict)
    """Jobs that a manual worker holds, by id: finished through the claimed object, as a user would."""
    asked: dict[str, deque[asyncio.Future[Json]]] = field(default_factory=dict)
    """Jobs of processor `ask` that wait for `resolve`: by id, the oldest first."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    """Loops that the driver has started for the object."""

    async def close(self, *, force: bool = False) -> None:
        """Close as the client's user would."""
        await (self.object.close(force) if self.role == "worker" else self.object.close())

    async def find_job(self, job_id: str) -> Job:
        """Return the job as held, or as read now.

        A job without a hash still gets a Job object, as a user may have one whose hash was deleted; the script then
        has to report that the job is missing.
        """
        return self.held.get(job_id) or await Job.fromId(self.object, job_id) or Job(self.object, "", {}, {}, job_id)

    def hold(self, job: Job | None) -> Job | None:
        """Remember a job that the worker has claimed."""
        if job is not None:
            self.held[str(job.id)] = job
        return job

    def report_errors(self) -> None:
        """Forward errors to the kit. Queue and FlowProducer never emit errors."""
        self.object.on("error", lambda error, *_job: self.send("error", {"message": text_of(error)}))

    def report_worker_events(self) -> None:
        """Send the worker's local events to the kit."""
        for name in LOCAL_EVENTS_OF_A_JOB:
            self.object.on(name, lambda job, *_rest, name=name: self.send(name, {"job": str(job.id)}))
        self.object.on("stalled", lambda job_id: self.send("stalled", {"job": str(job_id)}))
        self.object.on("locksRenewed", lambda renewed: self.send("locksRenewed", {"jobs": renewed["jobIds"]}))
        self.object.on("lockRenewalFailed", lambda jobs: self.send("lockRenewalFailed", {"jobs": jobs}))
        for name in LOCAL_EVENTS_WITHOUT:
            self.object.on(name, lambda *_rest, name=name: self.send(name, {}))


class OfficialHandles:
    """All open handles."""

    def __init__(self) -> None:
        self._open: dict[str, OfficialHandle] = {}

    def add(self, handle: OfficialHandle) -> None:
        """Keep a handle."""
        self._open[handle.name] = handle

    def forget(self, handle: OfficialHandle) -> None:
        """Forget a handle, if it is still the one of its name."""
        if self._open.get(handle.name) is handle:
            del self._open[handle.name]

    def check_free(self, name: str | None) -> str:
        """Return the name for a new handle. Raises OpError."""
        if not name or name in self._open:
            raise OpError("invalid-argument", f"handle {name} is already open" if name else "open needs a handle")
        return name

    def named(self, name: str | None, *roles: str) -> OfficialHandle:
        """Return an open handle of one of the roles. Raises OpError."""
        handle = self._open.get(name or "")
        if handle is None:
            raise OpError("invalid-argument", f"no handle is called {name}")
        if handle.role not in roles:
            raise OpError("invalid-argument", f"{name} is a {handle.role}, not a {' or '.join(roles)}")
        return handle

    async def close(self, name: str | None, *, force: bool) -> None:
        """Close one handle as the client's user would, and forget it."""
        handle = self.named(name, "queue", "worker", "events", "flow")
        # Forgotten only after the close: a second `close` meanwhile must reach the same object.
        await handle.close(force=force)
        self._open.pop(handle.name, None)

    async def abandon_all(self) -> None:
        """Forget all handles; their sockets are closed without waiting for jobs."""
        # Removed before they are closed: a concurrent call must not find a handle that is closing.
        abandoned, self._open = list(self._open.values()), {}
        await asyncio.gather(*(within(ABANDON_SECONDS, handle.close(force=True)) for handle in abandoned))
        # After the closes, which end these loops in the normal way; only those that hang are cancelled.
        for task in [task for handle in abandoned for task in handle.tasks]:
            task.cancel()


async def within(seconds: float, ending: Awaitable[Any]) -> bool:
    """Wait for an operation that may hang; returns whether it has ended.

    Not `asyncio.wait_for`, which waits until the cancelled task ends: the client's `close` ignores cancellation.
    """
    task = asyncio.ensure_future(ending)
    done, _pending = await asyncio.wait({task}, timeout=seconds)
    if not done:
        print(f"not ended within {seconds} s: {ending}", file=sys.stderr)
        return False
    if not task.cancelled() and task.exception() is not None:
        print(f"ended with {task.exception()!r}: {ending}", file=sys.stderr)
    return True


class FailedOnRequestError(Exception):
    """Raised by a processor to fail the job on request of the kit."""


def throw(error: Exception) -> NoReturn:
    """Raise an error, so that it has a stack trace."""
    raise error


def processor_for(name: str, handle: OfficialHandle, settings: Json) -> Processor | None:
    """Return the function for a worker; None for `manual`. Raises OpError."""
    if name == "manual":
        return None
    if name not in PROCESSORS:
        raise OpError("invalid-argument", f"no such processor: {name}")
    return PROCESSORS[name](handle, settings)


def _ask(handle: OfficialHandle, _settings: Json) -> Processor:
    async def ask(job: Job, token: str, signal: Any = None) -> Any:
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        # Stored before the event is sent, because the kit may resolve the job at once.
        handle.asked.setdefault(str(job.id), deque()).append(answer)
        handle.send("job", {"job": job_view(job), "token": token})
        cancelled = asyncio.create_task(_report_cancelled(handle, job, signal))
        try:
            return await _end(job, token, await answer)
        finally:
            cancelled.cancel()

    return ask


async def _report_cancelled(handle: OfficialHandle, job: Job, signal: Any) -> None:
    """Report the signal of a processor when it is aborted; older clients have none."""
    if signal is not None:
        await signal.wait()
        handle.send("cancelled", {"job": str(job.id), "reason": signal.reason})


def resolve(handle: OfficialHandle, args: Json) -> None:
    """End the processor of a job as the kit has decided. Raises OpError and Unsupported."""
    if args["outcome"] in MISSING_OUTCOMES:
        raise Unsupported(MISSING_OUTCOMES[args["outcome"]])
    if args["outcome"] not in OUTCOMES:
        raise OpError("invalid-argument", f"no such outcome: {args['outcome']}")
    waiting = handle.asked.get(args["job"])
    if not waiting:
        raise OpError("invalid-argument", f"job {args['job']} does not wait for an answer at {handle.name}")
    # Parsed here for its error: inside the processor it would fail the job instead of the call.
    parse(args.get("value_raw") or "null")
    waiting.popleft().set_result(args)


async def _end(job: Job, token: str, answer: Json) -> Any:
    """Return the value or raise the error that the kit has decided on."""
    return await OUTCOMES[answer["outcome"]](job, token, answer)


async def _complete(_job: Job, _token: str, answer: Json) -> Any:
    return parse(answer.get("value_raw") or "null")


async def _fail(_job: Job, _token: str, answer: Json) -> Any:
    raise FailedOnRequestError(answer.get("message", DEFAULT_MESSAGE))


async def _unrecoverable(_job: Job, _token: str, answer: Json) -> Any:
    raise error_class("UnrecoverableError")(answer.get("message", DEFAULT_MESSAGE))


async def _delay(job: Job, token: str, answer: Json) -> Any:
    await job.moveToDelayed(round(time.time() * 1000) + answer.get("ms", 0), token)
    raise error_class("DelayedError")


async def _wait_for_children(job: Job, token: str, answer: Json) -> Any:
    if await job.moveToWaitingChildren(token, {}):
        raise error_class("WaitingChildrenError")
    # No child was pending, so the processor continues, and ends here.
    return parse(answer.get("value_raw") or "null")


OUTCOMES: dict[str, Callable[[Job, str, Json], Awaitable[Any]]] = {
    "complete": _complete,
    "fail": _fail,
    "unrecoverable": _unrecoverable,
    "delay": _delay,
    "waiting-children": _wait_for_children,
}


def _noop(_handle: OfficialHandle, _settings: Json) -> Processor:
    async def noop(_job: Job, _token: str) -> Any:
        return None

    return noop


def _echo(_handle: OfficialHandle, _settings: Json) -> Processor:
    async def echo(job: Job, _token: str) -> Any:
        return job.data

    return echo


def _sleep(_handle: OfficialHandle, settings: Json) -> Processor:
    async def sleep(_job: Job, _token: str) -> Any:
        await asyncio.sleep(settings.get("ms", 0) / 1000)

    return sleep


def _fail_at_first(_handle: OfficialHandle, settings: Json) -> Processor:
    async def fail_at_first(job: Job, _token: str) -> Any:
        if job.attemptsMade < settings.get("times", 1):
            raise FailedOnRequestError(settings.get("message", DEFAULT_MESSAGE))

    return fail_at_first


def _throw(_handle: OfficialHandle, settings: Json) -> Processor:
    async def always_fail(_job: Job, _token: str) -> Any:
        raise FailedOnRequestError(settings.get("message", DEFAULT_MESSAGE))

    return always_fail


def _progress(_handle: OfficialHandle, settings: Json) -> Processor:
    async def progress(job: Job, _token: str) -> Any:
        for value in settings.get("values", []):
            await job.updateProgress(value)

    return progress


def _steps(_handle: OfficialHandle, _settings: Json) -> Processor:
    async def steps(job: Job, _token: str) -> Any:
        for step in (job.data or {}).get("steps", []):
            if step["do"] == "return":
                return step.get("value")
            await _take_step(job, step)
        return None

    return steps


async def _take_step(job: Job, step: Json) -> None:
    match step["do"]:
        case "progress":
            await job.updateProgress(step["value"])
        case "log":
            await job.log(step["row"])
        case "sleep":
            await asyncio.sleep(step["ms"] / 1000)
        case "fail":
            if job.attemptsMade < step.get("until_attempt", float("inf")):
                raise FailedOnRequestError(step["message"])
        case "unrecoverable":
            raise error_class("UnrecoverableError")(step["message"])
        case unknown:
            raise FailedOnRequestError(f"unknown step: {unknown}")


PROCESSORS: dict[str, Callable[[OfficialHandle, Json], Processor]] = {
    "ask": _ask,
    "noop": _noop,
    "echo": _echo,
    "sleep": _sleep,
    "fail": _fail_at_first,
    "throw": _throw,
    "progress": _progress,
    "steps": _steps,
}
