"""How a worker comes by its next job: at once, by waiting for a marker, or out of the reply of a finished one."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final

from conformance.protocol.keys import MARKER
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.connection.wire import HungUp
from conformance.reference_impl.encoding.js_json import parse_int
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.scripts.registry import Fetched
from conformance.reference_impl.workers.base import WorkerBase, reconnect_delay_s
from conformance.reference_impl.workers.schedules import Schedules

LONGEST_BLOCK_S: Final = 10
"""A longer wait would go unnoticed when the connection is replaced meanwhile."""

_REPLY_GRACE_S: Final = 1
"""When a blocking command has not returned so long after its timeout, its connection is dead."""

_HANG_UP_WITHIN_S: Final = 2
"""After this a connection that was hung up is given up: nobody answers on the other side."""


class Fetcher:
    """Fetches jobs for one worker and remembers what the last reply said about waiting."""

    def __init__(self, worker: WorkerBase) -> None:
        self._worker = worker
        self._schedules = Schedules(worker)
        self._limit_until = 0.0
        self._block_until = 0.0
        self._drained = False
        self._marker_wait: asyncio.Task[Any] | None = None

    @property
    def would_block(self) -> bool:
        """Whether the next fetch waits for a marker first: the last one found nothing."""
        return self._drained and not self._limit_until

    @property
    def rate_limit_ms(self) -> float:
        """Ms for which the worker must not start anything."""
        return max(self._limit_until - self._now(), 0)

    def limit_for(self, duration_ms: float) -> None:
        """Start nothing for so many ms."""
        self._limit_until = self._now() + duration_ms if duration_ms > 0 else 0

    async def fetch(self, token: str, *, block: bool) -> Job | None:
        """Take the next job under this lock token, after waiting for one if told to."""
        if not self._worker.is_open:
            return None
        if not (block and self.would_block):
            return None if self.rate_limit_ms else await self._move_to_active(token)
        self._block_until = await self._wait_for_marker(self._block_until)
        if self._block_until <= 0 or self._block_until - self._now() < 1:
            return await self._move_to_active(token)
        return None

    async def take(self, fetched: Fetched | None, token: str) -> Job | None:
        """Turn the reply of a script that fetches into a job; one that repeats brings about the next iteration first.

        None where that failed. Raises ValueError for a job that cannot be read.
        """
        reply = fetched or Fetched()
        self.limit_for(reply.limit_ms)
        self._block_until = max(reply.next_delayed_ms, 0)
        if reply.fields is None or reply.job_id is None:
            self._tell_drained()
            return None
        self._drained = False
        job = Job.fromJSON(self._worker, reply.fields, reply.job_id)
        job.token = token
        return job if await self._schedules.continue_from(job) else None

    def interrupt(self) -> None:
        """End a wait for a marker, unless Redis has answered it: then the fetch goes on.

        A marker that was popped and thrown away would let the jobs wait until somebody looks for them by chance.
        """
        if self._marker_wait is None:
            return
        if self._worker.blocking_connection.hang_up():
            asyncio.get_running_loop().call_later(_HANG_UP_WITHIN_S, self._marker_wait.cancel)
        else:
            self._marker_wait.cancel()

    async def _move_to_active(self, token: str) -> Job | None:
        return await self.take(await self._worker.scripts.move_to_active(token), token)

    def _tell_drained(self) -> None:
        if not self._drained:
            self._drained = True
            self._worker.emit("drained")

    async def _wait_for_marker(self, block_until: float) -> float:
        """Unix ms until which there is nothing to fetch; 0 when a fetch is due, infinite after an interruption."""
        timeout = self._block_timeout(block_until)
        if timeout <= 0:
            return 0
        self._limit_until = 0
        self._marker_wait = asyncio.ensure_future(self._pop_marker(timeout))
        try:
            popped = await self._marker_wait
        except asyncio.CancelledError:
            if self._worker.is_open:
                raise
            return math.inf
        except HungUp:
            return math.inf
        except Exception as error:  # noqa: BLE001 - a broken wait must not end the loop
            await self._bear(error)
            return math.inf
        finally:
            self._marker_wait = None
        if popped is None:
            return 0
        next_due = parse_int(popped[2].decode()) or 0
        return block_until if block_until and next_due > block_until else next_due

    async def _pop_marker(self, block_s: float) -> Any:
        connection = self._worker.blocking_connection
        if not self._worker.is_open:  # interrupted before it began
            raise HungUp
        try:
            async with asyncio.timeout(block_s + _REPLY_GRACE_S):
                return await connection.command("BZPOPMIN", self._worker.keys.key(MARKER), block_s)
        except TimeoutError:
            await connection.disconnect()
            raise

    async def _bear(self, error: Exception) -> None:
        if not is_connection_problem(error):
            self._worker.report(error)
        await self._worker.rest(reconnect_delay_s(1))

    def _block_timeout(self, block_until: float) -> float:
        """Seconds to block: until the next delayed job is due, else drainDelay."""
        minimum = self._worker.blocking_connection.minimum_block_s
        if not block_until:
            return max(float(self._worker.opts["drainDelay"]), minimum)
        remaining = (block_until - self._now()) / 1000
        if remaining <= 0:
            return remaining
        return min(max(remaining, minimum), LONGEST_BLOCK_S)

    def _now(self) -> int:
        return self._worker.clock.now_ms()
