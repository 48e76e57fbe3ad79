"""The base of all operations of the driver protocol, and their registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from conformance.driver.errors import OperationUnanswered
from conformance.registry import Registry

if TYPE_CHECKING:
    # To its readers a field has a value or is None: reading one that was left out raises OperationUnanswered.
    LeftOut: TypeAlias = Never
else:
    LeftOut = UnsetType
LEFT_OUT: Any = UNSET

Answer = TypeVar("Answer")


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """An answer without content: the operation happened."""


class JobRef(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a job, as the client reports it."""

    id: str


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the client sees it. Times are Unix ms; `*_raw` are JSON texts; null: the client has no value.

    `data_raw` and `returnvalue_raw` are the values that the client would return to its user, as JSON. A field that is
    left out is not compared; `driver check` names it.
    """

    id: str
    name: str
    data_raw: str
    opts: dict[str, Any] | LeftOut = LEFT_OUT
    timestamp: float | LeftOut | None = LEFT_OUT
    delay: float | LeftOut | None = LEFT_OUT
    priority: float | LeftOut | None = LEFT_OUT
    attempts_made: int | LeftOut | None = LEFT_OUT
    attempts_started: int | LeftOut | None = LEFT_OUT
    stalled_counter: int | LeftOut | None = LEFT_OUT
    progress_raw: str | LeftOut | None = LEFT_OUT
    returnvalue_raw: str | LeftOut | None = LEFT_OUT
    failed_reason: str | LeftOut | None = LEFT_OUT
    stacktrace_length: int | LeftOut | None = LEFT_OUT
    processed_on: float | LeftOut | None = LEFT_OUT
    finished_on: float | LeftOut | None = LEFT_OUT
    processed_by: str | LeftOut | None = LEFT_OUT
    parent_key: str | LeftOut | None = LEFT_OUT
    deduplication_id: str | LeftOut | None = LEFT_OUT

    def __getattribute__(self, name: str) -> Any:
        """Raise OperationUnanswered for a field that the driver left out: it is not a value, so it is not compared."""
        value = super().__getattribute__(name)
        if value is UNSET:
            raise OperationUnanswered(f"the field {name} of a job")
        return value


def left_out(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> frozenset[str]:
    """The fields that only one of two jobs in answers has, because a driver left them out; none for other values."""
    if not {"id", "name", "data_raw"} <= expected.keys() & actual.keys():
        return frozenset()
    return frozenset(expected.keys() ^ actual.keys())


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
