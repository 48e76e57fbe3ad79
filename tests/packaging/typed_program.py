"""A program of a user of the installed wheel. It is never run: `test_wheel.py` lets mypy --strict read it."""

from __future__ import annotations

from typing import Any

from conformance.reference_impl import (
    FlowProducer,
    Job,
    JobFailed,
    Policy,
    Queue,
    QueueEvents,
    ReconnectPolicy,
    UnrecoverableError,
    Worker,
)

__all__ = ["consume", "grow"]

CONNECTION: dict[str, Any] = {
    "connection": {"host": "redis.example", "tls": {}},
    "prefix": "bull",
    "policy": Policy(job_timeout_s=60, reconnect=ReconnectPolicy(max_attempts=5)),
}


async def add_up(job: Job, token: str) -> int:
    """Add up the numbers of a job; a coroutine that takes job and token."""
    if not job.data:
        raise UnrecoverableError(f"job {job.id} has nothing to add up, token {token}")
    await job.updateProgress({"percent": 50})
    await job.log("half of it is done")
    return sum(job.data)


def shout(job: Job) -> str:
    """Return the name of a job in capitals; a function that takes the job alone."""
    return job.name.upper()


def on_completed(job: Job, result: Any) -> None:
    """Take two of the three arguments of the event."""
    print(job.id, job.attemptsMade, result)


async def produce(queue: Queue) -> str | None:
    """Add jobs, one by one and in bulk, and read them."""
    job: Job = await queue.add("sum", [1, 2, 3], {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}})
    jobs: list[Job] = await queue.addBulk([{"name": "sum", "data": [number]} for number in range(10)])
    counts: dict[str, int] = await queue.getJobCounts("waiting", "delayed")
    waiting: int = await queue.getWaitingCount() + counts["delayed"] + len(jobs)
    found: Job | None = await queue.getJob(job.id or "")
    scheduled: Job | None = await queue.upsertJobScheduler("nightly", {"pattern": "0 3 * * *"}, {"name": "sum"})
    print(waiting, scheduled)
    return found.failedReason if found else None


async def consume() -> None:
    """Work, listen and wait."""
    async with (
        Queue("sums", CONNECTION) as queue,
        QueueEvents("sums", CONNECTION) as events,
        Worker("sums", add_up, {**CONNECTION, "concurrency": 10}) as worker,
        Worker("names", shout, CONNECTION) as other,
    ):
        worker.on("completed", on_completed)
        worker.once("failed", lambda job, error: print(job.id, error))
        other.on("error", print)
        events.on("progress", lambda args: print(args["data"]))
        print(await produce(queue))
        job = await queue.add("sum", [1, 2])
        try:
            print(await job.waitUntilFinished(events, ttl=5000))
        except JobFailed as failed:
            print(failed)
        await worker.run_until_signal()


async def grow() -> str | None:
    """Add a tree of jobs."""
    flows = FlowProducer(CONNECTION)
    tree = await flows.add(
        {"name": "root", "queueName": "sums", "data": [], "children": [{"name": "leaf", "queueName": "sums"}]}
    )
    await flows.close()
    return tree.job.id if tree.job else None
