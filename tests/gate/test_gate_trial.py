"""Trials on miniature drivers and a real Redis: whose fault is it, and does the next scenario still run?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from miniature_drivers import BenchOf, ChildSeat, InProcessSeat, answers, fails, refuses

from conformance.driver.ops import queue as ops
from conformance.gate.bench import Bench, Seat
from conformance.gate.clients import Launch
from conformance.gate.clock import FROZEN_START_MS
from conformance.gate.expect import equal
from conformance.gate.participant import Participant
from conformance.gate.scenario import Scenario, handover, scenario, shared
from conformance.gate.trial import Evidence, run_trial
from conformance.ledger.loader import load_ledger
from conformance.servers import Server, open_server

Seats = Callable[..., InProcessSeat]

COUNTED = "add.plain.waits"
"""The requirement that these scenarios speak about: one that owns none of the locators in question."""


@scenario(COUNTED)
def test_counts(client: Participant) -> None:
    """There is one job."""
    queue = client.queue()
    equal(queue.call(ops.CountPending(), deadline_ms=2000).count, 1, "there is one job")


@scenario(COUNTED)
def test_asks(client: Participant) -> None:
    """Whatever the answer is, it is the oracle's."""
    client.queue().call(ops.CountPending())


@scenario(COUNTED)
def test_pauses(client: Participant) -> None:
    """A pause is written down."""
    client.queue().call(ops.Pause())


@handover(COUNTED)
def test_hands_over(producer: Participant, consumer: Participant) -> None:
    """Both count."""
    for one in (producer, consumer):
        one.queue().call(ops.CountPending(), deadline_ms=2000)


@shared(COUNTED)
def test_shares(client: Participant, oracle: Participant) -> None:
    """Both count the same."""
    theirs = oracle.queue().call(ops.CountPending()).count
    equal(client.queue().call(ops.CountPending()).count, theirs, "both count the same")


COUNTS, ASKS, PAUSES, HANDS_OVER, SHARES = (
    vars(test)["scenario"] for test in (test_counts, test_asks, test_pauses, test_hands_over, test_shares)
)
del test_counts, test_asks, test_pauses, test_hands_over, test_shares  # pytest must not collect them here


def tried(scenario: Scenario, bench: Bench, **arguments: Any) -> Evidence:
    return run_trial(scenario, arguments, bench, load_ledger())


def keys(server: Server) -> set[bytes]:
    with server.connect() as client:
        found: set[bytes] = set(client.keys("*"))
    return found


def summary(evidence: Evidence) -> tuple[list[str], str, str, str]:
    """Sources of the findings, and what else was said."""
    return (
        [finding.source for finding in evidence.findings],
        evidence.error,
        evidence.unsupported,
        evidence.inconclusive,
    )


NOTHING_TO_SAY: tuple[list[str], str, str, str] = ([], "", "", "")

# Nobody's fault.


def test_two_that_agree_leave_nothing_to_say(mini: Seats, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), mini()))
    assert summary(evidence) == NOTHING_TO_SAY
    assert evidence.reached_end
    assert set(evidence.timings_ms) == {"oracle", "client", "observe", "total"}


def test_time_stands_still_only_when_both_can_do_that(mini: Seats, bench_of: BenchOf) -> None:
    bench = bench_of(mini(), mini())
    tried(COUNTS, bench)
    assert FROZEN_START_MS in clocks(bench.client)
    bench = bench_of(mini(capabilities=()), mini())
    tried(COUNTS, bench)
    assert FROZEN_START_MS not in clocks(bench.client)


def clocks(seat: Seat) -> list[int | None]:
    assert isinstance(seat, InProcessSeat)
    return seat.mini.clock


# The client's fault.


def test_a_client_that_breaks_the_statement_fails(mini: Seats, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), mini(count=2)))
    [found] = evidence.findings
    assert (found.source, found.requirement, found.message) == ("assertion", COUNTED, "there is one job")
    assert (found.expected, found.actual) == ("1", "2")
    assert not evidence.reached_end
    assert not evidence.error


def test_an_answer_that_is_not_the_oracles_is_a_finding(mini: Seats, bench_of: BenchOf) -> None:
    evidence = tried(ASKS, bench_of(mini(), mini(count=2)))
    assert [found.where for found in evidence.findings] == ["answer.queue.count.count"]
    assert evidence.reached_end


