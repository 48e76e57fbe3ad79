"""Fetching of the next job, and of the iteration that follows a repeating job."""

from __future__ import annotations

import asyncio
import math
from functools import cached_property
from typing import Any, Final

from conformance.protocol.keys import MARKER
from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.connection.wire import HungUp
from conformance.reference_impl.errors import BullMQError, InvalidArgument
from conformance.reference_impl.job_scheduler import JobScheduler
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import parse_int, truthy
from conformance.reference_impl.repeat import Repeat
from conformance.reference_impl.scripts.move import FetchReply
from conformance.reference_impl.workers.running_worker import RunningWorker

LONGEST_BLOCK_S: Final = 10
"""Limits a wait for a delayed job, as in Node.js: during a longer wait a lost connection would go unnoticed."""

_REPLY_GRACE_S: Final = 1
"""A blocking command that has not returned this long after its timeout has a dead connection."""

_HANG_UP_WITHIN_S: Final = 2
"""After this a connection that was hung up is dropped: the server does not react."""

_TRIALS: Final = 3
_BETWEEN_TRIALS_S: Final = 2.5
"""Attempts to make the next iteration, so that a short outage does not end a schedule."""
_FIRST_DELAY_MS: Final = 1000
_LONGEST_DELAY_MS: Final = 300_000
_PARTS_OF_LEGACY_KEY: Final = 5
"""A repeat key with this number of parts belongs to a version before job schedulers."""


class JobFetcher:
    """Fetches jobs for one worker; remembers rate limit and next delayed job from the last reply."""

    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker
        self.schedules = ScheduleContinuation(worker)
        self._limit_until = 0.0
        self._block_until = 0.0
        self._drained = False
        self._marker_wait: asyncio.Task[Any] | None = None
        self._refused_waits = 0

    @property
    def would_block(self) -> bool:
        """Whether the next fetch waits for a marker first: the last one found nothing."""
        # After a rate limit the next fetch goes to the script at once: it alone knows whether the limit has ended.
        return self._drained and not self._limit_until

    @property
    def rate_limit_ms(self) -> float:
        """Ms during which the worker must not start a job."""
        # An absolute time, not a countdown: jobs that end meanwhile ask again and must get the same end.
        return max(self._limit_until - self._now(), 0)

    def limit_for(self, duration_ms: float) -> None:
        """Start no job for this number of ms."""
        self._limit_until = self._now() + duration_ms if duration_ms > 0 else 0

    async def fetch(self, token: str, *, block: bool) -> Job | None:
        """Take the next job under this lock token; with `block`, wait for one first."""
        if not self._worker.is_open:
            return None
        # A rate-limited fetch would only return the limit again, so it is not sent.
        if not (block and self.would_block):
            return None if self.rate_limit_ms else await self._move_to_active(token)
        self._block_until = await self._wait_for_marker(self._block_until)
        # Within 1 ms of the due time the script promotes the delayed job anyway; blocking again costs more than that.
        if self._block_until <= 0 or self._block_until - self._now() < 1:
            return await self._move_to_active(token)
        return None

    async def take(self, fetched: FetchReply | None, token: str) -> Job | None:
        """Convert the reply of a fetching script into a job; a repeating job first gets its next iteration.

        None if that failed. Raises ValueError for a job that cannot be read.
        """
        job = self.received(fetched, token)
        return None if job is None else await self.continued(job)

    async def continued(self, job: Job) -> Job | None:
        """Return a received job, once its next iteration is made if it repeats; None if that failed."""
        # Before processing: the schedule must continue even if the processor crashes the worker.
        return job if await self.schedules.continue_from(job) else None

    def received(self, fetched: FetchReply | None, token: str) -> Job | None:
        """Convert the reply of a fetching script into a job, which `continued` has to see if it repeats.

        Raises ValueError for a job that cannot be read.
        """
        reply = fetched or FetchReply()
        self.limit_for(reply.limit_ms)
        # The pop consumed the delay marker, so until another is written only this worker knows the due time.
        self._block_until = max(reply.next_delayed_ms, 0)
        if reply.fields is None or reply.job_id is None:
            self._emit_drained()
            return None
        self._drained = False
        job = Job.fromJSON(self._worker, reply.fields, reply.job_id)
        job.token = token
        return job

    def interrupt(self) -> None:
        """End a wait for a marker, unless Redis has already replied: then the fetch continues.

        Dropping a popped marker would leave the jobs waiting until some worker fetches for another reason.
        """
        if self._marker_wait is None:
            return
        if self._worker.blocking_connection.hang_up():
            # A server that does not react to the hang-up must not delay close: close waits for this task.
            asyncio.get_running_loop().call_later(_HANG_UP_WITHIN_S, self._marker_wait.cancel)
        else:
            # Over TLS there is no half-close, so a marker that is popped right now is lost; polling after drainDelay
            # finds its job.
            self._marker_wait.cancel()

    async def _move_to_active(self, token: str) -> Job | None:
        return await self.take(await self._worker.scripts.move_to_active(token), token)

    def _emit_drained(self) -> None:
        # Once per idle period: an idle worker polls every drainDelay seconds.
        if not self._drained:
            self._drained = True
            self._worker.emit("drained")

    async def _wait_for_marker(self, block_until: float) -> float:
        """Unix ms until which there is nothing to fetch; 0 if a fetch is due, infinite after an interruption."""
        timeout = self._block_timeout(block_until)
        # The delayed job is due already; BZPOPMIN with timeout 0 would block forever.
        if timeout <= 0:
            return 0
        # After a block the limit may have ended; the next script reply says so.
        self._limit_until = 0
        self._marker_wait = asyncio.ensure_future(self._pop_marker(timeout))
        try:
            popped = await self._marker_wait
        except asyncio.CancelledError:
            # Cancelled by `interrupt` only if the worker stops; otherwise the caller itself was cancelled.
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
        self._refused_waits = 0
        # A timeout still leads to a fetch: jobs whose marker was lost are found only by polling.
        if popped is None:
            return 0
        next_due = parse_int(popped[2].decode()) or 0
        # A marker may be stale or belong to a later job than the one this worker already waits for: the earlier time
        # counts.
        return block_until if block_until and next_due > block_until else next_due

    async def _pop_marker(self, block_s: float) -> Any:
        connection = self._worker.blocking_connection
        if not self._worker.is_open:  # interrupted before the task started
            raise HungUp
        try:
            # No TCP error arrives if the peer vanished, so only the overdue reply shows that the connection is dead.
            async with asyncio.timeout(block_s + _REPLY_GRACE_S):
                return await connection.command("BZPOPMIN", self._worker.keys.key(MARKER), block_s)
        except TimeoutError:
            # On the same socket a late reply would be read as the reply to the next command.
            await connection.disconnect()
            raise

    async def _bear(self, error: Exception) -> None:
        failures = 1  # the link itself counts the attempts of an outage
        if not is_connection_problem(error):
            self._worker.report(error)
            self._refused_waits += 1
            failures = self._refused_waits
        # Without this pause a refused BZPOPMIN (for example by an ACL) would spin.
        await self._worker.rest(self._worker.policy.reconnect.delay_s(failures))

    def _block_timeout(self, block_until: float) -> float:
        """Seconds to block: until the next delayed job is due, else drainDelay."""
        minimum = self._worker.blocking_connection.minimum_block_s
        if not block_until:
            # Redis rounds a shorter timeout to 0, which blocks forever.
            return max(float(self._worker.opts["drainDelay"]), minimum)
        remaining = (block_until - self._now()) / 1000
        if remaining <= 0:
            return remaining
        # Below the minimum Redis would block forever; at worst the job is a millisecond late.
        return min(max(remaining, minimum), LONGEST_BLOCK_S)

    def _now(self) -> int:
        return self._worker.clock.now_ms()


