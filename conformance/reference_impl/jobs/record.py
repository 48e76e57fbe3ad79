"""The values of a job, how they are read from the job hash, and the owner whose connection the job uses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol

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


class StoredValue:
    """A field that is read from the job hash when it is first needed: most processors need few of them."""

    def __init__(self, field: str, read: Callable[[str | None], Any], default: Any) -> None:
        self._field = field
        self._read = read
        self._default = default
        self._name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, record: JobRecord | None, _owner: type) -> Any:
        """Read the field; the class itself has the default, with which `dataclass` makes new records."""
        if record is None:
            return self._default
        values = vars(record)
        # From now on the value itself is found, because this descriptor has no `__set__`.
        value = values[self._name] = self._read(values["_stored"].get(self._field))
        return value


def _stored(field: str, read: Callable[[str | None], Any], default: Any = None) -> Any:
    return StoredValue(field, read, default)


def _text(stored: str | None) -> str | None:
    return stored or None


def _count(stored: str | None) -> int:
    return js_values.parse_int(stored) or 0


def _number(stored: str | None) -> int | None:
    return js_values.parse_int(stored)


def _lenient(stored: str | None) -> Any:
    """Parse a value; return the text itself if it is not JSON, because another client may have stored it so."""
    if not stored:
        return None
    with contextlib.suppress(ValueError):
        return js_values.parse(stored)
    return None


@dataclass(kw_only=True)
class JobRecord:
    """A job's values. Times are Unix ms, delays ms. A number that is None could not be read (JavaScript's NaN)."""

    name: str
    data: Any
    opts: JobOptions
    id: str | None = None
    timestamp: float | None = _stored(job_fields.TIMESTAMP, _number)
    delay: float | None = _stored(job_fields.DELAY, _number, 0)
    priority: float | None = _stored(job_fields.PRIORITY, _number, 0)
    progress: Any = 0
    returnvalue: Any = _stored(job_fields.RETURN_VALUE, _lenient)  # noqa: RUF009 - a descriptor, not a shared value
    failedReason: str | None = _stored(job_fields.FAILED_REASON, _text)
    stacktrace: list[str] = field(default_factory=list)
    attemptsStarted: int = _stored(job_fields.ATTEMPTS_STARTED, _count, 0)
    attemptsMade: int = 0
    stalledCounter: int = _stored(job_fields.STALLED_COUNTER, _count, 0)
    processedOn: float | None = _stored(job_fields.PROCESSED_ON, _number)
    finishedOn: float | None = _stored(job_fields.FINISHED_ON, _number)
    processedBy: str | None = _stored(job_fields.PROCESSED_BY, _text)
    parentKey: str | None = _stored(job_fields.PARENT_KEY, _text)
    parent: Mapping[str, Any] | None = None
    repeatJobKey: str | None = None
    deduplicationId: str | None = None
    deferredFailure: str | None = None
    nextRepeatableJobId: str | None = _stored(job_fields.NEXT_SCHEDULED_ID, _text)


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
    token: str | None = None
    discarded: bool = False
    retry_delay: float | None = None
    processing_s: float | None = None

    def bind(self, owner: JobOwner) -> None:
        """Let the job act on this owner's connection."""
        self.owner = owner

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
    return _record(
        {},
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
        stacktrace=[],
    )


def _record(fields: Mapping[str, str], **values: Any) -> JobRecord:
    """Make a record of these values; the others are read from the fields when they are needed."""
    record = JobRecord.__new__(JobRecord)
    vars(record).update(values, _stored=fields)
    return record


def read_record(fields: Mapping[str, str], job_id: str) -> JobRecord:
    """Read a job from its hash. Raises ValueError where `data` or `opts` is not JSON."""
    # Read now: the values whose reading may fail, and those that every worker needs.
    get = fields.get
    opts = _options(get(job_fields.OPTS) or "{}")
    attempts_made = get(job_fields.ATTEMPTS_MADE_LEGACY) or get(job_fields.ATTEMPTS_MADE)
    progress = get(job_fields.PROGRESS)
    traces = get(job_fields.STACKTRACE)
    record = _record(
        fields,
        name=get(job_fields.NAME, ""),
        data=js_values.parse(get(job_fields.DATA) or "{}"),
        opts=opts,
        id=job_id,
        progress=js_values.parse(progress) if progress else 0,
        stacktrace=_traces(traces) if traces else [],
        attemptsMade=_count(attempts_made),
        parent=_parent(fields, opts),
        repeatJobKey=get(job_fields.SCHEDULER_ID) or None,
        deduplicationId=get(job_fields.DEDUPLICATION_ID) or options.deduplication_id(opts),
        deferredFailure=get(job_fields.DEFERRED_FAILURE) or None,
    )
    if "parent" in opts:
        record.parentKey = get(job_fields.PARENT_KEY) or options.parent_key(opts["parent"])
    return record


_LONGEST_SHARED: Final = 256
"""Characters: longer options are not cached."""


def _options(stored: str) -> JobOptions:
    """Read the options; every job gets a dict of its own."""
    shared = _shared_options(stored) if len(stored) <= _LONGEST_SHARED else None
    return dict(shared) if shared is not None else options.normalize(options.decode(js_values.parse(stored)))


@lru_cache(maxsize=256)
def _shared_options(stored: str) -> JobOptions | None:
    """Return options that many jobs have, or None if they have members that a processor might change for all."""
    opts = options.normalize(options.decode(js_values.parse(stored)))
    return None if any(isinstance(value, (dict, list)) for value in opts.values()) else opts


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
