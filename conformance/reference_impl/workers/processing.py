"""Running the processor on a job, and what its outcome means for the job."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from conformance.reference_impl.errors import (
    RATE_LIMIT_MESSAGE,
    DelayedError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.moves import message_of
from conformance.reference_impl.scripts.registry import Fetched
from conformance.reference_impl.workers.base import WorkerBase
from conformance.reference_impl.workers.fetching import Fetcher
from conformance.reference_impl.workers.locks import LockKeeper

Processor = Callable[[Job, str], Any | Awaitable[Any]]
"""The user's function: it gets the job and its lock token; its result is the job's return value."""

_ALREADY_MOVED = (DelayedError, WaitingError, WaitingChildrenError)


class Processing:
    """Takes jobs from active to their end. Each step may bring the next job along."""

    def __init__(self, worker: WorkerBase, fetcher: Fetcher, locks: LockKeeper, processor: Processor | None) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._locks = locks
        self._processor = processor

    async def process(self, job: Job, may_fetch_next: Callable[[], bool]) -> Job | None:
        """Run one job to its end; answers the job that was fetched in the same call to Redis.

        `may_fetch_next` is asked when the job has ended. Errors go to the `error` listeners.
        """
        self._worker.emit("active", job, "waiting")
        # `persist` has told the listeners; the loop goes on.
        with contextlib.suppress(Exception):
            reason = self._reason_to_fail_unseen(job)
            if reason is not None:
                return await self._fail(job, UnrecoverableError(reason), may_fetch_next)
            return await self._run(job, may_fetch_next)
        return None

    async def _run(self, job: Job, may_fetch_next: Callable[[], bool]) -> Job | None:
        self._locks.hold(job)
        try:
            value = await self._call(job)
        except Exception as error:  # noqa: BLE001 - whatever a processor throws fails its job
            self._locks.release(job)
            return await self._fail(job, error, may_fetch_next)
        finally:
            self._locks.release(job)
        try:
            return await self._complete(job, value, may_fetch_next)
        except Exception as error:  # noqa: BLE001 - for example pending children: the attempt failed
            return await self._fail(job, error, may_fetch_next)

    async def _call(self, job: Job) -> Any:
        if self._processor is None:
            raise UnrecoverableError("No process function is defined.")
        outcome = self._processor(job, job.token or "")
        return await outcome if inspect.isawaitable(outcome) else outcome

    def _reason_to_fail_unseen(self, job: Job) -> str | None:
        """Why a job fails without being processed: its children's failure, too many stalls, too many starts."""
        if job.deferredFailure:
            return job.deferredFailure
        most = self._worker.opts.get("maxStartedAttempts")
        return "job started more than allowable limit" if most and most < job.attemptsStarted else None

    async def _complete(self, job: Job, value: Any, may_fetch_next: Callable[[], bool]) -> Job | None:
        token = job.token or ""
        fetched = await self._worker.persist(
            lambda: job.moveToCompleted(value, token, self._wants_more(may_fetch_next))
        )
        self._worker.emit("completed", job, value, "active")
        return await self._take(fetched, token)

    async def _fail(self, job: Job, error: Exception, may_fetch_next: Callable[[], bool]) -> Job | None:
        token = job.token or ""
        if message_of(error) == RATE_LIMIT_MESSAGE:
            self._fetcher.limit_for(await self._worker.persist(lambda: job.moveToWait(token)))
            return None
        if isinstance(error, _ALREADY_MOVED):
            return None
        fetched = await self._worker.persist(lambda: job.moveToFailed(error, token, self._wants_more(may_fetch_next)))
        self._worker.emit("failed", job, error, "active")
        return await self._take(fetched, token) if job.retry_delay is None else None

    async def _take(self, fetched: Fetched | None, token: str) -> Job | None:
        """Unpack the next job; one that cannot be read stays in active and is no failure of the job that just ended."""
        try:
            return await self._fetcher.take(fetched, token)
        except ValueError as error:
            self._worker.report(error)
            return None

    def _wants_more(self, may_fetch_next: Callable[[], bool]) -> bool:
        return may_fetch_next() and self._worker.is_open
