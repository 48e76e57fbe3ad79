"""What holds workers back: the queue-wide concurrency, and the rate limit (so many starts per duration).

The queue's own limit (`max` in `meta`) counts before that of the worker, but the worker's duration before the queue's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.driver.ops import queue as ops
from conformance.driver.ops import worker as worker_ops
from conformance.driver.ops.base import Count, Flag, Nothing
from conformance.model.order import is_maxed
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue, World

BLOCKED = str(2**53 - 1)
"""The counter of starts that `rateLimit` sets: more than any limit."""


def max_starts(queue: Queue, limiter: Mapping[str, Any] | None) -> float | None:
    """How many jobs may start per duration; None: no limit. `limiter`: the worker's option."""
    own = queue.meta.get("max")
    if own is not None:
        return float(own)
    return (limiter or {}).get("max")


def limited_for(world: World, queue: Queue, most: float | None) -> int:
    """For how long (ms) no job may start; 0: one may."""
    if most is None or queue.limiter is None or float(queue.limiter.value) < most:
        return 0
    return max(queue.limiter.ttl_ms(world.server_ms), 0)


def count_start(world: World, queue: Queue, limiter: Mapping[str, Any] | None) -> None:
    """Count a start; the first one begins the window."""
    if max_starts(queue, limiter) is None:
        return
    if queue.limiter is None:
        duration = (limiter or {}).get("duration")
        queue.limiter = world.expiring("1", float(queue.meta["duration"] if duration is None else duration))
    else:
        queue.limiter.value = str(int(queue.limiter.value) + 1)


@answers(ops.SetGlobalConcurrency)
def _set_concurrency(stage: Stage, op: ops.SetGlobalConcurrency) -> Nothing:
    stage.queue.meta["concurrency"] = str(op.concurrency)
    return Nothing()


@answers(ops.RemoveGlobalConcurrency)
def _remove_concurrency(stage: Stage, _: ops.RemoveGlobalConcurrency) -> Nothing:
    stage.queue.meta.pop("concurrency", None)
    return Nothing()


@answers(ops.GetGlobalConcurrency)
def _get_concurrency(stage: Stage, _: ops.GetGlobalConcurrency) -> ops.MaybeNumber:
    limit = stage.queue.meta.get("concurrency")
    return ops.MaybeNumber(value=None if limit is None else float(limit))


@answers(ops.IsMaxed)
def _is_maxed(stage: Stage, _: ops.IsMaxed) -> Flag:
    return Flag(value=is_maxed(stage.queue))


@answers(ops.SetGlobalRateLimit)
def _set_rate(stage: Stage, op: ops.SetGlobalRateLimit) -> Nothing:
    stage.queue.meta |= {"max": str(op.max), "duration": str(op.duration_ms)}
    return Nothing()


@answers(ops.RemoveGlobalRateLimit)
def _remove_rate(stage: Stage, _: ops.RemoveGlobalRateLimit) -> Nothing:
    for name in ("max", "duration"):
        stage.queue.meta.pop(name, None)
    return Nothing()


@answers(ops.GetGlobalRateLimit)
def _get_rate(stage: Stage, _: ops.GetGlobalRateLimit) -> ops.RateLimit:
    most, duration = (stage.queue.meta.get(name) for name in ("max", "duration"))
    if most is None or duration is None:
        return ops.RateLimit(max=None, duration_ms=None)
    return ops.RateLimit(max=int(most), duration_ms=int(duration))


@answers(ops.SetRateLimit)
def _block(stage: Stage, op: ops.SetRateLimit) -> Nothing:
    stage.queue.limiter = stage.world.expiring(BLOCKED, op.expire_ms)
    return Nothing()


@answers(worker_ops.WorkerRateLimit)
def _block_by_worker(stage: Stage, op: worker_ops.WorkerRateLimit) -> Nothing:
    stage.queue.limiter = stage.world.expiring(BLOCKED, op.expire_ms)
    return Nothing()


@answers(ops.RemoveRateLimitKey)
def _unblock(stage: Stage, _: ops.RemoveRateLimitKey) -> Nothing:
    stage.queue.limiter = None
    return Nothing()


@answers(ops.GetRateLimitTtl)
def _limit_left(stage: Stage, op: ops.GetRateLimitTtl) -> Count:
    """With a limit (given, or the queue's): how long it lasts. Without one: the bare time to live, -2 without key."""
    most = op.max_jobs or max_starts(stage.queue, None)
    if most is not None:
        return Count(count=limited_for(stage.world, stage.queue, most))
    limiter = stage.queue.limiter
    return Count(count=-2 if limiter is None else limiter.ttl_ms(stage.world.server_ms))
