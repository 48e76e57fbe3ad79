"""Operations on one job, called on a queue or worker handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from conformance.driver.serve import OpError
from conformance.reference_impl.driver.errors import Handler
from conformance.reference_impl.driver.handles import Handle, Handles
from conformance.reference_impl.driver.views import Json, raw, texts_by_key
from conformance.reference_impl.encoding.js_json import stringify
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.events import QueueEvents
from conformance.reference_impl.queues.queue import Queue
from conformance.reference_impl.workers.worker import Worker

JobOperation = Callable[[Job, Json], Awaitable[Json | None]]


async def find_job(handle: Handle, job_id: str) -> Job:
    """Answer the job as it was claimed, else as it is stored; without a hash a bare one, which Redis will refuse.

    Raises OpError where the handle has no jobs.
    """
    client = _owner(handle)
    held = handle.claimed.get(job_id) or await Job.fromId(client, job_id)
    return held or Job(client, "", {}, {}, job_id)


def _owner(handle: Handle) -> Queue | Worker:
    if not isinstance(handle.client, (Queue, Worker)):
        raise OpError("invalid-argument", f"{handle.name} has no jobs")
    return handle.client


async def _update_data(job: Job, args: Json) -> None:
    await job.updateData(raw(args["data_raw"]))


async def _update_progress(job: Job, args: Json) -> None:
    await job.updateProgress(raw(args["value_raw"]))


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


_OPERATIONS: dict[str, JobOperation] = {
    "updateData": _update_data,
    "updateProgress": _update_progress,
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


def job_handlers(handles: Handles) -> dict[str, Handler]:
    """Handlers by the protocol's names."""

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

    known = {f"job.{name}": handler(operation) for name, operation in _OPERATIONS.items()}
    return {**known, "job.log": log, "job.waitUntilFinished": wait_until_finished}
