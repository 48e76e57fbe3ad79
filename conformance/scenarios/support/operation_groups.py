"""Groups of operations that together call every official script that Node calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.driver.ops import job, queue, worker
from conformance.participants.expect import holds
from conformance.participants.handles import QueueHandle
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import (
    HOUR_MS,
    claim_current_job,
    claimed_until_empty,
    current_job,
    node,
)

LATER_MS = 60_000

EXERCISED_SCRIPTS = frozenset(
    {
        *("addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob", "addJobScheduler"),
        *("updateJobScheduler", "getJobScheduler", "removeJobScheduler", "addLog", "updateData", "updateProgress"),
        *("changeDelay", "changePriority", "promote", "pause", "drain", "cleanJobsInSet", "obliterate"),
        *("moveToActive", "moveToFinished", "moveToDelayed", "moveToWaitingChildren", "moveJobFromActiveToWait"),
        *("moveStalledJobsToWait", "moveJobsToWait", "retryJob", "reprocessJob", "extendLock", "extendLocks"),
        *("removeJob", "removeChildDependency", "removeUnprocessedChildren", "isFinished", "isMaxed"),
        *("getCounts", "getCountsPerPriority", "getDependencyCounts", "getRanges", "getRateLimitTtl", "getMetrics"),
        "getStateV2",
    }
)
"""The scripts that Node calls in one of the `OPERATION_GROUPS`."""


def exercise_every_script(client: Participant, name: str = "q") -> None:
    """Call every group of operations, one after the other, on one queue."""
    for call_operations in OPERATION_GROUPS.values():
        call_operations(client, name)


def _add_some(jobs: QueueHandle) -> None:
    jobs.add(jobId="plain")
    jobs.add(jobId="late", delay=LATER_MS)
    jobs.add(jobId="urgent", priority=3)
    jobs.add_bulk(("job", {}, {"jobId": "bulk-1"}), ("job", {}, {"jobId": "bulk-2", "delay": LATER_MS}))


def _adding(client: Participant, name: str) -> None:
    jobs = client.queue(name)
    _add_some(jobs)
    jobs.add(jobId="single", deduplication={"id": "once", "ttl": LATER_MS})
    jobs.add(deduplication={"id": "once"})


def _changing(client: Participant, name: str) -> None:
    jobs = client.queue(name)
    _add_some(jobs)
    jobs.call(job.ChangeDelay(job="late", delay_ms=2 * LATER_MS))
    jobs.call(job.ChangePriority(job="urgent", priority=5))
    jobs.update_data("plain", {"a": 1})
    jobs.progress("plain", 50)
    jobs.log("plain", "a line", keep=2)
    jobs.promote("late")
    jobs.call(queue.PromoteJobs(count=10))
    jobs.pause()
    jobs.resume()
    jobs.remove("bulk-2")


def _running(client: Participant, name: str) -> None:
    jobs, runner = client.queue(name), client.worker(queue=name)
    _add_some(jobs)
    first = runner.claim_one()
    runner.extend_lock(first.id, LATER_MS)
    runner.extend_locks([first.id], ["token-1"], LATER_MS)
    following = runner.complete(first.id, "done", fetch_next=True)
    if following is not None:
        runner.complete(following.id)
        jobs.call(job.WaitUntilFinished(job=following.id, events=client.events(name).handle, ttl_ms=6000))
    jobs.retry(first.id, "completed")
    jobs.call(job.IsFinished(job=first.id))


def _failing(client: Participant, name: str) -> None:
    jobs, runner = client.queue(name), client.worker(queue=name)
    jobs.add(jobId="again", attempts=3, lifo=True)
    runner.claim_one()
    runner.fail("again")
    runner.claim_one()
    runner.fail("again", unrecoverable=True)
    jobs.add(jobId="backoff", attempts=2, backoff={"type": "fixed", "delay": 1000}, lifo=True)
    runner.claim_one()
    runner.fail("backoff")
    client.pass_time(5)
    jobs.call(queue.RetryJobs(count=10, state="failed"))


def _giving_back(client: Participant, name: str) -> None:
    jobs, runner = client.queue(name), client.worker(queue=name)
    _add_some(jobs)
    jobs.add()
    waiting = runner.claim_one().id
    runner.call(worker.MoveToWait(job=waiting, token="token-1"))
    delayed = runner.claim_one().id
    runner.call(worker.MoveToDelayed(job=delayed, token="token-1", timestamp=client.clock.now_ms() + LATER_MS))
    stalled = runner.claim_one().id
    runner.check_stalled()
    jobs.redis.delete("stalled-check")
    jobs.redis.delete(f"{stalled}:lock")
    runner.check_stalled()
    jobs.call(queue.Drain(delayed=True))


def _flows(client: Participant, name: str) -> None:
    jobs, runner, flows = client.queue(name), client.worker(queue=name), client.flow()
    flows.add(node("parent", node("child-1", queue=name), node("child-2", queue=name), queue=name))
    jobs.call(job.RemoveChildDependency(job="child-2"))
    runner.claim_one()
    runner.complete("child-1")
    jobs.call(job.GetDependencies(job="parent"))
    jobs.call(job.GetDependenciesCount(job="parent"))
    flows.get("parent", queue=name)
    for claimed in claimed_until_empty(runner):
        if claimed.id == "parent":
            jobs.add(jobId="child-3", parent={"id": "parent", "queue": f"{jobs.redis.base[:-1]}"})
            runner.wait_for_children("parent")
        else:
            runner.complete(claimed.id)
    flows.add(node("other", node("child-4", queue=name, delay=LATER_MS), queue=name))
    jobs.call(job.RemoveUnprocessedChildren(job="other"))


def _schedulers(client: Participant, name: str) -> None:
    jobs, runner = client.queue(name), client.worker(queue=name)
    jobs.schedule("s", {"every": HOUR_MS})
    for claimed in claimed_until_empty(runner):
        holds(claimed.id != current_job(jobs), "there is a next job", seen=claimed.id, where="row.scheduler.next")
        runner.complete(claimed.id)
    runner.complete(claim_current_job(jobs, runner))
    jobs.scheduler("s")
    jobs.unschedule("s")


def _reading(client: Participant, name: str) -> None:
    jobs = client.queue(name)
    _add_some(jobs)
    jobs.counts("wait", "completed")
    jobs.call(queue.GetCountsPerPriority(priorities=[0, 3]))
    jobs.jobs("completed", "failed", "wait")
    jobs.state("parent")
    jobs.call(queue.GetRateLimitTtl())
    jobs.call(queue.IsMaxed())
    jobs.call(queue.GetMetrics(type="completed"))


def _clearing(client: Participant, name: str) -> None:
    jobs = client.queue(name)
    _add_some(jobs)
    jobs.call(queue.Clean(grace_ms=0, limit=100, type="completed"))
    jobs.call(queue.Drain(delayed=False))
    jobs.pause()
    jobs.call(queue.Obliterate(force=True))


OPERATION_GROUPS: Mapping[str, Callable[[Participant, str], None]] = {
    "adding": _adding,
    "changing": _changing,
    "running": _running,
    "failing": _failing,
    "giving-back": _giving_back,
    "flows": _flows,
    "schedulers": _schedulers,
    "reading": _reading,
    "clearing": _clearing,
}
"""Groups of operations: each takes the participant and the name of a queue, and can run alone or after the others."""
