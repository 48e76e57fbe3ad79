"""How scenarios reach every official script: operations that call each of them, and calls that each of them refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from conformance.driver.ops import job, queue, worker
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.protocol.scripts import DRIVER_CODES, ErrorCode
from conformance.scenarios.support.steps import (
    HOUR_MS,
    START_MS,
    YEARLY,
    claim_current_job,
    claimed_until_empty,
    current_job,
    due_of,
    node,
)

LATER_MS = 60_000
TOKEN = "token-1"

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
        is_the_schedulers = claimed.id == current_job(jobs)
        runner.complete(claimed.id)
        if is_the_schedulers:
            break
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
"""Groups of operations: each takes the participant and the name of a queue, and can be called alone or after others."""


# Calls that are refused.


class RefusalSetup:
    """A client whose queue is in the state in which a call is refused. `undo` mends what had to be broken in Redis."""

    def __init__(self, client: Participant) -> None:
        self.client = client
        self.queue = client.queue()
        self.repeat: dict[str, Any] = {}
        self.undo = ExitStack()

    @cached_property
    def worker(self) -> WorkerHandle:
        """A worker that is driven step by step, opened where it is needed."""
        return self.client.worker()


SetupStep: TypeAlias = Callable[[RefusalSetup], None]
RefusedCall: TypeAlias = Callable[[RefusalSetup], object]


@dataclass(frozen=True)
class Refusal:
    """A script refuses a call with a code.

    `steps` lead to the state in which it does so. `reported_as`: the error code that the driver has to return where it
    is not the one that belongs to the script's code.
    """

    script: str
    code: ErrorCode
    steps: tuple[SetupStep, ...]
    call: RefusedCall
    reported_as: str = ""

    @property
    def error_code(self) -> str:
        """The error code that the driver has to return."""
        return self.reported_as or DRIVER_CODES[self.code]

    @contextmanager
    def prepared(self, client: Participant) -> Iterator[RefusalSetup]:
        """Everything up to the call; at the end what was broken is mended."""
        setup = RefusalSetup(client)
        with setup.undo:
            for step in self.steps:
                step(setup)
            yield setup

    def __str__(self) -> str:
        """For the id of the scenario."""
        return f"{self.script}:{self.code.name.lower().replace('_', '-')}"


# Steps that lead to a refusal.


def _add_job(setup: RefusalSetup) -> None:
    setup.queue.add()


def _add_retriable(setup: RefusalSetup) -> None:
    setup.queue.add(attempts=2)


def _claim_job(setup: RefusalSetup) -> None:
    """Job 1 runs, and has another attempt."""
    _add_retriable(setup)
    setup.worker.claim_one(TOKEN)


def _add_child(setup: RefusalSetup) -> None:
    """Job 1 has a child that it can wait for."""
    setup.queue.add(jobId="child", parent=_as_parent(setup, "1"))


def _fail_child(setup: RefusalSetup) -> None:
    """A child of job 1 has failed, and job 1 with it."""
    setup.queue.add(jobId="child", parent=_as_parent(setup, "1"), failParentOnFailure=True)
    setup.worker.claim_one(TOKEN)
    setup.worker.fail("child")


def _lose_hash(setup: RefusalSetup, name: str = "1") -> None:
    """The hash of a job is gone, as after an eviction."""
    lost = setup.queue.redis.hash(name)
    setup.queue.redis.delete(name)
    for field, value in reversed(lost.items()):  # what is undone last was done first: the fields keep their order
        setup.undo.callback(setup.queue.redis.set_field, name, field, value)


def _lose_lock(setup: RefusalSetup) -> None:
    setup.queue.redis.delete("1:lock")


def _steal_lock(setup: RefusalSetup) -> None:
    setup.queue.redis.set_string("1:lock", "another token", ttl_ms=LATER_MS)


def _set_lock(setup: RefusalSetup) -> None:
    """Job 1 has the worker's lock, though nobody has claimed it."""
    setup.queue.redis.set_string("1:lock", TOKEN, ttl_ms=LATER_MS)
    setup.undo.callback(setup.queue.redis.delete, "1:lock")


def _add_flow(setup: RefusalSetup) -> None:
    setup.client.flow().add(node("parent", node("child")))


def _add_families(setup: RefusalSetup) -> None:
    """There are two parents, and job c is a child of the first."""
    for parent in ("first", "second"):
        setup.client.flow().add(node(parent, node(f"child of {parent}")))
    setup.queue.add(jobId="c", parent=_as_parent(setup, "first"))


def _add_scheduler(setup: RefusalSetup) -> None:
    setup.queue.schedule("s", {"every": HOUR_MS})


def _take_the_time_of_a_pattern(setup: RefusalSetup) -> None:
    """A job of somebody else has the id that the scheduler's next job would have."""
    setup.repeat = YEARLY
    setup.queue.schedule("s", setup.repeat)
    setup.queue.add(jobId=_freed_id(setup))


