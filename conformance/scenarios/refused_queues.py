"""Calls of queues that scripts refuse: adding, schedulers, single jobs, obliterating."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from conformance.driver.ops import job, queue
from conformance.participants.handles import QueueHandle
from conformance.participants.participant import Participant
from conformance.protocol.errors import ErrorCode
from conformance.scenarios.flow_steps import node
from conformance.scenarios.refusal_steps import (
    LATER_MS,
    Attempt,
    Prepare,
    Refusal,
    claimed,
    parent_of,
)
from conformance.scenarios.scheduler_steps import HOUR_MS, current_job, due_of


def refusals_of_queues() -> Iterator[Refusal]:
    """All of them, by script."""
    yield from _of_adding()
    yield from _of_jobs()
    yield from _of_obliterating()


# Adding


def _of_adding() -> Iterator[Refusal]:
    for script, opts in (
        ("addStandardJob", {}),
        ("addDelayedJob", {"delay": LATER_MS}),
        ("addPrioritizedJob", {"priority": 3}),
    ):
        yield Refusal(script, ErrorCode.MISSING_PARENT, _below_nobody(opts))
        yield Refusal(script, ErrorCode.PARENT_REPLACED, _below_another_parent(opts))
    yield Refusal("addJobScheduler", ErrorCode.SCHEDULER_COLLISION, _schedule_where_a_job_is)
    yield Refusal("addJobScheduler", ErrorCode.SCHEDULER_SLOTS_BUSY, _schedule_where_two_jobs_are)


def _below_nobody(opts: dict[str, Any]) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs = client.queue()
        return Attempt(lambda: jobs.add(parent=parent_of(jobs, "nobody"), **opts))

    return prepare


def _below_another_parent(opts: dict[str, Any]) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs = client.queue()
        for parent in ("first", "second"):
            client.flow().add(node(parent, node(f"child of {parent}")))
        jobs.add(jobId="c", parent=parent_of(jobs, "first"))
        return Attempt(lambda: jobs.add(jobId="c", parent=parent_of(jobs, "second"), **opts))

    return prepare


def _schedule_where_a_job_is(client: Participant) -> Attempt:
    jobs = client.queue()
    pattern = {"pattern": "0 0 1 1 *", "tz": "UTC"}
    jobs.schedule("s", pattern)
    jobs.add(jobId=_free(jobs))
    return Attempt(lambda: jobs.schedule("s", pattern))


def _schedule_where_two_jobs_are(client: Participant) -> Attempt:
    jobs = client.queue()
    repeat = {"every": HOUR_MS, "startDate": client.clock.now_ms() + HOUR_MS}
    jobs.schedule("s", repeat)
    due = due_of(jobs)
    jobs.add(jobId=_free(jobs))
    jobs.add(jobId=f"repeat:s:{due + HOUR_MS}")
    return Attempt(lambda: jobs.schedule("s", repeat))


def _free(jobs: QueueHandle) -> str:
    """Remove the scheduler with its job, and answer the id that is free now."""
    taken = current_job(jobs)
    jobs.unschedule("s")
    return taken


# Single jobs


def _of_jobs() -> Iterator[Refusal]:
    missing: dict[str, Callable[[QueueHandle], object]] = {
        "addLog": lambda jobs: jobs.log("nobody", "a line"),
        "changeDelay": lambda jobs: jobs.call(job.ChangeDelay(job="nobody", delay_ms=LATER_MS)),
        "changePriority": lambda jobs: jobs.call(job.ChangePriority(job="nobody", priority=3)),
        "reprocessJob": lambda jobs: jobs.retry("nobody"),
        "updateData": lambda jobs: jobs.update_data("nobody", {}),
        "updateProgress": lambda jobs: jobs.progress("nobody", 1),
    }
    for script, attempt in missing.items():
        yield Refusal(script, ErrorCode.MISSING_JOB, _on_an_empty_queue(attempt))
    yield Refusal("isFinished", ErrorCode.MISSING_JOB, _wait_for_nobody)
    wrong: dict[str, Callable[[QueueHandle], object]] = {
        "changeDelay": lambda jobs: jobs.call(job.ChangeDelay(job="1", delay_ms=LATER_MS)),
        "promote": lambda jobs: jobs.promote("1"),
        "reprocessJob": lambda jobs: jobs.retry("1"),
    }
    for script, attempt in wrong.items():
        yield Refusal(script, ErrorCode.WRONG_STATE, _on_a_waiting_job(attempt))
    yield Refusal("removeJob", ErrorCode.SCHEDULER_JOB, _remove_a_schedulers_job)


def _on_an_empty_queue(attempt: Callable[[QueueHandle], object]) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs = client.queue()
        return Attempt(lambda: attempt(jobs))

    return prepare


def _on_a_waiting_job(attempt: Callable[[QueueHandle], object]) -> Prepare:
    def prepare(client: Participant) -> Attempt:
        jobs = client.queue()
        jobs.add()
        return Attempt(lambda: attempt(jobs))

    return prepare


def _wait_for_nobody(client: Participant) -> Attempt:
    jobs, events = client.queue(), client.events()
    return Attempt(lambda: jobs.call(job.WaitUntilFinished(job="nobody", events=events.handle, ttl_ms=2000)))


def _remove_a_schedulers_job(client: Participant) -> Attempt:
    jobs = client.queue()
    jobs.schedule("s", {"every": HOUR_MS})
    return Attempt(lambda: jobs.remove(current_job(jobs)))


# Queues


def _of_obliterating() -> Iterator[Refusal]:
    # Of this script -1 means that the queue is not paused, and -2 that jobs are active.
    yield Refusal("obliterate", ErrorCode.MISSING_JOB, _obliterate_while_it_is_resumed, told="other")
    yield Refusal("obliterate", ErrorCode.MISSING_LOCK, _obliterate_while_a_job_runs, told="other")


def _obliterate_while_it_is_resumed(client: Participant) -> Attempt:
    jobs, other = client.queue(), client.queue()
    jobs.add()

    def attempt() -> None:
        with client.tap.hold("obliterate") as barrier:
            obliterating = client.meanwhile(lambda: jobs.call(queue.Obliterate()))
            barrier.wait()
            other.resume()
            barrier.release()
            obliterating.result()

    return Attempt(attempt)


def _obliterate_while_a_job_runs(client: Participant) -> Attempt:
    jobs, _ = claimed(client)
    return Attempt(lambda: jobs.call(queue.Obliterate()))
