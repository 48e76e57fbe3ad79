"""The client's objects that the kit has opened, by the name of their handle."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bullmq import Job
from errors import text_of
from kit import OpError

Json = dict[str, Any]

ABANDON_SECONDS = 1.0
"""How long `reset` waits for one object to let go of its sockets."""

LOCAL_EVENTS_OF_A_JOB = ("active", "completed", "failed")
LOCAL_EVENTS_WITHOUT = ("drained", "paused", "resumed", "closed")


@dataclass
class Handle:
    """One object of the client, and what must be remembered about it."""

    name: str
    role: str
    object: Any
    send: Callable[[str, Json], None]
    """Sends an event (name, arguments) of this handle to the kit."""
    held: dict[str, Job] = field(default_factory=dict)
    """Jobs that a manual worker holds, by id: finishing acts on the object as it was claimed, like a user would."""
    asked: dict[str, deque[asyncio.Future[Json]]] = field(default_factory=dict)
    """Jobs of processor `ask` that wait for `resolve`: by id, the oldest first."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    """Loops that the driver has started for the object."""

    async def close(self, *, force: bool = False) -> None:
        """Close as the client's user would."""
        await (self.object.close(force) if self.role == "worker" else self.object.close())

    async def find_job(self, job_id: str) -> Job:
        """Return the job as held, or as read now.

        A job without a hash still gets a Job object, as a user holds one whose hash has gone since: it is the script
        that must say that the job is missing.
        """
        return self.held.get(job_id) or await Job.fromId(self.object, job_id) or Job(self.object, "", {}, {}, job_id)

    def hold(self, job: Job | None) -> Job | None:
        """Remember a job that the worker has claimed."""
        if job is not None:
            self.held[str(job.id)] = job
        return job

    def report_errors(self) -> None:
        """Tell the kit what the client's error listener is told. Queue and FlowProducer never emit errors."""
        self.object.on("error", lambda error, *_job: self.send("error", {"message": text_of(error)}))

    def report_worker_events(self) -> None:
        """Tell the kit about the worker's local events."""
        for name in LOCAL_EVENTS_OF_A_JOB:
            self.object.on(name, lambda job, *_rest, name=name: self.send(name, {"job": str(job.id)}))
        self.object.on("stalled", lambda job_id: self.send("stalled", {"job": str(job_id)}))
        for name in LOCAL_EVENTS_WITHOUT:
            self.object.on(name, lambda *_rest, name=name: self.send(name, {}))


class Handles:
    """All open handles."""

    def __init__(self) -> None:
        self._open: dict[str, Handle] = {}

    def add(self, handle: Handle) -> None:
        """Keep an object that is connected."""
        self._open[handle.name] = handle

    def check_free(self, name: str | None) -> str:
        """Return the name for a new handle. Raises OpError."""
        if not name or name in self._open:
            raise OpError("invalid-argument", f"handle {name} is already open" if name else "open needs a handle")
        return name

    def named(self, name: str | None, *roles: str) -> Handle:
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
        await handle.close(force=force)
        self._open.pop(handle.name, None)

    async def abandon_all(self) -> None:
        """Forget all handles; their sockets are closed without waiting for jobs."""
        abandoned, self._open = list(self._open.values()), {}
        await asyncio.gather(*(within(ABANDON_SECONDS, handle.close(force=True)) for handle in abandoned))
        for task in [task for handle in abandoned for task in handle.tasks]:
            task.cancel()


async def within(seconds: float, work: Awaitable[Any]) -> bool:
    """Wait for something that may hang; say whether it has ended.

    Not `asyncio.wait_for`, which waits for the end of what it cancels: the client's `close` refuses to be cancelled.
    """
    task = asyncio.ensure_future(work)
    done, _pending = await asyncio.wait({task}, timeout=seconds)
    if not done:
        print(f"not ended within {seconds} s: {work}", file=sys.stderr)
        return False
    if not task.cancelled() and task.exception() is not None:
        print(f"ended with {task.exception()!r}: {work}", file=sys.stderr)
    return True
