"""Waits that end before their deadline: only those that have run out in full before, and never a false failure."""

from __future__ import annotations

import contextlib

import pytest

from conformance.findings import Timing
from conformance.participants.expect import Mismatch
from conformance.participants.wait_limits import (
    LEAST_AFTER_BUDGET_MS,
    LEAST_MS,
    LEAST_SLACK_MS,
    SHARE_OF_DEADLINE,
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

    def patience(self, scenario: str = "one", *, sides: bool = True) -> WaitLimits:
        return WaitLimits(self.history, scenario, sides=sides, now=self.clock)

    def holds(self, patience: WaitLimits, who: Waiter, after_ms: float, sentence: str = SENTENCE) -> None:
        with patience.wait(who, sentence, WITHIN_MS):
            self.clock.now += after_ms / 1000

    def runs_out(self, patience: WaitLimits, sentence: str = SENTENCE, who: Waiter = "client") -> float:
        """How long the client (or its partner) waits, in ms; it looks every 100 ms, and its delay is not counted."""
        started = self.clock.now
        with contextlib.suppress(Mismatch), patience.wait(who, sentence, WITHIN_MS) as wait:
            for _ in range(1000):
                self.clock.now += 0.1
                if wait.left_ms <= 0:
                    raise wait.mismatch(sentence, "nothing")
        return round((self.clock.now - started) * 1000) // 500 * 500

    def differential(self, scenario: str, *, oracle_ms: float = 20.0) -> float:
        patience = self.patience(scenario)
        self.holds(patience, "oracle", oracle_ms)
        return self.runs_out(patience)


@pytest.fixture
def scenes() -> Scenes:
    return Scenes()


def test_the_first_time_the_whole_deadline_is_waited_for(scenes: Scenes) -> None:
    assert scenes.differential("one") == WITHIN_MS


def test_with_other_parameters_it_is_not_waited_for_in_full_again(scenes: Scenes) -> None:
    scenes.differential("one")
    assert scenes.differential("one") == LEAST_MS


def test_what_never_holds_is_hopeless_in_every_scenario_after_two(scenes: Scenes) -> None:
    assert [scenes.differential(name) for name in ("one", "two", "three")] == [WITHIN_MS, WITHIN_MS, LEAST_MS]


def test_what_has_held_elsewhere_is_waited_for(scenes: Scenes) -> None:
    for name in ("one", "two"):
        scenes.differential(name)
    scenes.holds(scenes.patience("three"), "client", 30)
    assert scenes.differential("four") == WITHIN_MS


def test_a_client_that_waits_in_vain_everywhere_has_a_budget(scenes: Scenes) -> None:
    def in_vain(number: int, *, sides: bool, oracle_ms: float | None) -> float:
        sentence = f"{number} jobs are completed"
        patience = scenes.patience(f"scenario {number}", sides=sides)
        if oracle_ms is not None:
            scenes.holds(patience, "oracle", oracle_ms, sentence)
        return scenes.runs_out(patience, sentence)

    waits = [in_vain(number, sides=True, oracle_ms=20) for number in range(4)]
    assert waits == [*3 * [WITHIN_MS], LEAST_AFTER_BUDGET_MS]
    assert in_vain(4, sides=True, oracle_ms=500) == 5000, "as long as it may take much more time than the oracle"
    assert in_vain(5, sides=False, oracle_ms=None) == WITHIN_MS / SHARE_OF_DEADLINE // 500 * 500
    assert in_vain(6, sides=True, oracle_ms=None) == WITHIN_MS, "the oracle's own wait may still hold"


def test_on_one_queue_the_partner_shares_the_budget(scenes: Scenes) -> None:
    """It waits for what the client should have added."""

    def partner_waits(number: int) -> float:
        return scenes.runs_out(scenes.patience(f"scenario {number}", sides=False), f"{number} jobs", who="oracle")

    assert [partner_waits(number) for number in range(3)] == 3 * [WITHIN_MS]
    assert partner_waits(3) == WITHIN_MS / SHARE_OF_DEADLINE // 500 * 500
    scenes.holds(scenes.patience("others"), "oracle", 500, "4 jobs")
    assert partner_waits(4) == 5000, "as long as it may take much more time than before"
    assert scenes.runs_out(scenes.patience("alone"), "5 jobs", who="oracle") == WITHIN_MS, "alone it waits for itself"


def test_after_the_budget_a_wait_that_has_held_gets_much_more_time_than_it_needed(scenes: Scenes) -> None:
    scenes.holds(scenes.patience(), "client", 30)
    for name in ("one", "two", "three"):
        scenes.runs_out(scenes.patience(name), f"another of {name}")
    assert scenes.differential("four") == LEAST_MS
    scenes.holds(scenes.patience(), "client", 900)
    assert scenes.differential("five") == 4500


def test_a_shortened_wait_is_not_evidence_for_another(scenes: Scenes) -> None:
    for _ in range(5):
        scenes.differential("one")
    assert scenes.differential("two") == WITHIN_MS


def test_an_oracle_that_has_not_got_so_far_is_waited_for(scenes: Scenes) -> None:
    scenes.differential("one")
    assert scenes.runs_out(scenes.patience("one")) == WITHIN_MS


def test_where_the_oracle_needs_long_the_client_may_need_longer(scenes: Scenes) -> None:
    scenes.differential("one")
    assert scenes.differential("one", oracle_ms=900) == 9000
    assert scenes.differential("one", oracle_ms=9000) == WITHIN_MS


def test_where_the_client_has_needed_long_it_may_need_longer(scenes: Scenes) -> None:
    scenes.differential("one")
    scenes.holds(scenes.patience("one"), "client", 1500)
    assert scenes.differential("one") == 7500


def test_on_one_queue_it_is_what_the_oracle_has_needed_at_most(scenes: Scenes) -> None:
    for name in ("one", "two"):
        scenes.differential(name, oracle_ms=300)
    assert scenes.runs_out(scenes.patience("shared", sides=False)) == 3000


def test_other_sentences_know_nothing_of_it(scenes: Scenes) -> None:
    for name in ("one", "two"):
        scenes.differential(name)
    patience = scenes.patience("one")
    scenes.holds(patience, "oracle", 20, "another")
    assert scenes.runs_out(patience, "another") == WITHIN_MS


def test_the_oracle_is_never_hurried(scenes: Scenes) -> None:
    scenes.differential("one")
    patience = scenes.patience("one")
    with patience.wait("oracle", SENTENCE, WITHIN_MS) as wait:
        scenes.clock.now += 14
        assert wait.left_ms > 0


def test_the_finding_is_the_same_and_says_how_long_was_waited(scenes: Scenes) -> None:
    scenes.differential("one")
    patience = scenes.patience("one")
    scenes.holds(patience, "oracle", 20)
    with patience.wait("client", SENTENCE, WITHIN_MS) as wait:
        scenes.clock.now += 2
        assert wait.left_ms <= 0
        mismatch = wait.mismatch(SENTENCE, "nothing")
    assert (mismatch.what, mismatch.expected) == (SENTENCE, "within 15000 ms")
    assert mismatch.actual == "nothing (gave up after 2000 ms: the same wait ran out before)"


@pytest.mark.parametrize(
    ("oracle_ms", "slack_ms"),
    [
        (20, 7500),  # half of the wait is more than enough for both
        (1000, 5000),  # a client that needs ten times as long as the oracle was left that time
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
