"""Turns the local events of queues and workers into log lines and metrics. Without either it costs nothing.

Lines about single jobs (picked up, completed, retried) are only written with the option `logger`; lines about problems
(connection, locks, stalled jobs, permanently failed jobs) always.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.emitter import Listener
from conformance.reference_impl.errors import ErrorCategory, UnrecoverableError
from conformance.reference_impl.jobs.record import BoundJob
from conformance.reference_impl.journal import Journal, shown
from conformance.reference_impl.metrics import MeasuredQueue, MetricsCollector, measure_lengths
from conformance.reference_impl.policy import Policy

DEFAULT_INTERVAL_MS: Final = 15_000
"""How often a worker with a collector measures the queue, unless the option `metricsInterval` says otherwise."""

Process = Callable[..., Any | Awaitable[Any]]


class ObservedClient(Protocol):
    """A queue or worker that is observed."""

    name: str
    worker_id: str
    journal: Journal
    policy: Policy

    @property
    def opts(self) -> Mapping[str, Any]:
        """The options."""
        ...

    def on(self, event: Any, listener: Listener) -> Any:
        """Call the listener at every such event."""
        ...


def observe_link(owner: ObservedClient, collector: MetricsCollector | None) -> None:
    """Log losses and recoveries of the connection; count them if there is a collector."""
    journal, worker_id = owner.journal, owner.worker_id
    owner.on("warning", journal.warning)
    owner.on("disconnected", lambda error: journal.error("Redis disconnected", error=error))
    owner.on(
        "reconnected", lambda attempt, seconds: journal.info("Redis reconnected", attempt=attempt, duration=seconds)
    )
    owner.on("unreachable", lambda attempt, error: journal.error("Redis given up", attempt=attempt, error=error))
    if collector is not None:
        owner.on("disconnected", lambda _error: collector.connection_status(worker_id, connected=False))
        owner.on("reconnecting", lambda _attempt: collector.reconnect_attempted())
        owner.on("reconnected", lambda *_: collector.connection_status(worker_id, connected=True))
        owner.on("closed", lambda: collector.connection_status(worker_id, connected=True))


def observe_worker(worker: ObservedClient, processor: Process | None) -> Process | None:
    """Log and count what happens to jobs; returns the processor, timed if there is a logger or collector."""
    collector: MetricsCollector | None = worker.opts.get("metricsCollector")
    log_trouble(worker)
    if worker.opts.get("logger"):
        log_jobs(worker)
    else:
        log_failures(worker)
    if collector is not None:
        count_jobs(worker, collector)
        count_worker_events(worker, collector)
    is_timed = collector is not None or worker.opts.get("logger")
    return timed(processor) if processor is not None and is_timed else processor


def timed(processor: Process) -> Process:
    """Return a processor that stores its duration (s) in `job.processing_s`."""

    async def run(job: BoundJob, token: str) -> Any:
        started = time.monotonic()
        try:
            outcome = processor(job, token)
            return await outcome if inspect.isawaitable(outcome) else outcome
        finally:
            # In `finally`, so that failed attempts have a duration too.
            job.processing_s = time.monotonic() - started

    return run


def log_trouble(worker: ObservedClient) -> None:
    """Log stalled jobs and failed heartbeats."""
    journal = worker.journal
    worker.on("stalled", lambda job_id, *_: journal.warning("Job stalled", jobId=job_id, lockExpired=True))
    worker.on("heartbeatFailed", lambda job_id, error: journal.warning("Heartbeat failed", jobId=job_id, error=error))
    worker.on("stalledCheckSkipped", lambda: journal.warning("Stalled check skipped: the last one still runs"))


def log_failures(worker: ObservedClient) -> None:
    """Log each permanently failed job once, with the traceback of its last attempt."""
    journal, policy = worker.journal, worker.policy.errors

    def failed(job: BoundJob, error: BaseException) -> None:
        if job.retry_delay is None:
            category = str(policy.category_of(error))
            journal.error("Job failed", jobId=job.id, error=error, category=category, attemptsMade=job.attemptsMade)

    worker.on("failed", failed)


def log_jobs(worker: ObservedClient) -> None:
    """Log the start and end of each job."""
    journal, policy = worker.journal, worker.policy.errors

    def completed(job: BoundJob, result: Any, *_: Any) -> None:
        journal.info("Job completed", jobId=job.id, duration=job.processing_s, result=shown(result))

    def failed(job: BoundJob, error: BaseException, *_: Any) -> None:
        facts = {"jobId": job.id, "error": error, "category": str(policy.category_of(error))}
        if job.retry_delay is None:
            journal.error("Job failed", **facts, attemptsMade=job.attemptsMade)
        else:
            journal.warning("Job retried", **facts, attemptsMade=job.attemptsMade, delay=job.retry_delay)

    worker.on("active", lambda job, *_: journal.info("Job picked up", jobId=job.id))
    worker.on("completed", completed)
    worker.on("failed", failed)
    worker.on("heartbeat", lambda ids, seconds: journal.debug("Locks renewed", jobIds=ids, duration=seconds))


def count_jobs(worker: ObservedClient, collector: MetricsCollector) -> None:
    """Count how jobs end, and how long they take."""
    queue, policy = worker.name, worker.policy.errors

    def completed(job: BoundJob, *_: Any) -> None:
        collector.job_processed(queue, "completed")
        measure(job)

    def failed(job: BoundJob, error: BaseException, *_: Any) -> None:
        measure(job)
        if job.retry_delay is not None:
            collector.job_processed(queue, "retried")
            return
        collector.job_processed(queue, "failed")
        is_permanent = isinstance(error, UnrecoverableError) or policy.category_of(error) is ErrorCategory.PERMANENT
        collector.job_failed(queue, "permanent" if is_permanent else "transient_exhausted")

    def measure(job: BoundJob) -> None:
        if job.processing_s is not None:
            collector.job_duration(queue, job.processing_s)

    worker.on("completed", completed)
    worker.on("failed", failed)


def count_worker_events(worker: ObservedClient, collector: MetricsCollector) -> None:
    """Count renewed locks, stalled jobs and skipped checks, and whether the worker is open."""
    queue, worker_id = worker.name, worker.worker_id
    worker.on("stalled", lambda *_: collector.job_stalled(queue))
    worker.on("stalledCheckSkipped", lambda: collector.stalled_check_skipped(queue))
    worker.on("heartbeat", lambda ids, seconds: collector.heartbeat_succeeded(queue, len(ids), seconds))
    worker.on("heartbeatFailed", lambda *_: collector.heartbeat_failed(queue))
    worker.on("paused", lambda: collector.worker_active(queue, worker_id, active=False))
    worker.on("resumed", lambda: collector.worker_active(queue, worker_id, active=True))
    worker.on("closed", lambda: collector.worker_active(queue, worker_id, active=None))
    collector.worker_active(queue, worker_id, active=True)


class LengthMeter:
    """Measures the queue every `metricsInterval` ms, if there is a collector."""

    def __init__(self, owner: MeasuredQueue, opts: Mapping[str, Any]) -> None:
        self._owner = owner
        self._collector: MetricsCollector | None = opts.get("metricsCollector")
        self._every_s = opts.get("metricsInterval", DEFAULT_INTERVAL_MS) / 1000
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Measure from now on."""
        if self._collector is not None and self._task is None:
            self._task = asyncio.create_task(self._run(self._collector))

    def stop(self) -> None:
        """Measure no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, collector: MetricsCollector) -> None:
        while True:
            try:
                await measure_lengths(self._owner, collector)
            except Exception as error:  # noqa: BLE001 - the next measurement tries again
                if not is_connection_problem(error):
                    self._owner.emit("error", error)
            # After the measurement: a slow Redis is then asked less often, not more.
            await asyncio.sleep(self._every_s)
