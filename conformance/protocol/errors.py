"""Negative numbers that the Lua scripts return instead of a result: names and texts.

Upstream: `src/enums/error-code.ts`, and `finishedErrors` of `src/classes/scripts.ts`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """Negative script results."""

    MISSING_JOB = -1
    MISSING_LOCK = -2
    WRONG_STATE = -3
    PENDING_DEPENDENCIES = -4
    MISSING_PARENT = -5
    LOCK_MISMATCH = -6
    PARENT_REPLACED = -7
    SCHEDULER_JOB = -8
    FAILED_CHILDREN = -9
    SCHEDULER_COLLISION = -10
    SCHEDULER_SLOTS_BUSY = -11


_TEXTS: Final = {
    ErrorCode.MISSING_JOB: "Missing key for job {job}. {command}",
    ErrorCode.MISSING_LOCK: "Missing lock for job {job}. {command}",
    ErrorCode.WRONG_STATE: "Job {job} is not in the {state} state. {command}",
    ErrorCode.PENDING_DEPENDENCIES: "Job {job} has pending dependencies. {command}",
    ErrorCode.MISSING_PARENT: "Missing key for parent job {parent}. {command}",
    ErrorCode.LOCK_MISMATCH: "Lock mismatch for job {job}. Cmd {command} from {state}",
    ErrorCode.PARENT_REPLACED: "The parent job {parent} cannot be replaced. {command}",
    ErrorCode.SCHEDULER_JOB: "Job {job} belongs to a job scheduler and cannot be removed directly. {command}",
    ErrorCode.FAILED_CHILDREN: "Cannot complete job {job} because it has at least one failed child. {command}",
    ErrorCode.SCHEDULER_COLLISION: "Cannot create job scheduler iteration - job ID already exists. {command}",
    ErrorCode.SCHEDULER_SLOTS_BUSY: (
        "Cannot create job scheduler iteration - current and next time slots already have jobs. {command}"
    ),
}
_UNKNOWN: Final = "Unknown code {code} error for {job}. {command}"
ABSENT: Final = "undefined"
"""What Node prints where a value is not known."""

DRIVER_CODES: Final = {
    ErrorCode.MISSING_JOB: "missing-job",
    ErrorCode.MISSING_LOCK: "missing-lock",
    ErrorCode.WRONG_STATE: "wrong-state",
    ErrorCode.PENDING_DEPENDENCIES: "pending-dependencies",
    ErrorCode.MISSING_PARENT: "missing-parent",
    ErrorCode.LOCK_MISMATCH: "lock-mismatch",
    ErrorCode.PARENT_REPLACED: "parent-replaced",
    ErrorCode.SCHEDULER_JOB: "scheduler-job",
    ErrorCode.FAILED_CHILDREN: "failed-children",
    ErrorCode.SCHEDULER_COLLISION: "scheduler-collision",
    ErrorCode.SCHEDULER_SLOTS_BUSY: "scheduler-collision",
}
"""The same codes as the driver protocol names them."""


def error_text(
    code: int,
    *,
    command: str,
    job: str | None = None,
    parent: str | None = None,
    state: str | None = None,
) -> str:
    """Text of the error that Node throws for a script result; `command` is the script's name without its key count."""
    template = _TEXTS[ErrorCode(code)] if code in _TEXTS else _UNKNOWN
    return template.format(
        code=code, command=command, job=job or ABSENT, parent=parent or ABSENT, state=state or ABSENT
    )
