"""Calls that official scripts refuse, each with the steps that lead to its refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from conformance.driver.ops import job, queue, worker
from conformance.participants.participant import Participant
from conformance.protocol.scripts import DRIVER_CODES, ErrorCode
from conformance.scenarios.support.prepared_queue import PreparedQueue, Step
from conformance.scenarios.support.steps import HOUR_MS, START_MS, YEARLY, current_job, due_of, node

LATER_MS = 60_000
TOKEN = "token-1"
HOURLY = {"every": HOUR_MS, "startDate": START_MS}


@dataclass(frozen=True)
class Refusal:
    """A script refuses a call with a code.

    `steps` lead to the state in which it does so. `reported_as`: the error code that the driver has to return, if it is
    not the one of the script's code.
    """

    script: str
    code: ErrorCode
    steps: tuple[Step, ...]
    call: Step
    reported_as: str = ""

    @property
    def error_code(self) -> str:
        """The error code that the driver has to return."""
        return self.reported_as or DRIVER_CODES[self.code]

    @contextmanager
    def prepared(self, client: Participant) -> Iterator[PreparedQueue]:
        """Do everything up to the call, and at the end repair what the steps damaged."""
        prepared = PreparedQueue(client)
        with prepared.undo:
            for step in self.steps:
                step(prepared)
            yield prepared

    def __str__(self) -> str:
        """For the id of the scenario."""
        return f"{self.script}:{self.code.name.lower().replace('_', '-')}"


# Steps that lead to a refusal.


def _add_job(prepared: PreparedQueue) -> None:
    prepared.queue.add()


def _add_retriable(prepared: PreparedQueue) -> None:
    prepared.queue.add(attempts=2)


def _claim_job(prepared: PreparedQueue) -> None:
    """Job 1 runs, and has another attempt."""
    _add_retriable(prepared)
    prepared.worker.claim_one(TOKEN)


def _add_child(prepared: PreparedQueue) -> None:
    """Job 1 has a child that it can wait for."""
    prepared.queue.add(jobId="child", parent=prepared.as_parent("1"))


def _fail_child(prepared: PreparedQueue) -> None:
    """A child of job 1 has failed, and job 1 with it."""
    prepared.queue.add(jobId="child", parent=prepared.as_parent("1"), failParentOnFailure=True)
    prepared.worker.claim_one(TOKEN)
    prepared.worker.fail("child")


def _lose_hash(prepared: PreparedQueue, name: str = "1") -> None:
    """The hash of a job is gone, as after an eviction."""
    lost = prepared.queue.redis.hash(name)
    prepared.queue.redis.delete(name)
    for field, value in reversed(lost.items()):  # an ExitStack runs in reverse: the fields keep their order
        prepared.undo.callback(prepared.queue.redis.set_field, name, field, value, of_lost_job=True)


def _lose_lock(prepared: PreparedQueue) -> None:
    prepared.queue.redis.delete("1:lock")


def _steal_lock(prepared: PreparedQueue) -> None:
    # With a TTL, because a lock that never expires breaks an invariant.
    prepared.queue.redis.set_string("1:lock", "another token", ttl_ms=LATER_MS)


def _set_lock(prepared: PreparedQueue) -> None:
    """Job 1 has the worker's lock, but no worker has claimed it."""
    prepared.queue.redis.set_string("1:lock", TOKEN, ttl_ms=LATER_MS)
    # The lock was never claimed, so the steps have to remove it.
    prepared.undo.callback(prepared.queue.redis.delete, "1:lock")


def _add_flow(prepared: PreparedQueue) -> None:
    prepared.client.flow().add(node("parent", node("child")))


def _add_families(prepared: PreparedQueue) -> None:
    """There are two parents, and job c is a child of the first."""
    for parent in ("first", "second"):
        prepared.client.flow().add(node(parent, node(f"child of {parent}")))
    prepared.queue.add(jobId="c", parent=prepared.as_parent("first"))


def _add_scheduler(prepared: PreparedQueue) -> None:
    prepared.queue.schedule("s", {"every": HOUR_MS})


def _take_the_time_of_a_pattern(prepared: PreparedQueue) -> None:
    """Another job has the id that the scheduler's next job would have."""
    prepared.queue.schedule("s", YEARLY)
    prepared.queue.add(jobId=_freed_id(prepared))


def _take_two_slots(prepared: PreparedQueue) -> None:
    """Other jobs have the ids that the scheduler's next two jobs would have."""
    prepared.queue.schedule("s", HOURLY)
    due = due_of(prepared.queue)
    prepared.queue.add(jobId=_freed_id(prepared))
    # The slot after the first as well: the script tries the next one before it refuses.
    prepared.queue.add(jobId=f"repeat:s:{due + HOUR_MS}")


def _freed_id(prepared: PreparedQueue) -> str:
    """Remove the scheduler with its job. Returns the id that is free now."""
    taken = current_job(prepared.queue)
    prepared.queue.unschedule("s")
    return taken


# The calls.


def _add_to_missing(**opts: Any) -> Step:
    return lambda prepared: prepared.queue.add(parent=prepared.as_parent("missing"), **opts)


