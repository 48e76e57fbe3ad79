"""Log lines of one queue or worker: a message and named values, which always include `worker_id`."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from redis.exceptions import RedisError

from conformance.reference_impl.connection.connection import is_connection_problem
from conformance.reference_impl.errors import InvalidArgument

LOGGER_NAME: Final = "bullmq"

_LONGEST_VALUE: Final = 1000
"""Characters of a job's result that a log line shows."""

_REPEATS_WITHIN_S: Final = 60.0
_MOST_KINDS: Final = 100


class LogSink(Protocol):
    """Destination of log lines."""

    def write(self, level: int, message: str, values: Mapping[str, Any]) -> None:
        """Write a line of one of the levels of `logging`: DEBUG, INFO, WARNING, ERROR.

        `values` may hold an exception under `error`.
        """
        ...


class KeywordLogger(Protocol):
    """A logger that takes values as keywords, like structlog's."""

    def debug(self, message: str, /, **values: Any) -> Any:
        """Write at level debug."""
        ...

    def info(self, message: str, /, **values: Any) -> Any:
        """Write at level info."""
        ...

    def warning(self, message: str, /, **values: Any) -> Any:
        """Write at level warning."""
        ...

    def error(self, message: str, /, **values: Any) -> Any:
        """Write at level error."""
        ...


@dataclass(frozen=True)
class StandardLogSink:
    """Writes to a logger of the standard library, with the values as `extra`.

    Many formats show only the text, so queue, job and error are in the text as well.
    """

    logger: logging.Logger

    def write(self, level: int, message: str, values: Mapping[str, Any]) -> None:
        """Write a line; at level ERROR with a traceback, unless a connection is lost or Redis refuses a command.

        These come from this library's own calls, so a traceback would not help. That of a job which fails may.
        """
        if not self.logger.isEnabledFor(level):
            return
        error = values.get("error")
        is_refusal = isinstance(error, RedisError) and "jobId" not in values
        is_plain = not isinstance(error, BaseException) or is_refusal or is_connection_problem(error)
        with_traceback = level >= logging.ERROR and not is_plain
        text = text_in_full(message, values)
        self.logger.log(level, "%s", text, extra=dict(values), exc_info=error if with_traceback else None)


@dataclass(frozen=True)
class KeywordLogSink:
    """Writes to a logger that takes keywords."""

    logger: KeywordLogger

    def write(self, level: int, message: str, values: Mapping[str, Any]) -> None:
        """Write a line; errors are given as text."""
        method = getattr(self.logger, logging.getLevelName(level).lower())
        method(message, **{name: _plain(value) for name, value in values.items()})


@dataclass(frozen=True)
class Journal:
    """Writes lines on behalf of one worker (or queue, or event reader)."""

    sink: LogSink
    queue: str
    worker_id: str

    def debug(self, message: str, **values: Any) -> None:
        """Write a line for debugging."""
        self._write(logging.DEBUG, message, values)

    def info(self, message: str, **values: Any) -> None:
        """Write a normal event."""
        self._write(logging.INFO, message, values)

    def warning(self, message: str, **values: Any) -> None:
        """Write a problem that will be retried."""
        self._write(logging.WARNING, message, values)

    def error(self, message: str, **values: Any) -> None:
        """Write a permanent failure."""
        self._write(logging.ERROR, message, values)

    def _write(self, level: int, message: str, values: Mapping[str, Any]) -> None:
        self.sink.write(level, message, {"worker_id": self.worker_id, "queue": self.queue, **values})


@dataclass
class _Repeats:
    logged_s: float
    unlogged: int = 0


class ErrorRepeats:
    """Counts errors of the same type and text, so that a lasting problem takes one log line a minute."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._kinds: dict[str, _Repeats] = {}

    def count(self, error: object) -> int | None:
        """Return how often the error came since its last log line: 0 if it is news, None if no line is due."""
        text, now_s = f"{type(error).__name__}: {error}", self._now_s()
        known = self._kinds.pop(text, None)
        if known is not None and now_s - known.logged_s >= _REPEATS_WITHIN_S and not known.unlogged:
            known = None
        if known is None:
            if len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]  # texts with ids may all differ: the memory must not grow
            self._kinds[text] = _Repeats(now_s)
            return 0
        self._kinds[text] = known
        known.unlogged += 1
        if now_s - known.logged_s < _REPEATS_WITHIN_S:
            return None
        count, known.unlogged, known.logged_s = known.unlogged, 0, now_s
        return count


def sink_of(logger: Any) -> LogSink:
    """Return the sink for the option `logger`; None and True mean the standard logger `bullmq`.

    Raises InvalidArgument for anything that is neither a logger of `logging`, nor a Sink, nor a keyword logger.
    """
    if logger is None or logger is True:
        return StandardLogSink(logging.getLogger(LOGGER_NAME))
    if isinstance(logger, logging.Logger):
        return StandardLogSink(logger)
    if callable(getattr(logger, "write", None)):
        chosen: LogSink = logger
        return chosen
    if all(callable(getattr(logger, level, None)) for level in ("debug", "info", "warning", "error")):
        return KeywordLogSink(logger)
    raise InvalidArgument(
        "logger must have debug, info, warning and error", field="logger", constraint="a logger or a Sink"
    )


def text_in_full(message: str, values: Mapping[str, Any]) -> str:
    """Return `message (queue NAME, job ID): ERROR`, on one line; parts without a value are left out."""
    about = [f"queue {values['queue']}"] if "queue" in values else []
    job_ids = [values["jobId"]] if "jobId" in values else values.get("jobIds", [])
    if job_ids:
        about.append(f"{'job' if 'jobId' in values else 'jobs'} {', '.join(map(str, job_ids))}")
    text = f"{message} ({', '.join(about)})" if about else message
    error = values.get("error")
    if error is not None and str(error) != message:
        text = f"{text}: {shown(str(_plain(error)))}"
    return " ".join(text.splitlines())


def shown(value: Any) -> Any:
    """Return a job's result for a log line: numbers and short texts unchanged, other values as a short text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


def _plain(value: Any) -> Any:
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else value


def new_worker_id() -> str:
    """Return `{hostname}-{pid}-{six hex digits}`, which identifies a worker in logs and metrics.

    Locks do not use it, so a collision does no harm.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def worker_id_of(opts: Mapping[str, Any]) -> str:
    """Return the option `workerId`, or a new id. Raises InvalidArgument if it is not a text."""
    chosen = opts.get("workerId")
    if chosen is None:
        return new_worker_id()
    if not isinstance(chosen, str) or not chosen:
        raise InvalidArgument("workerId must be a text that is not empty", field="workerId", constraint="a text")
    return chosen


_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line: `time` (ISO 8601, UTC, ms), `level`, `logger`, `message`, then the named values.

    An error that comes with a traceback has it under `traceback`. Values that JSON does not know are shown as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=_as_text)


def _as_text(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
