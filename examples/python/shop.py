"""The program of docs/tutorial/first-job-to-production.md. REDIS is the option `connection` as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

from prometheus_client import generate_latest

from conformance.reference_impl import (
    BullMQOtel,
    ClientOptions,
    FlowProducer,
    InvalidArgument,
    Job,
    JobFailed,
    JobsOptions,
    Policy,
    PrometheusCollector,
    Queue,
    QueueEvents,
    UnrecoverableError,
    Worker,
)

SHARED: ClientOptions = {
    "connection": json.loads(os.environ.get("REDIS", '"redis://127.0.0.1:6379"')),
    "prefix": "{shop}",
    "metricsCollector": PrometheusCollector(),
    "telemetry": BullMQOtel("shop", "1.4.0"),
}
PATIENT: JobsOptions = {"attempts": 5, "backoff": {"type": "exponential", "delay": 200, "jitter": 0.5}}
KEPT: JobsOptions = {"removeOnComplete": {"age": 3600, "count": 1000}, "removeOnFail": {"age": 7 * 24 * 3600}}
OUTBOX: dict[str, str] = {}


async def send_mail(job: Job) -> str:
    if "@" not in job.data["to"]:
        raise UnrecoverableError(f"not an address: {job.data['to']}")
    if job.data.get("flaky") and job.attemptsMade == 0:
        raise ConnectionError("the mail server is away")
    await job.updateProgress({"percent": 50})
    await job.log(f"sending to {job.data['to']}")
    OUTBOX.setdefault(job.known_id, job.data["to"])
    return f"sent to {job.data['to']}"


async def bill(job: Job) -> int:
    mails = await job.getChildrenValues()
    return 12 * len(mails)


async def first_jobs(mails: Queue, events: QueueEvents) -> None:
    job = await mails.add("welcome", {"to": "ada@example.org"})
    print(await job.waitUntilFinished(events, ttl=10_000))
    flaky = await mails.add("flaky", {"to": "bob@example.org", "flaky": True}, PATIENT)
    print(await flaky.waitUntilFinished(events, ttl=10_000))
    wrong = await mails.add("wrong", {"to": "nowhere"}, PATIENT)
    try:
        await wrong.waitUntilFinished(events, ttl=10_000)
    except JobFailed as failed:
        print(failed)


async def more_ways_to_add(mails: Queue) -> None:
    await mails.addBulk([{"name": "news", "data": {"to": f"{number}@example.org"}} for number in range(20)])
    await mails.add("urgent", {"to": "eve@example.org"}, {"priority": 1})
    await mails.add("later", {"to": "eve@example.org"}, {"delay": 60_000, "jobId": "later-eve"})
    once: JobsOptions = {"delay": 60_000, "deduplication": {"id": "digest-eve", "ttl": 60_000}}
    first = await mails.add("digest", {"to": "eve@example.org"}, once)
    second = await mails.add("digest", {"to": "eve@example.org"}, once)
    print("same job:", first.id == second.id)
    try:
        await mails.add("urgent", {"to": "eve@example.org"}, {"jobId": "7"})
    except InvalidArgument as refused:
        print(refused)


async def a_flow(flows: FlowProducer, order_events: QueueEvents) -> None:
    addresses = ("ada@example.org", "bob@example.org")
    tree = await flows.add(
        {
            "name": "bill",
            "queueName": "orders",
            "children": [{"name": "receipt", "queueName": "mails", "data": {"to": to}} for to in addresses],
        }
    )
    print("bill:", await tree.job.waitUntilFinished(order_events, ttl=10_000))


async def a_schedule(mails: Queue) -> None:
    report: JobsOptions = {"attempts": 3, **KEPT}
    await mails.upsertJobScheduler(
        "nightly", {"pattern": "0 3 * * *", "tz": "Europe/Paris"}, {"name": "report", "opts": report}
    )
    await mails.upsertJobScheduler("ticker", {"every": 60_000, "limit": 10}, {"data": {"to": "ops@example.org"}})
    print("schedules:", [schedule.key for schedule in await mails.getJobSchedulers()])
    await mails.removeJobScheduler("ticker")


async def look_after(mails: Queue) -> None:
    await mails.pause()
    await mails.resume()
    await mails.setGlobalRateLimit(1000, 60_000)
    print("limit:", await mails.getGlobalRateLimit())
    for job in await mails.getFailed():
        if job is not None:
            print(job.name, job.failedReason, job.attemptsMade, await job.getState())
    await mails.retryJobs({"state": "failed", "count": 100})
    print("logs:", (await mails.getJobLogs("1"))["logs"])
    await mails.clean(grace=3_600_000, limit=1000, type="completed")


async def health(queues: list[Queue], workers: list[Worker]) -> dict[str, Any]:
    async with asyncio.timeout(2):
        counts = {queue.name: await queue.getJobCounts("waiting", "active", "delayed", "failed") for queue in queues}
    return {"ok": all(worker.isRunning() for worker in workers), "jobs": counts}


async def main() -> None:
    async with (
        Queue("mails", {**SHARED, "defaultJobOptions": KEPT}) as mails,
        Queue("orders", SHARED) as orders,
        FlowProducer(SHARED) as flows,
        QueueEvents("mails", SHARED) as events,
        QueueEvents("orders", SHARED) as order_events,
    ):
        mailer = Worker("mails", send_mail, {**SHARED, "concurrency": 10, "limiter": {"max": 100, "duration": 1000}})
        clerk = Worker("orders", bill, {**SHARED, "concurrency": 2, "policy": Policy(job_timeout_s=60)})
        mailer.on("failed", lambda job, error: print("failed:", job and job.name, error))
        events.on("deduplicated", lambda fields: print("deduplicated:", fields["deduplicationId"]))
        serving = asyncio.gather(mailer.run_until_signal(), clerk.run_until_signal())
        await first_jobs(mails, events)
        await more_ways_to_add(mails)
        await a_flow(flows, order_events)
        await a_schedule(mails)
        await look_after(mails)
        print("healthy:", (await health([mails, orders], [mailer, clerk]))["ok"])
        print(b'bullmq_jobs_processed_total{queue="orders",status="completed"} 1.0' in generate_latest())
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        print("closed")


asyncio.run(main())
