"""Workers that are told to stop while something is on its way to them: held, and without anybody who holds them up."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from conformance.driver.ops.worker import PauseWorker, ResumeWorker
from conformance.participants.expect import equal, one_of
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario, shared
from conformance.participants.participant import Participant
from conformance.scenarios.free_running import ROUNDS
from conformance.scenarios.race_steps import LATE, UNHEARD, Moment, let_arrive


@pytest.mark.parametrize("when", [LATE, UNHEARD])
@scenario("race.close-and-fetch", clock="real")
def test_closing_meets_a_fetch(client: Participant, when: Moment) -> None:
    """The job that the fetch brings is run, and the close waits for its end."""
    queue = client.queue()
    queue.add("just in time")
    with client.tap.hold("moveToActive", phase=when) as barrier:
        worker = client.worker("sleep", processor_args={"ms": 150})
        barrier.wait()
        closing = client.meanwhile(worker.close)
        let_arrive(queue)
        barrier.release()
        closing.result()
    equal(queue.redis.state("1"), ["completed"], "the job is completed when the worker is closed")


@pytest.mark.parametrize("when", [LATE, UNHEARD])
@scenario("race.worker-pause-and-fetch", clock="real")
def test_pausing_a_worker_meets_its_fetch(client: Participant, when: Moment) -> None:
    """The job that the fetch brings is run, the pause waits for it, and no other job is fetched."""
    queue = client.queue()
    queue.add("just in time")
    queue.add("too late")
    with client.tap.hold("moveToActive", phase=when) as barrier:
        worker = client.worker("sleep", processor_args={"ms": 150})
        barrier.wait()
        pausing = client.meanwhile(lambda: worker.call(PauseWorker()))
        let_arrive(queue)
        barrier.release()
        pausing.result()
    equal(queue.redis.state("1"), ["completed"], "the job is completed when the worker is paused")
    equal(queue.redis.state("2"), ["wait"], "the other one still waits")
    worker.close()


@pytest.mark.parametrize("when", [LATE, UNHEARD])
@pytest.mark.parametrize("how", ["pause", "close"])
@scenario(
    "race.stop-and-wake-up",
    clock="real",
    compare=False,
    without={"base-marker": "what the scenario itself looks at, for its own row"},
)
def test_stopping_meets_the_wake_up(client: Participant, how: str, when: Moment) -> None:
    """The job that a worker was woken for is run, or there is a marker that wakes another worker."""
    queue = client.queue()
    with client.tap.hold("BZPOPMIN", phase=when) as barrier:
        worker = client.worker("noop")
        client.tap.wait_for(lambda command: command.name == "BZPOPMIN")
        queue.add("wakes")
        barrier.wait()
        stopping = client.meanwhile(worker.close if how == "close" else lambda: worker.call(PauseWorker()))
        let_arrive(queue)
        barrier.release()
        stopping.result()
    one_of(queue.redis.state("1"), [["completed"], ["wait"]], "the job is run, or waits")
    equal(queue.redis.type("marker"), "zset", "the wake-up is not lost")


_WAKE_UP_LOST = {"base-marker": "Node loses a marker that reaches its worker while that worker gives up waiting"}


def _keep_jobs(queue: QueueHandle) -> None:
    """There is always something to fetch, and a marker that says so."""
    queue.add_bulk(*(("short", {}, {}) for _ in range(4)))


def _nothing_active(queue: QueueHandle, what: str, round_of: str) -> None:
    equal(queue.redis.elements("active"), [], f"{what} leaves nothing active ({round_of}, --seed {_seed(queue)})")


def _seed(queue: QueueHandle) -> int:
    return queue.caller.driver.seed


@shared("race.close-and-fetch", tier="full", slow=True, without=_WAKE_UP_LOST)
def test_closes_meet_fetches(client: Participant, oracle: Participant) -> None:
    """A worker of either client is closed at any moment after its start, a hundred times each."""
    queue, random = client.queue(), Random(client.driver.seed)

    def live(side: Participant, lifetime_ms: int) -> None:
        worker = side.worker("noop", stalledInterval=60_000)
        side.pass_time(lifetime_ms)
        worker.close()

    for number in range(1, ROUNDS // 2 + 1):
        _keep_jobs(queue)
        other = oracle.meanwhile(partial(live, oracle, random.randint(0, 3)))
        live(client, random.randint(0, 3))
        other.result()
        _nothing_active(queue, "a worker that was closed", f"round {number} of {ROUNDS // 2}")


@shared("race.worker-pause-and-fetch", tier="full", slow=True, without=_WAKE_UP_LOST)
def test_worker_pauses_meet_fetches(client: Participant, oracle: Participant) -> None:
    """A worker of either client is paused at any moment after it was resumed, a hundred times each."""
    queue, random = client.queue(), Random(client.driver.seed)
    workers = [side.worker("sleep", processor_args={"ms": 20}, stalledInterval=60_000) for side in (client, oracle)]
    for worker in workers:
        worker.call(PauseWorker())
    for number in range(1, ROUNDS + 1):
        _keep_jobs(queue)
        worker = workers[number % 2]
        worker.call(ResumeWorker())
        client.pass_time(random.randint(0, 3))
        worker.call(PauseWorker())
        _nothing_active(queue, "a worker that was paused", f"round {number} of {ROUNDS}")
