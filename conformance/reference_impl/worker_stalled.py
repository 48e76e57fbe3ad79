"""The check for jobs whose worker died: at the start of a worker and every `stalledInterval` after that."""

from __future__ import annotations

import asyncio

from conformance.reference_impl.connection import is_connection_problem
from conformance.reference_impl.worker_base import WorkerBase


class StalledChecker:
    """Runs the check of one worker. Of all workers of a queue only one per interval really checks (`stalled-check`)."""

    def __init__(self, worker: WorkerBase) -> None:
        self._worker = worker
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Check now and then every interval, unless the option `skipStalledCheck` says no."""
        if not self._worker.opts.get("skipStalledCheck"):
            self.stop()
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Check no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def check(self) -> list[str]:
        """Check once; answers the recovered ids, after telling the `stalled` listeners."""
        recovered = await self._worker.scripts.move_stalled_jobs_to_wait()
        for job_id in recovered:
            self._worker.emit("stalled", job_id, "active")
        return recovered

    async def _run(self) -> None:
        while self._worker.is_open:
            try:
                await self.check()
            except Exception as error:  # noqa: BLE001 - the next check tries again
                if not is_connection_problem(error):
                    self._worker.emit("error", error)
            await asyncio.sleep(self._worker.opts["stalledInterval"] / 1000)
