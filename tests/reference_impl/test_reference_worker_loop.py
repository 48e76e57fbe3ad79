"""The loop of a worker alone, at moments that Redis and a machine bring about once in thousands of jobs."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

from conformance.reference_impl.workers.lifecycle import Lifecycle
from conformance.reference_impl.workers.loop import WorkerLoop

LIMIT_S = 0.02
PATIENCE_S = 10


def test_a_job_that_comes_when_the_rate_limit_ends_is_started() -> None:
    """The job came with the end of the previous one; the loop learns of both in one turn of the event loop."""

    async def scenario() -> object:
        started: asyncio.Queue[object] = asyncio.Queue()
        worker = SimpleNamespace(is_open=True, concurrency=2, lifecycle=Lifecycle())

        async def process(job: object, _slots: object) -> None:
            started.put_nowait(job)
            worker.is_open = False

        async def fetch(_token: str, **_how: bool) -> None:
            await asyncio.sleep(LIMIT_S)

        async def persist(act: Any) -> Any:
            return await act()

        worker.persist, worker.id = persist, "worker"
        fetcher = SimpleNamespace(would_block=False, fetch=fetch, interrupt=lambda: None, rate_limit_ms=1000 * LIMIT_S)
        loop = WorkerLoop(cast("Any", worker), cast("Any", fetcher), cast("Any", SimpleNamespace(process=process)))
        running = asyncio.create_task(loop.run())
        ended: asyncio.Task[Any] = asyncio.create_task(asyncio.sleep(0, "the next job"))
        await ended

        def end() -> None:
            fetcher.rate_limit_ms = 0
            loop._note_end(ended)

        asyncio.get_running_loop().call_later(LIMIT_S + 0.001, end)
        time.sleep(3 * LIMIT_S)  # noqa: ASYNC251 - so that both are due at once
        async with asyncio.timeout(PATIENCE_S):
            job = await started.get()
            loop.stop()
            await running
        return job

    assert asyncio.run(scenario()) == "the next job"
