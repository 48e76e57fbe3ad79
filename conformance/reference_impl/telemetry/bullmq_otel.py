"""OpenTelemetry as the option `telemetry`, as the npm package `bullmq-otel` 1.0.1 has it for Node.js."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.telemetry.interface import ContextManager, Tracer

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class BullMQOtel:
    """Traces through the API of OpenTelemetry; its SDK decides which spans are kept and where they go.

    `name` and `version` of the tracer are those of your program. A trace crosses the queue in the form of
    the global propagator (W3C Trace Context and Baggage unless you set another), so a job that Node.js added
    continues its trace, and vice versa. `tracer_provider` is the global one by default. Raises BullMQError if
    the package opentelemetry-api is not installed.
    """

    def __init__(self, name: str, version: str | None = None, *, tracer_provider: TracerProvider | None = None) -> None:
        try:
            # An optional dependency, loaded only by its users.
            from opentelemetry.trace import get_tracer  # noqa: PLC0415

            from conformance.reference_impl.telemetry.otel import OtelContexts, OtelTracer  # noqa: PLC0415
        except ImportError as error:
            raise BullMQError("telemetry needs it: pip install opentelemetry-api opentelemetry-sdk") from error
        self.tracer: Tracer = OtelTracer(get_tracer(name, version, tracer_provider))
        self.contextManager: ContextManager = OtelContexts()
