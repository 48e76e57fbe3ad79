"""Operations that do not come back: each is waited for in full once, and not tried again after three times."""

from __future__ import annotations

import pytest

from conformance.driver.errors import OperationGivenUp
from conformance.driver.hangs import LEAST_MS, MOST_HANGS, SLOWER, Hangs


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
def hangs(clock: Clock) -> Hangs:
    return Hangs(clock)


def answers_after(hangs: Hangs, clock: Clock, op: str, seconds: float) -> None:
    with hangs.answering(op):
        clock.now += seconds


def test_what_never_hung_has_all_its_time(hangs: Hangs) -> None:
    assert hangs.deadline_ms("queue.getJob", 35_000) == 35_000


def test_what_has_hung_is_waited_for_in_full_once(hangs: Hangs) -> None:
    hangs.hung("queue.getJob")
    assert hangs.deadline_ms("queue.getJob", 35_000) == LEAST_MS
    assert hangs.deadline_ms("queue.getJob", 1000) == 1000
    assert hangs.deadline_ms("queue.pause", 35_000) == 35_000


def test_who_has_been_slow_may_be_slow(hangs: Hangs, clock: Clock) -> None:
    answers_after(hangs, clock, "close", 1.5)
    answers_after(hangs, clock, "close", 0.1)
    hangs.hung("close")
    assert hangs.deadline_ms("close", 35_000) == 1500 * SLOWER


def test_after_three_times_in_a_row_it_is_given_up(hangs: Hangs) -> None:
    for _ in range(MOST_HANGS):
        hangs.deadline_ms("close", 8000)
        hangs.hung("close")
    with pytest.raises(OperationGivenUp, match="close has hung 3 times in a row"):
        hangs.deadline_ms("close", 8000)


def test_an_answer_in_between_is_a_reason_to_go_on(hangs: Hangs, clock: Clock) -> None:
    for _ in range(MOST_HANGS):
        hangs.hung("close")
        answers_after(hangs, clock, "close", 0.1)
    assert hangs.deadline_ms("close", 8000) == LEAST_MS


def test_a_call_that_raises_has_not_been_answered(hangs: Hangs) -> None:
    for _ in range(MOST_HANGS):
        hangs.hung("close")
        with pytest.raises(ValueError, match="no answer"), hangs.answering("close"):
            raise ValueError("no answer")
    with pytest.raises(OperationGivenUp):
        hangs.deadline_ms("close", 8000)
