"""Operations on one job, and the single steps of a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable, signature
from typing import Any

from bullmq import Job, Worker
from handles import FailedOnRequestError, OfficialHandle, throw
from kit import Unsupported, json_text, maybe_job, parse
from versions import CLAIMS_BY_BLOCKING, backend_class, backend_of, error_class, has

Json = dict[str, Any]
JobOp = Callable[[Job, Json], Awaitable[Json | None]]
WorkerOp = Callable[[OfficialHandle, Json], Awaitable[Json | None]]


async def _update_data(job: Job, args: Json) -> None:
    await job.updateData(parse(args["data_raw"]))


async def _update_progress(job: Job, args: Json) -> None:
    await job.updateProgress(parse(args["value_raw"]))


async def _promote(job: Job, _args: Json) -> None:
    await job.promote()


async def _change_priority(job: Job, args: Json) -> None:
    await job.changePriority({"priority": args["priority"], "lifo": args["lifo"]})


async def _retry(job: Job, args: Json) -> None:
    reset = {"resetAttemptsMade": args["reset_attempts_made"], "resetAttemptsStarted": args["reset_attempts_started"]}
    if not any(reset.values()):
        await job.retry(args["state"])
    elif "opts" in signature(Job.retry).parameters:
        await job.retry(args["state"], reset)
    else:
        raise Unsupported("this client's Job.retry resets no counters")


async def _remove(job: Job, args: Json) -> None:
    await job.remove({"removeChildren": args["remove_children"]})


async def _get_state(job: Job, _args: Json) -> Json:
    return {"state": await job.getState()}


async def _is_finished(job: Job, _args: Json) -> Json:
    return {"value": bool(await job.isCompleted() or await job.isFailed())}


async def _get_children_values(job: Job, _args: Json) -> Json:
    return {"values": {key: json_text(value) for key, value in (await job.getChildrenValues()).items()}}


_JOB_OPS: dict[str, tuple[str, JobOp]] = {
    "job.changePriority": ("changePriority", _change_priority),
    "job.getChildrenValues": ("getChildrenValues", _get_children_values),
    "job.getState": ("getState", _get_state),
    "job.isFinished": ("isCompleted", _is_finished),
    "job.promote": ("promote", _promote),
    "job.remove": ("remove", _remove),
    "job.retry": ("retry", _retry),
    "job.updateData": ("updateData", _update_data),
    "job.updateProgress": ("updateProgress", _update_progress),
}

JOB_OPS = {op: run for op, (method, run) in _JOB_OPS.items() if has(Job, method)}
"""Work on queue handles, and on worker handles for jobs that are bound to the worker."""


async def log(handle: OfficialHandle, args: Json) -> Json:
    """Job.addJobLog, a static method: the job need not exist."""
    return {"count": await Job.addJobLog(handle.object, args["job"], args["row"], args["keep_logs"] or 0)}


async def _get_next_job(handle: OfficialHandle, args: Json) -> Json:
    """Worker.getNextJob blocks after an empty queue; `moveToActive` is its step after that wait."""
    worker = handle.object
    # The kit asks without blocking, and this client has no option for that.
    claim = worker.moveToActive if worker.drained or CLAIMS_BY_BLOCKING else worker.getNextJob
    return maybe_job(handle.hold(await claim(args["token"])))


async def _move_to_completed(handle: OfficialHandle, args: Json) -> Json:
    job = await _taken(handle, args)
    reply = await job.moveToCompleted(parse(args["value_raw"]), args["token"], args["fetch_next"])
    return await _fetched(handle, args, reply)


async def _move_to_failed(handle: OfficialHandle, args: Json) -> Json:
    job = await _taken(handle, args)
    kind = error_class("UnrecoverableError") if args["unrecoverable"] else FailedOnRequestError
    try:
        throw(kind(args["message"]))
    except kind as error:
        # Called inside the `except`, as in the worker's loop, because the client takes the stack trace from there.
        reply = await job.moveToFailed(error, args["token"], args["fetch_next"])
    return await _fetched(handle, args, reply)


async def _move_to_delayed(handle: OfficialHandle, args: Json) -> None:
    job = await _taken(handle, args)
    await job.moveToDelayed(args["timestamp"], args["token"])


async def _move_to_waiting_children(handle: OfficialHandle, args: Json) -> Json:
    job = await _taken(handle, args)
    return {"value": bool(await job.moveToWaitingChildren(args["token"], {}))}


async def _extend_lock(handle: OfficialHandle, args: Json) -> Json:
    return {"value": bool(await backend_of(handle.object).extendLock(args["job"], args["token"], args["duration_ms"]))}


async def _extend_locks(handle: OfficialHandle, args: Json) -> Json:
    failed = await backend_of(handle.object).extendLocks(args["jobs"], args["tokens"], args["duration_ms"])
    return {"ids": [str(job_id) for job_id in failed or []]}


async def _check_stalled(handle: OfficialHandle, _args: Json) -> Json:
    """Run the loop's own check, which reports recovered jobs and errors only by local events."""
    recovered: list[str] = []
    errors: list[Exception] = []
    worker = handle.object
    listeners = {"stalled": recovered.append, "error": lambda error, *_rest: errors.append(error)}
    for name, listener in listeners.items():
        worker.on(name, listener)
    try:
        await worker.runStalledJobsCheck()
    finally:
        for name, listener in listeners.items():
            # In `finally`: a listener that stays would add to the answer of the next check.
            worker.off(name, listener)
    if errors:
        raise errors[0]
    return {"ids": [str(job_id) for job_id in recovered]}


