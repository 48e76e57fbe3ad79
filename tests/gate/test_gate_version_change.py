"""An unprepared version of the oracle: its differences are `changed`, and the client must share them."""

from __future__ import annotations

import pytest

from conformance.driver.ops import queue as ops
from conformance.driver.serve import Handler, Json
from conformance.gate.bench import Bench
from conformance.gate.trial_result import TrialResult
from conformance.gate.verdicts import unblamed
from conformance.participants.expect import equal
from conformance.participants.marks import Scenario, scenario, shared
from conformance.participants.participant import Participant
from conformance.servers import RedisInstance

from .miniature_drivers import BenchOf, answers, fails, refuses
from .small_scenarios import COUNTED, COUNTS, HANDS_OVER, PAUSES, MiniatureDrivers, tried

UNPREPARED = "99.1.0"


def unprepared(bench: Bench) -> Bench:
    bench.oracle_version = UNPREPARED
    return bench


def said(evidence: TrialResult) -> tuple[list[str], str, str]:
    return [finding.kind for finding in evidence.findings], evidence.error, unblamed(evidence)


def test_a_statement_that_neither_side_makes_true_is_changed(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, unprepared(bench_of(mini(count=2), mini(count=2))))
    assert said(evidence) == ([], "", "changed")
    assert f"BullMQ {UNPREPARED} differs" in evidence.changed
    assert "there is one job" in evidence.changed


def test_a_client_that_does_as_an_older_version_goes_another_way(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, unprepared(bench_of(mini(count=2), mini(count=1))))
    assert said(evidence) == (["other-ending"], "", "changed")
    assert evidence.findings[0].actual == "it continued to the end"


def test_answers_are_compared_up_to_where_both_stopped(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, unprepared(bench_of(mini(count=2), mini(count=3))))
    assert said(evidence) == (["wrong-answer"], "", "changed")


def test_both_states_are_compared_if_the_versions_agree(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(PAUSES, unprepared(bench_of(mini(), mini(paused_value="yes"))))
    assert evidence.findings
    assert (evidence.error, evidence.changed) == ("", "")


def test_an_answer_of_another_shape_is_a_change_and_no_error(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    other = {"queue.count": answers(number=1)}
    evidence = tried(COUNTS, unprepared(bench_of(mini(ops=other), mini(ops=other))))
    assert said(evidence) == ([], "", "changed")
    assert "does not fit the schema" in evidence.changed
    evidence = tried(COUNTS, bench_of(mini(ops=other), mini(ops=other)))
    assert "does not fit the schema" in evidence.error


@scenario(COUNTED, without={"oracle-health": "the miniature oracle has no QueueEvents"})
def test_pauses_and_asks(client: Participant) -> None:
    """The oracle is the slower one."""
    queue = client.queue()
    if client.role == "oracle":
        client.cancellation.sleep(1)
    queue.call(ops.Pause())
    queue.call(ops.CountPending())


def pausing_with_an_odd_event(server: RedisInstance) -> dict[str, Handler | None]:
    """The operations of a client that leaves an event with an unknown field."""
    opened: dict[str | None, Json] = {}

    async def open_handle(handle: str | None, args: Json) -> Json:
        opened[handle] = args
        return {}

    async def pause(handle: str | None, _args: Json) -> Json:
        base = f"{opened[handle]['prefix']}:{opened[handle]['queue']}"
        with server.connect() as client:
            client.hset(f"{base}:meta", "paused", "1")
            client.xadd(f"{base}:events", {"event": "paused", "by": "another"})
        return {}

    return {"open": open_handle, "queue.pause": pause}


PAUSES_AND_ASKS: Scenario = vars(test_pauses_and_asks)["scenario"]
del test_pauses_and_asks  # a scenario for the test below, and none of them


@pytest.mark.parametrize(("breaks", "found"), [("oracle and client", []), ("client", ["event-fields"]), ("", [])])
def test_steps_before_a_client_stopped_are_compared_with_the_oracle(
    server: RedisInstance, mini: MiniatureDrivers, bench_of: BenchOf, breaks: str, found: list[str]
) -> None:
    oracle, client = (
        mini(ops={"queue.count": refuses(), **(pausing_with_an_odd_event(server) if side in breaks else {})})
        for side in ("oracle", "client")
    )
    evidence = tried(PAUSES_AND_ASKS, unprepared(bench_of(oracle, client)))
    assert said(evidence)[:2] == (found, "")


def test_a_client_need_not_end_like_an_oracle_whose_call_is_unknown(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    hangs = {"queue.count": fails("timeout", "no answer", status="info")}
    evidence = tried(COUNTS, unprepared(bench_of(mini(ops=hangs), mini(count=2))))
    assert said(evidence) == ([], "", "changed")
    refuses_it = {"queue.count": fails("other", "no")}
    evidence = tried(COUNTS, unprepared(bench_of(mini(ops=refuses_it), mini())))
    assert said(evidence) == (["other-ending"], "", "changed")


def test_a_scenario_that_holds_is_not_changed(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    assert said(tried(COUNTS, unprepared(bench_of(mini(), mini())))) == ([], "", "pass")


@shared(COUNTED)
def test_one_job(client: Participant, oracle: Participant) -> None:
    """Both see one job."""
    for participant in (client, oracle):
        equal(participant.queue().call(ops.CountPending()).count, 1, f"the {participant.role} sees one job")


SHARED_STATEMENT: Scenario = vars(test_one_job)["scenario"]
del test_one_job  # a scenario for the tests below, and none of them


def two_of_the_oracle(mini: MiniatureDrivers, bench_of: BenchOf, *, oracle: int, client: int) -> Bench:
    bench = unprepared(bench_of(mini(count=oracle), mini(count=client)))
    bench.stand_in = mini(count=oracle)
    return bench


@pytest.mark.parametrize(("oracle", "client", "verdict"), [(1, 1, "pass"), (2, 1, "changed"), (2, 2, "changed")])
def test_on_one_queue_two_of_the_oracle_show_what_has_changed(
    mini: MiniatureDrivers, bench_of: BenchOf, oracle: int, client: int, verdict: str
) -> None:
    evidence = tried(SHARED_STATEMENT, two_of_the_oracle(mini, bench_of, oracle=oracle, client=client))
    assert (evidence.error, unblamed(evidence)) == ("", verdict)


def test_on_one_queue_a_client_fails_where_two_of_the_oracle_do_not(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(SHARED_STATEMENT, two_of_the_oracle(mini, bench_of, oracle=1, client=2))
    assert evidence.findings
    assert (evidence.error, evidence.changed) == ("", "")


def test_the_client_is_back_after_the_rehearsal(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    bench = two_of_the_oracle(mini, bench_of, oracle=1, client=1)
    client = bench.client
    with bench.oracle_in_place_of_the_client():
        assert bench.client is bench.stand_in
    assert bench.client is client
    assert tried(HANDS_OVER, bench, direction="client-to-oracle").error == ""
