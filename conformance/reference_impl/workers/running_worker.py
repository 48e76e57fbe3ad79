"""The worker as its parts see it, and its options with their defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from conformance.reference_impl.connection.connection import Connection, Link
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs.record import JobOwner
from conformance.reference_impl.js_values import is_number
from conformance.reference_impl.policy import Policy
from conformance.reference_impl.telemetry.attributes import WORKER_ID, WORKER_NAME
from conformance.reference_impl.telemetry.interface import Telemetry
from conformance.reference_impl.telemetry.tracing import UNTRACED, TracedBlock
from conformance.reference_impl.workers.lifecycle import Lifecycle

Result = TypeVar("Result")

DEFAULT_OPTIONS: Final[Mapping[str, Any]] = {
    "drainDelay": 5,
    "concurrency": 1,
    "lockDuration": 30_000,
    "maxStalledCount": 1,
    "stalledInterval": 30_000,
    "autorun": True,
    "runRetryDelay": 15_000,
}
"""`drainDelay` is in seconds, everything else in ms."""


class RunningWorker(JobOwner, Protocol):
    """A worker as its parts see it."""

    id: str
    own_name: str | None
    lifecycle: Lifecycle
    policy: Policy
    telemetry: Telemetry | None
    blocking_connection: Connection
    link: Link

    @property
    def concurrency(self) -> int:
        """How many jobs run at a time."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the worker takes new jobs."""
        ...

    async def persist(
        self, act: Callable[[], Awaitable[Result]], *, is_logged_by_job: bool = False, span: TracedBlock = UNTRACED
    ) -> Result:
        """Retry a call while Redis cannot be reached."""
        ...

    async def rest(self, seconds: float) -> None:
        """Sleep for at least this time, but at most until close."""
        ...

    def report(self, error: BaseException) -> None:
        """Emit an `error`, unless the worker is paused or closing."""
        ...


def describe(span: TracedBlock, worker: RunningWorker, facts: Mapping[str, Any] | None = None) -> None:
    """Add the worker and these facts to a span."""
    if span.is_recorded:
        span.setAttributes({WORKER_ID: worker.id, WORKER_NAME: worker.own_name, **(facts or {})})


def check_options(opts: Mapping[str, Any]) -> None:
    """Refuse options out of range, with Node's texts. Raises InvalidArgument."""
    if not is_number(opts["maxStalledCount"]) or opts["maxStalledCount"] < 0:
        raise InvalidArgument("maxStalledCount must be greater or equal than 0")
    if is_number(opts.get("maxStartedAttempts")) and opts["maxStartedAttempts"] < 0:
        raise InvalidArgument("maxStartedAttempts must be greater or equal than 0")
    if not is_number(opts["stalledInterval"]) or opts["stalledInterval"] <= 0:
        raise InvalidArgument("stalledInterval must be greater than 0")
    if not is_number(opts["drainDelay"]) or opts["drainDelay"] <= 0:
        raise InvalidArgument("drainDelay must be greater than 0")
