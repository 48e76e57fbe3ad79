"""Opening and closing handles. Opening a queue writes its settings; no other handle writes anything."""

from __future__ import annotations

from typing import Any

from conformance.driver.ops import lifecycle as ops
from conformance.driver.ops import worker as worker_ops
from conformance.driver.ops.base import Flag, Nothing
from conformance.model.calls import ModelHandle, NotModelled, refuse
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import MAX_EVENTS_FIELD
from conformance.model.job_objects import is_number
from conformance.model.state import ModelState
from conformance.protocol.job_fields import DEFAULT_MAX_EVENTS
from conformance.protocol.scripts import BULLMQ_VERSION

ORACLE_VERSION = f"bullmq:{BULLMQ_VERSION}"


def open_handle(state: ModelState, name: str | None, op: ops.Open) -> Nothing:
    """Remember the handle. Raises CallFailure for options that the client refuses, NotModelled for managed workers."""
    if not name or name in state.handles:
        refuse("the handle is open already")
    if op.role == "worker" and op.processor not in (None, "manual"):
        raise NotModelled("workers that run by themselves")
    if op.role != "flow" and (not op.queue or ":" in op.queue):
        refuse("the name of the queue")
    if op.role == "worker":
        _check_worker(op)
    state.handles[name] = ModelHandle(name, op.role, op.queue, dict(op.options))
    if op.role == "queue" and not op.options.get("skipMetasUpdate"):
        limit = ((op.options.get("streams") or {}).get("events") or {}).get("maxLen")
        settings = {MAX_EVENTS_FIELD: str(DEFAULT_MAX_EVENTS if limit is None else limit), "version": ORACLE_VERSION}
        state.queue(op.queue).meta.update(settings)
    return Nothing()


def _check_worker(op: ops.Open) -> None:
    """The limits of a worker's numbers, in BullMQ's words: not negative, greater than zero, finite."""
    lowest = {"maxStalledCount": 0, "stalledInterval": 1, "drainDelay": 1, "concurrency": 1}
    for name, low in lowest.items():
        value: Any = op.options.get(name, low)
        strictly = name in {"stalledInterval", "drainDelay"}
        if not is_number(value) or (value <= 0 if strictly else value < low):
            refuse(f"{name} of a worker")
    started: Any = op.options.get("maxStartedAttempts")
    if is_number(started) and started < 0:
        refuse("maxStartedAttempts of a worker")


@operation(ops.Close)
def _close(context: CallContext, _: ops.Close) -> Nothing:
    """Nothing in Redis changes: jobs that a manual worker holds stay active and locked."""
    del context.state.handles[context.handle.name]
    return Nothing()


@operation(worker_ops.PauseWorker)
def _pause(context: CallContext, _: worker_ops.PauseWorker) -> Nothing:
    context.handle.paused = True
    return Nothing()


@operation(worker_ops.ResumeWorker)
def _resume(context: CallContext, _: worker_ops.ResumeWorker) -> Nothing:
    context.handle.paused = False
    return Nothing()


@operation(worker_ops.IsWorkerPaused)
def _is_paused(context: CallContext, _: worker_ops.IsWorkerPaused) -> Flag:
    return Flag(value=context.handle.paused)


@operation(worker_ops.IsWorkerRunning)
def _is_running(_: CallContext, __: worker_ops.IsWorkerRunning) -> Flag:
    """A manual worker's loop never runs."""
    return Flag(value=False)
