"""The base of all operations of the driver protocol, and their registry."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from conformance.registry import Registry

Answer = TypeVar("Answer")


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without content: the operation happened."""


class JobRef(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a job, as the client reports it."""

    id: str


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the client sees it. Times are Unix ms; `*_raw` are JSON texts; None: the client has no value.

    `data_raw` and `returnvalue_raw` are the values that the client would return to its user, as JSON.
    """

    id: str
    name: str
    data_raw: str
    opts: dict[str, Any] = {}
    timestamp: float | None = None
    delay: float | None = None
    priority: float | None = None
    attempts_made: int | None = None
    attempts_started: int | None = None
    stalled_counter: int | None = None
    progress_raw: str | None = None
    returnvalue_raw: str | None = None
    failed_reason: str | None = None
    stacktrace_length: int | None = None
    processed_on: float | None = None
    finished_on: float | None = None
    processed_by: str | None = None
    parent_key: str | None = None
    deduplication_id: str | None = None


class MaybeJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or None if the client found none."""

    job: JobView | None


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs in the client's order; None for an empty place in the client's list."""

    jobs: list[JobView | None]


class Ids(msgspec.Struct, frozen=True, kw_only=True):
    """Job ids in the client's order."""

    ids: list[str]


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A number of things."""

    count: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of jobs by state name (or by priority, as text)."""

    counts: dict[str, int]


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """Yes or no."""

    value: bool


class JsonText(msgspec.Struct, frozen=True, kw_only=True):
    """A value as JSON text."""

    value_raw: str


class Op(msgspec.Struct, Generic[Answer], frozen=True):
    """One operation: the fields are its arguments, `answer` is the type of its result.

    Every field is always sent; null means "not given".
    """

    op: ClassVar[str]
    on: ClassVar[str]
    """The role of its handle: queue, worker, events, flow, `any`, or `driver` for operations without handle."""
    answer: ClassVar[type[Any]]


REGISTRY: Registry[type[Op[Any]]] = Registry("operation")
"""All operations by name, filled by the `@operation` decorator."""

OpType = TypeVar("OpType", bound=type[Op[Any]])


def operation(name: str, *, on: str, answer: type[Any]) -> Any:
    """Register an operation under its protocol name."""

    def register(cls: OpType) -> OpType:
        REGISTRY.add(name, cls)
        cls.op, cls.on, cls.answer = name, on, answer
        return cls

    return register
