"""What the tests of the library's own promises share: a room with one queue, and a Redis that can die and come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.reference_impl.workers.worker import Worker
from conformance.servers.binary import any_binary
from conformance.servers.local import LocalProcess, local_process

Until = Callable[..., Awaitable[None]]
Play = Callable[["Room"], Coroutine[Any, Any, None]]

WORKER_EVENTS = ("completed", "failed", "stalled", "error", "heartbeat", "heartbeatFailed", "stalledCheckSkipped")
LINK_EVENTS = ("warning", "disconnected", "reconnecting", "reconnected", "unreachable", "closed")


class Room:
    """One queue, its workers, and what they said."""

    def __init__(self, opts: dict[str, Any], scripts: ScriptTexts, until: Until) -> None:
        self.opts, self.scripts, self.until = opts, scripts, until
        self.queue = Queue("q", opts, scripts=scripts)
        self.workers: list[Worker] = []
        self.heard: list[tuple[str, str]] = []

    def worker(self, processor: Any, **opts: Any) -> Worker:
        worker = Worker("q", processor, {**self.opts, "drainDelay": 30, **opts}, scripts=self.scripts)
        for event in (*WORKER_EVENTS, *LINK_EVENTS):
            worker.on(event, lambda *args, event=event: self.heard.append((event, _shown(args))))
        self.workers.append(worker)
        return worker

    async def hear(self, event: str, subject: str | None = None, times: int = 1) -> None:
        """Wait for an event, of this subject or any."""
        await self.until(lambda: self.count(event, subject) >= times, lambda: self.heard)

    def count(self, event: str, subject: str | None = None) -> int:
        return sum(each == event and subject in (None, about) for each, about in self.heard)

    async def job(self, job_id: str) -> Job:
        job = await self.queue.getJob(job_id)
        assert job is not None
        return job


def _shown(args: tuple[Any, ...]) -> str:
    if not args:
        return ""
    return args[0].known_id if isinstance(args[0], Job) else str(args[0])


def play_in(opts: dict[str, Any], scripts: ScriptTexts, until: Until, play: Play, *, within_s: float = 20) -> None:
    """Run a play with a room; its workers are closed by force afterwards."""

    async def perform() -> None:
        async with asyncio.timeout(within_s):
            room = Room(opts, scripts, until)
            try:
                await play(room)
            finally:
                for worker in room.workers:
                    await worker.close(force=True)
                await room.queue.close()

    asyncio.run(perform())


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
