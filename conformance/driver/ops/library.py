"""Operations about things that only the user of a library sees: refusals, metrics and logs (capability `library`)."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from conformance.driver.ops.base import Op, operation

LIBRARY_OPERATIONS: Final = frozenset({"queue.refuses", "metrics.scrape", "logs.read"})
"""All operations of this module: neither BullMQ nor its ports have methods for them."""

LogLevel = Literal["DEBUG", "INFO", "WARN", "ERROR"]


class MetricsText(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics in the text format of Prometheus."""

    text: str


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line: its message without values, and the values by name."""

    level: LogLevel
    message: str
    values: dict[str, Any]


class LogLines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines in the order in which they were written."""

    lines: list[LogLine]


class RefusalText(msgspec.Struct, frozen=True, kw_only=True):
    """The message of the error with which a library refuses a job; empty if it added the job."""

    message: str


@operation("queue.refuses", on="queue", answer=RefusalText)
class Refuses(Op[RefusalText], frozen=True):
    """Queue.add of a queue that was opened with `library`: the error's message if the library refuses the job."""

    name: str = "job"
    data_raw: str = "{}"
    opts: dict[str, Any] = msgspec.field(default_factory=dict)


@operation("metrics.scrape", on="any", answer=MetricsText)
class ScrapeMetrics(Op[MetricsText], frozen=True):
    """The metrics of an object that was opened with `library`, as a collector scrapes them."""


@operation("logs.read", on="any", answer=LogLines)
class ReadLogs(Op[LogLines], frozen=True):
    """All lines that an object opened with `library` has logged so far. Values that JSON does not know are texts."""
