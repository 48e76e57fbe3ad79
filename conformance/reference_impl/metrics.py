"""Metrics of queues and workers, and the collector that keeps them for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.scripts import Scripts

MEASURED_STATES: Final = (
    "wait",
    "active",
    "completed",
    "failed",
    "delayed",
    "prioritized",
    "paused",
    "waiting-children",
)
"""The states whose number of jobs is measured."""

_RENEWAL_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""The specification requires 95 % of renewals below 10 ms, so most buckets are near that value."""

_COUNTS_HEAD: Final = (
    "# HELP bullmq_job_count Number of jobs in the queue by state",
    "# TYPE bullmq_job_count gauge",
)

AttemptOutcome = Literal["completed", "failed", "retried"]
FailureReason = Literal["transient_exhausted", "permanent"]


class MeasuredQueue(Protocol):
    """A queue or worker as the measurement sees it."""

    name: str
    scripts: Scripts

    def emit(self, event: str, *args: Any) -> None:
        """Call the listeners."""
        ...


class MetricsCollector(Protocol):
    """The option `metricsCollector` of queues and workers; by default nothing is counted.

    Every method is called from the event loop's thread.
    """

    def job_processed(self, queue: str, outcome: AttemptOutcome) -> None:
        """An attempt ended: the job is finished, or will be retried."""
        ...

    def job_failed(self, queue: str, reason: FailureReason) -> None:
        """A job failed permanently."""
        ...

    def job_duration(self, queue: str, seconds: float) -> None:
        """The duration (s) of a processor, whether it succeeded or failed."""
        ...

    def queue_length(self, queue: str, state: str, length: int) -> None:
        """The number of jobs in a state."""
        ...

    def job_stalled(self, queue: str) -> None:
        """A job whose worker died was put back."""
        ...

    def heartbeat_succeeded(self, queue: str, jobs: int, seconds: float) -> None:
        """One call renewed the locks of `jobs` jobs, in `seconds`."""
        ...

    def heartbeat_failed(self, queue: str) -> None:
        """The lock of one job was not renewed."""
        ...

    def stalled_check_skipped(self, queue: str) -> None:
        """A stalled check was skipped because the last one still ran."""
        ...

    def worker_active(self, queue: str, worker_id: str, *, active: bool | None) -> None:
        """A worker takes jobs, is paused, or is gone (None)."""
        ...

    def connection_status(self, worker_id: str, *, connected: bool) -> None:
        """A queue or worker lost or regained Redis; a closing one counts as connected."""
        ...

    def reconnect_attempted(self) -> None:
        """Redis was tried again after a loss."""
        ...


def prometheus_text(queue: str, counts: Mapping[str, int], labels: Mapping[str, str]) -> str:
    """Return the counts of jobs in the text format of Prometheus: a gauge per state, each with these labels too."""
    more = "".join(f', {name}="{value}"' for name, value in labels.items())
    gauges = [f'bullmq_job_count{{queue="{queue}", state="{state}"{more}}} {count}' for state, count in counts.items()]
    return "\n".join([*_COUNTS_HEAD, *gauges])


async def measure_lengths(owner: MeasuredQueue, collector: MetricsCollector) -> None:
    """Ask Redis how many jobs are in each state, and report it to the collector. Raises redis errors."""
    lengths = await owner.scripts.get_counts(MEASURED_STATES)
    for state, length in zip(MEASURED_STATES, lengths, strict=True):
        collector.queue_length(owner.name, state, length)


