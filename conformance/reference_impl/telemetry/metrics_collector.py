"""What is counted and measured, whatever keeps the numbers; by default nobody does.

`prometheus_metrics` has a collector for Prometheus.
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol

from conformance.reference_impl.scripts.registry import Scripts

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
"""The states whose lengths are measured."""

Outcome = Literal["completed", "failed", "retried"]
FailureReason = Literal["transient_exhausted", "permanent"]


class Measured(Protocol):
    """A queue or worker, seen from whoever measures it."""

    name: str
    scripts: Scripts

    def emit(self, event: str, *args: Any) -> None:
        """Tell the listeners."""
        ...


class MetricsCollector(Protocol):
    """The option `metricsCollector` of queues and workers. Every method is called from the event loop's thread."""

    def job_processed(self, queue: str, outcome: Outcome) -> None:
        """An attempt ended: for good, or to be retried."""
        ...

    def job_failed(self, queue: str, reason: FailureReason) -> None:
        """A job failed for good."""
        ...

    def job_duration(self, queue: str, seconds: float) -> None:
        """A processor ran so long, whatever came out of it."""
        ...

    def queue_length(self, queue: str, state: str, length: int) -> None:
        """So many jobs are in a state."""
        ...

    def job_stalled(self, queue: str) -> None:
        """A job whose worker died was put back."""
        ...

    def heartbeat_succeeded(self, queue: str, jobs: int, seconds: float) -> None:
        """The locks of so many jobs were renewed by one call that took so long."""
        ...

    def heartbeat_failed(self, queue: str) -> None:
        """The lock of one job was not renewed."""
        ...

    def stalled_check_skipped(self, queue: str) -> None:
        """A stalled check did not begin because the last one still ran."""
        ...

    def worker_active(self, queue: str, worker_id: str, *, active: bool | None) -> None:
        """A worker takes jobs, is paused, or is gone (None)."""
        ...

    def connection_status(self, worker_id: str, *, connected: bool) -> None:
        """A queue or worker lost or found Redis; one that closes counts as connected."""
        ...

    def reconnect_attempted(self) -> None:
        """Redis was tried again after a loss."""
        ...


async def measure_lengths(owner: Measured, collector: MetricsCollector) -> None:
    """Ask Redis how many jobs are in each state, and tell the collector. Raises redis errors."""
    lengths = await owner.scripts.get_counts(MEASURED_STATES)
    for state, length in zip(MEASURED_STATES, lengths, strict=True):
        collector.queue_length(owner.name, state, length)
