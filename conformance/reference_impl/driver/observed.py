"""Metrics and logs of one object, kept until the kit reads them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from conformance.reference_impl.driver.views import Json
from conformance.reference_impl.errors import ErrorCategory, ErrorPolicy
from conformance.reference_impl.metrics import PrometheusCollector
from conformance.reference_impl.policy import SPECIFIED

_LEVELS: Final = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR"}
_LENGTHS_EVERY_MS: Final = 200


class Observed:
    """The collector and the log of one object: a `LogSink`. Raises ImportError without the extra `metrics`.

    `passing`: errors of processors after which a job is retried.
    """

    def __init__(self, *, passing: type[BaseException]) -> None:
        import prometheus_client  # noqa: PLC0415 - an optional dependency, loaded only by its users

        self._client = prometheus_client
        self._registry = prometheus_client.CollectorRegistry()
        self._collector = PrometheusCollector(self._registry)
        self._errors = ErrorPolicy(
            classify=lambda error: ErrorCategory.TRANSIENT if isinstance(error, passing) else None, fail_permanent=True
        )
        self.lines: list[Json] = []

    @property
    def options(self) -> Json:
        """The options of the object: all rules of the written specification, and these two observers."""
        return {
            "policy": replace(SPECIFIED, errors=self._errors),
            "logger": self,
            "metricsCollector": self._collector,
            "metricsInterval": _LENGTHS_EVERY_MS,
        }

    def write(self, level: int, message: str, values: Mapping[str, Any]) -> None:
        """Keep a line."""
        plain = {name: _plain(value) for name, value in values.items()}
        self.lines.append({"level": _LEVELS[level], "message": message, "values": plain})

    def metrics(self) -> str:
        """All metrics in the text format of Prometheus."""
        return self._client.generate_latest(self._registry).decode()


def _plain(value: Any) -> Any:
    """Return a value that JSON knows."""
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