if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PrometheusCollector:
    """Keeps the metrics of the specification in a registry (the default one unless given).

    Make one per process and give it to all queues and workers as `metricsCollector`. It needs the package
    prometheus-client, which only this class imports. Raises BullMQError if it is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client as client  # noqa: PLC0415 - an optional dependency, loaded only by its users
        except ImportError as error:
            raise BullMQError("metrics need it: pip install prometheus-client") from error
        to = registry or client.REGISTRY
        self._lost: set[str] = set()
        self._processed = client.Counter(
            "bullmq_jobs_processed_total", "Attempts that ended, by outcome", ["queue", "status"], registry=to
        )
        self._failed = client.Counter(
            "bullmq_jobs_failed_total", "Jobs that failed permanently, by reason", ["queue", "reason"], registry=to
        )
        self._duration = client.Histogram(
            "bullmq_job_duration_seconds", "How long processors ran", ["queue"], registry=to
        )
        self._length = client.Gauge("bullmq_queue_length", "Jobs by state", ["queue", "state"], registry=to)
        self._stalled = client.Counter(
            "bullmq_stalled_jobs_total", "Jobs put back after their worker died", ["queue"], registry=to
        )
        self._renewed = client.Counter("bullmq_heartbeat_success_total", "Locks renewed", ["queue"], registry=to)
        self._not_renewed = client.Counter(
            "bullmq_heartbeat_failure_total", "Locks not renewed", ["queue"], registry=to
        )
        self._renewal = client.Histogram(
            *("bullmq_lock_extend_duration_seconds", "How long a renewal of locks took", ["queue"]),
            registry=to,
            buckets=_RENEWAL_BUCKETS_S,
        )
        self._skipped = client.Counter(
            *("bullmq_stalled_checker_skipped_total", "Stalled checks skipped because the last one still ran"),
            ["queue"],
            registry=to,
        )
        self._workers = client.Gauge(
            "bullmq_active_workers",
            "1 for a worker that takes jobs, 0 for a paused one",
            ["queue", "worker_id"],
            registry=to,
        )
        self._status = client.Gauge(
            "bullmq_redis_connection_status", "1 at the status that holds", ["status"], registry=to
        )
        self._reconnects = client.Counter(
            "bullmq_redis_reconnect_attempts_total", "Attempts to reach Redis after a loss", registry=to
        )
        self._show_status()

    def job_processed(self, queue: str, outcome: AttemptOutcome) -> None:
        """Count an attempt."""
        self._processed.labels(queue, outcome).inc()

    def job_failed(self, queue: str, reason: FailureReason) -> None:
        """Count a failed job."""
        self._failed.labels(queue, reason).inc()

    def job_duration(self, queue: str, seconds: float) -> None:
        """Observe how long a processor ran."""
        self._duration.labels(queue).observe(seconds)

    def queue_length(self, queue: str, state: str, length: int) -> None:
        """Set the number of jobs in a state."""
        self._length.labels(queue, state).set(length)

    def job_stalled(self, queue: str) -> None:
        """Count a job that was put back."""
        self._stalled.labels(queue).inc()

    def heartbeat_succeeded(self, queue: str, jobs: int, seconds: float) -> None:
        """Count renewed locks and observe the time it took."""
        self._renewed.labels(queue).inc(jobs)
        self._renewal.labels(queue).observe(seconds)

    def heartbeat_failed(self, queue: str) -> None:
        """Count a lock that was not renewed."""
        self._not_renewed.labels(queue).inc()

    def stalled_check_skipped(self, queue: str) -> None:
        """Count a skipped check."""
        self._skipped.labels(queue).inc()

    def worker_active(self, queue: str, worker_id: str, *, active: bool | None) -> None:
        """Set a worker's gauge; the series of a worker that is gone is removed."""
        if active is None:
            self._workers.remove(queue, worker_id)
        else:
            self._workers.labels(queue, worker_id).set(int(active))

    def connection_status(self, worker_id: str, *, connected: bool) -> None:
        """Note a disconnected object: the process counts as disconnected while at least one object is."""
        if connected:
            self._lost.discard(worker_id)
        else:
            self._lost.add(worker_id)
        self._show_status()

    def reconnect_attempted(self) -> None:
        """Count an attempt."""
        self._reconnects.inc()

    def _show_status(self) -> None:
        self._status.labels("connected").set(int(not self._lost))
        self._status.labels("disconnected").set(int(bool(self._lost)))
