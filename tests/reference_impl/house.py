"""One queue and its workers, for tests of the worker's real loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker

Until = Callable[..., Awaitable[None]]
Processor = Callable[[Job, str], Any]


class House:
    """One queue and the workers of a test."""

    def __init__(self, opts: dict[str, Any], scripts: ScriptTexts, until: Until) -> None:
        self.opts, self.scripts, self.until = opts, scripts, until
        self.queue = Queue("q", opts, scripts=scripts)
        self.workers: list[Worker] = []
        self.heard: list[tuple[str, Any]] = []

    def worker(self, processor: Processor | None, **opts: Any) -> Worker:
        worker = Worker("q", processor, {**self.opts, "drainDelay": 30, **opts}, scripts=self.scripts)
        for event in ("completed", "failed", "stalled", "error"):
            worker.on(event, lambda subject, *_, event=event: self.heard.append((event, _id_or_text(subject))))
        self.workers.append(worker)
        return worker

    async def hear(self, event: str, subject: str, times: int = 1) -> None:
        await self.until(lambda: self.heard.count((event, subject)) >= times, lambda: self.heard)

    async def job(self, job_id: str) -> Job:
        job = await self.queue.getJob(job_id)
        assert job is not None
        return job


def _id_or_text(subject: Any) -> str:
    return subject.known_id if isinstance(subject, Job) else str(subject)


Scene = Callable[[Callable[[House], Coroutine[Any, Any, None]]], None]