def _take_two_slots_of_an_interval(setup: RefusalSetup) -> None:
    """Jobs of somebody else have the ids that the scheduler's next two jobs would have."""
    setup.repeat = {"every": HOUR_MS, "startDate": START_MS}
    setup.queue.schedule("s", setup.repeat)
    due = due_of(setup.queue)
    setup.queue.add(jobId=_freed_id(setup))
    setup.queue.add(jobId=f"repeat:s:{due + HOUR_MS}")


def _freed_id(setup: RefusalSetup) -> str:
    """Remove the scheduler with its job; the id that is free now."""
    taken = current_job(setup.queue)
    setup.queue.unschedule("s")
    return taken


def _as_parent(setup: RefusalSetup, name: str) -> dict[str, str]:
    return {"id": name, "queue": setup.queue.redis.base[:-1]}


# What is called then.


def _add_to_nobody(**opts: Any) -> RefusedCall:
    return lambda setup: setup.queue.add(parent=_as_parent(setup, "nobody"), **opts)


def _add_to_second(**opts: Any) -> RefusedCall:
    return lambda setup: setup.queue.add(jobId="c", parent=_as_parent(setup, "second"), **opts)


def _schedule(setup: RefusalSetup) -> object:
    return setup.queue.schedule("s", setup.repeat)


def _change_delay(name: str) -> RefusedCall:
    return lambda setup: setup.queue.call(job.ChangeDelay(job=name, delay_ms=LATER_MS))


def _change_priority(setup: RefusalSetup) -> object:
    return setup.queue.call(job.ChangePriority(job="nobody", priority=3))


def _remove_current_job(setup: RefusalSetup) -> object:
    return setup.queue.remove(current_job(setup.queue))


def _retry_by_hand(name: str) -> RefusedCall:
    return lambda setup: setup.queue.retry(name)


def _wait_until_finished(setup: RefusalSetup) -> object:
    events = setup.client.events()
    return setup.queue.call(job.WaitUntilFinished(job="nobody", events=events.handle, ttl_ms=2000))


def _obliterate(setup: RefusalSetup) -> object:
    return setup.queue.call(queue.Obliterate())


def _obliterate_while_it_is_resumed(setup: RefusalSetup) -> None:
    other = setup.client.queue()
    with setup.client.tap.hold("obliterate") as barrier:
        # The client pauses the queue before it calls the script: a resume before the barrier would change nothing.
        obliterating = setup.client.meanwhile(lambda: _obliterate(setup))
        barrier.wait()
        other.resume()
        barrier.release()
        obliterating.result()


def _complete(setup: RefusalSetup) -> object:
    return setup.worker.complete("1")


def _fail(setup: RefusalSetup) -> object:
    return setup.worker.fail("1")


def _move_to_delayed(setup: RefusalSetup) -> object:
    due = LATER_MS + setup.client.clock.now_ms()
    return setup.worker.call(worker.MoveToDelayed(job="1", token=TOKEN, timestamp=due))


def _move_to_wait(setup: RefusalSetup) -> object:
    return setup.worker.call(worker.MoveToWait(job="1", token=TOKEN))


def _await_children(setup: RefusalSetup) -> object:
    return setup.worker.wait_for_children("1")


def _unlink_child_while_losing(name: str) -> RefusedCall:
    """The hash of the child or of the parent is lost after the client has read the child, before the script runs."""

    def call(setup: RefusalSetup) -> None:
        with setup.client.tap.hold("removeChildDependency") as barrier:
            # Without the barrier the client could find the hash missing by itself, and never call the script.
            unlinking = setup.client.meanwhile(lambda: setup.queue.call(job.RemoveChildDependency(job="child")))
            barrier.wait()
            _lose_hash(setup, name)
            barrier.release()
            unlinking.result()

    return call


SLOTS_BUSY = Refusal("addJobScheduler", ErrorCode.SCHEDULER_SLOTS_BUSY, (_take_two_slots_of_an_interval,), _schedule)
"""Newer versions accept this call (`script.refused-call`)."""

