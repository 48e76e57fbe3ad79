"""The start of each process of processor `sandboxed`, before its first job."""

from __future__ import annotations

import os
from typing import Final

START: Final = "BULLMQ_SANDBOX_START"
"""The name of the variable that says what each process does first."""


class StepError(Exception):
    """A step of the kit fails the job."""


def start() -> None:
    """Do what each process does before its first job. Raises StepError if this one cannot start."""
    # Taken: a process that could not start tries again with its next job.
    action = os.environ.pop(START, "")
    if action == "chat":
        # Standard output is free for the processor: its worker must not read it as a message.
        print("a message of the processor", flush=True)
    if action == "exit-once":
        os._exit(3)
    if action == "throw-once":
        raise StepError("cannot start yet")