def _add_to_second(**opts: Any) -> Step:
    return lambda prepared: prepared.queue.add(jobId="c", parent=prepared.as_parent("second"), **opts)


def _schedule(repeat: dict[str, Any]) -> Step:
    return lambda prepared: prepared.queue.schedule("s", repeat)


def _change_delay(name: str) -> Step:
    return lambda prepared: prepared.queue.call(job.ChangeDelay(job=name, delay_ms=LATER_MS))


def _change_priority(prepared: PreparedQueue) -> object:
    return prepared.queue.call(job.ChangePriority(job="missing", priority=3))


def _remove_current_job(prepared: PreparedQueue) -> object:
    return prepared.queue.remove(current_job(prepared.queue))


def _retry_by_hand(name: str) -> Step:
    return lambda prepared: prepared.queue.retry(name)


def _wait_until_finished(prepared: PreparedQueue) -> object:
    events = prepared.client.events()
    # Short: the job does not exist, so the answer must come at once.
    return prepared.queue.call(job.WaitUntilFinished(job="missing", events=events.handle, ttl_ms=2000))


def _obliterate(prepared: PreparedQueue) -> object:
    return prepared.queue.call(queue.Obliterate())


def _obliterate_while_it_is_resumed(prepared: PreparedQueue) -> None:
    other = prepared.client.queue()
    with prepared.client.tap.hold("obliterate") as barrier:
        # The client pauses the queue before it calls the script: a resume before the barrier would change nothing.
        obliterating = prepared.client.meanwhile(lambda: _obliterate(prepared))
        barrier.wait()
        other.resume()
        barrier.release()
        obliterating.result()


def _complete(prepared: PreparedQueue) -> object:
    return prepared.worker.complete("1")


def _fail(prepared: PreparedQueue) -> object:
    return prepared.worker.fail("1")


def _move_to_delayed(prepared: PreparedQueue) -> object:
    # By the participant's clock, because the script takes the due time from the client.
    due = LATER_MS + prepared.client.clock.now_ms()
    return prepared.worker.call(worker.MoveToDelayed(job="1", token=TOKEN, timestamp=due))


def _move_to_wait(prepared: PreparedQueue) -> object:
    return prepared.worker.call(worker.MoveToWait(job="1", token=TOKEN))


def _await_children(prepared: PreparedQueue) -> object:
    return prepared.worker.wait_for_children("1")


def _unlink_child_while_losing(name: str) -> Step:
    """The hash of the child or of the parent is lost after the client has read the child, before the script runs."""

    def call(prepared: PreparedQueue) -> None:
        with prepared.client.tap.hold("removeChildDependency") as barrier:
            # Without the barrier the client could find the hash missing by itself, and never call the script.
            unlinking = prepared.client.meanwhile(lambda: prepared.queue.call(job.RemoveChildDependency(job="child")))
            barrier.wait()
            _lose_hash(prepared, name)
            barrier.release()
            unlinking.result()

    return call


SLOTS_BUSY = Refusal("addJobScheduler", ErrorCode.SCHEDULER_SLOTS_BUSY, (_take_two_slots,), _schedule(HOURLY))
"""Newer versions accept this call (`script.refused-call`)."""

REFUSALS: tuple[Refusal, ...] = (
    # Adding
    Refusal("addStandardJob", ErrorCode.MISSING_PARENT, (), _add_to_missing()),
    Refusal("addStandardJob", ErrorCode.PARENT_REPLACED, (_add_families,), _add_to_second()),
    Refusal("addDelayedJob", ErrorCode.MISSING_PARENT, (), _add_to_missing(delay=LATER_MS)),
    Refusal("addDelayedJob", ErrorCode.PARENT_REPLACED, (_add_families,), _add_to_second(delay=LATER_MS)),
    Refusal("addPrioritizedJob", ErrorCode.MISSING_PARENT, (), _add_to_missing(priority=3)),
    Refusal("addPrioritizedJob", ErrorCode.PARENT_REPLACED, (_add_families,), _add_to_second(priority=3)),
    Refusal("addJobScheduler", ErrorCode.SCHEDULER_COLLISION, (_take_the_time_of_a_pattern,), _schedule(YEARLY)),
    # Jobs
    Refusal("addLog", ErrorCode.MISSING_JOB, (), lambda prepared: prepared.queue.log("missing", "a line")),
    Refusal("changeDelay", ErrorCode.MISSING_JOB, (), _change_delay("missing")),
    Refusal("changePriority", ErrorCode.MISSING_JOB, (), _change_priority),
    Refusal("reprocessJob", ErrorCode.MISSING_JOB, (), _retry_by_hand("missing")),
    Refusal("updateData", ErrorCode.MISSING_JOB, (), lambda prepared: prepared.queue.update_data("missing", {})),
    Refusal("updateProgress", ErrorCode.MISSING_JOB, (), lambda prepared: prepared.queue.progress("missing", 1)),
    Refusal("isFinished", ErrorCode.MISSING_JOB, (), _wait_until_finished),
    Refusal("changeDelay", ErrorCode.WRONG_STATE, (_add_job,), _change_delay("1")),
    Refusal("promote", ErrorCode.WRONG_STATE, (_add_job,), lambda prepared: prepared.queue.promote("1")),
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
