"""The loop of a worker: fetches up to `concurrency` jobs, runs them, and blocks only when there is nothing to do."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final

from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers.base import WorkerBase
from conformance.reference_impl.workers.fetching import Fetcher
from conformance.reference_impl.workers.processing import Processing

LONGEST_PAUSE_MS: Final = 30_000
"""A rate-limited worker looks again after this long, so that due delayed jobs are still promoted."""

JobTask = asyncio.Task[Job | None]


class WorkerLoop:
    """One run of a worker, from start (or resume) to pause or close."""

    def __init__(self, worker: WorkerBase, fetcher: Fetcher, processing: Processing) -> None:
        self._worker = worker
        self._fetcher = fetcher
        self._processing = processing
        self._fetched: deque[Job] = deque()
        self._running: set[JobTask] = set()
        self._waiting: JobTask | None = None
        self._ended: deque[JobTask] = deque()
        self._news = asyncio.Event()
        self._resting = False
        self._fetch_count = 0
        self._abandoned = False

    async def run(self) -> None:
        """Work until the worker is paused or closes and all its jobs have ended."""
        while self._worker.is_open or self._in_hand:
            await self._fill()
            self._start_fetched()
            await self._settle()

    def stop(self) -> None:
        """Notice soon that the worker is paused or closing."""
        self._news.set()
        self._fetcher.interrupt()

    def abandon(self) -> None:
        """Cancel the running jobs; they stay in active with their locks."""
        self._abandoned = True
        for task in [*self._running, *([self._waiting] if self._waiting else [])]:
            task.cancel()

    @property
    def _in_hand(self) -> int:
        """Jobs that run or are about to, and the fetch that waits for one."""
        return len(self._running) + len(self._fetched) + (self._waiting is not None)

    def _may_fetch(self) -> bool:
        has_room = self._in_hand < self._worker.concurrency
        return self._worker.is_open and has_room and self._waiting is None and not self._fetcher.rate_limit_ms

    async def _fill(self) -> None:
        """Fetch one by one, before anything of it is started; a fetch that has to wait goes into the background."""
        while self._may_fetch():
            if self._fetcher.would_block:
                self._waiting = self._begin(self._fetch(block=True))
                return
            job = await self._fetch(block=False)
            if job is None:
                return
            self._fetched.append(job)

    async def _fetch(self, *, block: bool) -> Job | None:
        token = f"{self._worker.id}:{self._fetch_count}"
        self._fetch_count += 1
        # `persist` has told the listeners; the loop tries again.
        with contextlib.suppress(Exception):
            return await self._worker.persist(lambda: self._fetcher.fetch(token, block=block))
        return None

    def _start_fetched(self) -> bool:
        """Start what was fetched; answers whether there was anything to start."""
        if self._abandoned:
            self._fetched.clear()
        has_any = bool(self._fetched)
        while self._fetched:
            job = self._fetched.popleft()
            self._running.add(self._begin(self._processing.process(job, self._has_room_for_next)))
        return has_any

    def _has_room_for_next(self) -> bool:
        """Asked by a job that ends, and still counts itself."""
        return self._in_hand <= self._worker.concurrency

    async def _settle(self) -> None:
        """Wait until a job or the waiting fetch ends, the rate limit is over, or the worker is to stop."""
        if self._may_fetch():
            await asyncio.sleep(0)
        else:
            await self._rest()
        self._news.clear()
        self._collect_ended()

    async def _rest(self) -> None:
        self._resting = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s()):
                await self._news.wait()
        self._resting = False

    def _patience_s(self) -> float | None:
        limit_ms = self._fetcher.rate_limit_ms
        return min(limit_ms, LONGEST_PAUSE_MS) / 1000 if limit_ms else None

    def _begin(self, act: Coroutine[Any, Any, Job | None]) -> JobTask:
        """Start a task whose end is news. Unlike `asyncio.wait`, this costs the same however many others run."""
        task = asyncio.create_task(act)
        task.add_done_callback(self._note_end)
        return task

    def _note_end(self, task: JobTask) -> None:
        """Wake the loop, unless all there is to do is to start the job that came with the end of this one."""
        self._ended.append(task)
        if self._resting:
            self._collect_ended()
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
        job = None if task.cancelled() else task.result()
        if job is not None:
            self._fetched.append(job)
