"""Waits that end before their deadline: only hopeless ones, and never with a false failure."""

from __future__ import annotations

import contextlib

import pytest

from conformance.findings import Timing
from conformance.participants.expect import Mismatch
from conformance.participants.wait_limits import (
    LEAST_MS,
    LEAST_SLACK_MS,
    SHARE_OF_DEADLINE,
    SLEEP_MS,
    Waiter,
    WaitHistory,
    WaitLimits,
)

SENTENCE = "the worker hands a job over"
WITHIN_MS = 15_000


class Clock:
    """Seconds, moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Scenes:
    """Scenarios of one process, each with one wait."""

    def __init__(self) -> None:
        self.history, self.clock = WaitHistory(), Clock()

    def patience(self, *, sides: bool = True, disturbed: bool = False) -> WaitLimits:
        return WaitLimits(self.history, sides=sides, is_disturbed=lambda: disturbed, now=self.clock)

    def holds(self, patience: WaitLimits, who: Waiter, after_ms: float, sentence: str = SENTENCE) -> None:
        with patience.wait(who, sentence, WITHIN_MS):
            self.clock.now += after_ms / 1000

    def runs_out(
        self, patience: WaitLimits, sentence: str = SENTENCE, who: Waiter = "client", *, awake: bool = False
    ) -> float:
        """How long the client (or its partner) waits, in ms; it looks every 100 ms, and its delay is not counted."""
        started = self.clock.now
        with contextlib.suppress(Mismatch), patience.wait(who, sentence, WITHIN_MS, is_awake=lambda: awake) as wait:
            for _ in range(1000):
                self.clock.now += 0.1
                if wait.left_ms <= 0:
                    raise wait.mismatch(sentence, "nothing")
        return round((self.clock.now - started) * 1000) // 500 * 500

    def differential(self, *, oracle_ms: float = 20.0, awake: bool = True) -> float:
        patience = self.patience()
        self.holds(patience, "oracle", oracle_ms)
        return self.runs_out(patience, awake=awake)

    def use_up_budget(self) -> None:
        for _ in range(2):
            self.differential(awake=False)


@pytest.fixture
def scenes() -> Scenes:
    return Scenes()


def test_an_awake_client_gets_a_multiple_of_what_the_oracle_needed(scenes: Scenes) -> None:
    assert scenes.differential() == LEAST_MS
    assert scenes.differential(oracle_ms=1000) == 5000
    assert scenes.differential(oracle_ms=9000) == WITHIN_MS


def test_a_client_that_sleeps_may_still_wake_up(scenes: Scenes) -> None:
    assert scenes.differential(awake=False) == WITHIN_MS


def test_a_failure_elsewhere_does_not_shorten_the_wait_of_a_client_that_sleeps(scenes: Scenes) -> None:
    scenes.differential()
    assert scenes.differential(awake=False) == WITHIN_MS


def test_a_client_that_was_late_before_gets_more_time(scenes: Scenes) -> None:
    patience = scenes.patience()
    scenes.holds(patience, "oracle", 100)
    scenes.holds(patience, "client", 2100)
    assert scenes.differential(oracle_ms=100) == 4000
    scenes.holds(patience, "oracle", 100)
    scenes.holds(patience, "client", 12_000)
    assert scenes.differential(oracle_ms=100) == 6000
    assert scenes.runs_out(patience, "another sentence", awake=True) == WITHIN_MS


@pytest.mark.parametrize("has_oracle", [True, False])
def test_a_slow_client_that_makes_progress_gets_its_whole_deadline(scenes: Scenes, *, has_oracle: bool) -> None:
    scenes.use_up_budget()
    patience, sentence = scenes.patience(sides=False), "its lock is renewed"
    if has_oracle:
        scenes.holds(patience, "oracle", 20, sentence)
    with patience.wait("client", sentence, WITHIN_MS, is_awake=lambda: True) as wait:
        for _ in range(18):
            scenes.clock.now += 0.8
            assert wait.left_ms > 0
            wait.progressed()


def test_a_client_that_sleeps_in_vain_everywhere_has_a_budget(scenes: Scenes) -> None:
    assert [scenes.differential(awake=False) for _ in range(4)] == [*2 * [WITHIN_MS], *2 * [LEAST_MS]]
    assert scenes.differential(oracle_ms=1000, awake=False) == 5000
    in_vain = scenes.runs_out(scenes.patience(sides=False), "another sentence")
    assert in_vain == WITHIN_MS / SHARE_OF_DEADLINE // 500 * 500
    assert scenes.runs_out(scenes.patience()) == WITHIN_MS, "the oracle's own wait may still hold"


def test_a_client_that_was_disturbed_or_late_before_gets_time_to_wake_up_also_after_the_budget(scenes: Scenes) -> None:
    scenes.use_up_budget()
    patience = scenes.patience(disturbed=True)
    scenes.holds(patience, "oracle", 20)
    assert scenes.runs_out(patience) == SLEEP_MS
    shared = scenes.patience(sides=False, disturbed=True)
    assert scenes.runs_out(shared, who="oracle") == SLEEP_MS, "the partner of a client that was disturbed"
    patience = scenes.patience()
    assert scenes.differential(awake=False) == LEAST_MS
    scenes.holds(patience, "oracle", 20, "another")
    scenes.holds(patience, "client", 4000, "another")
    assert scenes.differential(awake=False) == SLEEP_MS


def test_on_one_queue_the_partner_shares_the_budget(scenes: Scenes) -> None:
    """It waits for what the client should have added."""

    def partner_waits(number: int) -> float:
        return scenes.runs_out(scenes.patience(sides=False), f"{number} jobs", who="oracle")

    assert [partner_waits(number) for number in range(2)] == 2 * [WITHIN_MS]
    assert partner_waits(3) == WITHIN_MS / SHARE_OF_DEADLINE // 500 * 500
    scenes.holds(scenes.patience(), "oracle", 1000, "4 jobs")
    assert partner_waits(4) == 5000, "as long as it may take much more time than before"
    assert scenes.runs_out(scenes.patience(), "5 jobs", who="oracle") == WITHIN_MS, "alone it waits for itself"


def test_an_oracle_that_has_not_got_so_far_is_waited_for(scenes: Scenes) -> None:
    assert scenes.runs_out(scenes.patience(), awake=True) == WITHIN_MS


def test_on_one_queue_it_is_what_the_oracle_has_needed_at_most(scenes: Scenes) -> None:
    scenes.differential(oracle_ms=600)
    assert scenes.runs_out(scenes.patience(sides=False), awake=True) == 3000


def test_the_oracle_is_never_hurried(scenes: Scenes) -> None:
    scenes.use_up_budget()
    patience = scenes.patience()
    with patience.wait("oracle", SENTENCE, WITHIN_MS) as wait:
        scenes.clock.now += 14
        assert wait.left_ms > 0


def test_the_finding_is_the_same_and_says_how_long_was_waited(scenes: Scenes) -> None:
    patience = scenes.patience()
    scenes.holds(patience, "oracle", 20)
    with patience.wait("client", SENTENCE, WITHIN_MS, is_awake=lambda: True) as wait:
        scenes.clock.now += 2
        assert wait.left_ms <= 0
        mismatch = wait.mismatch(SENTENCE, "nothing")
    assert (mismatch.what, mismatch.expected) == (SENTENCE, "within 15000 ms")
    assert mismatch.actual == "nothing (gave up after 2000 ms)"


@pytest.mark.parametrize(
    ("oracle_ms", "slack_ms"),
    [
        (20, 7500),  # half of the wait is more than enough for both
        (2000, 5000),  # a client that needs five times as long as the oracle was left that time
        (9000, LEAST_SLACK_MS),
        (None, LEAST_SLACK_MS),  # the oracle did not get so far, so its time is unknown
    ],
)
def test_starvation_excuses_a_wait_if_it_took_the_time_that_was_needed(
    oracle_ms: float | None, slack_ms: int, scenes: Scenes
) -> None:
    patience = scenes.patience()
    if oracle_ms is not None:
        scenes.holds(patience, "oracle", oracle_ms)
    with patience.wait("client", SENTENCE, WITHIN_MS) as wait:
        scenes.clock.now += WITHIN_MS / 1000
        assert wait.mismatch(SENTENCE, "nothing").timing == Timing(within_ms=WITHIN_MS, slack_ms=slack_ms)


def test_a_worker_that_was_never_blocked_polls() -> None:
    history = WaitHistory()
    for _ in range(3):
        assert not history.never_blocks("client")
        history.rested("client", blocked=False)
    assert history.never_blocks("client")
    assert not history.never_blocks("oracle")
    history.rested("client", blocked=True)
    assert not history.never_blocks("client")
