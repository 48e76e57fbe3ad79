"""The loop of a worker: fetches up to `concurrency` jobs, runs them, and blocks only if there is nothing else to do."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final

from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.job_runner import JobRunner
from conformance.reference_impl.workers.running_worker import RunningWorker
from conformance.reference_impl.workers.shortcut import Ending

LONGEST_PAUSE_MS: Final = 30_000
"""A rate-limited worker fetches again after this time at the latest, so that due delayed jobs are still promoted."""

_LONGEST_AFTER_A_REFUSAL_S: Final = 2.0

JobTask = asyncio.Task[Job | None]


class WorkerLoop:
    """One run of a worker, from start (or resume) to pause or close."""

    def __init__(self, worker: RunningWorker, fetcher: JobFetcher, job_runner: JobRunner) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._job_runner = job_runner
        self._fetched: deque[Job] = deque()
        self._running: set[JobTask] = set()
        self._ending: set[Ending] = set()
        self._waiting: JobTask | None = None
        self._ended: deque[JobTask] = deque()
        self._news = asyncio.Event()
        self._resting = False
        self._fetch_count = 0
        self._refusals = 0
        self._task: asyncio.Task[Any] | None = None
        self._context = contextvars.copy_context()

    async def run(self) -> None:
        """Work until the worker is paused or closes and all its jobs have ended."""
        # Kept to see later whether the whole loop is being cancelled, or only one job.
        self._task = asyncio.current_task()
        # Not only while open: a job that a finish fetched before pause or close holds a lock and must run.
        while self._worker.is_open or self._in_hand:
            await self._fill()
            self._start_fetched()
            await self._settle()

    def stop(self) -> None:
        """Wake the loop, so that it sees that the worker is paused or closing."""
        self._news.set()
        self._fetcher.interrupt()

    def abandon(self) -> None:
        """Cancel the running jobs; they stay in active with their locks."""
        for task in [*self._running, *([self._waiting] if self._waiting else [])]:
            task.cancel()
        for ending in self._ending:
            ending.drop()
        self._ending.clear()
        self._news.set()

    @property
    def _in_hand(self) -> int:
        """The number of running, ending and fetched jobs, plus one for a waiting fetch."""
        # A waiting fetch counts, because it may return a job at any moment: otherwise concurrency is exceeded by one.
        return len(self._running) + len(self._ending) + len(self._fetched) + (self._waiting is not None)

    def _may_fetch(self) -> bool:
        # Read each time: the user may change the concurrency while the worker runs.
        has_room = self._in_hand < self._worker.concurrency
        return self._worker.is_open and has_room and self._waiting is None and not self._fetcher.rate_limit_ms

    async def _fill(self) -> None:
        """Fetch jobs one by one before starting any; a fetch that has to wait runs in the background."""
        while self._may_fetch():
            # Never awaited here: a blocking read would delay the start of jobs that are already fetched.
            if self._fetcher.would_block:
                self._waiting = self._start_task(self._fetch(block=True))
                return
            job = await self._fetch(block=False)
            if job is None:
                return
            self._fetched.append(job)

    async def _fetch(self, *, block: bool) -> Job | None:
        # A new token for each fetch: with a single one, a run that lost its job could still finish it after this worker
        # has claimed it again.
        token = f"{self._worker.id}:{self._fetch_count}"
        self._fetch_count += 1
        # `persist` has emitted the error; the loop fetches again.
        try:
            job = await self._worker.persist(lambda: self._fetcher.fetch(token, block=block))
        except ValueError:  # a job that cannot be read: Redis works
            return None
        except Exception:  # noqa: BLE001 - Redis refuses (OOM, NOPERM, WRONGTYPE), or the scripts cannot be loaded
            self._refusals += 1
            # Without a pause the worker would spin. It is shorter than during an outage: only another fetch shows that
            # Redis takes writes again.
            pause_s = min(self._worker.policy.reconnect.delay_s(self._refusals), _LONGEST_AFTER_A_REFUSAL_S)
            self._fetcher.limit_for(pause_s * 1000)
            return None
        self._refusals = 0
        return job

    def _start_fetched(self) -> bool:
        """Start the fetched jobs; returns whether there were any."""
        if self.is_abandoned:
            # Not started: their locks expire, and the stalled check of another worker recovers them.
            self._fetched.clear()
        has_any = bool(self._fetched)
        while self._fetched:
            job = self._fetched.popleft()
            self._running.add(self._start_task(self._job_runner.process(job, self)))
        return has_any

    @property
    def has_room_for_next(self) -> bool:
        """Whether the ending job, which still counts as running, may fetch the next one."""
        # `<=`, because the ending job still counts and its slot is the one to refill.
        return self._in_hand <= self._worker.concurrency

    @property
    def is_abandoned(self) -> bool:
        """Whether the running jobs are cancelled: by `abandon`, or together with the loop when the program ends."""
        is_ending = self._task is not None and self._task.cancelling() > 0
        return self._worker.lifecycle.is_abandoning or is_ending

    async def _settle(self) -> None:
        """Wait until a job or the waiting fetch ends, the rate limit is over, or the worker is to stop."""
        if self._may_fetch():
            # One turn of the event loop lets the jobs that were just started run before the next fetch.
            await asyncio.sleep(0)
        else:
            await self._rest()
        self._news.clear()
        self._collect_ended()

    async def _rest(self) -> None:
        # Not `asyncio.timeout`, which wakes the loop by cancelling it: a job fetched in that moment would be lost.
        patience_s = self._patience_s()
        alarm = asyncio.get_running_loop().call_later(patience_s, self._news.set) if patience_s is not None else None
        self._resting = True
        try:
            await self._news.wait()
        finally:
            if alarm is not None:
                alarm.cancel()
        self._resting = False

    def _patience_s(self) -> float | None:
        # Without a limit there is no alarm: a job, the waiting fetch or `stop` wakes the loop.
        limit_ms = self._fetcher.rate_limit_ms
        return min(limit_ms, LONGEST_PAUSE_MS) / 1000 if limit_ms else None

    def _start_task(self, act: Coroutine[Any, Any, Job | None], context: contextvars.Context | None = None) -> JobTask:
        """Start a task whose end wakes the loop. Unlike `asyncio.wait`, the cost is independent of other tasks."""
        # The context of the loop, not that of the job before: its variables would leak into this one.
        task = asyncio.get_running_loop().create_task(act, context=context or self._context.copy())
        task.add_done_callback(self._note_end)
        return task

    def hand_over(self, ending: Ending) -> None:
        """Let an ending keep the slot of the current task, which then ends unnoticed."""
        task = asyncio.current_task()
        if task is not None:
            task.remove_done_callback(self._note_end)
            self._running.discard(task)
        self._ending.add(ending)

    def go_on(self, ending: Ending, following: Job | None) -> None:
        """Give the slot of an ending to the job that it fetched, or free it."""
        self._ending.discard(ending)
        if following is not None:
            self._fetched.append(following)
            # As in `_note_end`: the loop is only woken if there is more to do.
            if self._start_fetched() and not self._may_fetch():
                return
        self._news.set()

    def go_on_in_task(
        self, ending: Ending, act: Coroutine[Any, Any, Job | None], context: contextvars.Context | None = None
    ) -> None:
        """Give the slot of an ending to a task, which may return a job to run."""
        self._ending.discard(ending)
        self._running.add(self._start_task(act, context))

    def _note_end(self, task: JobTask) -> None:
        """Wake the loop, unless it would only start the job that this one fetched: that is done here."""
        self._ended.append(task)
        if self._resting:
            self._collect_ended()
            # Saves a loop turn per job on the hottest path: a finish that fetched its successor.
            if self._start_fetched() and not self._may_fetch():
                return
        self._news.set()

    def _collect_ended(self) -> None:
        while self._ended:
            self._collect(self._ended.popleft())

    def _collect(self, task: JobTask) -> None:
        self._running.discard(task)
        if task is self._waiting:
            self._waiting = None
        # A cancelled job has no result; it stays in active with its lock.
        job = None if task.cancelled() else task.result()
        if job is not None:
            self._fetched.append(job)
