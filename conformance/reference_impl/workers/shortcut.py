"""The shortcut from the end of a job to the next one, without a task that waits for the reply to the completion.

A worker at full load spends most of its processor time between the end of a job and the start of the next one. Here
the reply of Redis goes straight to an object, which starts the next job. All but the usual case (errors, refusals,
repeating jobs, outages, telemetry) goes to the code of `JobRunner`.
"""

from __future__ import annotations

import contextvars
from collections.abc import Coroutine
from typing import Any, Final, Protocol

from conformance.reference_impl import js_values
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.scripts.move import FetchReply, MoveScripts
from conformance.reference_impl.scripts.runner import ScriptRunner
from conformance.reference_impl.workers.fetching import JobFetcher, ScheduleContinuation, is_repeating
from conformance.reference_impl.workers.job_runner import JobRunner, JobSlots
from conformance.reference_impl.workers.running_worker import RunningWorker


class EndingSlots(JobSlots, Protocol):
    """The loop of a worker, as an ending job sees it."""

    def hand_over(self, ending: Ending) -> None:
        """Let an ending keep the slot of the current task."""
        ...

    def go_on(self, ending: Ending, following: Job | None) -> None:
        """Give the slot of an ending to the next job, or free it."""
        ...

    def go_on_in_task(
        self, ending: Ending, act: Coroutine[Any, Any, Job | None], context: contextvars.Context | None = None
    ) -> None:
        """Give the slot of an ending to a task, in this context instead of the worker's."""
        ...


class Ending:
    """A job whose completion is on its way to Redis; it keeps the job's slot, and receives the reply."""

    __slots__ = ("_context", "_is_dropped", "_reply", "_shortcut", "finished_on", "job", "slots", "token", "value")

    def __init__(self, shortcut: QuickCompletion, job: Job, value: Any, slots: EndingSlots, finished_on: int) -> None:
        self.job = job
        self.value = value
        self.token = job.token or ""
        self.slots = slots
        self.finished_on = finished_on
        self._shortcut = shortcut
        # That of the job's task: listeners see what the processor has set, as they do after an `await`.
        self._context = contextvars.copy_context()
        self._is_dropped = False
        self._reply: Any = None

    def drop(self) -> None:
        """Ignore the reply: the job is abandoned."""
        self._is_dropped = True

    def done(self) -> bool:
        """Whether the reply is to be ignored."""
        return self._is_dropped

    def set_result(self, result: Any, /) -> None:
        """Take the reply, and go on."""
        self._reply = result
        self._context.run(self._shortcut.go_on, self, result)

    async def fetched(self) -> FetchReply | None:
        """Return what was fetched next. Raises as Job.moveToCompleted does, and NoScriptError."""
        return self.note(await self.job.owner.connection.checked(self._reply))

    def note(self, reply: Any) -> FetchReply | None:
        """Note in the job that it is completed; returns what was fetched next. Raises ScriptError."""
        fetched = self.job.scripts.read_finished(self.job.known_id, reply)
        self.job.finishedOn = self.finished_on
        self.job.attemptsMade += 1
        return fetched


class SkippedMethods:
    """Methods that the shortcut does not call. A program that has replaced one, to trace or test it, gets its calls."""

    def __init__(self, *methods: tuple[type, str]) -> None:
        self._originals = {(owner, name): getattr(owner, name) for owner, name in methods}

    def are_whole(self, *objects: object) -> bool:
        """Whether none is replaced in its class, in a subclass of it, or in one of these objects."""
        for (owner, name), original in self._originals.items():
            users = [candidate for candidate in objects if isinstance(candidate, owner)]
            if getattr(owner, name) is not original:
                return False
            if any(name in vars(user) or getattr(type(user), name) is not original for user in users):
                return False
        return True


SKIPPED: Final = SkippedMethods(
    (Job, "moveToCompleted"),
    (MoveScripts, "move_to_finished"),
    (MoveScripts, "finish_call"),
    *((ScriptRunner, name) for name in ("run", "_by_digest", "_by_text")),
    *((Connection, name) for name in ("command", "at_once", "_watched")),
    (JobFetcher, "take"),
    (ScheduleContinuation, "continue_from"),
    *((JobRunner, name) for name in ("_end", "_complete", "_take")),
)


class QuickCompletion:
    """Completes jobs of one worker by the shortcut."""

    def __init__(self, worker: RunningWorker, fetcher: JobFetcher, runner: JobRunner) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._runner = runner

    def complete(self, job: Job, value: Any, slots: EndingSlots) -> bool:
        """Send the completion of a job; False if that must take the long way."""
        worker, connection = self._worker, self._worker.connection
        try:
            text = js_values.stringify(value)
            packed = worker.scripts.packed_completion(
                job.known_id, text, job.token or "", job.opts, fetch_next=self._runner.wants_more(slots)
            )
        except Exception:  # noqa: BLE001 - a value that is not JSON: the long way fails the attempt
            return False
        if packed is None:
            return False
        message, finished_on = packed
        job.returnvalue = value
        ending = Ending(self, job, value, slots, finished_on)
        # Before sending, which may call the receiver at once.
        if not connection.post(message, ending):
            return False
        slots.hand_over(ending)
        return True

    def go_on(self, ending: Ending, reply: Any) -> None:
        """Emit `completed`, and start the job that was fetched."""
        worker, job, slots = self._worker, ending.job, ending.slots
        if isinstance(reply, Exception) or (isinstance(reply, int) and reply != 0) or worker.link.is_lost:
            concluding = self._runner.conclude(job, ending.value, ending, slots)
            slots.go_on_in_task(ending, concluding, contextvars.copy_context())
            return
        fetched = ending.note(reply)
        worker.emit("completed", job, ending.value, "active")
        try:
            following = self._fetcher.received(fetched, ending.token)
        except ValueError as error:  # it stays in active and does not fail the job that just ended
            worker.report(error)
            following = None
        if following is not None and is_repeating(following):
            slots.go_on_in_task(ending, self._fetcher.continued(following))
        else:
            slots.go_on(ending, following)
