"""The start of each process of processor `sandboxed`, before its first job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

START: Final = "BULLMQ_SANDBOX_START"
STARTED: Final = "BULLMQ_SANDBOX_STARTED"
"""Names of variables: what each process does first, and a file that says that one has started before."""


class StepError(Exception):
    """A step of the kit fails the job."""


def start(action: str) -> None:
    """Do what each process does before its first job. Raises StepError if this one cannot start."""
    if action == "chat":
        # Standard output is free for the processor: its worker must not read it as a message.
        print("a message of the processor", flush=True)
    started = Path(os.environ.get(STARTED, os.devnull))
    if action in ("throw-once", "exit-once"):
        if not started.exists():
            started.touch()
            if action == "exit-once":
                os._exit(3)
            raise StepError("cannot start yet")
        started.unlink()
