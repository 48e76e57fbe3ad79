"""How a job ends, and how it goes back: the operations that need the job's lock."""

from __future__ import annotations

import traceback
from typing import Any

from conformance.reference_impl.encoding import js_json
from conformance.reference_impl.jobs.backoff import FAIL_NOW, delay_before_retry
from conformance.reference_impl.jobs.base import BoundJob
from conformance.reference_impl.jobs.options import parent_key
from conformance.reference_impl.policy import policy_of
from conformance.reference_impl.scripts.registry import NO_TOKEN, Fetched, Finish


class JobMoves(BoundJob):
    """Finishing, retrying, delaying. All raise ScriptError, mostly missing-lock or lock-mismatch."""

    async def moveToCompleted(self, returnValue: Any, token: str, fetchNext: bool = True) -> Fetched | None:
        """Complete the job; answers what was fetched next, if asked for.

        Raises TypeError for a value that is not JSON, before anything happened.
        """
        value = js_json.stringify(returnValue)
        self.returnvalue = returnValue
        finish = Finish(self.known_id, "completed", value, token, self.opts, fetchNext)
        fetched, self.finishedOn = await self.scripts.move_to_finished(finish)
        self.attemptsMade += 1
        return fetched

    async def moveToFailed(self, error: BaseException, token: str, fetchNext: bool = False) -> Fetched | None:
        """End the attempt: retry at once, retry later, or fail for good (upstream `job.ts`, `moveToFailed`)."""
        self.failedReason = message_of(error)
        delay = self.retry_delay = await self._retry_delay(error)
        self._remember_stack(error)
        fields = {"failedReason": self.failedReason, "stacktrace": js_json.stringify(self.stacktrace)}
        fetched = None
        if delay is None:
            finish = Finish(self.known_id, "failed", self.failedReason, token, self.opts, fetchNext, fields)
            fetched, self.finishedOn = await self.scripts.move_to_finished(finish)
        elif delay:
            await self.scripts.move_to_delayed(self.known_id, delay, token, fields=fields)
            self.delay = delay
        else:
            lifo = js_json.truthy(self.opts.get("lifo"))
            await self.scripts.retry_job(self.known_id, token, lifo=lifo, fields=fields)
        self.attemptsMade += 1
        return fetched

    async def moveToDelayed(self, timestamp: float, token: str | None = None) -> None:
        """Delay an active job until this Unix time (ms). It does not count as an attempt."""
        delay = max(timestamp - self.owner.clock.now_ms(), 0)
        await self.scripts.move_to_delayed(self.known_id, delay, token or NO_TOKEN, skip_attempt=True)
        self.delay = delay

    async def moveToWait(self, token: str | None = None) -> int:
        """Put an active job back, next to run; answers the ms that the rate limit still lasts, or 0."""
        return await self.scripts.move_to_wait(self.known_id, token or NO_TOKEN)

    async def moveToWaitingChildren(self, token: str, opts: dict[str, Any] | None = None) -> bool:
        """Let an active job wait for its children, or for the one that `opts["child"]` ({id, queue}) names.

        False when nothing is pending.
        """
        child = parent_key((opts or {}).get("child"))
        return await self.scripts.move_to_waiting_children(self.known_id, token, child or "")

    async def extendLock(self, token: str, duration: float) -> bool:
        """Renew the lock for `duration` ms; False when the token does not own it."""
        return await self.scripts.extend_lock(self.known_id, token, duration)

    def discard(self) -> None:
        """Make the next failure final."""
        self.discarded = True

    async def _retry_delay(self, error: BaseException) -> float | None:
        """Ms until the next attempt, or None when there is none.

        Raises BullMQError for an unknown backoff type.
        """
        is_last = self.attemptsMade + 1 >= (self.opts.get("attempts") or 0)
        policy = policy_of(self.owner.opts)
        if is_last or self.discarded or policy.errors.ends_the_job(error):
            return None
        strategy = (self.owner.opts.get("settings") or {}).get("backoffStrategy")
        backoff = self.opts.get("backoff")
        delay = await delay_before_retry(backoff, self.attemptsMade + 1, error, self, strategy=strategy)
        if delay == FAIL_NOW:
            return None
        return delay if policy.backoff is None else policy.backoff.limited(delay, backoff)

    def _remember_stack(self, error: BaseException) -> None:
        limit = self.opts.get("stackTraceLimit")
        self.stacktrace = [*self.stacktrace, stack_of(error)]
        if limit == 0:
            self.stacktrace = []
        elif limit:
            self.stacktrace = self.stacktrace[-int(limit) :]


def message_of(error: BaseException) -> str:
    """Answer what JavaScript calls the message of an error."""
    return str(error)


def stack_of(error: BaseException) -> str:
    """Answer the stack trace in the form that other clients show: message first, then one indented line per frame."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"    at {frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames)]
    return "\n".join([f"{type(error).__name__}: {message_of(error)}", *lines])
