"""Time limit of processors (`Policy.job_timeout_s`)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from conformance.reference_impl.errors import JobTimeout
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers.job_runner import Processor


def limited(processor: Processor, timeout_s: float | None) -> Processor:
    """Return a processor whose attempt fails with JobTimeout after `seconds`; the same processor without a limit.

    The coroutine is cancelled. A processor that is not a coroutine function blocks the event loop and cannot be.
    """
    if timeout_s is None:
        return processor

    async def run(job: Job, token: str) -> Any:
        outcome = processor(job, token)
        if not inspect.isawaitable(outcome):
            return outcome
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                return await outcome
        except TimeoutError as error:
            if not limit.expired():  # the processor's own TimeoutError
                raise
            raise JobTimeout(f"job {job.id} ran for more than {timeout_s:g} s") from error

    return run
