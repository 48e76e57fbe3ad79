"""End of a failed attempt: whether and when the job is retried, and how its error is stored."""

from __future__ import annotations

import inspect
import math
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from conformance.protocol.job_fields import TELEMETRY_METADATA
from conformance.reference_impl import js_values
from conformance.reference_impl.errors import BullMQError, InvalidArgument
from conformance.reference_impl.jobs.record import BoundJob
from conformance.reference_impl.js_values import round_half_up
from conformance.reference_impl.policy import policy_of
from conformance.reference_impl.scripts.move import FetchReply, FinishArguments
from conformance.reference_impl.telemetry.interface import SpanKind
from conformance.reference_impl.telemetry.job_context import omits_context

FAIL_NOW: Final = -1
"""A custom strategy returns this to end the retries."""

_LARGEST_EXPONENT: Final = 1023
"""2 to a higher power is infinite as a double."""

BackoffStrategy = Callable[[int, str | None, BaseException, Any], float | Awaitable[float | None] | None]
"""Worker setting `backoffStrategy(attempt, type, error, job)`: the delay in ms, 0 or None for none, -1 to fail now."""


async def fail_attempt(job: BoundJob, error: BaseException, token: str, *, fetch_next: bool) -> FetchReply | None:
    """End an attempt: retry at once, retry later, or fail permanently (upstream `job.ts`, `moveToFailed`).

    Returns what was fetched next, if asked for. Raises ScriptError, mostly missing-lock or lock-mismatch.
    """
    job.failedReason = message_of(error)
    delay = job.retry_delay = await _retry_delay(job, error)
    # After the delay is known: an unknown back-off type raises, and the job must then be unchanged.
    _remember_stack(job, error)
    with job.owner.trace(SpanKind.INTERNAL, _operation(delay)) as span:
        fields = {"failedReason": job.failedReason, "stacktrace": js_values.stringify(job.stacktrace)}
        if span.metadata and not omits_context(job.opts):
            fields[TELEMETRY_METADATA] = span.metadata
        return await _end_attempt(job, delay, token, fields, fetch_next=fetch_next)


def _operation(delay: float | None) -> str:
    """Return the name of an attempt's end in a trace."""
    if delay is None:
        return "fail"
    return "delay" if delay else "retry"


async def _end_attempt(
    job: BoundJob, delay: float | None, token: str, fields: Mapping[str, str], *, fetch_next: bool
) -> FetchReply | None:
    """Fail the job permanently, or let it be retried after `delay` ms."""
    fetched = None
    if delay is None:
        finish = FinishArguments(job.known_id, "failed", fields["failedReason"], token, job.opts, fetch_next, fields)
        fetched, job.finishedOn = await job.scripts.move_to_finished(finish)
    elif delay:
        await job.scripts.move_to_delayed(job.known_id, delay, token, fields=fields)
        job.delay = delay
    else:
        lifo = js_values.truthy(job.opts.get("lifo"))
        await job.scripts.retry_job(job.known_id, token, lifo=lifo, fields=fields)
    # After the script: if it refuses, Redis has not counted the attempt either.
    job.attemptsMade += 1
    return fetched


async def _retry_delay(job: BoundJob, error: BaseException) -> float | None:
    """Ms until the next attempt, or None when there is none.

    Raises BullMQError for an unknown backoff type.
    """
    # The failing attempt is counted in Redis only by the script below.
    is_last = job.attemptsMade + 1 >= (job.opts.get("attempts") or 0)
    policy = policy_of(job.owner.opts)
    if is_last or job.discarded or policy.errors.ends_the_job(error):
        return None
    strategy = (job.owner.opts.get("settings") or {}).get("backoffStrategy")
    backoff = job.opts.get("backoff")
    delay = await delay_before_retry(backoff, job.attemptsMade + 1, error, job, strategy=strategy)
    if delay == FAIL_NOW:
        return None
    if not js_values.truthy(delay):  # NaN too: without a number in `backoff.delay` Node retries at once
        return 0
    return delay if policy.backoff is None else policy.backoff.limited(js_values.to_number(delay), backoff)


def _remember_stack(job: BoundJob, error: BaseException) -> None:
    limit = job.opts.get("stackTraceLimit")
    job.stacktrace = [*job.stacktrace, stack_of(error)]
    if limit == 0:
        job.stacktrace = []
    elif limit:
        job.stacktrace = job.stacktrace[-int(limit) :]


async def delay_before_retry(
    backoff: Mapping[str, Any] | None,
    attempt: int,
    error: BaseException,
    job: Any,
    *,
    strategy: BackoffStrategy | None = None,
    chance: Callable[[], float] = random.random,
) -> float | None:
    """Delay in ms after the failed attempt of this number (the first is 1); `FAIL_NOW` if the strategy says so.

    NaN if `delay` is missing or not a number. Raises InvalidArgument for a type that neither BullMQ nor the strategy
    knows.
    """
    if not backoff:
        return 0
    kind, base, jitter = backoff.get("type"), backoff.get("delay", math.nan), backoff.get("jitter") or 0
    if kind == "fixed":
        return spread(base, jitter, chance)
    if kind == "exponential":
        power = 2.0 ** (attempt - 1) if attempt - 1 <= _LARGEST_EXPONENT else math.inf
        return spread(round_half_up(power * js_values.to_number(base)), jitter, chance)
    if strategy is None:
        raise InvalidArgument(
            f"Unknown backoff strategy {kind}.\n      "
            "If a custom backoff strategy is used, specify it when the queue is created."
        )
    delay = strategy(attempt, kind, error, job)
    return await delay if inspect.isawaitable(delay) else delay


def spread(delay: float, jitter: float, chance: Callable[[], float]) -> float:
    """Return a delay in `[delay * (1 - jitter), delay)`, in whole ms; the delay itself without jitter."""
    if jitter <= 0:
        return delay
    longest = js_values.to_number(delay)
    shortest = longest * (1 - jitter)
    return math.floor(chance() * longest * jitter + shortest) if math.isfinite(longest) else longest


def message_of(error: BaseException) -> str:
    """Return the message of an error in JavaScript's sense; its name if it has none or is not an Exception.

    `CancelledError` and `SystemExit: 1` are clearer than an empty text and `1`.
    """
    name = type(error).__name__
    if not error.args:
        return str(error) or name
    return str(error) if isinstance(error, Exception) else f"{name}: {error}"


def stack_of(error: BaseException) -> str:
    """Return the stack trace in the form that other clients show: message first, then one indented line per frame."""
    if isinstance(error, BullMQError) and error.remote_stack is not None:
        return error.remote_stack
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"    at {frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames)]
    return "\n".join([f"{type(error).__name__}: {error}", *lines])
