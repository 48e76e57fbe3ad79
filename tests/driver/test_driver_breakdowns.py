"""Operations that hang or end the driver: each is waited for in full once, and not tried again after three times."""

from __future__ import annotations

import pytest

from conformance.driver.breakdowns import LEAST_MS, MOST_CRASHES, MOST_FLOODS, MOST_HANGS, SLOWER, Breakdowns
from conformance.driver.errors import OperationGivenUp


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breakdowns(clock: Clock) -> Breakdowns:
    return Breakdowns(clock)


def answers_after(breakdowns: Breakdowns, clock: Clock, op: str, seconds: float) -> None:
    with breakdowns.answering(op):
        clock.now += seconds


def test_an_operation_that_never_hung_has_all_its_time(breakdowns: Breakdowns) -> None:
    assert breakdowns.deadline_ms("queue.getJob", 35_000) == 35_000


def test_the_kit_waits_in_full_once_for_an_operation_that_hangs(breakdowns: Breakdowns) -> None:
    breakdowns.hung("queue.getJob")
    assert breakdowns.deadline_ms("queue.getJob", 35_000) == LEAST_MS
    assert breakdowns.deadline_ms("queue.getJob", 1000) == 1000
    assert breakdowns.deadline_ms("queue.pause", 35_000) == 35_000


def test_a_slow_operation_may_stay_slow(breakdowns: Breakdowns, clock: Clock) -> None:
    answers_after(breakdowns, clock, "close", 1.5)
    answers_after(breakdowns, clock, "close", 0.1)
    breakdowns.hung("close")
    assert breakdowns.deadline_ms("close", 35_000) == 1500 * SLOWER


def test_after_three_times_in_a_row_it_is_given_up(breakdowns: Breakdowns) -> None:
    for _ in range(MOST_HANGS):
        breakdowns.deadline_ms("close", 8000)
        breakdowns.hung("close")
    with pytest.raises(OperationGivenUp, match="close has hung 3 times in a row"):
        breakdowns.deadline_ms("close", 8000)


def test_a_client_that_hangs_everywhere_has_a_budget(breakdowns: Breakdowns, clock: Clock) -> None:
    answers_after(breakdowns, clock, "queue.add", 0.1)
    for op in ("queue.pause", "queue.resume", "close"):
        breakdowns.hung(op, 10_000)
    with pytest.raises(OperationGivenUp, match=r"queue\.pause has hung, and calls that hang have taken 30 s so far"):
        breakdowns.deadline_ms("queue.pause", 8000)
    assert breakdowns.deadline_ms("queue.drain", 35_000) == LEAST_MS
    assert breakdowns.deadline_ms("queue.add", 8000) == 8000, "it has been answered"


def test_an_answer_in_between_is_a_reason_to_go_on(breakdowns: Breakdowns, clock: Clock) -> None:
    for _ in range(MOST_HANGS):
        breakdowns.hung("close")
        answers_after(breakdowns, clock, "close", 0.1)
    assert breakdowns.deadline_ms("close", 8000) == LEAST_MS


def test_a_call_that_raises_has_not_been_answered(breakdowns: Breakdowns) -> None:
    for _ in range(MOST_HANGS):
        breakdowns.hung("close")
        with pytest.raises(ValueError, match="no answer"), breakdowns.answering("close"):
            raise ValueError("no answer")
    with pytest.raises(OperationGivenUp):
        breakdowns.deadline_ms("close", 8000)


def test_an_operation_that_always_ends_the_driver_is_given_up(breakdowns: Breakdowns) -> None:
    for _ in range(MOST_CRASHES):
        assert breakdowns.deadline_ms("queue.pause", 8000) == 8000
        breakdowns.crashed("queue.pause")
    with pytest.raises(OperationGivenUp, match=r"queue\.pause has ended the driver 3 times"):
        breakdowns.deadline_ms("queue.pause", 8000)
    assert breakdowns.deadline_ms("queue.resume", 8000) == 8000


def test_a_crash_with_some_arguments_only_is_tried_again(breakdowns: Breakdowns, clock: Clock) -> None:
    answers_after(breakdowns, clock, "queue.add", 0.1)
    for _ in range(2 * MOST_CRASHES):
        breakdowns.crashed("queue.add")
    assert breakdowns.deadline_ms("queue.add", 8000) == 8000


def test_a_client_that_floods_again_opens_nothing_more(breakdowns: Breakdowns) -> None:
    for _ in range(MOST_FLOODS):
        assert breakdowns.deadline_ms("open", 5000) == 5000
        breakdowns.flooded()
    with pytest.raises(OperationGivenUp, match="commands without end"):
        breakdowns.deadline_ms("open", 5000)
    assert breakdowns.deadline_ms("reset", 5000) == 5000