def test_a_state_that_is_not_the_oracles_is_a_finding(mini: Seats, bench_of: BenchOf, server: Server) -> None:
    before = keys(server)
    evidence = tried(PAUSES, bench_of(mini(), mini(paused_value="yes")))
    assert [found.where for found in evidence.findings if found.source == "snapshot"] == ["meta.paused"]
    [found] = [found for found in evidence.findings if found.source == "snapshot"]
    assert (found.expected, found.actual) == ('"1"', '"yes"')
    assert keys(server) == before, "what a scenario left is removed"
    assert tried(PAUSES, bench_of(mini(), mini())).findings == []


def test_a_call_that_fails_is_a_finding(mini: Seats, bench_of: BenchOf) -> None:
    client = mini(ops={"queue.count": fails("missing-job", "gone")})
    evidence = tried(COUNTS, bench_of(mini(), client))
    [found] = evidence.findings
    assert (found.source, found.kind) == ("protocol", "operation-failed")
    assert "gone" in found.actual
    assert not evidence.reached_end


@pytest.mark.parametrize("ops", [{"queue.count": None}, {"queue.count": refuses()}], ids=["undeclared", "refused"])
def test_what_the_client_cannot_do_is_unsupported(mini: Seats, bench_of: BenchOf, ops: dict[str, Any]) -> None:
    evidence = tried(COUNTS, bench_of(mini(), mini(ops=ops)))
    assert evidence.findings == []
    assert "queue.count" in evidence.unsupported
    assert not evidence.reached_end


def test_an_open_answer_is_inconclusive(mini: Seats, bench_of: BenchOf) -> None:
    client = mini(ops={"queue.count": fails("connection-lost", "who knows", status="info")})
    evidence = tried(COUNTS, bench_of(mini(), client))
    assert evidence.findings == []
    assert "who knows" in evidence.inconclusive
    assert not evidence.reached_end


def test_a_client_that_crashes_fails_and_the_next_scenario_still_runs(
    mini: Seats, child: ChildSeat, bench_of: BenchOf
) -> None:
    seat = child("op == 'queue.count' and die(3)")
    bench = bench_of(mini(), seat)
    evidence = tried(COUNTS, bench)
    [found] = evidence.findings
    assert (found.source, found.kind) == ("protocol", "driver-broken")
    assert "exit code 3" in found.actual
    assert "these are my last words" in evidence.log
    assert not evidence.error

    crashed = seat.connection
    assert tried(PAUSES, bench).findings[:1] != [], "its pause writes nothing, which is seen"
    assert seat.connection is not crashed
    assert seat.connection is not None
    assert seat.connection.alive


def test_a_client_that_hangs_fails(mini: Seats, child: ChildSeat, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), child("op == 'queue.count' and hang()")))
    [found] = evidence.findings
    assert found.kind == "driver-broken"
    assert "did not answer queue.count within 2000 ms" in found.actual


def test_a_client_that_prints_on_stdout_fails(mini: Seats, child: ChildSeat, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), child("op == 'queue.count' and os.write(1, b'hello\\n')")))
    [found] = evidence.findings
    assert "hello" in found.actual


@pytest.mark.parametrize(
    "reset",
    [None, refuses(), fails(), fails(status="info"), answers(unexpected="value")],
    ids=["undeclared", "refused", "fails", "open", "more than asked"],
)
def test_a_client_that_cannot_be_reset_is_started_anew(mini: Seats, bench_of: BenchOf, reset: Any) -> None:
    client = mini(ops={"reset": reset})
    bench = bench_of(mini(), client)
    for _ in range(2):
        assert summary(tried(COUNTS, bench)) == NOTHING_TO_SAY
    assert client.starts >= 1


def test_a_client_that_dies_in_reset_is_started_anew(mini: Seats, child: ChildSeat, bench_of: BenchOf) -> None:
    bench = bench_of(mini(), child("op == 'reset' and die(1)"))
    for _ in range(2):
        assert summary(tried(COUNTS, bench)) == NOTHING_TO_SAY


# The oracle's or the kit's fault: nothing is said about the client.


def test_an_oracle_that_breaks_the_statement_is_an_error(mini: Seats, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(count=2), mini()))
    assert evidence.findings == []
    assert "the oracle itself did not do as the scenario says" in evidence.error
    assert "there is one job" in evidence.error


def test_both_wrong_is_still_an_error_of_the_kit(mini: Seats, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(count=2), mini(count=2)))
    assert evidence.findings == []
    assert evidence.error


