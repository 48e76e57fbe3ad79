"""Workers that are paused or closed: what they still do, what they leave to others, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.driver.errors import OperationFailed, OperationUnsupported
from conformance.driver.ops.lifecycle import Role
from conformance.driver.ops.worker import IsWorkerPaused, Outcome, PauseWorker, ResumeWorker
from conformance.participants.expect import Mismatch, equal
from conformance.participants.handles import ParticipantHandle, QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.races import let_arrive, let_idle
from conformance.scenarios.support.steps import add_child, wait_for_finished

OUTCOMES: tuple[Outcome, ...] = ("complete", "fail", "delay", "wait", "waiting-children")


@pytest.mark.parametrize("outcome", OUTCOMES)
@scenario("liveness.close", clock="real", compare=False)
def test_a_job_that_ends_during_a_close_is_the_last(client: Participant, outcome: Outcome) -> None:
    """A worker that closes takes no other job, however its last one ends."""
    queue, worker = client.queue(), client.worker("ask")
    _end_while_stopping(client, queue, worker, outcome, worker.close)


@pytest.mark.parametrize("outcome", OUTCOMES)
@scenario("liveness.pause", clock="real", compare=False)
def test_a_job_that_ends_during_a_pause_is_the_last(client: Participant, outcome: Outcome) -> None:
    """A worker that is being paused takes no other job, however its last one ends."""
    queue, worker = client.queue(), client.worker("ask")
    _end_while_stopping(client, queue, worker, outcome, lambda: worker.call(PauseWorker()))
    worker.close()


def _end_while_stopping(
    client: Participant, queue: QueueHandle, worker: WorkerHandle, outcome: Outcome, stop: Callable[[], object]
) -> None:
    """End the running job while its worker waits for it in order to stop; another job waits."""
    queue.add("running", {}, jobId="running")
    worker.next_job()
    queue.add("waiting", {}, jobId="waiting")
    if outcome == "waiting-children":
        add_child(queue, "running", delay=60_000)
    stopping = client.meanwhile(stop)
    # An outcome that came before the stop would rightly let the worker take the next job.
    let_arrive(queue, stopping)
    worker.resolve("running", outcome, ms=60_000 if outcome == "delay" else 0)
    stopping.result()
    equal(queue.redis.elements("active"), [], "nothing is active when the worker has stopped")
    equal(queue.redis.state("waiting"), ["wait"], "the other job was left to others")


@scenario("liveness.pause", clock="real", compare=False)
def test_a_paused_worker_takes_nothing(client: Participant) -> None:
    """It leaves every job to another worker until it is resumed."""
    queue = client.queue()
    paused = client.worker("echo")
    paused.wait_local("completed", queue.add("before"))
    paused.call(PauseWorker())
    busy = client.worker("noop")
    jobs = [queue.add(f"job {number}", {"by": "paused"}) for number in range(12)]
    for job in jobs:
        busy.wait_local("completed", job)
    # Distinguished by their results, because a worker need not sign its jobs to leave them alone.
    taken = [job for job in jobs if queue.redis.json(job, "returnvalue") == {"by": "paused"}]
    equal(taken, [], "the paused worker has run no job")
    busy.close()
    paused.call(ResumeWorker())
    paused.wait_local("completed", queue.add("after"))
    paused.close()


@scenario("liveness.pause", clock="real", compare=False)
def test_an_idle_worker_pauses_at_once(client: Participant) -> None:
    """It waits for no job and for no marker."""
    queue = client.queue()
    # 30 s of blocking: a pause that waits for the blocking call misses the deadline by far.
    worker = client.worker("noop", drainDelay=30)
    worker.wait_local("completed", queue.add("before"))
    client.meanwhile(lambda: worker.call(PauseWorker())).result(within_ms=1500)
    worker.close()


@pytest.mark.parametrize("when", ["idle", "busy"])
@scenario("liveness.pause", clock="real", compare=False, bullmq=">=5.73.5")
def test_a_pause_that_waits_for_no_job_is_undone(client: Participant, when: str) -> None:
    """A resume makes the worker take jobs again, also if its loop has not stopped yet."""
    queue, worker = client.queue(), client.worker("ask")
    queue.add("first")
    first = worker.next_job().job.id
    if when == "idle":
        worker.resolve(first)
        worker.wait_local("completed", first)
    worker.call(PauseWorker(do_not_wait_active=True))
    equal(worker.call(IsWorkerPaused()).value, True, "it is paused")
    worker.call(ResumeWorker())
    equal(worker.call(IsWorkerPaused()).value, False, "it is no longer paused")
    second = queue.add("second")
    if when == "busy":
        worker.resolve(first)
    equal(worker.next_job().job.id, second, "it takes the next job")
    worker.resolve(second)
    worker.wait_local("completed", second)
    worker.close()


@scenario("liveness.pause", "liveness.no-crash", clock="real", compare=False)
def test_a_worker_without_a_processor_is_resumed(client: Participant) -> None:
    """The user fetches the jobs, so a resume has no loop to start."""
    queue, worker = client.queue(), client.worker()
    worker.call(PauseWorker())
    worker.call(ResumeWorker())
    job = queue.add("work")
    equal(worker.claim_one().id, job, "its user can fetch jobs again")
    worker.complete(job)
    equal(worker.uncaught(), [], "no error ends the process", where="client.uncaught")


@pytest.mark.parametrize("paused", [False, True], ids=["runs", "paused"])
@scenario("liveness.events", clock="real", compare=False)
def test_a_close_resumes_nothing(client: Participant, paused: bool) -> None:
    """A worker that closes, paused or not, is not resumed before."""
    queue, worker = client.queue(), client.worker("noop")
    worker.wait_local("completed", queue.add("before"))
    if paused:
        worker.call(PauseWorker())
        worker.wait_local("paused")
    worker.close()
    equal([event for event in worker.local_events() if event.name == "resumed"], [], "no event says that it resumes")


@pytest.mark.parametrize("concurrency", [1, 3])
@scenario("liveness.events", clock="real", compare=False)
def test_every_job_is_reported_once(client: Participant, concurrency: int) -> None:
    """Each start and each end of a job has its event, however the worker came by the job."""
    queue = client.queue()
    jobs = queue.add_bulk(*(("fine", {"steps": []}, {}) for _ in range(10)))
    jobs += queue.add_bulk(*(("bad", {"steps": [{"do": "fail", "message": "no"}]}, {}) for _ in range(10)))
    worker = client.worker("steps", concurrency=concurrency)
    wait_for_finished(client, 10)
    wait_for_finished(client, 10, state="failed")
    # The close waits for the ends of the jobs, and so for their events.
    worker.close()
    reported: dict[str, list[str]] = {"active": [], "completed": [], "failed": []}
    for event in worker.local_events():
        if event.name in reported:
            reported[event.name].append(str(event.args.get("job")))
    for name, expected in (("active", jobs), ("completed", jobs[:10]), ("failed", jobs[10:])):
        # The protocol needs no worker to report `active` at all.
        if reported[name] or name != "active":
            equal(sorted(reported[name], key=int), expected, f"one event {name} for each of these jobs")


@scenario("liveness.events", clock="real", compare=False, bullmq=">=5.73.4")
def test_a_job_fetched_by_hand_is_reported(client: Participant) -> None:
    """A listener learns of a job that the user of the worker fetches without a loop."""
    if client.uses_loop_workers:
        raise OperationUnsupported("worker.getNextJob", "this client fetches jobs in its loop only")
    queue, worker = client.queue(), client.worker()
    job = queue.add("work")
    worker.claim_one()
    # The answer to the next call comes after the event.
    worker.complete(job)
    active = [event.args.get("job") for event in worker.local_events() if event.name == "active"]
    equal(active, [job], "one event active for the job")


CONNECTING: tuple[Role, ...] = ("worker", "queue", "flow")
"""Objects that a program may close while they connect. Node's reader of events waits until it is connected."""
WORKERS_BEFORE_6 = {"worker": "<6"}
"""From 6.0 on, a worker of Node waits until it is connected as well."""


