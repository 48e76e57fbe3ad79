"""Operations on a queue handle: the client's class Queue, its job schedulers, and FlowProducer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from bullmq import FlowProducer, Queue
from kit import Unsupported, flow_view, job_view, maybe_job, parse, scheduler_view
from versions import has

Json = dict[str, Any]
QueueOp = Callable[[Queue, Json], Awaitable[Json | None]]
FlowOp = Callable[[FlowProducer, Json], Awaitable[Json | None]]

OBLITERATE_COUNT = 1000
"""The fixed number of the client; its method has no parameter for it."""

METHODS_OF_STATES = {
    ("active", True): "getActive",
    ("completed", False): "getCompleted",
    ("delayed", True): "getDelayed",
    ("failed", False): "getFailed",
    ("prioritized", True): "getPrioritized",
    ("waiting", True): "getWaiting",
    ("waiting-children", True): "getWaitingChildren",
}
"""The methods that list one state in a fixed order, by state and whether the oldest job comes first."""


def _counted(number: Any) -> Json:
    return {"count": int(number)}


async def _add(queue: Queue, args: Json) -> Json:
    job = await queue.add(args["name"], parse(args["data_raw"]), args["opts"])
    return {"id": str(job.id)}


async def _add_bulk(queue: Queue, args: Json) -> Json:
    jobs = [{"name": job["name"], "data": parse(job["data_raw"]), "opts": job["opts"]} for job in args["jobs"]]
    return {"ids": [str(job.id) for job in await queue.addBulk(jobs)]}


async def _pause(queue: Queue, _args: Json) -> None:
    await queue.pause()


async def _resume(queue: Queue, _args: Json) -> None:
    await queue.resume()


async def _is_paused(queue: Queue, _args: Json) -> Json:
    return {"value": bool(await queue.isPaused())}


async def _get_job(queue: Queue, args: Json) -> Json:
    return maybe_job(await queue.getJob(args["job"]))


async def _get_jobs(queue: Queue, args: Json) -> Json:
    types, start, end, asc = args["types"], args["start"], args["end"], args["asc"]
    own = METHODS_OF_STATES.get((types[0], asc)) if len(types) == 1 else None
    jobs = await (getattr(queue, own)(start, end) if own else queue.getJobs(types, start, end, asc))
    return {"jobs": [job if job is None else job_view(job) for job in jobs]}


async def _get_job_counts(queue: Queue, args: Json) -> Json:
    return {"counts": await queue.getJobCounts(*args["types"])}


async def _get_job_count_by_types(queue: Queue, args: Json) -> Json:
    return _counted(await queue.getJobCountByTypes(*args["types"]))


async def _get_counts_per_priority(queue: Queue, args: Json) -> Json:
    return {"counts": await queue.getCountsPerPriority(args["priorities"])}


async def _get_job_state(queue: Queue, args: Json) -> Json:
    return {"state": await queue.getJobState(args["job"])}


async def _get_job_logs(queue: Queue, args: Json) -> Json:
    found = await queue.getJobLogs(args["job"], args["start"], args["end"], args["asc"])
    return {"logs": found["logs"], "count": found["count"]}


async def _drain(queue: Queue, args: Json) -> None:
    await queue.drain(args["delayed"])


async def _clean(queue: Queue, args: Json) -> Json:
    return {"ids": [str(job_id) for job_id in await queue.clean(args["grace_ms"], args["limit"], args["type"])]}


async def _obliterate(queue: Queue, args: Json) -> None:
    if args["count"] != OBLITERATE_COUNT:
        raise Unsupported("this client's Queue.obliterate takes no count")
    await queue.obliterate(args["force"])


async def _remove(queue: Queue, args: Json) -> Json:
    return _counted(await queue.remove(args["job"], {"removeChildren": args["remove_children"]}))


async def _retry_jobs(queue: Queue, args: Json) -> None:
    await queue.retryJobs({key: args[key] for key in ("count", "state", "timestamp") if args[key] is not None})


async def _promote_jobs(queue: Queue, args: Json) -> None:
    await queue.promoteJobs({"count": args["count"]})


async def _trim_events(queue: Queue, args: Json) -> Json:
    return _counted(await queue.trimEvents(args["max_length"]))


async def _set_global_concurrency(queue: Queue, args: Json) -> None:
    await queue.setGlobalConcurrency(args["concurrency"])


async def _remove_global_concurrency(queue: Queue, _args: Json) -> None:
    await queue.removeGlobalConcurrency()


async def _get_global_concurrency(queue: Queue, _args: Json) -> Json:
    return {"value": await queue.getGlobalConcurrency()}


async def _set_global_rate_limit(queue: Queue, args: Json) -> None:
    await queue.setGlobalRateLimit(args["max"], args["duration_ms"])


async def _remove_global_rate_limit(queue: Queue, _args: Json) -> None:
    await queue.removeGlobalRateLimit()


async def _get_global_rate_limit(queue: Queue, _args: Json) -> Json:
    limit = await queue.getGlobalRateLimit() or {}
    return {"max": limit.get("max"), "duration_ms": limit.get("duration")}


async def _rate_limit(queue: Queue, args: Json) -> None:
    await queue.rateLimit(args["expire_ms"])


async def _remove_rate_limit_key(queue: Queue, _args: Json) -> None:
    await queue.removeRateLimitKey()


async def _get_rate_limit_ttl(queue: Queue, args: Json) -> Json:
    if args["max_jobs"] is not None:
        raise Unsupported("this client's Queue.getRateLimitTtl takes no number of jobs")
    return _counted(await queue.getRateLimitTtl())


async def _get_deduplication_job_id(queue: Queue, args: Json) -> Json:
    return {"value": await queue.getDeduplicationJobId(args["id"])}


async def _get_workers(queue: Queue, _args: Json) -> Json:
    workers = await queue.get_workers()
    return {"names": [worker.get("rawname", "").partition(":w:")[2] for worker in workers]}


async def _get_workers_count(queue: Queue, _args: Json) -> Json:
    return _counted(await queue.get_workers_count())


async def _upsert_job_scheduler(queue: Queue, args: Json) -> Json:
    data = None if args["data_raw"] is None else parse(args["data_raw"])
    return maybe_job(await queue.upsertJobScheduler(args["id"], args["repeat"], args["name"], data, args["opts"]))


async def _get_job_scheduler(queue: Queue, args: Json) -> Json:
    found = await queue.getJobScheduler(args["id"])
    return {"scheduler": None if found is None else scheduler_view(found)}


async def _get_job_schedulers(queue: Queue, args: Json) -> Json:
    found = await queue.getJobSchedulers(args["start"], args["end"], args["asc"])
    return {"schedulers": [scheduler_view(scheduler) for scheduler in found]}


async def _get_job_schedulers_count(queue: Queue, _args: Json) -> Json:
    return _counted(await queue.getJobSchedulersCount())


async def _remove_job_scheduler(queue: Queue, args: Json) -> Json:
    return {"value": await queue.removeJobScheduler(args["id"]) == 0}


def _flow_node(node: Json) -> Json:
    """Return a node of a flow as FlowProducer takes it."""
    return {
        "name": node["name"],
        "queueName": node["queue"],
        "data": parse(node["data_raw"]),
        "opts": node["opts"],
        "children": [_flow_node(child) for child in node["children"]],
    }


async def _add_flow(flow: FlowProducer, args: Json) -> Json:
    if args["queues_options"] is None:
        return flow_view(await flow.add(_flow_node(args["flow"])))
    defaults = {queue: {"defaultJobOptions": opts} for queue, opts in args["queues_options"].items()}
    return flow_view(await flow.add(_flow_node(args["flow"]), {"queuesOptions": defaults}))


async def _add_flows(flow: FlowProducer, args: Json) -> Json:
    return {"flows": [flow_view(tree) for tree in await flow.addBulk([_flow_node(node) for node in args["flows"]])]}


_QUEUE_OPS: dict[str, tuple[str, QueueOp]] = {
    "queue.add": ("add", _add),
    "queue.addBulk": ("addBulk", _add_bulk),
    "queue.clean": ("clean", _clean),
    "queue.drain": ("drain", _drain),
    "queue.getCountsPerPriority": ("getCountsPerPriority", _get_counts_per_priority),
    "queue.getDeduplicationJobId": ("getDeduplicationJobId", _get_deduplication_job_id),
    "queue.getGlobalConcurrency": ("getGlobalConcurrency", _get_global_concurrency),
    "queue.getGlobalRateLimit": ("getGlobalRateLimit", _get_global_rate_limit),
    "queue.getJob": ("getJob", _get_job),
    "queue.getJobCountByTypes": ("getJobCountByTypes", _get_job_count_by_types),
    "queue.getJobCounts": ("getJobCounts", _get_job_counts),
    "queue.getJobLogs": ("getJobLogs", _get_job_logs),
    "queue.getJobScheduler": ("getJobScheduler", _get_job_scheduler),
    "queue.getJobSchedulers": ("getJobSchedulers", _get_job_schedulers),
    "queue.getJobSchedulersCount": ("getJobSchedulersCount", _get_job_schedulers_count),
    "queue.getJobState": ("getJobState", _get_job_state),
    "queue.getJobs": ("getJobs", _get_jobs),
    "queue.getRateLimitTtl": ("getRateLimitTtl", _get_rate_limit_ttl),
    "queue.getWorkers": ("get_workers", _get_workers),
    "queue.getWorkersCount": ("get_workers_count", _get_workers_count),
    "queue.isPaused": ("isPaused", _is_paused),
    "queue.obliterate": ("obliterate", _obliterate),
    "queue.pause": ("pause", _pause),
    "queue.promoteJobs": ("promoteJobs", _promote_jobs),
    "queue.rateLimit": ("rateLimit", _rate_limit),
    "queue.remove": ("remove", _remove),
    "queue.removeGlobalConcurrency": ("removeGlobalConcurrency", _remove_global_concurrency),
    "queue.removeGlobalRateLimit": ("removeGlobalRateLimit", _remove_global_rate_limit),
    "queue.removeJobScheduler": ("removeJobScheduler", _remove_job_scheduler),
    "queue.removeRateLimitKey": ("removeRateLimitKey", _remove_rate_limit_key),
    "queue.resume": ("resume", _resume),
    "queue.retryJobs": ("retryJobs", _retry_jobs),
    "queue.setGlobalConcurrency": ("setGlobalConcurrency", _set_global_concurrency),
    "queue.setGlobalRateLimit": ("setGlobalRateLimit", _set_global_rate_limit),
    "queue.trimEvents": ("trimEvents", _trim_events),
    "queue.upsertJobScheduler": ("upsertJobScheduler", _upsert_job_scheduler),
}

_FLOW_OPS: dict[str, tuple[str, FlowOp]] = {"flow.add": ("add", _add_flow), "flow.addBulk": ("addBulk", _add_flows)}

QUEUE_OPS = {op: run for op, (method, run) in _QUEUE_OPS.items() if has(Queue, method)}
FLOW_OPS = {op: run for op, (method, run) in _FLOW_OPS.items() if has(FlowProducer, method)}
"""The operations for which this version of the client has a method."""