REFUSALS: tuple[Refusal, ...] = (
    # Adding
    Refusal("addStandardJob", ErrorCode.MISSING_PARENT, (), _add_to_nobody()),
    Refusal("addStandardJob", ErrorCode.PARENT_REPLACED, (_add_families,), _add_to_second()),
    Refusal("addDelayedJob", ErrorCode.MISSING_PARENT, (), _add_to_nobody(delay=LATER_MS)),
    Refusal("addDelayedJob", ErrorCode.PARENT_REPLACED, (_add_families,), _add_to_second(delay=LATER_MS)),
    Refusal("addPrioritizedJob", ErrorCode.MISSING_PARENT, (), _add_to_nobody(priority=3)),
    Refusal("addPrioritizedJob", ErrorCode.PARENT_REPLACED, (_add_families,), _add_to_second(priority=3)),
    Refusal("addJobScheduler", ErrorCode.SCHEDULER_COLLISION, (_take_the_time_of_a_pattern,), _schedule),
    # Jobs
    Refusal("addLog", ErrorCode.MISSING_JOB, (), lambda setup: setup.queue.log("nobody", "a line")),
    Refusal("changeDelay", ErrorCode.MISSING_JOB, (), _change_delay("nobody")),
    Refusal("changePriority", ErrorCode.MISSING_JOB, (), _change_priority),
    Refusal("reprocessJob", ErrorCode.MISSING_JOB, (), _retry_by_hand("nobody")),
    Refusal("updateData", ErrorCode.MISSING_JOB, (), lambda setup: setup.queue.update_data("nobody", {})),
    Refusal("updateProgress", ErrorCode.MISSING_JOB, (), lambda setup: setup.queue.progress("nobody", 1)),
    Refusal("isFinished", ErrorCode.MISSING_JOB, (), _wait_until_finished),
    Refusal("changeDelay", ErrorCode.WRONG_STATE, (_add_job,), _change_delay("1")),
    Refusal("promote", ErrorCode.WRONG_STATE, (_add_job,), lambda setup: setup.queue.promote("1")),
    Refusal("reprocessJob", ErrorCode.WRONG_STATE, (_add_job,), _retry_by_hand("1")),
    Refusal("removeJob", ErrorCode.SCHEDULER_JOB, (_add_scheduler,), _remove_current_job),
    # Obliterating: of this script -1 means that the queue is not paused, and -2 that jobs are active.
    Refusal("obliterate", ErrorCode.MISSING_JOB, (_add_job,), _obliterate_while_it_is_resumed, reported_as="other"),
    Refusal("obliterate", ErrorCode.MISSING_LOCK, (_claim_job,), _obliterate, reported_as="other"),
    # Finishing
    Refusal("moveToFinished", ErrorCode.MISSING_JOB, (_claim_job, _lose_hash), _complete),
    Refusal("moveToFinished", ErrorCode.MISSING_LOCK, (_claim_job, _lose_lock), _complete),
    Refusal("moveToFinished", ErrorCode.LOCK_MISMATCH, (_claim_job, _steal_lock), _complete),
    Refusal("moveToFinished", ErrorCode.WRONG_STATE, (_add_retriable, _set_lock), _complete),
    Refusal("retryJob", ErrorCode.MISSING_JOB, (_claim_job, _lose_hash), _fail),
    Refusal("retryJob", ErrorCode.MISSING_LOCK, (_claim_job, _lose_lock), _fail),
    Refusal("retryJob", ErrorCode.LOCK_MISMATCH, (_claim_job, _steal_lock), _fail),
    Refusal("retryJob", ErrorCode.WRONG_STATE, (_add_retriable, _set_lock), _fail),
    Refusal("moveToDelayed", ErrorCode.MISSING_JOB, (_claim_job, _lose_hash), _move_to_delayed),
    Refusal("moveToDelayed", ErrorCode.MISSING_LOCK, (_claim_job, _lose_lock), _move_to_delayed),
    Refusal("moveToDelayed", ErrorCode.LOCK_MISMATCH, (_claim_job, _steal_lock), _move_to_delayed),
    Refusal("moveToDelayed", ErrorCode.WRONG_STATE, (_add_retriable, _set_lock), _move_to_delayed),
    Refusal("moveJobFromActiveToWait", ErrorCode.MISSING_JOB, (_claim_job, _lose_hash), _move_to_wait),
    Refusal("moveJobFromActiveToWait", ErrorCode.MISSING_LOCK, (_claim_job, _lose_lock), _move_to_wait),
    Refusal("moveJobFromActiveToWait", ErrorCode.LOCK_MISMATCH, (_claim_job, _steal_lock), _move_to_wait),
    Refusal("moveToWaitingChildren", ErrorCode.MISSING_JOB, (_claim_job, _lose_hash), _await_children),
    Refusal("moveToWaitingChildren", ErrorCode.MISSING_LOCK, (_claim_job, _add_child, _lose_lock), _await_children),
    Refusal("moveToWaitingChildren", ErrorCode.LOCK_MISMATCH, (_claim_job, _add_child, _steal_lock), _await_children),
    Refusal("moveToWaitingChildren", ErrorCode.WRONG_STATE, (_add_retriable, _add_child, _set_lock), _await_children),
    # Flows
    Refusal("moveToFinished", ErrorCode.PENDING_DEPENDENCIES, (_claim_job, _add_child), _complete),
    Refusal("moveToFinished", ErrorCode.FAILED_CHILDREN, (_claim_job, _fail_child), _complete),
    Refusal("moveToWaitingChildren", ErrorCode.FAILED_CHILDREN, (_claim_job, _fail_child), _await_children),
    Refusal("removeChildDependency", ErrorCode.MISSING_JOB, (_add_flow,), _unlink_child_while_losing("child")),
    Refusal("removeChildDependency", ErrorCode.MISSING_PARENT, (_add_flow,), _unlink_child_while_losing("parent")),
)
"""Every refusal that a client can reach: the script, its code, the steps that lead to it, and the call."""