@pytest.mark.parametrize("what", CONNECTING)
@scenario("liveness.close-ends", clock="real", compare=False, cases=WORKERS_BEFORE_6)
def test_a_close_waits_for_no_connection(client: Participant, what: Role) -> None:
    """A program that cannot reach Redis can stop."""
    _close_while_connecting(client, what)


@pytest.mark.parametrize("what", CONNECTING)
@scenario("liveness.close-connections", clock="real", compare=False, cases=WORKERS_BEFORE_6)
def test_a_close_while_connecting_leaves_no_connection(client: Participant, what: Role) -> None:
    """A program that stops at once leaves nothing behind."""
    client.queue()
    once = len(client.tap.connections())
    _close_while_connecting(client, what)
    client.eventually(
        lambda: len(client.tap.connections()), lambda left: left <= once, "closed handles keep no connection"
    )


@pytest.mark.parametrize("what", CONNECTING)
@scenario("liveness.close-quiet", clock="real", compare=False, cases=WORKERS_BEFORE_6)
def test_a_close_while_connecting_is_no_error(client: Participant, what: Role) -> None:
    """A listener learns of no error if the program stops at once: the close was asked for."""
    handle = _close_while_connecting(client, what)
    errors = [event.args for event in client.take_events(handle.handle) if event.name == "error"]
    equal(errors, [], "no error is emitted")


@scenario(
    "liveness.close-quiet",
    clock="real",
    compare=False,
    without={"base-marker": "the worker that took the marker is gone, and its claim may be cut before Redis sees it"},
)
def test_a_forced_close_during_a_claim_is_no_error(client: Participant) -> None:
    """A worker has just been woken, and its claim cannot end any more: the close was asked for."""
    queue, worker = client.queue(), client.worker("noop")
    worker.wait_local("completed", queue.add("before"))
    let_idle(client)
    if client.on_cluster:
        # ioredis waits for the reply of a claim, as long as the node is there.
        worker.close(force=True, within_ms=8000)
        equal(worker.errors(), [], "no error is emitted")
        return
    with client.tap.hold("moveToActive") as barrier:
        queue.add("work")
        claim = barrier.wait()
        worker.close(force=True, within_ms=8000)
        # A library may leave what is under way some time to end.
        client.tap.disconnect(connection=claim.connection)
        client.eventually(
            lambda: [view.number for view in client.tap.connections()],
            lambda open_now: claim.connection not in open_now,
            "the connection of the claim is closed",
        )
    let_arrive(queue)
    equal(worker.errors(), [], "no error is emitted")


def _close_while_connecting(client: Participant, what: Role) -> ParticipantHandle:
    """Close an object whose first command Redis has not seen yet, and then let the command go on.

    Raises OperationUnsupported if the driver knows the object only when it is connected, or connects it only later.
    """
    with client.tap.hold(call=None) as barrier:
        handle = client.opening(what, "noop" if what == "worker" else None)
        try:
            barrier.wait()
        except Mismatch:
            raise OperationUnsupported("open", f"this client sends nothing when it opens a {what}") from None
        try:
            # A close that waits for Redis does not end before the block does.
            handle.close(within_ms=8000)
        except OperationFailed as failure:
            raise OperationUnsupported("close", "this driver closes only what is connected") from failure
    # Without the result of the opening: it may be refused or not, because the object was closed before it was ready.
    client.settle()
    return handle
