"""A job and everything that can be done with it (upstream `src/classes/job.ts`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from conformance.protocol import keys as names
from conformance.reference_impl import js_values
from conformance.reference_impl.connection.connection import flat_mapping
from conformance.reference_impl.emitter import Listener
from conformance.reference_impl.errors import JobFailed, JobLocked, ScriptError, UnreadableJob, WaitTimeout
from conformance.reference_impl.jobs import attempts, dependencies, options
from conformance.reference_impl.jobs.record import BoundJob, JobOwner, data_text, new_values
from conformance.reference_impl.policy import policy_of
from conformance.reference_impl.scripts.add import AddArguments
from conformance.reference_impl.scripts.manage import FINISHED_OK
from conformance.reference_impl.scripts.move import NO_TOKEN, FetchReply, FinishArguments
from conformance.reference_impl.telemetry.interface import SpanKind

_STORED_AS_THEY_ARE: Final = (
    *("parent", "parentKey", "progress", "attemptsMade", "attemptsStarted", "stalledCounter", "finishedOn"),
    *("processedOn", "timestamp", "deduplicationId", "repeatJobKey"),
)


class FinishNotifier(Protocol):
    """A QueueEvents reader, as waitUntilFinished needs it."""

    def on(self, event: str, listener: Listener) -> Any:
        """Call the listener at every such event."""
        ...

    def off(self, event: str, listener: Listener) -> None:
        """Forget the listener."""
        ...

    async def waitUntilReady(self) -> None:
        """Wait until no later event can be missed."""
        ...


class Job(BoundJob):
    """A job of one queue, bound to the queue or worker that it came from.

    The constructor raises InvalidArgument if the policy `strict_options` refuses the options.
    """

    # No `__slots__` of its own: programs may keep values on a job.

    def __init__(
        self, owner: JobOwner, name: str, data: Any, opts: Mapping[str, Any] | None = None, job_id: str | None = None
    ) -> None:
        if not isinstance(name, str):
            raise options.not_a_text("name", name)
        for concern in options.check_new_job(owner.opts, name, opts or {}):
            owner.emit("warning", concern)
        super().__init__(**new_values(name, data, opts or {}, owner.clock.now_ms()))
        self.bind(owner)
        self.id = job_id if job_id is not None else self.id

    @classmethod
    async def create(cls, owner: JobOwner, name: str, data: Any, opts: Mapping[str, Any] | None = None) -> Job:
        """Add a job. Raises InvalidArgument and ScriptError."""
        job = cls(owner, name, data, opts)
        job.id = await owner.scripts.add_job(job.to_new_job())
        return job

    @classmethod
    async def createBulk(cls, owner: JobOwner, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        """Add jobs ({name, data, opts}) in one pipeline. One invalid job refuses them all: InvalidArgument."""
        created = [
            cls(owner, options.required(entry, "name", "a job"), entry.get("data", {}), entry.get("opts"))
            for entry in jobs
        ]
        ids = await owner.scripts.add_jobs([job.to_new_job() for job in created])
        for job, job_id in zip(created, ids, strict=True):
            job.id = job_id
        return created

    @classmethod
    def fromJSON(cls, owner: JobOwner, fields: Mapping[str, str], job_id: str) -> Job:
        """Make a job from the fields of its hash. Raises UnreadableJob where they are not JSON."""
        try:
            job = cls.from_hash(fields, job_id)
        except (ValueError, TypeError, AttributeError) as error:
            raise UnreadableJob(f"job {job_id} of {owner.keys.qualified_name} cannot be read: {error}") from error
        job.bind(owner)
        return job

    @classmethod
    async def fromId(cls, owner: JobOwner, job_id: str) -> Job | None:
        """Return a stored job, or None where its hash does not exist.

        Raises InvalidArgument for an id that is not a text.
        """
        if not job_id:
            return None
        if not isinstance(job_id, str):
            raise options.not_a_text("job id", job_id)
        await owner.waitUntilReady()
        fields = flat_mapping(await owner.connection.command("HGETALL", owner.keys.key(job_id)))
        return cls.fromJSON(owner, fields, job_id) if fields else None

    @staticmethod
    async def addJobLog(owner: JobOwner, job_id: str, row: str, keepLogs: int | None = None) -> int:
        """Append a log row and keep the last `keepLogs` of them; returns how many there are."""
        return await owner.scripts.add_log(job_id, row, keepLogs)

    @property
    def queueName(self) -> str:
        """Name of the job's queue."""
        return self.owner.keys.queue

    def to_new_job(self, *, waits_for_children: bool = False) -> AddArguments:
        """Return what the add scripts need. Raises InvalidArgument for options that BullMQ or the policy refuses."""
        data = data_text(self.data)
        options.validate(self.name, self.opts, data)
        stored_options = options.encode(self.opts)
        options.check_payload(self.owner.opts, data, stored_options)
        return AddArguments(
            name=self.name,
            data=data,
            options=stored_options,
            timestamp=self.timestamp or 0,
            job_id=self.id,
            parent_key=self.parentKey,
            parent=dict(self.parent) if self.parent else None,
            scheduler_id=self.repeatJobKey,
            deduplication_id=self.deduplicationId,
            waits_for_children=waits_for_children,
        )

    @property
    def queue(self) -> JobOwner:
        """The queue, worker or flow on whose connection the job acts."""
        return self.owner

    @property
    def attempts(self) -> int:
        """The largest number of attempts."""
        return int(self.opts.get("attempts") or 1)

    @property
    def prefix(self) -> str:
        """Prefix of the job's keys."""
        return self.owner.keys.prefix

    @property
    def queueQualifiedName(self) -> str:
        """`PREFIX:QUEUE`."""
        return self.owner.keys.qualified_name

    def asJSON(self) -> dict[str, Any]:
        """Return the job as it would be stored: JSON texts, options under their stored names; without what is None."""
        stored = {
            "id": self.id,
            "name": self.name,
            "data": data_text(self.data),
            "opts": options.encode(self.opts),
            **{field: getattr(self, field) for field in _STORED_AS_THEY_ARE},
            "failedReason": js_values.stringify(self.failedReason),
            "stacktrace": js_values.stringify(self.stacktrace),
            "returnvalue": js_values.stringify(self.returnvalue),
            "nrjid": self.nextRepeatableJobId,
        }
        return {name: value for name, value in stored.items() if value is not None}

    async def moveToCompleted(self, returnValue: Any, token: str, fetchNext: bool = True) -> FetchReply | None:
        """Complete the job; returns the next job if `fetchNext`.

        Raises TypeError for a value that is not JSON, before anything is sent.
        """
        with self.owner.trace(SpanKind.INTERNAL, "complete"):
            value = js_values.stringify(returnValue)
            self.returnvalue = returnValue
            finish = FinishArguments(self.known_id, "completed", value, token, self.opts, fetchNext)
            fetched, self.finishedOn = await self.scripts.move_to_finished(finish)
            self.attemptsMade += 1
            return fetched

    async def moveToFailed(self, error: BaseException, token: str, fetchNext: bool = False) -> FetchReply | None:
        """End the attempt: retry at once, retry later, or fail permanently; returns the next job that was fetched."""
        return await attempts.fail_attempt(self, error, token, fetch_next=fetchNext)

    async def moveToDelayed(self, timestamp: float, token: str | None = None) -> None:
        """Delay an active job until this Unix time (ms). It does not count as an attempt."""
        # The script takes a delay, and a time that has passed means "now".
        delay = max(timestamp - self.owner.clock.now_ms(), 0)
        await self.scripts.move_to_delayed(self.known_id, delay, token or NO_TOKEN, skip_attempt=True)
        self.delay = delay

    async def moveToWait(self, token: str | None = None) -> int:
        """Put an active job back to wait as the next one to run; returns the remaining rate limit in ms, or 0."""
        return await self.scripts.move_to_wait(self.known_id, token or NO_TOKEN)

    async def moveToWaitingChildren(self, token: str, opts: dict[str, Any] | None = None) -> bool:
        """Let an active job wait for its children, or for the one that `opts["child"]` ({id, queue}) names.

        False when nothing is pending.
        """
        child = options.parent_key((opts or {}).get("child"))
        return await self.scripts.move_to_waiting_children(self.known_id, token, child or "")

    async def extendLock(self, token: str, duration: float) -> bool:
        """Renew the lock for `duration` ms; False when the token does not own it."""
        return await self.scripts.extend_lock(self.known_id, token, duration)

    def discard(self) -> None:
        """Make the next failure final."""
        self.discarded = True

    async def updateData(self, data: Any) -> None:
        """Replace the data."""
        self.data = data
        await self.scripts.update_data(self.known_id, js_values.stringify(data))

    async def updateProgress(self, progress: Any) -> None:
        """Set the progress, any JSON value, and publish it. Raises InvalidArgument where the policy forbids it."""
        options.check_progress(self.owner.opts, progress)
        self.progress = progress
        await self.scripts.update_progress(self.known_id, js_values.stringify(progress))
        self.owner.emit("progress", self, progress)

    async def log(self, row: str) -> int:
        """Append a log row; returns how many are kept (job option keepLogs, else `Policy.keep_logs`, else all)."""
        keep = self.opts.get("keepLogs") or policy_of(self.owner.opts).keep_logs
        return await self.scripts.add_log(self.known_id, row, keep)

    async def clearLogs(self, keepLogs: int | None = None) -> None:
        """Remove the log rows, except the last `keepLogs`."""
        key = self.key(names.LOGS)
        if keepLogs:
            await self.owner.connection.command("LTRIM", key, -keepLogs, -1)
        else:
            await self.owner.connection.command("DEL", key)

    async def promote(self) -> None:
        """Run a delayed job as soon as possible."""
        await self.scripts.promote(self.known_id)
        # After the script, which may refuse: the object must not show what Redis does not have.
        self.delay = 0

    async def changeDelay(self, delay: float) -> None:
        """Make a delayed job due `delay` ms from now."""
        await self.scripts.change_delay(self.known_id, delay)
        self.delay = delay

    async def changePriority(self, opts: dict[str, Any]) -> None:
        """Set `priority`; with `lifo` in front of the jobs of the same priority."""
        priority = opts.get("priority") or 0
        await self.scripts.change_priority(self.known_id, priority, lifo=js_values.truthy(opts.get("lifo")))
        self.priority = priority

    async def retry(self, state: Literal["completed", "failed"] = "failed") -> None:
        """Put a finished job back to wait."""
        self.failedReason, self.finishedOn, self.processedOn, self.returnvalue = None, None, None, None
        lifo = js_values.truthy(self.opts.get("lifo"))
        await self.scripts.reprocess_job(self.known_id, state, lifo=lifo)

    async def remove(self, opts: dict[str, Any] | None = None) -> None:
        """Remove the job and, unless `removeChildren` is false, its children. Raises JobLocked."""
        await self.owner.waitUntilReady()
        remove_children = (opts or {}).get("removeChildren", True)
        if not await self.scripts.remove_job(self.known_id, remove_children=remove_children):
            raise JobLocked(f"Job {self.id} could not be removed because it is locked by another worker")
        self.owner.emit("removed", self)

    async def getState(self) -> str:
        """Return `waiting`, `active`, ..., or `unknown`."""
        return await self.scripts.get_state(self.known_id)

    async def isCompleted(self) -> bool:
        """Whether the job is among the completed ones."""
        return await self._is_in_zset(names.COMPLETED)

    async def isFailed(self) -> bool:
        """Whether the job is among the failed ones."""
        return await self._is_in_zset(names.FAILED)

    async def isDelayed(self) -> bool:
        """Whether the job is delayed."""
        return await self._is_in_zset(names.DELAYED)

    async def isWaitingChildren(self) -> bool:
        """Whether the job waits for its children."""
        return await self._is_in_zset(names.WAITING_CHILDREN)

    async def isActive(self) -> bool:
        """Whether a worker holds the job."""
        return await self._is_in_list(names.ACTIVE)

    async def isWaiting(self) -> bool:
        """Whether the job waits for a worker, in a paused queue too."""
        return await self._is_in_list(names.WAIT) or await self._is_in_list(names.PAUSED)

    async def waitUntilFinished(self, queueEvents: FinishNotifier, ttl: float | None = None) -> Any:
        """Return the job's return value. Raises JobFailed, ScriptError (missing-job), WaitTimeout after `ttl` ms."""
        await self.owner.waitUntilReady()
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def completed(args: dict[str, Any], *_: Any) -> None:
            _settle(outcome, args.get("returnvalue"))

        def failed(args: dict[str, Any], *_: Any) -> None:
            _settle(outcome, JobFailed(str(args.get("failedReason"))))

        listeners = {f"completed:{self.known_id}": completed, f"failed:{self.known_id}": failed}
        for event, listener in listeners.items():
            queueEvents.on(event, listener)
        try:
            # Listen first, then read the state: a job that ends between a read and the first listener would be missed.
            await queueEvents.waitUntilReady()
            await self._settle_if_finished(outcome)
            return await asyncio.wait_for(outcome, ttl / 1000 if ttl else None)
        except TimeoutError:
            raise WaitTimeout(
                f"Job wait {self.name} timed out before finishing, "
                f"no finish notification arrived after {js_values.js_number(ttl or 0)}ms (id={self.id})"
            ) from None
        finally:
            for event, listener in listeners.items():
                queueEvents.off(event, listener)

    async def _settle_if_finished(self, outcome: asyncio.Future[Any]) -> None:
        """Read the state once: the job may have ended before the listeners were added."""
        status, result = await self.scripts.is_finished(self.known_id)
        if status == FINISHED_OK:
            _settle(outcome, js_values.parse(result or "null"))
        elif status < 0:
            _settle(outcome, ScriptError(status, result or ""))
        elif status != 0:
            _settle(outcome, JobFailed(result or ""))

    async def getDependencies(self, opts: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return `processed` (values by key), `unprocessed` and `failed` (keys), `ignored` (failure reasons by key).

        `opts` asks for a page of some kinds, {kind: {cursor (0), count (20)}}; then there is a `next<Kind>Cursor` too,
        0 at the end. `count` is a hint to Redis, except for `failed`, where the cursor counts children.
        """
        return await dependencies.read_dependencies(self, opts or {})

    async def getDependenciesCount(self, opts: dict[str, Any] | None = None) -> dict[str, int]:
        """Return the number of children by kind, of the kinds that `opts` sets; of all kinds without any."""
        return await dependencies.count_dependencies(self, opts or {})

    async def getChildrenValues(self) -> dict[str, Any]:
        """Return values of the completed children."""
        return await dependencies.read_children_values(self)

    async def getFailedChildrenValues(self) -> dict[str, str]:
        """Failure reasons of these children; the older name of getIgnoredChildrenFailures."""
        return await self.getIgnoredChildrenFailures()

    async def getIgnoredChildrenFailures(self) -> dict[str, str]:
        """Return failure reasons of the children whose failure does not fail this job."""
        return await dependencies.read_ignored_failures(self)

    async def removeChildDependency(self) -> bool:
        """Unlink the job from its parent; False when there is no relation. Raises ScriptError."""
        removed = await self.scripts.remove_child_dependency(self.known_id, self.parentKey)
        if removed:
            self.parent = self.parentKey = None
        return removed

    async def removeUnprocessedChildren(self) -> None:
        """Remove the children that no worker holds."""
        await self.scripts.remove_unprocessed_children(self.known_id)

    async def _is_in_zset(self, container: str) -> bool:
        command = ("ZSCORE", self.owner.keys.key(container), self.known_id)
        return await self.owner.connection.command(*command) is not None

    async def _is_in_list(self, container: str) -> bool:
        command = ("LPOS", self.owner.keys.key(container), self.known_id)
        return await self.owner.connection.command(*command) is not None


def _settle(outcome: asyncio.Future[Any], result: Any) -> None:
    # The read of the state and the event may both report the end; the first one counts.
    if outcome.done():
        return
    if isinstance(result, BaseException):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)
