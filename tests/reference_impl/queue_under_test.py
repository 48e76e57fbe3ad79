"""One queue and its workers for tests of the worker's real loop, and a Redis that can die and come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers.binary import any_binary
from conformance.servers.local import LocalProcess, local_process

OUTCOME_EVENTS = ("completed", "failed", "stalled", "error")
LOCK_EVENTS = ("heartbeat", "heartbeatFailed", "stalledCheckSkipped")
LINK_EVENTS = ("warning", "disconnected", "reconnecting", "reconnected", "unreachable", "closed")
ALL_EVENTS: tuple[Any, ...] = (*OUTCOME_EVENTS, *LOCK_EVENTS, *LINK_EVENTS)

Until = Callable[..., Awaitable[None]]
Processor = Callable[[Job, str], Any]


class QueueUnderTest:
    """One queue, its workers, and the local events that these emitted."""

    def __init__(self, opts: dict[str, Any], scripts: ScriptTexts, until: Until) -> None:
        self.opts, self.scripts, self.until = opts, scripts, until
        self.queue = Queue("q", opts, scripts=scripts)
        self.workers: list[Worker] = []
        self.heard: list[tuple[str, str]] = []

    def worker(self, processor: Processor | str | None, **opts: Any) -> Worker:
        worker = Worker("q", processor, {**self.opts, "drainDelay": 30, **opts}, scripts=self.scripts)
        for event in ALL_EVENTS:
            worker.on(event, lambda *args, event=event: self.heard.append((event, _subject(args))))
        self.workers.append(worker)
        return worker

    async def hear(self, event: str, subject: str | None = None, times: int = 1) -> None:
        """Wait for an event, of this subject or any."""
        await self.until(lambda: self.count(event, subject) >= times, lambda: self.heard)

    def count(self, event: str, subject: str | None = None) -> int:
        return sum(name == event and subject in (None, about) for name, about in self.heard)

    async def job(self, job_id: str) -> Job:
        job = await self.queue.getJob(job_id)
        assert job is not None
        return job


Steps = Callable[[QueueUnderTest], Coroutine[Any, Any, None]]
WithQueue = Callable[..., None]


def _subject(args: tuple[Any, ...]) -> str:
    if not args:
        return ""
    return args[0].known_id if isinstance(args[0], Job) else str(args[0])


def run_with_queue(
    opts: dict[str, Any],
    scripts: ScriptTexts,
    until: Until,
    steps: Steps,
    *,
    within_s: float = 20,
) -> None:
    """Take steps with a queue; its workers are closed by force afterwards."""

    async def run() -> None:
        async with asyncio.timeout(within_s):
            tested = QueueUnderTest(opts, scripts, until)
            try:
                await steps(tested)
            finally:
                for worker in tested.workers:
                    await worker.close(force=True)
                await tested.queue.close()

    asyncio.run(run())


class MortalRedis:
    """A private Redis without persistence that is killed and started again on the same port."""

    def __init__(self, process: LocalProcess) -> None:
        self._process: LocalProcess | None = process
        self._binary, self.port = process.binary, process.port

    def kill(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def start(self) -> None:
        self._process = LocalProcess(self._binary, self.port, cluster=False)
        deadline = time.monotonic() + 10
        while not self._process.answers():
            assert time.monotonic() < deadline, f"did not come back: {self._process.log_tail()}"


@contextmanager
def mortal_redis() -> Iterator[MortalRedis]:
    with local_process(any_binary(lambda _text: None)) as process:
        mortal = MortalRedis(process)
        yield mortal
        mortal.kill()
