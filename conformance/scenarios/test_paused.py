"""While a queue is paused, each job that starts to wait is parked, and no worker is woken.

Before BullMQ 6 it is parked in `paused`; from then on it is in `wait`, and is not handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import let_stall

Requeue: TypeAlias = Callable[[QueueHandle, WorkerHandle], None]
"""Makes job 1 return to where jobs wait, while the queue is paused."""


def _by_stalling(queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.claim_one()
    queue.pause()
    let_stall(queue, worker, "1")


def _by_a_retry(queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.claim_one()
    queue.pause()
    worker.fail("1")


def _by_a_retry_by_hand(queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.claim_one()
    worker.complete("1")
    queue.pause()
    queue.retry("1", "completed")


def _by_a_retry_of_all(queue: QueueHandle, worker: WorkerHandle) -> None:
    worker.claim_one()
    worker.fail("1", unrecoverable=True)
    queue.pause()
    queue.call(queue_ops.RetryJobs())


REQUEUES: dict[str, Requeue] = {
    "stalling": _by_stalling,
    "retry": _by_a_retry,
    "retry-by-hand": _by_a_retry_by_hand,
    "retry-of-all": _by_a_retry_of_all,
}


@pytest.mark.parametrize("how", REQUEUES)
@scenario("paused.everything-parks", bullmq="<6")
def test_a_job_that_comes_back_is_parked(client: Participant, how: str) -> None:
    """A job that returns from `active`, `completed` or `failed` goes to `paused`, and runs after the resume."""
    queue, worker = client.queue(), client.worker()
    queue.add("returning", {}, attempts=3)
    REQUEUES[how](queue, worker)
    equal(queue.redis.state("1"), ["paused"], "the job is parked")
    queue.add("another")
    queue.resume()
    equal(sorted(queue.redis.elements("wait")), ["1", "2"], "both come back", where="row.pause.moves-wait")


@scenario("paused.everything-parks", bullmq="<6")
def test_a_promoted_job_is_parked(client: Participant) -> None:
    """Promoting by hand does not pass by the pause."""
    queue = client.queue()
    queue.add("later", {}, delay=60_000)
    queue.add("much later", {}, delay=90_000)
    queue.pause()
    queue.promote("1")
    equal(queue.redis.state("1"), ["paused"], "the promoted job is parked")
    queue.call(queue_ops.PromoteJobs())
    equal(queue.redis.state("2"), ["paused"], "a job promoted with the others is parked as well")


@scenario("paused.everything-parks", bullmq="<6")
def test_a_job_that_loses_its_priority_is_parked(client: Participant) -> None:
    """Priority 0 means `wait`, and so `paused`."""
    queue = client.queue()
    queue.add("urgent", {}, priority=3)
    queue.pause()
    queue.call(job_ops.ChangePriority(job="1", priority=0))
    equal(queue.redis.state("1"), ["paused"], "the job is parked")


@pytest.mark.parametrize("how", REQUEUES)
@scenario("paused.everything-parks", bullmq=">=6")
def test_a_job_that_comes_back_waits(client: Participant, how: str) -> None:
    """A job that returns from `active`, `completed` or `failed` goes to `wait`, and runs after the resume."""
    queue, worker = client.queue(), client.worker()
    queue.add("returning", {}, attempts=3)
    REQUEUES[how](queue, worker)
    equal(queue.redis.state("1"), ["wait"], "the job waits")
    equal(worker.claim("token-2"), None, "it is not handed out")
    queue.resume()
    equal(worker.claim_one("token-3").id, "1", "after the resume it is")


@scenario("paused.everything-parks", bullmq=">=6")
def test_a_promoted_job_waits(client: Participant) -> None:
    """Promoting by hand does not pass by the pause."""
    queue, worker = client.queue(), client.worker()
    queue.add("later", {}, delay=60_000)
    queue.add("much later", {}, delay=90_000)
    queue.pause()
    queue.promote("1")
    queue.call(queue_ops.PromoteJobs())
    equal((queue.redis.state("1"), queue.redis.state("2")), (["wait"], ["wait"]), "the promoted jobs wait")
    equal(queue.redis.type("marker"), "none", "no marker wakes a worker")
    equal(worker.claim(), None, "none is handed out")


@scenario("paused.everything-parks", bullmq=">=6")
def test_a_job_that_loses_its_priority_waits(client: Participant) -> None:
    """Priority 0 means `wait`."""
    queue, worker = client.queue(), client.worker()
    queue.add("urgent", {}, priority=3)
    queue.pause()
    queue.call(job_ops.ChangePriority(job="1", priority=0))
    equal(queue.redis.state("1"), ["wait"], "the job waits")
    equal(worker.claim(), None, "it is not handed out")


@scenario("paused.prioritized-no-marker")
def test_a_prioritized_job_wakes_nobody_while_paused(client: Participant) -> None:
    """The job waits in `prioritized`, and workers sleep on."""
    queue = client.queue()
    queue.pause()
    queue.add("urgent", {}, priority=3)
    equal(queue.redis.state("1"), ["prioritized"], "the job is in `prioritized`")
    equal(queue.redis.type("marker"), "none", "no marker wakes a worker", where="marker.base")


@scenario("paused.resume-prioritized")
def test_resuming_wakes_workers_for_prioritized_jobs(client: Participant) -> None:
    """A queue whose jobs are all prioritized is not asleep after the resume."""
    queue = client.queue()
    queue.pause()
    queue.add("urgent", {}, priority=3)
    queue.resume()
    equal(queue.redis.members("marker"), ["0"], "the base marker is set", where="marker.base")


@scenario("paused.counted", bullmq="<6")
def test_parked_jobs_are_counted(client: Participant) -> None:
    """A user sees the jobs of a paused queue."""
    queue = client.queue()
    queue.add("before")
    queue.pause()
    queue.add("after")
    queue.add("urgent", {}, priority=2)
    equal(len(queue.redis.elements("paused")), 2, "both are parked", where="row.paused.everything-parks")
    counts = queue.counts("paused", "prioritized", "delayed")
    equal((counts.get("paused"), counts.get("prioritized")), (2, 1), "parked jobs are counted as paused")
    equal(sorted(map(str, queue.jobs("paused"))), ["1", "2"], "they are listed as paused")
    equal(queue.state("1"), "waiting", "and its state is reported as waiting")
    priorities = queue.call(queue_ops.GetCountsPerPriority(priorities=[0, 2])).counts
    equal(priorities, {"0": 2, "2": 1}, "priority 0 counts the parked jobs")


@scenario("paused.counted", bullmq=">=6")
def test_jobs_of_a_paused_queue_are_counted_as_waiting(client: Participant) -> None:
    """A user sees the jobs of a paused queue where they are."""
    queue = client.queue()
    queue.add("before")
    queue.pause()
    queue.add("after")
    queue.add("urgent", {}, priority=2)
    counts = queue.counts("wait", "paused", "prioritized")
    equal([counts.get(name) for name in ("wait", "paused", "prioritized")], [2, 0, 1], "they are counted as waiting")
    equal(sorted(map(str, queue.jobs("wait"))), ["1", "2"], "they are listed as waiting")
    equal(queue.state("1"), "waiting", "and its state is reported as waiting")
    priorities = queue.call(queue_ops.GetCountsPerPriority(priorities=[0, 2])).counts
    equal(priorities, {"0": 2, "2": 1}, "priority 0 counts the waiting jobs")


@scenario("paused.drained")
def test_draining_a_paused_queue(client: Participant) -> None:
    """Parked jobs are jobs that wait."""
    queue = client.queue()
    queue.add("before")
    queue.pause()
    queue.add("after")
    queue.call(queue_ops.Drain())
    equal((queue.redis.exists("1"), queue.redis.exists("2")), (False, False), "the parked jobs are gone")
