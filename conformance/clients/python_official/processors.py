"""What a managed worker does with a job. Each entry of PROCESSORS makes the function that the client calls.

The functions take (job, token) and no third parameter, because the client counts parameters to see whether a processor
wants an abort signal.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from bullmq import DelayedError, Job, UnrecoverableError, WaitingChildrenError
from handles import Handle
from kit import OpError, Unsupported
from views import job_view, parse

Json = dict[str, Any]
Processor = Callable[[Job, str], Awaitable[Any]]

DEFAULT_MESSAGE = "failed on request"


class FailedOnRequestError(Exception):
    """What a processor raises when the kit wants the job to fail."""


def throw(error: Exception) -> NoReturn:
    """Raise an error, so that it has a stack trace."""
    raise error


def processor_for(name: str, handle: Handle, settings: Json) -> Processor | None:
    """Return the function for a worker; None for `manual`. Raises OpError."""
    if name == "manual":
        return None
    if name not in PROCESSORS:
        raise OpError("invalid-argument", f"no such processor: {name}")
    return PROCESSORS[name](handle, settings)


def _ask(handle: Handle, _settings: Json) -> Processor:
    async def ask(job: Job, token: str) -> Any:
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        handle.asked.setdefault(str(job.id), deque()).append(answer)
        handle.send("job", {"job": job_view(job), "token": token})
        return await _end(job, token, await answer)

    return ask


def resolve(handle: Handle, args: Json) -> None:
    """Tell the processor how a job ends. Raises OpError and Unsupported."""
    if args["outcome"] in MISSING_OUTCOMES:
        raise Unsupported(MISSING_OUTCOMES[args["outcome"]])
    if args["outcome"] not in OUTCOMES:
        raise OpError("invalid-argument", f"no such outcome: {args['outcome']}")
    waiting = handle.asked.get(args["job"])
    if not waiting:
        raise OpError("invalid-argument", f"job {args['job']} does not wait for an answer at {handle.name}")
    parse(args.get("value_raw") or "null")
    waiting.popleft().set_result(args)


async def _end(job: Job, token: str, answer: Json) -> Any:
    """Do in the processor what the kit has decided: the value to return, or an error raised."""
    return await OUTCOMES[answer["outcome"]](job, token, answer)


async def _complete(_job: Job, _token: str, answer: Json) -> Any:
    return parse(answer.get("value_raw") or "null")


async def _fail(_job: Job, _token: str, answer: Json) -> Any:
    raise FailedOnRequestError(answer.get("message", DEFAULT_MESSAGE))


async def _unrecoverable(_job: Job, _token: str, answer: Json) -> Any:
    raise UnrecoverableError(answer.get("message", DEFAULT_MESSAGE))


async def _delay(job: Job, token: str, answer: Json) -> Any:
    await job.moveToDelayed(round(time.time() * 1000) + answer.get("ms", 0), token)
    raise DelayedError


async def _wait_for_children(job: Job, token: str, answer: Json) -> Any:
    if await job.moveToWaitingChildren(token, {}):
        raise WaitingChildrenError
    # Nothing was pending: the job goes on, and here that means that it ends.
    return parse(answer.get("value_raw") or "null")


OUTCOMES: dict[str, Callable[[Job, str, Json], Awaitable[Any]]] = {
    "complete": _complete,
    "fail": _fail,
    "unrecoverable": _unrecoverable,
    "delay": _delay,
    "waiting-children": _wait_for_children,
}
MISSING_OUTCOMES = {
    "wait": "this client has no Job.moveToWait and no WaitingError",
    "rate-limit": "this client has no Worker.rateLimit and no RateLimitError",
}


def _noop(_handle: Handle, _settings: Json) -> Processor:
    async def noop(_job: Job, _token: str) -> Any:
        return None

    return noop


def _echo(_handle: Handle, _settings: Json) -> Processor:
    async def echo(job: Job, _token: str) -> Any:
        return job.data

    return echo


def _sleep(_handle: Handle, settings: Json) -> Processor:
    async def sleep(_job: Job, _token: str) -> Any:
        await asyncio.sleep(settings.get("ms", 0) / 1000)

    return sleep


def _fail_at_first(_handle: Handle, settings: Json) -> Processor:
    async def fail_at_first(job: Job, _token: str) -> Any:
        if job.attemptsMade < settings.get("times", 1):
            raise FailedOnRequestError(settings.get("message", DEFAULT_MESSAGE))

    return fail_at_first


def _throw(_handle: Handle, settings: Json) -> Processor:
    async def always_fail(_job: Job, _token: str) -> Any:
        raise FailedOnRequestError(settings.get("message", DEFAULT_MESSAGE))

    return always_fail


def _progress(_handle: Handle, settings: Json) -> Processor:
    async def progress(job: Job, _token: str) -> Any:
        for value in settings.get("values", []):
            await job.updateProgress(value)

    return progress


def _steps(_handle: Handle, _settings: Json) -> Processor:
    async def steps(job: Job, _token: str) -> Any:
        for step in (job.data or {}).get("steps", []):
            if step["do"] == "return":
                return step.get("value")
            await _take_step(job, step)
        return None

    return steps


async def _take_step(job: Job, step: Json) -> None:
    match step["do"]:
        case "progress":
            await job.updateProgress(step["value"])
        case "log":
            await job.log(step["row"])
        case "sleep":
            await asyncio.sleep(step["ms"] / 1000)
        case "fail":
            if job.attemptsMade < step.get("until_attempt", float("inf")):
                raise FailedOnRequestError(step["message"])
        case "unrecoverable":
            raise UnrecoverableError(step["message"])
        case unknown:
            raise FailedOnRequestError(f"unknown step: {unknown}")


PROCESSORS: dict[str, Callable[[Handle, Json], Processor]] = {
    "ask": _ask,
    "noop": _noop,
    "echo": _echo,
    "sleep": _sleep,
    "fail": _fail_at_first,
    "throw": _throw,
    "progress": _progress,
    "steps": _steps,
}
