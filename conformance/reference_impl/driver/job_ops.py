"""Operations on one job, called on a queue or worker handle, and the single steps of a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from conformance.driver.serve import OpError
from conformance.reference_impl.driver.handles import ReferenceHandle, ReferenceHandles, RequestedFailure, resolve_asked
from conformance.reference_impl.driver.views import Handler, Json, maybe_job, raw, texts_by_key
from conformance.reference_impl.errors import UnrecoverableError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.js_values import stringify
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents
from conformance.reference_impl.scripts.move import FetchReply
from conformance.reference_impl.workers.worker import Worker

JobOperation = Callable[[Job, Json], Awaitable[Json | None]]
WorkerOperation = Callable[[Worker, Json, ReferenceHandle], Awaitable[Json | None]]
HeldJobOperation = Callable[[Job, Json, ReferenceHandle], Awaitable[Json | None]]


async def find_job(handle: ReferenceHandle, job_id: str) -> Job:
    """Return the job as claimed, else as stored; without a hash an empty one, which Redis will refuse.

    Raises OpError if the handle has no jobs.
    """
    client = _owner(handle)
    held = handle.claimed.get(job_id) or await Job.fromId(client, job_id)
    return held or Job(client, "", {}, {}, job_id)


def _owner(handle: ReferenceHandle) -> Queue | Worker:
    if not isinstance(handle.client, (Queue, Worker)):
        raise OpError("invalid-argument", f"{handle.name} has no jobs")
    return handle.client


async def _update_data(job: Job, args: Json) -> None:
    await job.updateData(raw(args["data_raw"]))


async def _clear_logs(job: Job, args: Json) -> None:
    await job.clearLogs(args.get("keep_logs"))


async def _promote(job: Job, _args: Json) -> None:
    await job.promote()


async def _change_delay(job: Job, args: Json) -> None:
    await job.changeDelay(args["delay_ms"])


async def _change_priority(job: Job, args: Json) -> None:
    await job.changePriority({"priority": args["priority"], "lifo": args.get("lifo", False)})


async def _retry(job: Job, args: Json) -> None:
    await job.retry(args.get("state", "failed"))


async def _remove(job: Job, args: Json) -> None:
    await job.remove({"removeChildren": args.get("remove_children", True)})


async def _get_state(job: Job, _args: Json) -> Json:
    return {"state": await job.getState()}


async def _is_finished(job: Job, _args: Json) -> Json:
    return {"value": await job.isCompleted() or await job.isFailed()}


async def _get_dependencies(job: Job, _args: Json) -> Json:
    found = await job.getDependencies()
    return {**found, "processed": texts_by_key(found["processed"])}


async def _get_dependencies_count(job: Job, _args: Json) -> Json:
    return dict(await job.getDependenciesCount())


async def _get_children_values(job: Job, _args: Json) -> Json:
    return {"values": texts_by_key(await job.getChildrenValues())}


async def _get_ignored(job: Job, _args: Json) -> Json:
    return {"values": await job.getIgnoredChildrenFailures()}


async def _remove_child_dependency(job: Job, _args: Json) -> Json:
    return {"value": await job.removeChildDependency()}


async def _remove_unprocessed_children(job: Job, _args: Json) -> None:
    await job.removeUnprocessedChildren()


JOB_OPERATIONS: dict[str, JobOperation] = {
    "updateData": _update_data,
    "clearLogs": _clear_logs,
    "promote": _promote,
    "changeDelay": _change_delay,
    "changePriority": _change_priority,
    "retry": _retry,
    "remove": _remove,
    "getState": _get_state,
    "isFinished": _is_finished,
    "getDependencies": _get_dependencies,
    "getDependenciesCount": _get_dependencies_count,
    "getChildrenValues": _get_children_values,
    "getIgnoredChildrenFailures": _get_ignored,
    "removeChildDependency": _remove_child_dependency,
    "removeUnprocessedChildren": _remove_unprocessed_children,
}


def job_handlers(handles: ReferenceHandles) -> dict[str, Handler]:
    """Handlers of the operations on one job, by the protocol's names."""

    def handler(operation: JobOperation) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            return await operation(await find_job(handles.named(name), args["job"]), args)

        return handle

    async def wait_until_finished(name: str | None, args: Json) -> Json:
        job = await find_job(handles.named(name), args["job"])
        value = await job.waitUntilFinished(handles.client(args["events"], QueueEvents), args.get("ttl_ms"))
        return {"value_raw": stringify(value)}

    async def log(name: str | None, args: Json) -> Json:
        """The job itself is not read: BullMQ adds log rows by the job's id."""
        return {
            "count": await Job.addJobLog(_owner(handles.named(name)), args["job"], args["row"], args.get("keep_logs"))
        }

    async def update_progress(name: str | None, args: Json) -> None:
        """A user of a queue has the id, and one of a worker the job."""
        handle, value = handles.named(name), raw(args["value_raw"])
        if isinstance(handle.client, Queue):
            await handle.client.updateJobProgress(args["job"], value)
        else:
            await (await find_job(handle, args["job"])).updateProgress(value)

    known = {f"job.{name}": handler(operation) for name, operation in JOB_OPERATIONS.items()}
    own = {"job.log": log, "job.updateProgress": update_progress, "job.waitUntilFinished": wait_until_finished}
    return {**known, **own}


