"""The protocol of the option `telemetry` (upstream `src/interfaces/telemetry.ts`), for any tracing system.

`otel.BullMQOtel` implements it for OpenTelemetry. A *context* is an opaque object of the tracing system, which is only
passed back to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Any, Protocol

from conformance.reference_impl.errors import InvalidArgument


class SpanKind(IntEnum):
    """The kind of a span (upstream `src/enums/telemetry-attributes.ts`); OpenTelemetry has the same numbers."""

    INTERNAL = 0
    PRODUCER = 3
    CONSUMER = 4


class Span(Protocol):
    """A unit of work with a start and an end."""

    def setSpanOnContext(self, context: Any) -> Any:
        """Return a context like this one, in which new spans are children of this span."""
        ...

    def setAttributes(self, attributes: Mapping[str, Any]) -> None:
        """Describe the work; None among the values is never given."""
        ...

    def addEvent(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Note that something has happened now."""
        ...

    def recordException(self, exception: BaseException) -> None:
        """Note that the work has met an error."""
        ...

    def end(self) -> None:
        """End the span; only then it is exported."""
        ...


class Tracer(Protocol):
    """Makes spans."""

    def startSpan(self, name: str, kind: SpanKind, context: Any = None) -> Span:
        """Start a span, as a child of the span in this context; None is the active one."""
        ...


class ContextManager(Protocol):
    """Knows the active context, and how a context travels in a job."""

    def active(self) -> Any:
        """Return the active context."""
        ...

    def using(self, context: Any) -> AbstractContextManager[None]:
        """Make a context the active one inside a block: what is called `with` in Node."""
        ...

    def getMetadata(self, context: Any) -> str:
        """Write a context down as the text that is stored in a job."""
        ...

    def fromMetadata(self, context: Any, metadata: str) -> Any:
        """Return this context with what a job has of another one. Raises ValueError for invalid text."""
        ...


class Telemetry(Protocol):
    """The option `telemetry` of Queue, Worker and FlowProducer."""

    tracer: Tracer
    contextManager: ContextManager


def telemetry_of(opts: Mapping[str, Any]) -> Telemetry | None:
    """Return the option `telemetry`. Raises InvalidArgument for what cannot trace."""
    telemetry: Telemetry | None = opts.get("telemetry")
    if telemetry is not None and not (hasattr(telemetry, "tracer") and hasattr(telemetry, "contextManager")):
        raise InvalidArgument(
            f"telemetry has to have a tracer and a contextManager, as BullMQOtel(name) has, not {telemetry!r}",
            field="telemetry",
            constraint="with tracer and contextManager",
        )
    return telemetry
