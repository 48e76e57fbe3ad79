"""A scenario that does not come back is ended from outside, and the run goes on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from conformance.driver.ops.queue import CountPending
from conformance.gate.time_limit import Side, TimeLimit, wait_for
from conformance.gate.trial import run_trial
from conformance.gate.trial_result import TrialResult
from conformance.ledger.loader import load_ledger
from conformance.participants.marks import Scenario, scenario, shared
from conformance.participants.participant import Participant

from .gate_builders import made
from .miniature_drivers import BenchOf, ChildDriver
from .small_scenarios import COUNTED, COUNTS, NOTHING_TO_SAY, MiniatureDrivers, summary, tried

SOON = TimeLimit(client_s=0.3, all_s=0.6)


def limited(scenario_: Scenario, bench: Any) -> TrialResult:
    return run_trial(scenario_, {}, bench, load_ledger(), limit=SOON)


def asks_for_ever(client: Participant) -> None:
    """The client is asked until it says what it never says."""
    queue = client.queue()
    for _ in itertools.count():
        if client.role == "oracle" or queue.call(CountPending()).count == 2:
            return


def waits_for_ever(client: Participant) -> None:
    """Something is waited for that never comes."""
    client.queue()
    client.eventually(lambda: client.role, lambda role: role == "oracle", "the sun rises", within_ms=60_000)


def computes_for_ever(client: Participant) -> None:
    """Neither a call nor a wait: only an exception from outside ends it."""
    client.queue()
    for _ in itertools.count():
        if client.role == "oracle":
            return


@pytest.mark.parametrize(
    ("steps", "step"),
    [
        (asks_for_ever, "the call queue.count"),
        (waits_for_ever, "waiting until the sun rises"),
        (computes_for_ever, "the call open"),
    ],
)
def test_a_client_with_which_a_scenario_never_ends_fails_and_the_next_one_runs(
    mini: MiniatureDrivers, bench_of: BenchOf, steps: Any, step: str
) -> None:
    bench = bench_of(mini(), mini())
    endless: Scenario = vars(scenario(COUNTED)(steps))["scenario"]
    evidence = limited(endless, bench)
    [found] = evidence.findings
    assert found.kind == "time-limit"
    assert found.message.endswith(f"its last step: {step}")
    assert not evidence.reached_end
    assert not evidence.error
    assert summary(tried(COUNTS, bench)) == NOTHING_TO_SAY


def test_an_oracle_that_does_not_come_back_is_an_error(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    def test_waits(client: Participant) -> None:
        client.queue()
        client.eventually(lambda: client.role, lambda role: role == "client", "the sun rises", within_ms=60_000)

    evidence = limited(vars(scenario(COUNTED)(test_waits))["scenario"], bench_of(mini(), mini()))
    assert evidence.findings == []
    assert "the oracle itself" in evidence.error
    assert "the sun rises" in evidence.error


def test_a_call_that_hangs_is_ended_too(mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf) -> None:
    evidence = limited(COUNTS, bench_of(mini(), child("op == 'queue.count' and hang()")))
    assert [finding.kind for finding in evidence.findings] == ["time-limit"]
    assert "the call queue.count" in evidence.findings[0].message


def test_two_on_one_queue_share_one_limit(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    def test_waits(client: Participant, oracle: Participant) -> None:
        oracle.queue()
        client.eventually(lambda: 1, lambda one: one == 2, "the sun rises", within_ms=60_000)

    evidence = limited(vars(shared(COUNTED)(test_waits))["scenario"], bench_of(mini(), mini()))
    [found] = evidence.findings
    assert found.message.endswith("waiting until the sun rises (client), the call open (oracle)")


@pytest.mark.parametrize(
    ("spent_s", "oracle_s", "left_s"),
    [(10.0, None, 290.0), (10.0, 1.0, 50.0), (10.0, 20.0, 90.0), (10.0, 100.0, 290.0)],
    ids=["the oracle goes on", "a quick oracle", "a slow machine", "never more than all"],
)
def test_the_client_has_more_time_where_the_oracle_needed_more(
    spent_s: float, oracle_s: float | None, left_s: float
) -> None:
    assert TimeLimit().left_s(spent_s, oracle_s) == left_s


def test_slow_scenarios_have_more_time() -> None:
    assert TimeLimit.of(made("a.must", slow=True)).client_s > TimeLimit.of(made("a.must")).client_s


class EndsBetweenTwoLooks(Side):
    """Still running at the first look, and ended at the next one."""

    looks = 0

    @property
    def goes_on(self) -> bool:
        self.looks += 1
        return self.looks == 1


def test_a_side_may_end_between_two_looks() -> None:
    side = EndsBetweenTwoLooks(lambda: None, str)
    wait_for(None, side, SOON, cancel=pytest.fail, kill=lambda: pytest.fail("nothing is late"))
    assert side.failure is None
