"""Deduplication: of jobs with the same deduplication id only one is kept.

The key `de:ID` holds the job that is kept. Simple mode: until that job has finished or is removed. With `ttl`: for that
long. `extend` starts the time again with each ignored job; `replace` lets a new job take the place of one that is still
delayed. `keepLastIfActive` keeps back the last job that comes while the owner is active, in the key `dn:ID`, until the
owner ends; that is of 5.72 and newer, and 5.62.0 ignores the option.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.driver.ops import queue as ops
from conformance.driver.ops.base import Count
from conformance.model.dispatch import CallContext, operation
from conformance.model.events import emit, emit_within_limit
from conformance.model.parents import delete_job_keys
from conformance.model.state import ExpiringValue, KeptBackJob, ModelState, QueueState
from conformance.model.texts import argument, lua_true


def deduplicated(
    state: ModelState, queue: QueueState, new: KeptBackJob, options: Mapping[str, Any] | None
) -> str | None:
    """The job that replaces the new one, which is then not added; None if the new one must be added."""
    if options is None or not lua_true(options.get("id")):
        return None
    name, job = argument(options["id"]), new.id
    ttl = _ttl(options)
    owner = queue.deduplications.get(name)
    if owner is None:
        queue.deduplications[name] = state.expiring(job, ttl) if ttl > 0 else ExpiringValue(job)
        return None
    if lua_true(options.get("replace")):
        return _replaced(state, queue, new, options)
    if _is_kept_back(queue, owner, options):
        _keep_back(state, queue, new, name)
        return owner.value
    if (options.get("ttl") or 0) > 0 and lua_true(options.get("extend")):
        queue.deduplications[name] = state.expiring(owner.value, ttl) if ttl > 0 else ExpiringValue(owner.value)
    _announce(state, queue, kept=owner.value, dropped=job, name=name)
    return owner.value


def _ttl(options: Mapping[str, Any]) -> float:
    """How long an id is held (ms); 0: until its owner ends."""
    ttl: float = 0 if lua_true(options.get("keepLastIfActive")) else options.get("ttl") or 0
    return ttl


def _is_kept_back(queue: QueueState, owner: ExpiringValue, options: Mapping[str, Any]) -> bool:
    return lua_true(options.get("keepLastIfActive")) and owner.value in queue.active


def _keep_back(state: ModelState, queue: QueueState, new: KeptBackJob, name: str) -> None:
    """Keep a job until the owner of its id ends, in the place of one that came before it."""
    queue.kept_back[name] = new
    owner = queue.deduplications[name].value
    queue.deduplications[name] = ExpiringValue(owner)
    _announce(state, queue, kept=owner, dropped=new.id, name=name)


def _replaced(state: ModelState, queue: QueueState, new: KeptBackJob, options: Mapping[str, Any]) -> str | None:
    """A delayed owner gives way; any other makes that the new job is ignored without an event, or kept back."""
    name, job = argument(options["id"]), new.id
    owner = queue.deduplications[name]
    if not queue.delayed.remove(owner.value):
        if _is_kept_back(queue, owner, options):
            _keep_back(state, queue, new, name)
        return owner.value
    delete_job_keys(queue, owner.value)
    emit(state, queue, "removed", jobId=owner.value, prev="delayed")
    _announce(state, queue, kept=job, dropped=owner.value, name=name)
    ttl = _ttl(options)
    if ttl > 0:
        extend = lua_true(options.get("extend"))
        # KEEPTTL: without `extend` the new owner inherits the rest of the time.
        queue.deduplications[name] = state.expiring(job, ttl) if extend else ExpiringValue(job, owner.due_ms)
    else:
        queue.deduplications[name] = ExpiringValue(job)
    return None


def _announce(state: ModelState, queue: QueueState, *, kept: str, dropped: str, name: str) -> None:
    emit_within_limit(state, queue, "debounced", jobId=kept, debounceId=name)
    emit_within_limit(state, queue, "deduplicated", jobId=kept, deduplicationId=name, deduplicatedJobId=dropped)


def release_on_finish(queue: QueueState, job: str) -> None:
    """A job that finishes gives its id free, unless the id is held for a time."""
    name = queue.field(job, "deid")
    owner = queue.deduplications.get(name) if name is not None else None
    # A key with a ttl outlives its job: throttling must hold although the work is done.
    if name is not None and owner is not None and owner.due_ms is None and owner.value == job:
        del queue.deduplications[name]


@operation(ops.GetDeduplicationJobId)
def _owner(context: CallContext, op: ops.GetDeduplicationJobId) -> ops.MaybeText:
    owner = context.queue.deduplications.get(op.id)
    return ops.MaybeText(value=None if owner is None else owner.value)


@operation(ops.RemoveDeduplicationKey)
def _forget(context: CallContext, op: ops.RemoveDeduplicationKey) -> Count:
    return Count(count=int(context.queue.deduplications.pop(op.id, None) is not None))


def release_deduplication(queue: QueueState, job: str) -> None:
    """Give a removed job's deduplication id free, if it was this job's."""
    name = queue.field(job, "deid")
    owner = queue.deduplications.get(name) if name is not None else None
    if name is not None and owner is not None and owner.value == job:
        del queue.deduplications[name]
        queue.kept_back.pop(name, None)