@pytest.mark.parametrize("how", ["die(3)", "hang()"])
def test_an_oracle_that_breaks_is_an_error(mini: Seats, child: ChildSeat, bench_of: BenchOf, how: str) -> None:
    evidence = tried(COUNTS, bench_of(child(f"op == 'queue.count' and {how}"), mini()))
    assert evidence.findings == []
    assert "the oracle itself" in evidence.error


@pytest.mark.parametrize("direction", ["client-to-oracle", "oracle-to-client"])
def test_an_oracle_that_breaks_in_a_handover_is_an_error(
    mini: Seats, child: ChildSeat, bench_of: BenchOf, direction: str
) -> None:
    evidence = tried(HANDS_OVER, bench_of(child("op == 'queue.count' and die(3)"), mini()), direction=direction)
    assert evidence.findings == []
    assert "the oracle itself" in evidence.error


@pytest.mark.parametrize("direction", ["client-to-oracle", "oracle-to-client"])
def test_a_client_that_breaks_in_a_handover_fails(
    mini: Seats, child: ChildSeat, bench_of: BenchOf, direction: str
) -> None:
    evidence = tried(HANDS_OVER, bench_of(mini(), child("op == 'queue.count' and die(3)")), direction=direction)
    assert [found.kind for found in evidence.findings] == ["driver-broken"]
    assert not evidence.error


def test_a_scenario_with_a_defect_is_an_error(mini: Seats, bench_of: BenchOf) -> None:
    def test_breaks(client: Participant) -> None:
        raise ZeroDivisionError("the scenario divides")

    broken: Scenario = vars(scenario(COUNTED)(test_breaks))["scenario"]
    evidence = tried(broken, bench_of(mini(), mini()))
    assert evidence.findings == []
    assert "ZeroDivisionError: the scenario divides" in evidence.error


def test_a_scenario_with_a_defect_on_the_client_only_is_an_error(mini: Seats, bench_of: BenchOf) -> None:
    def test_breaks(client: Participant) -> None:
        if client.role == "client":
            raise KeyError("only here")

    broken: Scenario = vars(scenario(COUNTED)(test_breaks))["scenario"]
    evidence = tried(broken, bench_of(mini(), mini()))
    assert evidence.findings == []
    assert "the scenario itself broke: KeyError" in evidence.error


def test_a_driver_that_cannot_be_started_is_an_error(mini: Seats, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(), Seat(Launch("none", ["/nonexistent/driver"]), seed=1)))
    assert "a driver could not be used" in evidence.error
    assert evidence.findings == []


def test_a_redis_that_goes_away_is_an_error(mini: Seats) -> None:
    with open_server(None, announce=lambda _line: None) as server:
        bench = Bench(server, mini(), mini())
    try:
        evidence = tried(COUNTS, bench)
    finally:
        bench.leave()
    assert "the kit itself broke" in evidence.error
    assert "ConnectionError" in evidence.error
    assert evidence.findings == []


# Node as the victim.


def test_what_the_oracle_cannot_read_is_a_finding_against_the_client(mini: Seats, bench_of: BenchOf) -> None:
    oracle = mini(ops={"queue.getJobs": fails(message="Node chokes on it")})
    evidence = tried(PAUSES, bench_of(oracle, mini()))
    [found] = [found for found in evidence.findings if found.source == "oracle-health"]
    assert found.severity == "breaks-others"
    assert "Node chokes on it" in found.message


# Handing over and sharing.


def test_a_handover_casts_by_direction(mini: Seats, bench_of: BenchOf) -> None:
    cast: list[tuple[str, str]] = []

    def test_notes(producer: Participant, consumer: Participant, size: int) -> None:
        assert producer.prefix == consumer.prefix
        cast.append((producer.role, consumer.role) if size == 7 else ("", ""))

    noting: Scenario = vars(handover(COUNTED)(test_notes))["scenario"]
    bench = bench_of(mini(), mini())
    for direction in ("client-to-oracle", "oracle-to-client"):
        assert summary(tried(noting, bench, direction=direction, size=7)) == NOTHING_TO_SAY
    assert cast == [("client", "oracle"), ("oracle", "client")]


def test_a_shared_scenario_judges_the_client(mini: Seats, bench_of: BenchOf) -> None:
    assert summary(tried(SHARES, bench_of(mini(), mini()))) == NOTHING_TO_SAY
    [found] = tried(SHARES, bench_of(mini(), mini(count=5))).findings
    assert found.message == "both count the same"
