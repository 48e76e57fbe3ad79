"""The states of a worker: the table of changes, and what a program sees of them."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from conformance.reference_impl.workers.lifecycle import (
    CLOSE_CALLED,
    HAS_RUN,
    OPEN,
    TRANSITIONS,
    Change,
    Lifecycle,
    WorkerState,
)

from .queue_under_test import QueueUnderTest, WithQueue


def _reached(start: WorkerState) -> set[WorkerState]:
    """All states that changes lead to."""
    reached: set[WorkerState] = set()
    new = {start}
    while new:
        reached |= new
        new = {after for changes in TRANSITIONS.values() for before, after in changes.items() if before in new}
        new -= reached
    return reached


def test_every_state_is_reached_and_a_closed_worker_stays_closed() -> None:
    assert _reached(WorkerState.READY) == set(WorkerState)
    for state in CLOSE_CALLED:
        assert _reached(state) <= set(CLOSE_CALLED)
    assert _reached(WorkerState.CLOSED) == {WorkerState.CLOSED}
    assert set(TRANSITIONS) == set(get_args(Change))


def test_each_state_with_a_run_can_end_it_and_no_other() -> None:
    assert set(TRANSITIONS["end"]) == set(HAS_RUN)
    assert not set(TRANSITIONS["end"].values()) & set(HAS_RUN)
    # A second run would exceed the concurrency.
    assert not set(TRANSITIONS["start"]) & set(HAS_RUN)


@pytest.mark.parametrize("state", WorkerState)
def test_close_can_be_called_in_every_state(state: WorkerState) -> None:
    assert TRANSITIONS["close"].get(state, state) in CLOSE_CALLED


def test_the_facts_and_events_are_those_of_the_state() -> None:
    async def steps() -> None:
        lifecycle = Lifecycle()
        changes: list[Change] = ["start", "pause", "end", "resume", "start", "close", "abandon", "end", "disconnect"]
        for change in changes:
            waiting = asyncio.create_task(lifecycle.closed.wait())
            assert lifecycle.apply(change)
            state = lifecycle.state
            facts = (lifecycle.is_open, lifecycle.has_run, lifecycle.is_closing)
            assert facts == (state in OPEN, state in HAS_RUN, state in CLOSE_CALLED)
            assert lifecycle.without_run.is_set() is not lifecycle.has_run
            assert lifecycle.close_called.is_set() is lifecycle.is_closing
            waiting.cancel()
        assert lifecycle.closed.is_set()
        assert not lifecycle.apply("start")

    asyncio.run(steps())


def test_two_starts_in_one_turn_are_one_run(with_queue: WithQueue) -> None:
    """A worker that starts at once, and is resumed or paused and resumed before its first step."""

    async def steps(tested: QueueUnderTest) -> None:
        resumed = tested.worker(lambda _job, _token: None)
        resumed.resume()
        again = tested.worker(lambda _job, _token: None)
        await again.pause(doNotWaitActive=True)
        again.resume()
        await tested.until(lambda: resumed.isRunning() and again.isRunning(), lambda: tested.heard)
        await tested.queue.add("a", 1)
        await tested.hear("completed", "1")
        assert not tested.count("error"), tested.heard
        for worker in (resumed, again):
            await worker.close(force=True)
            assert not worker.isRunning()

    with_queue(steps)


def test_pause_and_resume_of_a_closed_worker_change_nothing(with_queue: WithQueue) -> None:
    async def steps(tested: QueueUnderTest) -> None:
        worker = tested.worker(lambda _job, _token: None)
        await tested.until(worker.isRunning, lambda: tested.heard)
        await worker.close()
        await worker.pause()
        worker.resume()
        await asyncio.sleep(0)
        assert (worker.closing, worker.is_open, worker.isPaused(), worker.isRunning()) == (True, False, False, False)
        assert await worker.getNextJob("t", {"block": False}) is None
        assert not tested.count("error"), tested.heard

    with_queue(steps)