async def _get_next_job(worker: Worker, args: Json, handle: ReferenceHandle) -> Json:
    return maybe_job(handle.hold(await worker.getNextJob(args["token"], {"block": False})))


async def _extend_locks(worker: Worker, args: Json, _handle: ReferenceHandle) -> Json:
    return {"ids": await worker.extendLocks(args["jobs"], args["tokens"], args["duration_ms"])}


async def _check_stalled(worker: Worker, _args: Json, _handle: ReferenceHandle) -> Json:
    return {"ids": await worker.checkStalled()}


async def _pause(worker: Worker, args: Json, _handle: ReferenceHandle) -> None:
    await worker.pause(args.get("do_not_wait_active", False))


async def _resume(worker: Worker, _args: Json, _handle: ReferenceHandle) -> None:
    worker.resume()


async def _is_paused(worker: Worker, _args: Json, _handle: ReferenceHandle) -> Json:
    return {"value": worker.isPaused()}


async def _is_running(worker: Worker, _args: Json, _handle: ReferenceHandle) -> Json:
    return {"value": worker.isRunning()}


async def _rate_limit(worker: Worker, args: Json, _handle: ReferenceHandle) -> None:
    await worker.rateLimit(args["expire_ms"])


async def _resolve(_worker: Worker, args: Json, handle: ReferenceHandle) -> None:
    resolve_asked(handle.asked, args)


async def _move_to_completed(job: Job, args: Json, handle: ReferenceHandle) -> Json:
    value = raw(args.get("value_raw"))
    return await _next_job(handle, args, await job.moveToCompleted(value, args["token"], args.get("fetch_next", False)))


async def _move_to_failed(job: Job, args: Json, handle: ReferenceHandle) -> Json:
    kind = UnrecoverableError if args.get("unrecoverable") else RequestedFailure
    error = kind(args["message"])
    return await _next_job(handle, args, await job.moveToFailed(error, args["token"], args.get("fetch_next", False)))


async def _move_to_delayed(job: Job, args: Json, _handle: ReferenceHandle) -> None:
    await job.moveToDelayed(args["timestamp"], args["token"])


async def _move_to_wait(job: Job, args: Json, _handle: ReferenceHandle) -> None:
    await job.moveToWait(args["token"])


async def _move_to_waiting_children(job: Job, args: Json, _handle: ReferenceHandle) -> Json:
    return {"value": await job.moveToWaitingChildren(args["token"])}


async def _extend_lock(job: Job, args: Json, _handle: ReferenceHandle) -> Json:
    return {"value": await job.extendLock(args["token"], args["duration_ms"])}


async def _next_job(handle: ReferenceHandle, args: Json, fetched: FetchReply | None) -> Json:
    """Handle the next job that a finish returned, as the client's loop would."""
    if fetched is None or not isinstance(handle.client, Worker):
        return maybe_job(None)
    return maybe_job(handle.hold(await handle.client.nextJobFromJobData(fetched, args["token"])))


WORKER_OPERATIONS: dict[str, WorkerOperation] = {
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


ENDING_OPERATIONS: dict[str, HeldJobOperation] = {
    "worker.moveToCompleted": _move_to_completed,
    "worker.moveToFailed": _move_to_failed,
    "worker.moveToDelayed": _move_to_delayed,
    "worker.moveToWait": _move_to_wait,
    "worker.moveToWaitingChildren": _move_to_waiting_children,
}


def worker_handlers(handles: ReferenceHandles) -> dict[str, Handler]:
    """Handlers of a worker's single steps, by the protocol's names."""

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
                # Forgotten even if the script then refuses: the next operation reads the job as stored.
                holder.claimed.pop(args["job"], None)
            return await operation(job, args, holder)

        return handle

    return {
        **{name: on_worker(operation) for name, operation in WORKER_OPERATIONS.items()},
        **{name: on_held_job(operation, ends=True) for name, operation in ENDING_OPERATIONS.items()},
        "worker.extendLock": on_held_job(_extend_lock, ends=False),
    }
