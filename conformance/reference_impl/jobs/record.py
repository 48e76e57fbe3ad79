"""The values of a job, how they are read from the job hash, and the owner whose connection the job uses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from conformance.protocol import job_fields
from conformance.reference_impl import js_values
from conformance.reference_impl.connection.connection import Connection
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.options import JobOptions
from conformance.reference_impl.scripts import Scripts
from conformance.reference_impl.scripts.runner import ScriptOwner
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.telemetry.tracing import TracedBlock


def _text(stored: str | None) -> str | None:
    return stored or None


def _count(stored: str | None) -> int:
    return js_values.parse_int(stored) or 0


def _number(stored: str | None) -> int | None:
    return js_values.parse_int(stored)


def _lenient(stored: str | None) -> Any:
    """Parse a value; None if it is not JSON, because another client may have stored it so."""
    if not stored:
        return None
    with contextlib.suppress(ValueError):
        return js_values.parse(stored)
    return None


_READ_LATER: Final[Mapping[str, tuple[str, Callable[[str | None], Any]]]] = {
    "timestamp": (job_fields.TIMESTAMP, _number),
    "delay": (job_fields.DELAY, _number),
    "priority": (job_fields.PRIORITY, _number),
    "returnvalue": (job_fields.RETURN_VALUE, _lenient),
    "failedReason": (job_fields.FAILED_REASON, _text),
    "attemptsStarted": (job_fields.ATTEMPTS_STARTED, _count),
    "stalledCounter": (job_fields.STALLED_COUNTER, _count),
    "processedOn": (job_fields.PROCESSED_ON, _number),
    "finishedOn": (job_fields.FINISHED_ON, _number),
    "processedBy": (job_fields.PROCESSED_BY, _text),
    "parentKey": (job_fields.PARENT_KEY, _text),
    "nextRepeatableJobId": (job_fields.NEXT_SCHEDULED_ID, _text),
}
"""Values that are read when they are first needed, which cannot fail: their fields, and how these are read."""


class _StoredValues:
    """The job hash behind a record, `stored`. A worker at full load reads only what its processor needs."""

    __slots__ = ("stored",)

    stored: Mapping[str, str]

    if not TYPE_CHECKING:  # type checkers would let any name pass

        def __getattr__(self, name: str) -> Any:
            """Read a value. Python calls this for a slot that is not set yet."""
            if name not in _READ_LATER:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)
            field_name, read = _READ_LATER[name]
            value = read(self.stored.get(field_name))
            setattr(self, name, value)
            return value


@dataclass(kw_only=True, slots=True)
class JobRecord(_StoredValues):
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

    @classmethod
    def from_hash(cls, fields: Mapping[str, str], job_id: str) -> Self:
        """Read the values from a job hash. Raises ValueError where `data` or `opts` is not JSON."""
        # Without `__init__`, which would set all values: those that are not set here are read later.
        record = cls.__new__(cls)
        get = fields.get
        opts = _options(get(job_fields.OPTS) or "{}")
        progress = get(job_fields.PROGRESS)
        traces = get(job_fields.STACKTRACE)
        record.stored = fields  # type: ignore[misc]  # mypy forgets the slots of the base
        record.name = get(job_fields.NAME, "")
        record.data = js_values.parse(get(job_fields.DATA) or "{}")
        record.opts = opts
        record.id = job_id
        record.progress = js_values.parse(progress) if progress else 0
        record.stacktrace = _traces(traces) if traces else []
        record.attemptsMade = _count(get(job_fields.ATTEMPTS_MADE_LEGACY) or get(job_fields.ATTEMPTS_MADE))
        record.parent = _parent(fields, opts)
        record.repeatJobKey = get(job_fields.SCHEDULER_ID) or None
        record.deduplicationId = get(job_fields.DEDUPLICATION_ID) or options.deduplication_id(opts)
        record.deferredFailure = get(job_fields.DEFERRED_FAILURE) or None
        if "parent" in opts:
            record.parentKey = get(job_fields.PARENT_KEY) or options.parent_key(opts["parent"])
        return record

    def toJSON(self) -> dict[str, Any]:
        """Return the job's values without its owner, for a log line or an API."""
        return {value.name: getattr(self, value.name) for value in fields(JobRecord)}


class JobOwner(ScriptOwner, Protocol):
    """A queue or worker, seen from its jobs; a job that finishes takes the worker's settings from `opts`."""

    connection: Connection
    scripts: Scripts

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

    __slots__ = ("discarded", "owner", "processing_s", "retry_delay", "token")

    owner: JobOwner
    token: str | None
    discarded: bool
    retry_delay: float | None
    processing_s: float | None

    def bind(self, owner: JobOwner) -> None:
        """Let the job act on this owner's connection."""
        self.owner = owner
        self.token = self.retry_delay = self.processing_s = None
        self.discarded = False

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


def new_values(name: str, data: Any, opts: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the values of a new job that are not at their defaults."""
    normal = options.normalize(opts)
    return {
        "name": name,
        "data": data,
        "opts": normal,
        "id": normal.get("jobId"),
        "timestamp": opts.get("timestamp") or now_ms,
        "delay": normal.get("delay"),
        "priority": normal.get("priority") or 0,
        "parentKey": options.parent_key(normal.get("parent")),
        "parent": options.parent_field(normal),
        "repeatJobKey": opts.get("repeatJobKey"),
        "deduplicationId": options.deduplication_id(normal),
    }


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
