"""The values of a job, how they are read from the job hash, and the owner whose connection the job uses."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from conformance.protocol import job_fields
from conformance.protocol.keys import QueueKeys
from conformance.reference_impl import js_values
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.options import JobOptions
from conformance.reference_impl.scripts import Scripts
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.telemetry.tracing import TracedBlock


@dataclass(kw_only=True)
class JobRecord:
    """A job's values. Times are Unix ms, delays ms. A number that is None could not be read (JavaScript's NaN)."""

    name: str
    data: Any
    opts: JobOptions
    id: str | None = None
    timestamp: float | None = None
    delay: float | None = 0
    priority: float | None = 0
    progress: Any = 0
    returnvalue: Any = None
    failedReason: str | None = None
    stacktrace: list[str] = field(default_factory=list)
    attemptsStarted: int = 0
    attemptsMade: int = 0
    stalledCounter: int = 0
    processedOn: float | None = None
    finishedOn: float | None = None
    processedBy: str | None = None
    parentKey: str | None = None
    parent: Mapping[str, Any] | None = None
    repeatJobKey: str | None = None
    deduplicationId: str | None = None
    deferredFailure: str | None = None
    nextRepeatableJobId: str | None = None


class JobOwner(Protocol):
    """A queue or worker, seen from its jobs."""

    connection: Connection
    scripts: Scripts

    @property
    def keys(self) -> QueueKeys:
        """Key names of the queue."""
        ...

    @property
    def opts(self) -> Mapping[str, Any]:
        """QueueOptions or WorkerOptions; a job that finishes takes the worker's settings from here."""
        ...

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        ...

    def emit(self, event: str, *args: Any) -> None:
        """Call the owner's listeners."""
        ...

    def trace(
        self, kind: SpanKind, operation: str, destination: str | None = None, *, metadata: Any = None
    ) -> TracedBlock:
        """Return a block for `with`, which is a span if the owner has telemetry."""
        ...

    async def waitUntilReady(self) -> None:
        """Wait until connected, and until `meta` is written."""
        ...


class BoundJob(JobRecord):
    """A job's values with its owner, and values that only this client knows.

    `token` is the lock token of a job that a worker fetched. `retry_delay`: ms until the next attempt after a failed
    one; None if there is none. `processing_s`: how long the processor ran, if that is measured.
    """

    owner: JobOwner
    token: str | None
    discarded: bool
    retry_delay: float | None
    processing_s: float | None

    def bind(self, owner: JobOwner) -> None:
        """Let the job act on this owner's connection."""
        self.owner = owner
        self.token = None
        self.discarded = False
        self.retry_delay = None
        self.processing_s = None

    @property
    def known_id(self) -> str:
        """The job's id. Raises BullMQError for a job that was not added yet."""
        if self.id is None:
            raise BullMQError(f"job {self.name} has no id: it was not added")
        return self.id

    @property
    def scripts(self) -> Scripts:
        """The owner's script calls."""
        return self.owner.scripts

    def key(self, suffix: str) -> str:
        """Redis key of a companion of the job."""
        return self.owner.keys.of_job(self.known_id, suffix)


def new_record(name: str, data: Any, opts: Mapping[str, Any], now_ms: int) -> JobRecord:
    """Make the record of a new job."""
    normal = options.normalize(opts)
    parent = normal.get("parent")
    return JobRecord(
        name=name,
        data=data,
        opts=normal,
        id=normal.get("jobId"),
        timestamp=opts.get("timestamp") or now_ms,
        delay=normal.get("delay"),
        priority=normal.get("priority") or 0,
        parentKey=options.parent_key(parent),
        parent=options.parent_field(normal),
        repeatJobKey=opts.get("repeatJobKey"),
        deduplicationId=options.deduplication_id(normal),
    )


def read_record(fields: Mapping[str, str], job_id: str) -> JobRecord:
    """Read a job from its hash. Raises ValueError where `data` or `opts` is not JSON."""
    opts = options.normalize(options.decode(js_values.parse(fields.get(job_fields.OPTS) or "{}")))
    attempts_made = fields.get(job_fields.ATTEMPTS_MADE_LEGACY) or fields.get(job_fields.ATTEMPTS_MADE)
    return JobRecord(
        name=fields.get(job_fields.NAME, ""),
        data=js_values.parse(fields.get(job_fields.DATA) or "{}"),
        opts=opts,
        id=job_id,
        timestamp=js_values.parse_int(fields.get(job_fields.TIMESTAMP)),
        delay=js_values.parse_int(fields.get(job_fields.DELAY)),
        priority=js_values.parse_int(fields.get(job_fields.PRIORITY)),
        progress=js_values.parse(fields.get(job_fields.PROGRESS) or "0"),
        returnvalue=_lenient(fields.get(job_fields.RETURN_VALUE)),
        failedReason=fields.get(job_fields.FAILED_REASON) or None,
        stacktrace=_traces(fields.get(job_fields.STACKTRACE)),
        attemptsStarted=js_values.parse_int(fields.get(job_fields.ATTEMPTS_STARTED)) or 0,
        attemptsMade=js_values.parse_int(attempts_made) or 0,
        stalledCounter=js_values.parse_int(fields.get(job_fields.STALLED_COUNTER)) or 0,
        processedOn=js_values.parse_int(fields.get(job_fields.PROCESSED_ON)),
        finishedOn=js_values.parse_int(fields.get(job_fields.FINISHED_ON)),
        processedBy=fields.get(job_fields.PROCESSED_BY) or None,
        parentKey=fields.get(job_fields.PARENT_KEY) or options.parent_key(opts.get("parent")),
        parent=_parent(fields, opts),
        repeatJobKey=fields.get(job_fields.SCHEDULER_ID) or None,
        deduplicationId=fields.get(job_fields.DEDUPLICATION_ID) or options.deduplication_id(opts),
        deferredFailure=fields.get(job_fields.DEFERRED_FAILURE) or None,
        nextRepeatableJobId=fields.get(job_fields.NEXT_SCHEDULED_ID) or None,
    )


def data_text(data: Any) -> str:
    """Return the JSON text that is stored for a job's data; None is `null`."""
    return js_values.stringify(data)


def _parent(fields: Mapping[str, str], opts: JobOptions) -> Mapping[str, Any] | None:
    stored = fields.get(job_fields.PARENT)
    if not stored:
        return options.parent_field(opts)
    parent: Mapping[str, Any] = js_values.parse(stored)
    return parent


def _traces(stored: str | None) -> list[str]:
    traces = _lenient(stored)
    return traces if isinstance(traces, list) else []


def _lenient(stored: str | None) -> Any:
    """Parse a value; return the text itself if it is not JSON, because another client may have stored it so."""
    if not stored:
        return None
    with contextlib.suppress(ValueError):
        return js_values.parse(stored)
    return None
