"""Log lines as JSON objects, for the standard library's handlers."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

_OF_EVERY_RECORD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one line: `time` (ISO 8601, UTC, ms), `level`, `logger`, `message`, then the named values.

    An error that comes with a traceback has it under `traceback`. Values that JSON does not know are shown as text.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Answer the line."""
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
