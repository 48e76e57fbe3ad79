"""The parts of `BullMQOtel` that use OpenTelemetry: only this module imports it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import propagate
from opentelemetry import trace as spans
from opentelemetry.context import Context

from conformance.reference_impl.telemetry.interface import SpanKind


class OtelTracer:
    """A tracer of OpenTelemetry."""

    def __init__(self, tracer: spans.Tracer) -> None:
        self._tracer = tracer

    def startSpan(self, name: str, kind: SpanKind, context: Context | None = None) -> OtelSpan:
        """Start a span."""
        return OtelSpan(self._tracer.start_span(name, context, spans.SpanKind(kind)))


class OtelContexts:
    """The contexts of OpenTelemetry, which follow tasks and threads (`contextvars`)."""

    def active(self) -> Context:
        """Return the active context."""
        return contexts.get_current()

    @contextmanager
    def using(self, context: Context) -> Iterator[None]:
        """Make a context the active one inside a block."""
        token = contexts.attach(context)
        try:
            yield
        finally:
            contexts.detach(token)

    def getMetadata(self, context: Context) -> str:
        """Write a context down as JSON, without blanks: `{"traceparent":"00-..."}`."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier, context)
        return json.dumps(carrier, ensure_ascii=False, separators=(",", ":"))

    def fromMetadata(self, context: Context, metadata: str) -> Context:
        """Return this context with what such a text says. Raises ValueError for anything but a JSON object of texts."""
        carrier = json.loads(metadata)
        if not isinstance(carrier, dict) or not all(isinstance(value, str) for value in carrier.values()):
            raise ValueError(f"invalid metadata of a trace {metadata!r}: not a JSON object of texts")
        return propagate.extract(carrier, context)


class OtelSpan:
    """A span of OpenTelemetry."""

    def __init__(self, span: spans.Span) -> None:
        self._span = span

    def setSpanOnContext(self, context: Context) -> Context:
        """Return a context like this one with this span in it."""
        return spans.set_span_in_context(self._span, context)

    def setAttributes(self, attributes: Mapping[str, Any]) -> None:
        """Describe the work."""
        self._span.set_attributes(attributes)

    def addEvent(self, name: str, attributes: Mapping[str, Any]) -> None:
        """Note that something has happened."""
        self._span.add_event(name, attributes)

    def recordException(self, exception: BaseException) -> None:
        """Note an error."""
        self._span.record_exception(exception)

    def end(self) -> None:
        """End the span."""
        self._span.end()
