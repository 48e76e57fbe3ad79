"""Workers that are stopped while a reply is on its way to them: held by the tap, and without holding it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from conformance.driver.errors import OperationFailed, OperationIndeterminate
from conformance.driver.ops.worker import PauseWorker, ResumeWorker
from conformance.participants.expect import Mismatch, equal, one_of
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario, shared
from conformance.participants.participant import Participant
from conformance.participants.tap import HeldCommand
from conformance.scenarios.support.races import (
    AFTER_EXECUTE,
    BEFORE_SEND,
    ROUNDS,
    HeldPhase,
    let_arrive,
    wait_for_blocking,
)
from conformance.scenarios.support.steps import fill


@pytest.mark.parametrize("when", [BEFORE_SEND, AFTER_EXECUTE])
@scenario("race.close-and-fetch", clock="real")
def test_closing_meets_a_fetch(client: Participant, when: HeldPhase) -> None:
    """The job that the fetch brings is run, and the close waits for its end."""
    queue = client.queue()
    queue.add("just in time")
    with client.tap.hold("moveToActive", phase=when) as barrier:
        # Long enough that the close is called while the job runs.
        worker = client.worker("sleep", processor_args={"ms": 150})
        _stop_while_held(client, queue, barrier, worker.close)
    equal(queue.redis.state("1"), ["completed"], "the job is completed when the worker is closed")


@pytest.mark.parametrize("when", [BEFORE_SEND, AFTER_EXECUTE])
@scenario("race.worker-pause-and-fetch", clock="real")
def test_pausing_a_worker_meets_its_fetch(client: Participant, when: HeldPhase) -> None:
    """The job that the fetch brings is run, the pause waits for it, and no other job is fetched."""
    queue = client.queue()
    queue.add("just in time")
    queue.add("too late")
    with client.tap.hold("moveToActive", phase=when) as barrier:
        worker = client.worker("sleep", processor_args={"ms": 150})
        _stop_while_held(client, queue, barrier, lambda: worker.call(PauseWorker()))
    equal(queue.redis.state("1"), ["completed"], "the job is completed when the worker is paused")
    equal(queue.redis.state("2"), ["wait"], "the other one still waits")
    worker.close()


@scenario("race.close-and-fetch", clock="real", compare=False)
def test_closing_meets_what_a_finish_fetches(client: Participant) -> None:
    """The jobs that two ends bring at the same time are both run, and the close waits for them."""
    queue = client.queue()
    _stop_while_finishing(client, queue, lambda worker: worker.close())
    equal(queue.redis.elements("active"), [], "nothing is active when the worker is closed")


@scenario("race.worker-pause-and-fetch", clock="real", compare=False)
def test_pausing_meets_what_a_finish_fetches(client: Participant) -> None:
    """The jobs that two ends bring at the same time are both run, and the pause waits for them."""
    queue = client.queue()
    worker = _stop_while_finishing(client, queue, lambda worker: worker.call(PauseWorker()))
    equal(queue.redis.elements("active"), [], "nothing is active when the worker is paused")
    worker.close()


MOST_LOOKS = 50
"""Each takes a few ms. The two jobs end at about the same time."""


def _stop_while_finishing(
    client: Participant, queue: QueueHandle, stop: Callable[[WorkerHandle], object]
) -> WorkerHandle:
    """Stop a worker while two of its jobs end, whose ends fetch the next two jobs."""
    fill(queue, 4)
    with client.tap.hold("moveToFinished", phase=AFTER_EXECUTE) as barrier:
        worker = client.worker("sleep", processor_args={"ms": 100}, concurrency=2)
        barrier.wait()
        # Not required: a client that sends one command at a time waits for the reply that is held.
        for _ in range(MOST_LOOKS):
            if len(client.tap.calls("moveToFinished")) > 1:
                break
            let_arrive(queue)
        _stop_while_held(client, queue, barrier, lambda: stop(worker))
    return worker


@pytest.mark.parametrize("when", [BEFORE_SEND, AFTER_EXECUTE])
@scenario("race.close-and-read", clock="real", compare=False)
def test_closing_meets_a_read(client: Participant, when: HeldPhase) -> None:
    """A reader of events that is closed while its read is under way closes, and the program goes on."""
    queue = client.queue()
    with client.tap.hold("XREAD", phase=when) as barrier:
        reader = client.events()
        queue.add("read")
        barrier.wait()
        closing = client.meanwhile(reader.close)
        let_arrive(queue, closing)
        barrier.release()
        try:
            closing.result()
        except (OperationFailed, OperationIndeterminate) as failure:
            raise Mismatch("a reader that reads can be closed", expected="no error", actual=str(failure)) from failure
    # The reply comes when no reader is left.
    equal(queue.add("after"), "2", "the program goes on")


@pytest.mark.parametrize("when", [BEFORE_SEND, AFTER_EXECUTE])
@pytest.mark.parametrize("how", ["pause", "close"])
@scenario(
    "race.stop-and-wake-up",
    clock="real",
    compare=False,
    without={"base-marker": "the scenario itself checks it, for its own row"},
)
def test_stopping_meets_the_wake_up(client: Participant, how: str, when: HeldPhase) -> None:
    """The job that a worker was woken for is run, or there is a marker that wakes another worker."""
    queue = client.queue()
    with client.tap.hold(where=lambda sent: sent.waits_for_work, phase=when) as barrier:
        worker = client.worker("noop")
        # Add the job only now: earlier, the worker would fetch it without being woken.
        wait_for_blocking(client)
        queue.add("wakes")
        stop = worker.close if how == "close" else lambda: worker.call(PauseWorker())
        _stop_while_held(client, queue, barrier, stop)
    # Node may do either: what must not happen is a job that waits without a marker.
    one_of(queue.redis.state("1"), [["completed"], ["wait"]], "the job is run, or waits")
    equal(queue.redis.type("marker"), "zset", "the wake-up is not lost")


def _stop_while_held(client: Participant, queue: QueueHandle, barrier: HeldCommand, stop: Callable[[], object]) -> None:
    """Stop a worker while its command is held, release the command, and wait until the worker has stopped."""
    # Stopping before the barrier is reached would race with nothing: no reply is on its way to the worker yet.
    barrier.wait()
    stopping = client.meanwhile(stop)
    # If the command went on before the stop arrived, the worker would have its job before the stop.
    let_arrive(queue, stopping)
    barrier.release()
    stopping.result()


_WAKE_UP_LOST = {"base-marker": "Node loses a marker that reaches its worker while that worker gives up waiting"}


def _keep_jobs(queue: QueueHandle) -> None:
    """There is always something to fetch, and a marker that says so."""
    queue.add_bulk(*(("short", {}, {}) for _ in range(4)))


def _nothing_active(queue: QueueHandle, what: str, round_of: str) -> None:
    seed = queue.caller.driver.seed
    equal(queue.redis.elements("active"), [], f"{what} leaves nothing active ({round_of}, --seed {seed})")


@shared("race.close-and-fetch", tier="full", slow=True, without=_WAKE_UP_LOST)
def test_closes_meet_fetches(client: Participant, oracle: Participant) -> None:
    """A worker of either client is closed at any moment after its start, a hundred times each."""
    queue, random = client.queue(), Random(client.driver.seed)

    def live(participant: Participant, lifetime_ms: int) -> None:
        # A minute: only the check at the start runs within a round.
        worker = participant.worker("noop", stalledInterval=60_000)
        # 0 to 3 ms: a start and its first fetch take about as long.
        participant.pass_time(lifetime_ms)
        worker.close()

    # Half the rounds, because each opens and closes two workers.
    for number in range(1, ROUNDS // 2 + 1):
        _keep_jobs(queue)
        other = oracle.meanwhile(partial(live, oracle, random.randint(0, 3)))
        live(client, random.randint(0, 3))
        # Until the other worker is closed, it may rightly have an active job.
        other.result()
        _nothing_active(queue, "a worker that was closed", f"round {number} of {ROUNDS // 2}")


@shared("race.worker-pause-and-fetch", tier="full", slow=True, without=_WAKE_UP_LOST)
def test_worker_pauses_meet_fetches(client: Participant, oracle: Participant) -> None:
    """A worker of either client is paused at any moment after it was resumed, a hundred times each."""
    queue, random = client.queue(), Random(client.driver.seed)
    workers = [
        # The jobs take 20 ms, so that a pause usually meets a running one.
        participant.worker("sleep", processor_args={"ms": 20}, stalledInterval=60_000)
        for participant in (client, oracle)
    ]
    for worker in workers:
        # Both workers start paused, so that only the one whose turn it is takes jobs.
        worker.call(PauseWorker())
    for number in range(1, ROUNDS + 1):
        _keep_jobs(queue)
        worker = workers[number % 2]
        worker.call(ResumeWorker())
        client.pass_time(random.randint(0, 3))
        worker.call(PauseWorker())
        _nothing_active(queue, "a worker that was paused", f"round {number} of {ROUNDS}")