def is_repeating(job: Job) -> bool:
    """Whether a job may have a next iteration."""
    return bool(job.repeatJobKey) or "repeat" in job.opts


class ScheduleContinuation:
    """Makes the next iterations of repeating jobs for one worker."""

    def __init__(self, worker: RunningWorker) -> None:
        self._worker = worker

    @cached_property
    def jobScheduler(self) -> JobScheduler:
        """The schedulers of the queue, on the worker's connection."""
        return JobScheduler(self._worker)

    @cached_property
    def repeat(self) -> Repeat:
        """The repeat keys of the queue, on the worker's connection."""
        return Repeat(self._worker)

    async def continue_from(self, job: Job) -> bool:
        """Make the iteration that follows a fetched job; True if the job may be processed.

        False if that failed: the job is then delayed, so that a schedule never ends by accident, and `error` is
        emitted. A job that cannot be delayed stays in active until a stalled check recovers it.
        """
        try:
            await self._try_often(job)
        except Exception as error:  # noqa: BLE001 - it must not end the job that was finished in the same call
            self._worker.emit("error", BullMQError(f"Failed to add repeatable job for next iteration: {error}"))
            await self._put_off(job)
            return False
        return True

    async def _try_often(self, job: Job) -> None:
        for trial in range(1, _TRIALS + 1):
            try:
                await self._continue(job)
            except Exception as error:
                if not is_connection_problem(error):
                    self._worker.report(error)
                    raise
                # Rest, not sleep: close must not wait for an outage to end.
                await self._worker.rest(_BETWEEN_TRIALS_S)
                if trial == _TRIALS:
                    raise
            else:
                return

    async def _continue(self, job: Job) -> None:
        repeat, key = job.opts.get("repeat"), job.repeatJobKey
        # As in Node.js: a legacy key is `name:id:endDate:tz:every`, a scheduler id normally has fewer colons.
        if key and len(key.split(":")) < _PARTS_OF_LEGACY_KEY:
            if not isinstance(repeat, dict):
                raise InvalidArgument(f"job {job.id} of scheduler {key} has no repeat options")
            await self.jobScheduler.upsertJobScheduler(
                key, repeat, job.name, job.data, job.opts, override=False, producerId=job.known_id
            )
        elif truthy(repeat):
            await self.repeat.updateRepeatableJob(job.name, job.data, job.opts, override=False)

    async def _put_off(self, job: Job) -> None:
        # Grows with each start, because an error that is not an outage (a bad pattern) will return.
        delay = min(_FIRST_DELAY_MS * 2**job.attemptsStarted, _LONGEST_DELAY_MS)
        try:
            await job.moveToDelayed(self._worker.clock.now_ms() + delay, job.token)
        except Exception as error:  # noqa: BLE001 - the stalled check of some worker will find the job
            self._worker.emit(
                "error",
                BullMQError(
                    f"Failed to move job {job.id} to delayed after scheduling error: {error}. "
                    "Job will become stalled and be retried automatically."
                ),
            )
