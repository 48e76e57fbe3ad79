"""The processor `sandboxed` of the driver: it runs in a process of its own. The environment says how that starts."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from conformance.reference_impl.driver.sandbox_start import StepError, start
from conformance.reference_impl.errors import DelayedError, UnrecoverableError
from conformance.reference_impl.workers.sandbox_child import SandboxedJob

start()

Step = dict[str, Any]


async def process(job: SandboxedJob, token: str) -> Any:
    """Follow the steps in the job's data. Raises StepError, UnrecoverableError and DelayedError as they say."""
    for step in job.data["steps"]:
        if step["do"] == "return":
            return step["value"]
        await _STEPS[step["do"]](step, job, token)
    return None


async def _progress(step: Step, job: SandboxedJob, _token: str) -> None:
    await job.updateProgress(step["value"])


async def _log(step: Step, job: SandboxedJob, _token: str) -> None:
    await job.log(step["row"])


async def _sleep(step: Step, _job: SandboxedJob, _token: str) -> None:
    await asyncio.sleep(step["ms"] / 1000)


async def _fail(step: Step, job: SandboxedJob, _token: str) -> None:
    if "until_attempt" in step and job.attemptsMade >= step["until_attempt"]:
        return
    error = StepError(step["message"])
    if step.get("cyclic"):
        vars(error)["own"] = error
    raise error


async def _unrecoverable(step: Step, _job: SandboxedJob, _token: str) -> None:
    # Without an argument if there is no text, as a user would.
    raise UnrecoverableError(*filter(None, [step["message"]]))


async def _merge(step: Step, job: SandboxedJob, _token: str) -> None:
    await job.updateData({**job.data, **step["value"]})


async def _delay(step: Step, job: SandboxedJob, token: str) -> None:
    await job.moveToDelayed(int(time.time() * 1000) + step["ms"], token)
    raise DelayedError(*filter(None, [step.get("message")]))


async def _exit(step: Step, _job: SandboxedJob, _token: str) -> None:
    if "after_ms" in step:
        asyncio.get_running_loop().call_later(step["after_ms"] / 1000, os._exit, step["code"])
    else:
        os._exit(step["code"])


_STEPS: dict[str, Callable[[Step, SandboxedJob, str], Awaitable[None]]] = {
    "progress": _progress,
    "log": _log,
    "sleep": _sleep,
    "fail": _fail,
    "unrecoverable": _unrecoverable,
    "merge": _merge,
    "delay": _delay,
    "exit": _exit,
}
