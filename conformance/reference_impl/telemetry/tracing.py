"""Blocks of work that are spans, where there is telemetry (upstream `src/utils/index.ts`, `trace`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, Self

from conformance.reference_impl.telemetry.attributes import QUEUE_NAME, QUEUE_OPERATION
from conformance.reference_impl.telemetry.interface import Span, SpanKind, Telemetry


class TracedBlock:
    """A block of work; without telemetry, as here, nothing is recorded."""

    is_recorded: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def context(self) -> Any:
        """The context for children of this span; None without telemetry."""
        return None

    @property
    def metadata(self) -> str | None:
        """The metadata for a job made here, so that its processing becomes a child of this span."""
        return None

    def setAttributes(self, attributes: Mapping[str, Any]) -> None:
        """Describe the work; what is None is left out."""

    def addEvent(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Note that something has happened."""

    def recordException(self, error: BaseException) -> None:
        """Note an error that the block survives; one that leaves it is noted anyway."""


UNTRACED: Final = TracedBlock()
"""The block without telemetry."""


class SpanBlock(TracedBlock):
    """A block that is a span, in which the span is the active one."""

    is_recorded = True

    def __init__(self, telemetry: Telemetry, span: Span, context: Any) -> None:
        self._contexts = telemetry.contextManager
        self._span = span
        self._context = span.setSpanOnContext(context)
        self._activation: AbstractContextManager[None] | None = None

    def __enter__(self) -> Self:
        self._activation = self._contexts.using(self._context)
        self._activation.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._activation is not None:
                # Deactivated before it ends, so that no later span becomes its child.
                self._activation.__exit__(None, None, None)
            if isinstance(error, Exception):  # cancellation is not an error
                self._span.recordException(error)
        finally:
            # In `finally`: a span that never ends is never exported.
            self._span.end()

    @property
    def context(self) -> Any:
        """The context of this span."""
        return self._context

    @property
    def metadata(self) -> str | None:
        """The context of this span, written down for a job."""
        return self._contexts.getMetadata(self._context)

    def setAttributes(self, attributes: Mapping[str, Any]) -> None:
        """Describe the work; what is None is left out."""
        self._span.setAttributes(_given(attributes))

    def addEvent(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Note that something has happened."""
        self._span.addEvent(name, _given(attributes))

    def recordException(self, error: BaseException) -> None:
        """Note an error that the block survives."""
        self._span.recordException(error)


def trace(
    telemetry: Telemetry | None,
    kind: SpanKind,
    queue: str,
    operation: str,
    destination: str,
    *,
    metadata: Any = None,
    context: Any = None,
) -> TracedBlock:
    """Return a block for `with`, named after the operation and what it is done to (mostly the queue).

    Its span is a child of the one that `metadata`, from a job, names; else of `context`; else of the active one. Only
    a consumer continues the context of the job, including its baggage.
    """
    if telemetry is None:
        return UNTRACED
    active = telemetry.contextManager.active() if context is None else context
    origin = _origin(telemetry, active, metadata)
    name = f"{operation} {destination}" if destination else operation
    span = telemetry.tracer.startSpan(name, kind, active if origin is None else origin)
    span.setAttributes({QUEUE_NAME: queue, QUEUE_OPERATION: operation})
    return SpanBlock(telemetry, span, origin if origin is not None and kind is SpanKind.CONSUMER else active)


def _origin(telemetry: Telemetry, active: Any, metadata: Any) -> Any:
    """Return the context that a job has brought along.

    None if it has none or an unreadable one, so that a bad trace does not block the job. (In Node.js 5.62.0 with
    bullmq-otel the job then stays in active and keeps its slot in the worker.)
    """
    if not metadata or not isinstance(metadata, str):
        return None
    try:
        return telemetry.contextManager.fromMetadata(active, metadata)
    except ValueError:
        return None


def _given(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
