"""What a managed worker of the driver does with a job."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any

from conformance.driver.serve import OpError
from conformance.reference_impl.driver.views import Json, job_view, raw
from conformance.reference_impl.errors import (
    BullMQError,
    DelayedError,
    RateLimitError,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
)
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.workers.processing import Processor
from conformance.reference_impl.workers.worker import Worker

DEFAULT_MESSAGE = "failed on request"


class RequestedFailure(BullMQError):
    """The kit wants the job to fail."""


class Asker:
    """Sends each job to the kit and waits for its `resolve`."""

    def __init__(
        self, asked: Callable[[], defaultdict[str, deque[asyncio.Future[Json]]]], emit: Callable[[Json], None]
    ) -> None:
        self._asked = asked
        self._emit = emit

    async def process(self, job: Job, token: str) -> Any:
        """Processor `ask`."""
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._asked()[job.known_id].append(answer)
        self._emit({"job": job_view(job), "token": token})
        resolved = await answer
        return await _OUTCOMES[resolved["outcome"]](resolved, job, token)


def resolve(asked: defaultdict[str, deque[asyncio.Future[Json]]], args: Json) -> None:
    """Operation `resolve`: tell the processor that has waited longest with this job. Raises OpError."""
    if args["outcome"] not in _OUTCOMES:
        raise OpError("invalid-argument", f"no such outcome: {args['outcome']}")
    waiting = asked.get(args["job"])
    while waiting:
        answer = waiting.popleft()
        if not answer.done():
            answer.set_result(args)
            return
    raise OpError("invalid-argument", f"job {args['job']} does not wait for an answer")


def make(kind: str, args: Json, ask: Asker) -> Processor | None:
    """Choose the processor of a kind, None for a manual worker. Raises OpError for an unknown kind."""
    if kind == "manual":
        return None
    message = args.get("message", DEFAULT_MESSAGE)
    known: dict[str, Processor] = {
        "ask": ask.process,
        "noop": _noop,
        "echo": _echo,
        "sleep": lambda _job, _token: asyncio.sleep(args.get("ms", 0) / 1000),
        "fail": lambda job, _token: _fail_until(job, args.get("times", 1), message),
        "throw": lambda _job, _token: _throw(message),
        "progress": lambda job, _token: _report(job, args.get("values", [])),
        "steps": _follow_steps,
    }
    if kind not in known:
        raise OpError("invalid-argument", f"no such processor: {kind}")
    return known[kind]


def _noop(_job: Job, _token: str) -> None:
    return None


def _echo(job: Job, _token: str) -> Any:
    return job.data


def _throw(message: str) -> None:
    raise RequestedFailure(message)


def _fail_until(job: Job, attempts: int, message: str) -> None:
    if job.attemptsMade < attempts:
        raise RequestedFailure(message)


async def _report(job: Job, values: list[Any]) -> None:
    for value in values:
        await job.updateProgress(value)


async def _follow_steps(job: Job, _token: str) -> Any:
    """Do what the job's own data says."""
    steps = job.data.get("steps", []) if isinstance(job.data, dict) else []
    for step in steps:
        match step["do"]:
            case "progress":
                await job.updateProgress(step["value"])
            case "log":
                await job.log(step["row"])
            case "sleep":
                await asyncio.sleep(step["ms"] / 1000)
            case "fail":
                if "until_attempt" not in step or job.attemptsMade < step["until_attempt"]:
                    raise RequestedFailure(step["message"])
            case "unrecoverable":
                raise UnrecoverableError(step["message"])
            case "return":
                return step["value"]
            case unknown:
                raise RequestedFailure(f"unknown step: {unknown}")
    return None


async def _complete(answer: Json, _job: Job, _token: str) -> Any:
    return raw(answer.get("value_raw"))


async def _fail(answer: Json, _job: Job, _token: str) -> Any:
    raise RequestedFailure(answer.get("message", DEFAULT_MESSAGE))


async def _unrecoverable(answer: Json, _job: Job, _token: str) -> Any:
    raise UnrecoverableError(answer.get("message", DEFAULT_MESSAGE))


async def _delay(answer: Json, job: Job, token: str) -> Any:
    await job.moveToDelayed(job.owner.clock.now_ms() + answer.get("ms", 0), token)
    raise DelayedError


async def _wait(_answer: Json, job: Job, token: str) -> Any:
    await job.moveToWait(token)
    raise WaitingError


async def _wait_for_children(answer: Json, job: Job, token: str) -> Any:
    if await job.moveToWaitingChildren(token):
        raise WaitingChildrenError
    # Nothing was pending: the job goes on, and here that means that it ends.
    return raw(answer.get("value_raw"))


async def _rate_limit(answer: Json, job: Job, _token: str) -> Any:
    if isinstance(job.owner, Worker):
        await job.owner.rateLimit(answer.get("ms", 0))
    raise RateLimitError


_OUTCOMES: dict[str, Callable[[Json, Job, str], Awaitable[Any]]] = {
    "complete": _complete,
    "fail": _fail,
    "unrecoverable": _unrecoverable,
    "delay": _delay,
    "wait": _wait,
    "waiting-children": _wait_for_children,
    "rate-limit": _rate_limit,
}
