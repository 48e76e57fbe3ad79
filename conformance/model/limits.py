"""Limits of workers: pause, the queue-wide concurrency, and the rate limit (a number of starts per duration).

The queue's own limit (`max` in `meta`) counts before that of the worker, but the worker's duration before the queue's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.driver.ops import queue as ops
from conformance.driver.ops import worker as worker_ops
from conformance.driver.ops.base import Count, Flag, Nothing
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import emit
from conformance.model.order import is_maxed, is_paused, mark_next_delay, mark_work
from conformance.model.state import ModelState, QueueState

BLOCKED = str(2**53 - 1)
"""The counter of starts that `rateLimit` sets: more than any limit."""


def max_starts(queue: QueueState, limiter: Mapping[str, Any] | None) -> float | None:
    """How many jobs may start per duration; None: no limit. `limiter`: the worker's option."""
    own = queue.meta.get("max")
    if own is not None:
        return float(own)
    return (limiter or {}).get("max")


def limited_for(state: ModelState, queue: QueueState, most: float | None) -> int:
    """For how long (ms) no job may start; 0: one may."""
    # Without a limit the key is ignored, even one that `rateLimit` has set.
    if most is None or queue.limiter is None or float(queue.limiter.value) < most:
        return 0
    return max(queue.limiter.ttl_ms(state.server_ms), 0)


def count_start(state: ModelState, queue: QueueState, limiter: Mapping[str, Any] | None) -> None:
    """Count a start; the first one starts the window."""
    if max_starts(queue, limiter) is None:
        return
    if queue.limiter is None:
        duration = (limiter or {}).get("duration")
        # Only the first start sets the time to live, so the window does not slide.
        queue.limiter = state.expiring("1", float(queue.meta["duration"] if duration is None else duration))
    else:
        queue.limiter.value = str(int(queue.limiter.value) + 1)


@operation(ops.SetGlobalConcurrency)
def _set_concurrency(context: CallContext, op: ops.SetGlobalConcurrency) -> Nothing:
    context.queue.meta["concurrency"] = str(op.concurrency)
    return Nothing()


@operation(ops.RemoveGlobalConcurrency)
def _remove_concurrency(context: CallContext, _: ops.RemoveGlobalConcurrency) -> Nothing:
    context.queue.meta.pop("concurrency", None)
    return Nothing()


@operation(ops.GetGlobalConcurrency)
def _get_concurrency(context: CallContext, _: ops.GetGlobalConcurrency) -> ops.MaybeNumber:
    limit = context.queue.meta.get("concurrency")
    return ops.MaybeNumber(value=None if limit is None else float(limit))


@operation(ops.IsMaxed)
def _is_maxed(context: CallContext, _: ops.IsMaxed) -> Flag:
    return Flag(value=is_maxed(context.queue))


@operation(ops.SetGlobalRateLimit)
def _set_rate(context: CallContext, op: ops.SetGlobalRateLimit) -> Nothing:
    context.queue.meta |= {"max": str(op.max), "duration": str(op.duration_ms)}
    return Nothing()


@operation(ops.RemoveGlobalRateLimit)
def _remove_rate(context: CallContext, _: ops.RemoveGlobalRateLimit) -> Nothing:
    for name in ("max", "duration"):
        context.queue.meta.pop(name, None)
    return Nothing()


@operation(ops.GetGlobalRateLimit)
def _get_rate(context: CallContext, _: ops.GetGlobalRateLimit) -> ops.RateLimit:
    most, duration = (context.queue.meta.get(name) for name in ("max", "duration"))
    if most is None or duration is None:
        return ops.RateLimit(max=None, duration_ms=None)
    return ops.RateLimit(max=int(most), duration_ms=int(duration))


@operation(ops.SetRateLimit)
def _block(context: CallContext, op: ops.SetRateLimit) -> Nothing:
    context.queue.limiter = context.state.expiring(BLOCKED, op.expire_ms)
    return Nothing()


@operation(worker_ops.WorkerRateLimit)
def _block_by_worker(context: CallContext, op: worker_ops.WorkerRateLimit) -> Nothing:
    context.queue.limiter = context.state.expiring(BLOCKED, op.expire_ms)
    return Nothing()


@operation(ops.RemoveRateLimitKey)
def _unblock(context: CallContext, _: ops.RemoveRateLimitKey) -> Nothing:
    context.queue.limiter = None
    return Nothing()


@operation(ops.GetRateLimitTtl)
def _limit_left(context: CallContext, op: ops.GetRateLimitTtl) -> Count:
    """With a limit (given, or the queue's): how long it lasts. Without one: the bare time to live, -2 without key."""
    most = op.max_jobs or max_starts(context.queue, None)
    if most is not None:
        return Count(count=limited_for(context.state, context.queue, most))
    limiter = context.queue.limiter
    return Count(count=-2 if limiter is None else limiter.ttl_ms(context.state.server_ms))


@operation(ops.Pause)
def _pause(context: CallContext, _: ops.Pause) -> Nothing:
    pause(context.state, context.queue)
    return Nothing()


def pause(state: ModelState, queue: QueueState) -> None:
    """Move the waiting jobs to `paused`, and wake no more workers. The event is sent even if nothing changes."""
    if queue.wait:
        queue.paused, queue.wait = queue.wait, []
    queue.meta["paused"] = "1"
    # Idle workers must not wake up for jobs that they may not take.
    queue.marker.clear()
    emit(state, queue, "paused")


@operation(ops.Resume)
def _resume(context: CallContext, _: ops.Resume) -> Nothing:
    """Let the parked jobs wait again, and wake a worker, or mark when the next delayed job is due."""
    queue = context.queue
    parked = bool(queue.paused)
    if parked:
        queue.wait, queue.paused = queue.paused, []
    queue.meta.pop("paused", None)
    # The delay marker is needed only without work: any worker that wakes up promotes due jobs itself.
    if parked or len(queue.prioritized):
        mark_work(queue)
    else:
        mark_next_delay(queue)
    emit(context.state, queue, "resumed")
    return Nothing()


@operation(ops.IsPaused)
def _is_paused(context: CallContext, _: ops.IsPaused) -> Flag:
    return Flag(value=is_paused(context.queue))
