"""The kit's part of a driver, loaded by its path, and the client's values and errors as those of the protocol.

Only the client is installed in this environment. It has no error classes or codes for the results of the Lua scripts:
it raises TypeError (sometimes Exception) with BullMQ's own texts, so only the text distinguishes them.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

from bullmq import Job
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    DataError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_serve", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses look their own module up there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_serve = _load(Path(__file__).resolve().parents[2] / "driver" / "serve.py")
_DriverServer: Any = _serve.DriverServer
OpError = _serve.OpError
Unsupported = _serve.Unsupported

DEFAULT_DEADLINE_MS = 5000

_deadline_ms: ContextVar[float] = ContextVar("deadline_ms", default=DEFAULT_DEADLINE_MS)

Json = dict[str, Any]
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

TEXTS = [
    (re.compile(pattern, re.DOTALL), code)
    for pattern, code in (
        (r"^Missing key for parent job ", "missing-parent"),
        (r"^Missing key for job ", "missing-job"),
        (r"^Missing lock for job ", "missing-lock"),
        (r"^Job .* is not in the (.* state|state .*)\. ?", "wrong-state"),
        (r"^Job .* has pending dependencies\. ", "pending-dependencies"),
        (r"^Lock mismatch for job ", "lock-mismatch"),
        (r"^The parent job .* cannot be replaced\. ", "parent-replaced"),
        (r" belongs to a job scheduler and cannot be removed", "scheduler-job"),
        (r"^Cannot complete job .* failed child\. ", "failed-children"),
        (r"^Cannot create job scheduler iteration - ", "scheduler-collision"),
        (r" could not be removed because it is locked ", "lock-mismatch"),
        (r"^Unknown code -8 error ", "scheduler-job"),
        (r"^Cannot obliterate ", "other"),
        (r"^Unknown backoff strategy ", "invalid-argument"),
    )
]
"""The first text that matches decides."""

CONNECTION = (RedisConnectionError, RedisTimeoutError, BusyLoadingError, OSError, EOFError)

NOT_A_CONNECTION = (AuthenticationError, AuthorizationError)
"""redis-py raises these as connection errors although the connection works: the server refused the command."""

UNREADABLE = re.compile(r"^invalid literal for int\(\)|^could not convert string to float")
"""A ValueError with such a text is about a value read from Redis, not about an argument."""


class DeadlineServer(_DriverServer):  # type: ignore[misc]  # loaded by its path, so its type is not known here
    """The kit's `DriverServer`, with the deadline of each call known to its handler."""

    def receive(self, line: bytes) -> None:
        """See `DriverServer.receive`. The call becomes a task, which starts with a copy of this context."""
        message = json.loads(line)
        if isinstance(message, dict):
            _deadline_ms.set(message.get("deadline_ms", DEFAULT_DEADLINE_MS))
        super().receive(line)


def deadline_ms() -> float:
    """Return how long (ms) the kit waits for the answer to the current call."""
    return _deadline_ms.get()


def parse(text: str) -> Any:
    """Parse a JSON text of the kit into the value that a user would pass. Raises OpError."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OpError("invalid-argument", f"this client takes values, and the text is not JSON: {error}") from error


def json_text(value: Any) -> str:
    """Return a value of the client as JSON text; a lone surrogate can only be an escape in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return LONE_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def job_view(job: Job) -> Json:
    """Return a Job object as a JobView. The client does not store the name of the worker that processed it.

    Older versions have no attribute for some options, so their users read `opts`, and none for some counters.
    """
    return {
        "id": str(job.id),
        "name": "" if job.name is None else str(job.name),
        "data_raw": json_text(job.data),
        "opts": job.opts,
        "timestamp": job.timestamp,
        "delay": job.delay,
        "priority": getattr(job, "priority", job.opts.get("priority", 0)),
        "attempts_made": job.attemptsMade,
        "attempts_started": getattr(job, "attemptsStarted", 0),
        "stalled_counter": getattr(job, "stalledCounter", 0),
        "progress_raw": json_text(job.progress),
        "returnvalue_raw": json_text(job.returnvalue),
        "failed_reason": job.failedReason,
        "stacktrace_length": len(getattr(job, "stacktrace", [])),
        "processed_on": job.processedOn,
        "finished_on": job.finishedOn,
        "processed_by": None,
        "parent_key": getattr(job, "parentKey", None),
        "deduplication_id": getattr(job, "deduplication_id", (job.opts.get("deduplication") or {}).get("id")),
    }


def maybe_job(job: Job | None) -> Json:
    """Return a MaybeJob."""
    return {"job": None if job is None else job_view(job)}


def flow_view(node: Json) -> Json:
    """Return a node of FlowProducer.add as a FlowNode."""
    job, children = node["job"], node.get("children", [])
    return {"id": str(job.id), "queue": job.queue.name, "children": [flow_view(child) for child in children]}


def scheduler_view(scheduler: Json) -> Json:
    """Return a record of Queue.getJobScheduler as a SchedulerView."""
    template = scheduler.get("template") or {}
    return {
        "key": scheduler["key"],
        "name": scheduler.get("name") or "",
        "next": scheduler.get("next"),
        "every": scheduler.get("every"),
        "pattern": scheduler.get("pattern"),
        "tz": scheduler.get("tz"),
        "limit": scheduler.get("limit"),
        "start_date": scheduler.get("startDate"),
        "end_date": scheduler.get("endDate"),
        "iteration_count": scheduler.get("iterationCount"),
        "offset": scheduler.get("offset"),
        "template_data_raw": json_text(template["data"]) if "data" in template else None,
        "template_opts": template.get("opts"),
    }


@contextmanager
def reported_to_the_kit(op: str) -> Iterator[None]:
    """Convert any error of the client into an answer of the protocol. Its traceback goes to the log."""
    try:
        yield
    except (OpError, Unsupported):
        raise
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        raise as_answer(error, op) from error


def as_answer(error: Exception, op: str) -> OpError:
    """Return an error of the client as the answer to the operation it was raised in."""
    message = text_of(error)
    # Before the type: this client raises script errors as TypeError, which would look like a wrong argument.
    for pattern, code in TEXTS:
        if pattern.search(message):
            return OpError(code, message)
    if isinstance(error, CONNECTION) and not isinstance(error, NOT_A_CONNECTION):
        return OpError("connection-lost", message, definite=False, status="info")
    if isinstance(error, RedisError) and not isinstance(error, DataError):
        return OpError("other", message)
    if _refused_an_argument(error):
        return OpError("invalid-argument", message)
    # Any other error is a defect of the client, perhaps while it reads a reply; the job may be claimed or finished.
    return OpError("other", message, **({"definite": False, "status": "info"} if op.startswith("worker.") else {}))


def text_of(error: BaseException) -> str:
    """Return the message of an error; its class if it has none."""
    return str(error) or type(error).__name__


def _refused_an_argument(error: Exception) -> bool:
    """Whether the client refused an argument. It raises ValueError for its own checks, and so do its codecs.

    An unknown time zone is a KeyError, raised before anything is sent.
    """
    if isinstance(error, json.JSONDecodeError) or UNREADABLE.search(str(error)):
        return False
    return isinstance(error, (ValueError, OverflowError, DataError, ZoneInfoNotFoundError))
