"""The check for jobs whose worker died: at the start of a worker and every `stalledInterval` after that."""

from __future__ import annotations

import asyncio

from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.workers.base import WorkerBase


class StalledChecker:
    """Runs the check of one worker. Of all workers of a queue only one per interval really checks (`stalled-check`).

    A check that is due while the last one still runs is skipped: `stalledCheckSkipped`.
    """

    def __init__(self, worker: WorkerBase) -> None:
        self._worker = worker
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Check now and then every interval, unless the option `skipStalledCheck` says no.

        Returns once the first check is on its way, without its reply: sent before the worker fetches anything, it
        marks only what other workers hold.
        """
        if not self._worker.opts.get("skipStalledCheck"):
            self.stop()
            self._check = asyncio.create_task(self._check_and_report())
            self._task = asyncio.create_task(self._run())
            await asyncio.sleep(0)  # a task runs up to its first command before its maker goes on

    def stop(self) -> None:
        """Check no more."""
        for task in (self._task, self._check):
            if task is not None:
                task.cancel()
        self._task = self._check = None

    async def check(self) -> list[str]:
        """Check once; answers the recovered ids, after telling the `stalled` listeners."""
        recovered = await self._worker.scripts.move_stalled_jobs_to_wait()
        for job_id in recovered:
            self._worker.emit("stalled", job_id, "active")
        return recovered

    async def _run(self) -> None:
        while self._worker.is_open:
            await asyncio.sleep(self._worker.opts["stalledInterval"] / 1000)
            if self._check is None or self._check.done():
                self._check = asyncio.create_task(self._check_and_report())
            else:
                self._worker.emit("stalledCheckSkipped")

    async def _check_and_report(self) -> None:
        try:
            await self.check()
        except Exception as error:  # noqa: BLE001 - the next check tries again
            if not is_connection_problem(error):
                self._worker.emit("error", error)
