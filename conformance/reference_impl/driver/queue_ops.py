"""Operations on a queue handle, job schedulers included, and on a flow handle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from conformance.protocol.keys import NAMED_WORKER_INFIX
from conformance.reference_impl.driver.handles import ReferenceHandles
from conformance.reference_impl.driver.views import (
    Handler,
    Json,
    flow_job,
    flow_view,
    job_view,
    made_job,
    maybe_job,
    new_job,
    raw,
    scheduler_view,
)
from conformance.reference_impl.flow_producer import FlowProducer
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEventsProducer

QueueOperation = Callable[[Queue, Json], Awaitable[Any]]
FlowOperation = Callable[[FlowProducer, Json], Awaitable[Json]]


async def _add(queue: Queue, args: Json) -> Json:
    entry = new_job(args)
    return {"id": (await queue.add(entry["name"], entry["data"], entry["opts"])).id}


async def _add_bulk(queue: Queue, args: Json) -> Json:
    jobs = await queue.addBulk([new_job(entry) for entry in args["jobs"]])
    return {"ids": [job.id for job in jobs]}


async def _clean(queue: Queue, args: Json) -> Json:
    return {"ids": await queue.clean(args["grace_ms"], args["limit"], args.get("type", "completed"))}


async def _remove(queue: Queue, args: Json) -> Json:
    return {"count": await queue.remove(args["job"], {"removeChildren": args.get("remove_children", True)})}


async def _retry_jobs(queue: Queue, args: Json) -> None:
    await queue.retryJobs({name: args.get(name) for name in ("count", "state", "timestamp")})


async def _get_job(queue: Queue, args: Json) -> Json:
    return maybe_job(await queue.getJob(args["job"]))


async def _get_jobs(queue: Queue, args: Json) -> Json:
    jobs = await queue.getJobs(args["types"], *_range(args), args.get("asc", False))
    return {"jobs": [None if job is None else job_view(job) for job in jobs]}


async def _get_logs(queue: Queue, args: Json) -> Json:
    return await queue.getJobLogs(args["job"], *_range(args), args.get("asc", True))


async def _get_rate_limit(queue: Queue, _args: Json) -> Json:
    limit = await queue.getGlobalRateLimit() or {}
    return {"max": _whole(limit.get("max")), "duration_ms": _whole(limit.get("duration"))}


async def _get_workers(queue: Queue, _args: Json) -> Json:
    workers = await queue.getWorkers()
    return {"names": [worker.get("rawname", "").partition(NAMED_WORKER_INFIX)[2] for worker in workers]}


async def _publish_event(queue: Queue, args: Json) -> None:
    producer = QueueEventsProducer(queue.name, queue.opts, clock=queue.clock)
    try:
        await producer.publishEvent({**args["fields"], "eventName": args["event_name"]}, args["max_length"])
    finally:
        await producer.close()


async def _upsert_scheduler(queue: Queue, args: Json) -> Json:
    return made_job(await queue.upsertJobScheduler(args["id"], args["repeat"], _template(args)))


async def _get_scheduler(queue: Queue, args: Json) -> Json:
    found = await queue.getJobScheduler(args["id"])
    return {"scheduler": None if found is None else scheduler_view(found)}


async def _get_schedulers(queue: Queue, args: Json) -> Json:
    found = await queue.getJobSchedulers(*_range(args), args.get("asc", False))
    return {"schedulers": [scheduler_view(scheduler) for scheduler in found]}


def _template(args: Json) -> dict[str, Any]:
    """Return the given parts of a template; null means not given."""
    template: dict[str, Any] = {option: args[option] for option in ("name", "opts") if args.get(option) is not None}
    if args.get("data_raw") is not None:
        template["data"] = raw(args["data_raw"])
    return template


def _range(args: Json) -> tuple[int, int]:
    return args.get("start", 0), args.get("end", -1)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _plain(operation: QueueOperation) -> QueueOperation:
    async def run(queue: Queue, args: Json) -> None:
        await operation(queue, args)

    return run


def _as(field: str, operation: QueueOperation) -> QueueOperation:
    async def run(queue: Queue, args: Json) -> Json:
        return {field: await operation(queue, args)}

    return run


QUEUE_OPERATIONS: dict[str, QueueOperation] = {
    "add": _add,
    "addBulk": _add_bulk,
    "pause": _plain(lambda queue, _: queue.pause()),
    "resume": _plain(lambda queue, _: queue.resume()),
    "isPaused": _as("value", lambda queue, _: queue.isPaused()),
    "drain": _plain(lambda queue, args: queue.drain(args.get("delayed", False))),
    "clean": _clean,
    "obliterate": _plain(
        lambda queue, args: queue.obliterate({"force": args.get("force", False), "count": args.get("count", 1000)})
    ),
    "remove": _remove,
    "retryJobs": _retry_jobs,
    "promoteJobs": _plain(lambda queue, args: queue.promoteJobs({"count": args.get("count")})),
    "trimEvents": _as("count", lambda queue, args: queue.trimEvents(args["max_length"])),
    "getJob": _get_job,
    "getJobs": _get_jobs,
    "getJobCounts": _as("counts", lambda queue, args: queue.getJobCounts(*args["types"])),
    "getJobCountByTypes": _as("count", lambda queue, args: queue.getJobCountByTypes(*args["types"])),
    "count": _as("count", lambda queue, _: queue.count()),
    "getCountsPerPriority": _as("counts", lambda queue, args: queue.getCountsPerPriority(args["priorities"])),
    "getJobState": _as("state", lambda queue, args: queue.getJobState(args["job"])),
    "getJobLogs": _get_logs,
    "getMetrics": lambda queue, args: queue.getMetrics(args["type"], *_range(args)),
    "setGlobalConcurrency": _plain(lambda queue, args: queue.setGlobalConcurrency(args["concurrency"])),
    "removeGlobalConcurrency": _plain(lambda queue, _: queue.removeGlobalConcurrency()),
    "getGlobalConcurrency": _as("value", lambda queue, _: queue.getGlobalConcurrency()),
    "setGlobalRateLimit": _plain(lambda queue, args: queue.setGlobalRateLimit(args["max"], args["duration_ms"])),
    "removeGlobalRateLimit": _plain(lambda queue, _: queue.removeGlobalRateLimit()),
    "getGlobalRateLimit": _get_rate_limit,
    "rateLimit": _plain(lambda queue, args: queue.rateLimit(args["expire_ms"])),
    "removeRateLimitKey": _plain(lambda queue, _: queue.removeRateLimitKey()),
    "getRateLimitTtl": _as("count", lambda queue, args: queue.getRateLimitTtl(args.get("max_jobs"))),
    "isMaxed": _as("value", lambda queue, _: queue.isMaxed()),
    "getVersion": _as("value", lambda queue, _: queue.getVersion()),
    "getDeduplicationJobId": _as("value", lambda queue, args: queue.getDeduplicationJobId(args["id"])),
    "removeDeduplicationKey": _as("count", lambda queue, args: queue.removeDeduplicationKey(args["id"])),
    "publishEvent": _publish_event,
    "exportPrometheusMetrics": _as("value", lambda queue, args: queue.exportPrometheusMetrics(args.get("variables"))),
    "getWorkers": _get_workers,
    "getWorkersCount": _as("count", lambda queue, _: queue.getWorkersCount()),
    "upsertJobScheduler": _upsert_scheduler,
    "getJobScheduler": _get_scheduler,
    "getJobSchedulers": _get_schedulers,
    "getJobSchedulersCount": _as("count", lambda queue, _: queue.getJobSchedulersCount()),
    "removeJobScheduler": _as("value", lambda queue, args: queue.removeJobScheduler(args["id"])),
}


async def _add_flow(producer: FlowProducer, args: Json) -> Json:
    defaults = {queue: {"defaultJobOptions": opts} for queue, opts in (args.get("queues_options") or {}).items()}
    return flow_view(await producer.add(flow_job(args["flow"]), {"queuesOptions": defaults}))


async def _add_flows(producer: FlowProducer, args: Json) -> Json:
    return {"flows": [flow_view(node) for node in await producer.addBulk([flow_job(flow) for flow in args["flows"]])]}


async def _get_flow(producer: FlowProducer, args: Json) -> Json:
    wanted = {"id": args["job"], "queueName": args["queue"]}
    limits = {"depth": args.get("depth", 10), "maxChildren": args.get("max_children", 20)}
    node = await producer.getFlow({**wanted, **limits})
    return {"flow": None if node is None else flow_view(node)}


FLOW_OPERATIONS: dict[str, FlowOperation] = {"add": _add_flow, "addBulk": _add_flows, "getFlow": _get_flow}


def queue_handlers(handles: ReferenceHandles) -> dict[str, Handler]:
    """Handlers of the operations on queues, job schedulers included, and on flow producers."""

    def on_queue(operation: QueueOperation) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            answer: Json | None = await operation(handles.client(name, Queue), args)
            return answer

        return handle

    def on_flow(operation: FlowOperation) -> Handler:
        async def handle(name: str | None, args: Json) -> Json | None:
            return await operation(handles.client(name, FlowProducer), args)

        return handle

    return {
        **{f"queue.{name}": on_queue(operation) for name, operation in QUEUE_OPERATIONS.items()},
        **{f"flow.{name}": on_flow(operation) for name, operation in FLOW_OPERATIONS.items()},
    }
