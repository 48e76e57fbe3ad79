"""Changing a job that exists, and asking how it stands."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Protocol

from conformance.protocol import keys as names
from conformance.reference_impl.emitter import Listener
from conformance.reference_impl.encoding import js_json
from conformance.reference_impl.errors import JobFailed, JobLocked, ScriptError, WaitTimeout
from conformance.reference_impl.jobs.base import BoundJob
from conformance.reference_impl.jobs.validation import check_progress
from conformance.reference_impl.policy import policy_of
from conformance.reference_impl.scripts.read import FINISHED_OK


class FinishNotifier(Protocol):
    """A QueueEvents reader, as waitUntilFinished needs it."""

    def on(self, event: str, listener: Listener) -> None:
        """Call the listener at every such event."""
        ...

    def off(self, event: str, listener: Listener) -> None:
        """Forget the listener."""
        ...

    async def waitUntilReady(self) -> None:
        """Wait until no later event can be missed."""
        ...


class JobEdits(BoundJob):
    """Data, progress, logs, place, removal, state. All raise ScriptError, mostly missing-job."""

    async def updateData(self, data: Any) -> None:
        """Replace the data."""
        self.data = data
        await self.scripts.update_data(self.known_id, js_json.stringify(data))

    async def updateProgress(self, progress: Any) -> None:
        """Set the progress, any JSON value, and publish it. Raises InvalidArgument where the policy forbids it."""
        check_progress(self.owner.opts, progress)
        self.progress = progress
        await self.scripts.update_progress(self.known_id, js_json.stringify(progress))
        self.owner.emit("progress", self, progress)

    async def log(self, row: str) -> int:
        """Append a log row; answers how many are kept (job option keepLogs, else `Policy.keep_logs`, else all)."""
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
        self.delay = 0

    async def changeDelay(self, delay: float) -> None:
        """Make a delayed job due `delay` ms from now."""
        await self.scripts.change_delay(self.known_id, delay)
        self.delay = delay

    async def changePriority(self, opts: dict[str, Any]) -> None:
        """Set `priority`; with `lifo` in front of the jobs of the same priority."""
        priority = opts.get("priority") or 0
        await self.scripts.change_priority(self.known_id, priority, lifo=js_json.truthy(opts.get("lifo")))
        self.priority = priority

    async def retry(self, state: Literal["completed", "failed"] = "failed") -> None:
        """Put a finished job back to wait."""
        self.failedReason, self.finishedOn, self.processedOn, self.returnvalue = None, None, None, None
        lifo = js_json.truthy(self.opts.get("lifo"))
        await self.scripts.reprocess_job(self.known_id, state, lifo=lifo)

    async def remove(self, opts: dict[str, Any] | None = None) -> None:
        """Remove the job and, unless `removeChildren` is false, its children. Raises JobLocked."""
        await self.owner.waitUntilReady()
        remove_children = (opts or {}).get("removeChildren", True)
        if not await self.scripts.remove_job(self.known_id, remove_children=remove_children):
            raise JobLocked(f"Job {self.id} could not be removed because it is locked by another worker")
        self.owner.emit("removed", self)

    async def getState(self) -> str:
        """Answer `waiting`, `active`, ..., or `unknown`."""
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
        """Answer the job's return value. Raises JobFailed, ScriptError (missing-job), WaitTimeout after `ttl` ms."""
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
            await queueEvents.waitUntilReady()
            await self._settle_if_finished(outcome)
            return await asyncio.wait_for(outcome, ttl / 1000 if ttl else None)
        except TimeoutError:
            raise WaitTimeout(
                f"Job wait {self.name} timed out before finishing, "
                f"no finish notification arrived after {js_json.js_number(ttl or 0)}ms (id={self.id})"
            ) from None
        finally:
            for event, listener in listeners.items():
                queueEvents.off(event, listener)

    async def _settle_if_finished(self, outcome: asyncio.Future[Any]) -> None:
        """Look once: the job may have ended before anyone listened."""
        status, result = await self.scripts.is_finished(self.known_id)
        if status == FINISHED_OK:
            _settle(outcome, js_json.parse(result or "null"))
        elif status < 0:
            _settle(outcome, ScriptError(status, result or ""))
        elif status != 0:
            _settle(outcome, JobFailed(result or ""))

    async def _is_in_zset(self, container: str) -> bool:
        command = ("ZSCORE", self.owner.keys.key(container), self.known_id)
        return await self.owner.connection.command(*command) is not None

    async def _is_in_list(self, container: str) -> bool:
        command = ("LPOS", self.owner.keys.key(container), self.known_id)
        return await self.owner.connection.command(*command) is not None


def _settle(outcome: asyncio.Future[Any], result: Any) -> None:
    if outcome.done():
        return
    if isinstance(result, BaseException):
        outcome.set_exception(result)
    else:
        outcome.set_result(result)