async def _pause(handle: OfficialHandle, args: Json) -> None:
    await handle.object.pause(args["do_not_wait_active"])


async def _resume(handle: OfficialHandle, _args: Json) -> None:
    handle.object.resume()


async def _is_paused(handle: OfficialHandle, _args: Json) -> Json:
    return {"value": bool(handle.object.paused)}


async def _is_running(handle: OfficialHandle, _args: Json) -> Json:
    return {"value": bool(handle.object.running)}


async def _taken(handle: OfficialHandle, args: Json) -> Job:
    """Return the job for an operation that releases it from the worker, and forget it."""
    job = await handle.find_job(args["job"])
    # Forgotten even if the script then refuses: the next operation reads the job as stored.
    handle.held.pop(args["job"], None)
    return job


async def _fetched(handle: OfficialHandle, args: Json, reply: Any) -> Json:
    """Let the worker convert the reply of a finish, [fields, id, rate limit, next due], into the next job."""
    if not reply or not reply[0]:
        return {"job": None}
    fields, job_id, limit_until, delay_until = reply
    job = handle.object.nextJobFromJobData(fields, job_id, limit_until, delay_until, args["token"])
    job = await job if isawaitable(job) else job  # a coroutine from 3.0 on
    return maybe_job(handle.hold(job))


async def _cancel_job(handle: OfficialHandle, args: Json) -> Json:
    return {"value": handle.object.cancelJob(args["job"], args["reason"])}


async def _cancel_all_jobs(handle: OfficialHandle, args: Json) -> None:
    handle.object.cancelAllJobs(args["reason"])


_WORKER_OPS: dict[str, tuple[Any, str, WorkerOp]] = {
    "worker.cancelAllJobs": (Worker, "cancelAllJobs", _cancel_all_jobs),
    "worker.cancelJob": (Worker, "cancelJob", _cancel_job),
    "worker.checkStalled": (Worker, "runStalledJobsCheck", _check_stalled),
    "worker.extendLock": (backend_class(), "extendLock", _extend_lock),
    "worker.extendLocks": (backend_class(), "extendLocks", _extend_locks),
    "worker.getNextJob": (Worker, "getNextJob", _get_next_job),
    "worker.isPaused": (Worker, "pause", _is_paused),
    "worker.isRunning": (Worker, "run", _is_running),
    "worker.moveToCompleted": (Job, "moveToCompleted", _move_to_completed),
    "worker.moveToDelayed": (Job, "moveToDelayed", _move_to_delayed),
    "worker.moveToFailed": (Job, "moveToFailed", _move_to_failed),
    "worker.moveToWaitingChildren": (Job, "moveToWaitingChildren", _move_to_waiting_children),
    "worker.pause": (Worker, "pause", _pause),
    "worker.resume": (Worker, "resume", _resume),
}

WORKER_OPS = {op: run for op, (owner, method, run) in _WORKER_OPS.items() if has(owner, method)}
"""Work on worker handles."""
