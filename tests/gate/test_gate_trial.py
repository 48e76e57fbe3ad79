"""Trials on miniature drivers and a real Redis: findings against the client, and that the run continues."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.breakdowns import MOST_HANGS
from conformance.driver.errors import MAY_BE_THE_MACHINE
from conformance.driver.ops.queue import CountPending
from conformance.environment.drivers import RestartableDriver
from conformance.gate import execution, verdicts
from conformance.participants.clock import FROZEN_START_MS
from conformance.participants.marks import Scenario, scenario
from conformance.participants.participant import Participant
from conformance.participants.roles import assignments
from conformance.servers import RedisInstance
from tests.observe.snapshot_builders import busy

from .miniature_drivers import BenchOf, ChildDriver, InProcessDriver, answers, fails, refuses
from .small_scenarios import (
    ASKS,
    COUNTED,
    COUNTS,
    COUNTS_WITHIN_A_MINUTE,
    HANDS_OVER,
    NOTHING_TO_SAY,
    PAUSES,
    MiniatureDrivers,
    keys,
    summary,
    tried,
)


def test_two_clients_that_agree_have_no_findings(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), mini()))
    assert summary(evidence) == NOTHING_TO_SAY
    assert evidence.reached_end
    assert set(evidence.timings_ms) == {"oracle", "client", "observe", "total"}


def test_time_stands_still_only_when_both_can_do_that(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    bench = bench_of(mini(), mini())
    tried(COUNTS, bench)
    assert FROZEN_START_MS in clocks(bench.client)
    bench = bench_of(mini(capabilities=()), mini())
    tried(COUNTS, bench)
    assert FROZEN_START_MS not in clocks(bench.client)


def clocks(driver: RestartableDriver) -> list[int | None]:
    assert isinstance(driver, InProcessDriver)
    return driver.mini.clock


# The client's fault.


def test_a_client_that_breaks_the_statement_fails(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), mini(count=2)))
    [found] = evidence.findings
    assert (found.source, found.requirement, found.message) == ("assertion", COUNTED, "there is one job")
    assert (found.expected, found.actual) == ("1", "2")
    assert not evidence.reached_end
    assert not evidence.error


def test_an_answer_that_is_not_the_oracles_is_a_finding(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(ASKS, bench_of(mini(), mini(count=2)))
    assert [finding.where for finding in evidence.findings] == ["answer.queue.count.count"]
    assert evidence.reached_end


def test_a_state_that_is_not_the_oracles_is_a_finding(
    mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    before = keys(server)
    evidence = tried(PAUSES, bench_of(mini(), mini(paused_value="yes")))
    assert [finding.where for finding in evidence.findings if finding.source == "snapshot"] == ["meta.paused"]
    [found] = [finding for finding in evidence.findings if finding.source == "snapshot"]
    assert (found.expected, found.actual) == ('"1"', '"yes"')
    assert keys(server) == before, "what a scenario left is removed"
    assert tried(PAUSES, bench_of(mini(), mini())).findings == []


@pytest.mark.parametrize(
    ("reads", "broken"),
    [
        (1, []),
        (2, ["invariant.one-state", "invariant.kept-back"]),
        (3, ["handover.lost"] * 2 + ["invariant.kept-back"]),
    ],
    ids=["moves-on", "is-lost", "is-lost-between-them"],
)
def test_a_job_that_moved_while_its_keys_were_read_is_not_lost(
    mini: MiniatureDrivers, bench_of: BenchOf, monkeypatch: pytest.MonkeyPatch, reads: int, broken: list[str]
) -> None:
    nowhere, in_its_place = busy(wait=["5"]), busy()
    seen = iter([*[nowhere] * reads, *[in_its_place] * (3 - reads)])
    monkeypatch.setattr(execution, "read_named", lambda *_: (found := next(seen), found))
    evidence = tried(HANDS_OVER, bench_of(mini(), mini()), assignment=assignments(HANDS_OVER.participants)[0])
    assert [finding.where for finding in evidence.findings if finding.source == "invariant"] == broken
    assert not evidence.error


def test_a_call_that_fails_is_a_finding(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    client = mini(ops={"queue.count": fails("missing-job", "gone")})
    evidence = tried(COUNTS, bench_of(mini(), client))
    [found] = evidence.findings
    assert (found.source, found.kind) == ("protocol", "operation-failed")
    assert "gone" in found.actual
    assert not evidence.reached_end


@pytest.mark.parametrize("ops", [{"queue.count": None}, {"queue.count": refuses()}], ids=["undeclared", "refused"])
def test_a_scenario_with_an_operation_that_the_client_lacks_is_unsupported(
    mini: MiniatureDrivers, bench_of: BenchOf, ops: dict[str, Any]
) -> None:
    evidence = tried(COUNTS, bench_of(mini(), mini(ops=ops)))
    assert evidence.findings == []
    assert "queue.count" in evidence.unsupported
    assert not evidence.reached_end


@pytest.mark.parametrize("code", MAY_BE_THE_MACHINE)
def test_an_untouched_connection_that_breaks_is_a_finding_with_a_doubt(
    code: str, mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    client = mini(ops={"queue.count": fails(code, "who knows", status="info")})
    evidence = tried(COUNTS, bench_of(mini(), client))
    [found] = evidence.findings
    assert found.requirement == COUNTED
    assert "who knows" in evidence.doubt
    assert (evidence.inconclusive, evidence.reached_end) == ("", False)


@pytest.mark.parametrize("jumping", ["client", "oracle"])
def test_a_minute_that_ends_too_early_is_inconclusive_and_repeated(
    jumping: str, mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    result = tried(COUNTS_WITHIN_A_MINUTE, bench_of(mini(), mini()), jumping=jumping)
    assert summary(result)[:3] == NOTHING_TO_SAY[:3]
    assert result.inconclusive.startswith("the steps need one minute of the clock")
    assert result.doubt == result.inconclusive
    assert not result.reached_end


def test_after_the_kit_has_hurt_the_connection_an_open_answer_is_inconclusive(
    mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    def test_counts_after_a_cut(client: Participant) -> None:
        client.transcript.disturb("every connection is cut")
        client.queue().call(CountPending())

    hurt: Scenario = vars(scenario(COUNTED)(test_counts_after_a_cut))["scenario"]
    client = mini(ops={"queue.count": fails("connection-lost", "who knows", status="info")})
    evidence = tried(hurt, bench_of(mini(), client))
    assert evidence.findings == []
    assert "who knows" in evidence.inconclusive
    assert (evidence.doubt, evidence.reached_end) == ("", False)


def test_a_definite_failure_leaves_no_doubt(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    client = mini(ops={"queue.count": fails("timeout", "too late")})
    evidence = tried(COUNTS, bench_of(mini(), client))
    assert (len(evidence.findings), evidence.doubt) == (1, "")


def test_an_unknown_outcome_without_any_disturbance_is_a_finding(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    """Else a client whose every call ends so would stay undecided for ever, on the quietest machine."""
    client = mini(ops={"queue.count": fails("other", "half of it", status="info")})
    evidence = tried(COUNTS, bench_of(mini(), client))
    [found] = evidence.findings
    assert "half of it" in found.actual
    assert found.requirement == COUNTED, "and not that of the add, which came before and went well"
    assert (evidence.inconclusive, evidence.reached_end) == ("", False)


def test_a_client_that_crashes_fails_and_the_next_scenario_still_runs(
    mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf
) -> None:
    driver = child("op == 'queue.count' and die(3)")
    bench = bench_of(mini(), driver)
    evidence = tried(COUNTS, bench)
    [found] = evidence.findings
    assert (found.source, found.kind) == ("protocol", "driver-broken")
    assert "exit code 3" in found.actual
    assert "these are my last words" in evidence.log
    assert not evidence.error

    crashed = driver.connection
    assert tried(PAUSES, bench).findings[:1] != [], "its pause writes nothing, which is seen"
    assert driver.connection is not crashed
    assert driver.connection is not None
    assert driver.connection.alive


def test_an_operation_that_hung_three_times_is_not_tried_again(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    client = mini()
    for _ in range(MOST_HANGS):
        client.breakdowns.hung("queue.count")
    evidence = tried(COUNTS, bench_of(mini(), client))
    assert evidence.findings == [], "it was reported when it hung"
    assert evidence.given_up == "queue.count has hung 3 times in a row, so the kit does not call it again"
    assert not evidence.reached_end
    assert verdicts.unblamed(evidence) == "unchecked"


def test_a_scenario_that_is_given_up_is_not_judged_by_what_it_has_only_half_done(
    mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    def test_takes_away_and_asks(client: Participant) -> None:
        queue = client.queue()
        client._redis.lpush(queue.redis.key("wait"), "unknown")
        queue.call(CountPending())
        queue.redis.delete("wait")

    halfway: Scenario = vars(scenario(COUNTED)(test_takes_away_and_asks))["scenario"]
    client = mini()
    assert summary(tried(halfway, bench_of(mini(), client))) == NOTHING_TO_SAY
    for _ in range(MOST_HANGS):
        client.breakdowns.hung("queue.count")
    evidence = tried(halfway, bench_of(mini(), client))
    assert evidence.given_up
    assert evidence.findings == []


def test_a_client_that_hangs_fails(mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), child("op == 'queue.count' and hang()")))
    [found] = evidence.findings
    assert found.kind == "driver-broken"
    assert "did not answer queue.count within 2000 ms" in found.actual


def test_a_client_that_prints_on_stdout_fails(mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), child("op == 'queue.count' and os.write(1, b'hello\\n')")))
    [found] = evidence.findings
    assert "hello" in found.actual


@pytest.mark.parametrize(
    ("reset", "restarted"),
    [
        (None, True),
        (refuses(), True),
        (fails(), True),
        (fails(status="info"), True),
        (answers(unexpected="value"), False),
    ],
    ids=["undeclared", "refused", "fails", "open", "more than asked"],
)
def test_a_client_that_cannot_be_reset_is_restarted(
    mini: MiniatureDrivers, bench_of: BenchOf, reset: Any, restarted: bool
) -> None:
    client = mini(ops={"reset": reset})
    bench = bench_of(mini(), client)
    for _ in range(2):
        assert summary(tried(COUNTS, bench)) == NOTHING_TO_SAY
    assert client.starts == (2 if restarted else 1)


def test_a_client_that_dies_in_reset_is_restarted(
    mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf
) -> None:
    bench = bench_of(mini(), child("op == 'reset' and die(1)"))
    for _ in range(2):
        assert summary(tried(COUNTS, bench)) == NOTHING_TO_SAY
