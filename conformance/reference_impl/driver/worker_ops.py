"""Operations on a worker handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from conformance.reference_impl.driver import processors
from conformance.reference_impl.driver.errors import Handler
from conformance.reference_impl.driver.handles import Handle, Handles
from conformance.reference_impl.driver.job_ops import find_job
from conformance.reference_impl.driver.processors import RequestedFailure
from conformance.reference_impl.driver.views import Json, maybe_job, raw
from conformance.reference_impl.errors import UnrecoverableError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.scripts.registry import Fetched
from conformance.reference_impl.workers.worker import Worker

WorkerOperation = Callable[[Worker, Json, Handle], Awaitable[Json | None]]
HeldJobOperation = Callable[[Job, Json, Handle], Awaitable[Json | None]]


async def _get_next_job(worker: Worker, args: Json, handle: Handle) -> Json:
    return maybe_job(handle.hold(await worker.getNextJob(args["token"], {"block": False})))


async def _extend_locks(worker: Worker, args: Json, _handle: Handle) -> Json:
    return {"ids": await worker.extendLocks(args["jobs"], args["tokens"], args["duration_ms"])}


async def _check_stalled(worker: Worker, _args: Json, _handle: Handle) -> Json:
    return {"ids": await worker.checkStalled()}


async def _pause(worker: Worker, args: Json, _handle: Handle) -> None:
    await worker.pause(args.get("do_not_wait_active", False))


async def _resume(worker: Worker, _args: Json, _handle: Handle) -> None:
    worker.resume()


async def _is_paused(worker: Worker, _args: Json, _handle: Handle) -> Json:
    return {"value": worker.isPaused()}


async def _is_running(worker: Worker, _args: Json, _handle: Handle) -> Json:
    return {"value": worker.isRunning()}


async def _rate_limit(worker: Worker, args: Json, _handle: Handle) -> None:
    await worker.rateLimit(args["expire_ms"])


async def _resolve(_worker: Worker, args: Json, handle: Handle) -> None:
    processors.resolve(handle.asked, args)


async def _move_to_completed(job: Job, args: Json, handle: Handle) -> Json:
    value = raw(args.get("value_raw"))
    return await _next(handle, args, await job.moveToCompleted(value, args["token"], args.get("fetch_next", False)))


async def _move_to_failed(job: Job, args: Json, handle: Handle) -> Json:
    kind = UnrecoverableError if args.get("unrecoverable") else RequestedFailure
    error = kind(args["message"])
    return await _next(handle, args, await job.moveToFailed(error, args["token"], args.get("fetch_next", False)))


async def _move_to_delayed(job: Job, args: Json, _handle: Handle) -> None:
    await job.moveToDelayed(args["timestamp"], args["token"])


async def _move_to_wait(job: Job, args: Json, _handle: Handle) -> None:
    await job.moveToWait(args["token"])


async def _move_to_waiting_children(job: Job, args: Json, _handle: Handle) -> Json:
    return {"value": await job.moveToWaitingChildren(args["token"])}


async def _extend_lock(job: Job, args: Json, _handle: Handle) -> Json:
    return {"value": await job.extendLock(args["token"], args["duration_ms"])}


async def _next(handle: Handle, args: Json, fetched: Fetched | None) -> Json:
    """Take what a finish brought along, as the client's loop would."""
    if fetched is None or not isinstance(handle.client, Worker):
        return maybe_job(None)
    return maybe_job(handle.hold(await handle.client.nextJobFromJobData(fetched, args["token"])))


_OPERATIONS: dict[str, WorkerOperation] = {
    "worker.getNextJob": _get_next_job,
    "worker.extendLocks": _extend_locks,
    "worker.checkStalled": _check_stalled,
    "worker.pause": _pause,
    "worker.resume": _resume,
    "worker.isPaused": _is_paused,
    "worker.isRunning": _is_running,
    "worker.rateLimit": _rate_limit,
    "resolve": _resolve,
}
_ENDING_OPERATIONS: dict[str, HeldJobOperation] = {
    "worker.moveToCompleted": _move_to_completed,
    "worker.moveToFailed": _move_to_failed,
    "worker.moveToDelayed": _move_to_delayed,
    "worker.moveToWait": _move_to_wait,
    "worker.moveToWaitingChildren": _move_to_waiting_children,
}


def worker_handlers(handles: Handles) -> dict[str, Handler]:
    """Handlers by the protocol's names."""

    def on_worker(operation: WorkerOperation) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            return await operation(handles.client(name, Worker), args, handles.named(name))

        return handle

    def on_held_job(operation: HeldJobOperation, *, ends: bool) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            handles.client(name, Worker)
            holder = handles.named(name)
            job = await find_job(holder, args["job"])
            if ends:
                holder.claimed.pop(args["job"], None)
            return await operation(job, args, holder)

        return handle

    return {
        **{name: on_worker(operation) for name, operation in _OPERATIONS.items()},
        **{name: on_held_job(operation, ends=True) for name, operation in _ENDING_OPERATIONS.items()},
        "worker.extendLock": on_held_job(_extend_lock, ends=False),
    }
