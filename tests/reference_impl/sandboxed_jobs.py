"""Processors that run in a process of their own: what `test_library_sandbox.py` names by text."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

from conformance.reference_impl import Job, TransientError, UnrecoverableError

__all__ = ["add_up", "blocks", "by_name", "no_function", "own_pid"]


async def add_up(job: Job, token: str) -> dict[str, Any]:
    """Use everything that a sandboxed job can do while it goes on."""
    print("not for the worker")
    await asyncio.gather(job.updateProgress(50), job.log("half of it"))
    await job.updateData([*job.data, 4])
    return {"sum": sum(job.data), "pid": os.getpid(), "token": token, "children": await job.getChildrenValues()}


def own_pid(_job: Job) -> int:
    return os.getpid()


def by_name(job: Job) -> Any:
    """End as the job's name says."""
    endings: dict[str, Any] = {
        "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "exited": lambda: sys.exit(3),
        "nan": lambda: float("nan"),
    }
    if job.name in endings:
        return endings[job.name]()
    raise {
        "plain": LookupError("no luck"),
        "transient": TransientError("later"),
        "http": OSError(28, "No space left on device"),
        "unrecoverable": UnrecoverableError("never"),
    }[job.name]


def blocks(_job: Job) -> None:
    """Block the process for longer than any test waits."""
    print("blocked", flush=True)
    time.sleep(600)


no_function = 7
