"""Trials in which the oracle, the scenario or the kit breaks: nothing is said about the client. And casting."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from redis.exceptions import ResponseError

from conformance.driver.errors import TOO_LONG
from conformance.driver.ops.queue import CountPending, Pause
from conformance.driver.serve import Handler
from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.gate import endless_scripts
from conformance.gate.bench import Bench
from conformance.gate.judge import READABLE_BY_NODE, Judge
from conformance.gate.trial_result import TrialResult
from conformance.ledger.loader import load_ledger
from conformance.participants.expect import Mismatch, equal
from conformance.participants.marks import Scenario, handover, scenario
from conformance.participants.participant import Participant
from conformance.participants.roles import Assignment, assignments
from conformance.participants.transcript import PerformedBy
from conformance.servers import RedisInstance, open_server
from tests.observe.snapshot_builders import Stream, Zset, event, job, snapshot

from .gate_builders import finding
from .miniature_drivers import BenchOf, ChildDriver, InProcessDriver, Mini, answers, fails
from .small_scenarios import (
    COUNTED,
    COUNTS,
    HANDS_OVER,
    HARMLESS,
    NOTHING_TO_SAY,
    PAUSES,
    SHARES,
    MiniatureDrivers,
    summary,
    tried,
)

# The oracle's or the kit's fault: nothing is said about the client.


def test_an_oracle_that_breaks_the_statement_is_an_error(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(count=2), mini()))
    assert evidence.findings == []
    assert "the oracle itself did not do as the scenario says" in evidence.error
    assert "there is one job" in evidence.error


def test_both_wrong_is_still_an_error_of_the_kit(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(COUNTS, bench_of(mini(count=2), mini(count=2)))
    assert evidence.findings == []
    assert evidence.error


@pytest.mark.parametrize("how", ["die(3)", "hang()"])
def test_an_oracle_that_breaks_is_an_error(
    mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf, how: str
) -> None:
    evidence = tried(COUNTS, bench_of(child(f"op == 'queue.count' and {how}"), mini()))
    assert evidence.findings == []
    assert "the oracle itself" in evidence.error


@pytest.mark.parametrize("assignment", assignments(HANDS_OVER.participants), ids=str)
def test_an_oracle_that_breaks_in_a_handover_is_an_error(
    mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf, assignment: Assignment
) -> None:
    evidence = tried(HANDS_OVER, bench_of(child("op == 'queue.count' and die(3)"), mini()), assignment=assignment)
    assert evidence.findings == []
    assert "the oracle itself" in evidence.error


@pytest.mark.parametrize("assignment", assignments(HANDS_OVER.participants), ids=str)
def test_a_client_that_breaks_in_a_handover_fails(
    mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf, assignment: Assignment
) -> None:
    evidence = tried(HANDS_OVER, bench_of(mini(), child("op == 'queue.count' and die(3)")), assignment=assignment)
    assert [finding.kind for finding in evidence.findings] == ["driver-broken"]
    assert not evidence.error


def test_a_scenario_with_a_defect_is_an_error(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    def test_breaks(client: Participant) -> None:
        client.queue()
        raise ZeroDivisionError("the scenario divides")

    broken: Scenario = vars(scenario(COUNTED)(test_breaks))["scenario"]
    evidence = tried(broken, bench_of(mini(), mini()))
    assert evidence.findings == []
    assert "ZeroDivisionError: the scenario divides" in evidence.error


def test_steps_that_only_the_client_cannot_take_are_its_failure(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    def test_breaks(client: Participant) -> None:
        if client.role == "client":
            raise KeyError("only here")

    broken: Scenario = vars(scenario(COUNTED)(test_breaks))["scenario"]
    evidence = tried(broken, bench_of(mini(), mini()))
    assert evidence.error == ""
    assert [finding.kind for finding in evidence.findings] == ["unexpected-state"]
    assert "the scenario could not go on: KeyError" in evidence.findings[0].message


def test_a_driver_that_cannot_be_started_is_an_error(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    for command in (["/nonexistent/driver"], [sys.executable, "-c", "raise SystemExit('Connection refused')"]):
        evidence = tried(COUNTS, bench_of(mini(), RestartableDriver(Launch("none", command), seed=1)))
        assert "a driver could not be used" in evidence.error
        assert evidence.findings == []


def test_a_redis_that_goes_away_is_an_error(mini: MiniatureDrivers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless_scripts, "FREE_AGAIN_S", 0.2)
    with open_server(None, announce=lambda _line: None) as server:
        bench = Bench(server, mini(), mini())
    try:
        evidence = tried(COUNTS, bench)
    finally:
        bench.close()
    assert "the kit itself broke" in evidence.error
    assert "ConnectionError" in evidence.error
    assert evidence.findings == []


# Node as the victim.


def reads_not() -> dict[str, Handler | None]:
    return {"queue.getJobs": fails(message="Node chokes on it")}


def said_by_node(evidence: TrialResult) -> list[str]:
    return [finding.message for finding in evidence.findings if finding.source == "oracle-health"]


def test_an_unreadable_state_is_a_finding_against_the_client(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(PAUSES, bench_of(mini(ops=reads_not()), mini(paused_value="2")))
    [found] = [finding for finding in evidence.findings if finding.source == "oracle-health"]
    assert found.severity == "breaks-others"
    assert "Node chokes on it" in found.message


def _who_has_added(bench_of: BenchOf) -> Participant:
    """A client that works, after a job was added."""
    ops: dict[str, Handler | None] = {"queue.add": answers(id="1"), "worker.moveToCompleted": answers(job=None)}
    bench = bench_of(InProcessDriver(Mini()), InProcessDriver(Mini(ops=ops)))
    client = bench.participant("client", bench.names("client"), bench.clock(frozen=True))
    client.queue().add("work")
    return client


EMPTY_RESULT: dict[str, Any] = {"q:events": Stream([event("completed", jobId="1", returnvalue="")])}
NO_DELAY = {name: text for name, text in job().items() if name != "delay"}


@pytest.mark.parametrize(
    ("by", "left", "blamed_on"),
    [
        ("stand-in", EMPTY_RESULT, ("event.completed.returnvalue", "event.completed")),
        ("stand-in", {"q:1": job(delay="soon"), "q:2": NO_DELAY}, ("job.delay", "job.hash.delay")),
        ("stand-in", {"q:wait": ["1"]}, ("driver", "add.plain.waits")),
        ("self", EMPTY_RESULT, ("driver", COUNTED)),
    ],
    ids=["an event without result", "a job without delay", "nothing malformed", "its own call"],
)
def test_a_failed_call_for_the_client_counts_against_the_state_that_it_left(
    by: PerformedBy, left: dict[str, Any], blamed_on: tuple[str, str], bench_of: BenchOf
) -> None:
    client = _who_has_added(bench_of)
    (client.performed.stand_in if by == "stand-in" else client.performed.own).add("queue.getJobs")
    judge = Judge(COUNTS, load_ledger(), client)
    failed = msgspec.structs.replace(
        finding(COUNTED, where="driver"), kind="operation-failed", source="protocol", place="queue.getJobs"
    )
    blamed = judge.blamed_on_what_was_left(failed, snapshot(left))
    assert (blamed.where, blamed.requirement) == blamed_on


@pytest.mark.parametrize(("written", "where"), [("q:1:lock", "event.completed.returnvalue"), ("q:events", "driver")])
def test_only_keys_that_the_kit_wrote_are_its_own(written: str, where: str, bench_of: BenchOf) -> None:
    client = _who_has_added(bench_of)
    client.transcript.record_act("DEL", f"{client.prefix}:{written}")
    failed = msgspec.structs.replace(finding(COUNTED, where="driver"), kind="operation-failed", place="queue.getJobs")
    client.performed.stand_in.add("queue.getJobs")
    left = replace(snapshot(EMPTY_RESULT), prefix=client.prefix)
    assert Judge(COUNTS, load_ledger(), client).blamed_on_what_was_left(failed, left).where == where


@pytest.mark.parametrize(
    ("left", "requirement"),
    [
        ({"q:1": job(), "q:completed": Zset({"1": 1})}, "job.hash.returnvalue"),
        ({"q:1": job(), "q:active": ["1"]}, "add.plain.waits"),
    ],
    ids=["it has ended without result", "it has not ended"],
)
def test_a_missing_result_counts_against_its_own_row_if_the_job_has_ended(
    left: dict[str, Any], requirement: str, bench_of: BenchOf
) -> None:
    client = _who_has_added(bench_of)
    judge = Judge(replace(PAUSES, requirements=("add.plain.waits",)), load_ledger(), client)
    found = judge.mismatch(Mismatch("it is stored", expected="1", actual=None, where="job.returnvalue"))
    assert judge.blamed_on_what_was_left(found, snapshot(left)).requirement == requirement


def test_a_queue_of_which_the_oracles_answer_is_too_long_can_be_read(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    reads_much: dict[str, Handler | None] = {"queue.getJobs": fails(TOO_LONG, status="info")}
    evidence = tried(PAUSES, bench_of(mini(ops=reads_much), mini(paused_value="2")))
    assert (evidence.error, said_by_node(evidence)) == ("", [])
    assert evidence.findings, "the states still differ"


def test_the_oracle_reads_what_nothing_was_compared_with(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    def test_pauses(client: Participant) -> None:
        client.queue().call(Pause())

    apart: Scenario = vars(scenario(COUNTED, compare=False)(test_pauses))["scenario"]
    together: Scenario = vars(handover(COUNTED)(pausing_together))["scenario"]
    bench = bench_of(mini(ops=reads_not()), mini())
    assert said_by_node(tried(apart, bench))
    assert all(said_by_node(tried(together, bench, assignment=roles)) for roles in assignments(together.participants))


def test_the_oracle_reads_where_that_is_the_requirement(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    def test_pauses(client: Participant) -> None:
        client.queue().call(Pause())

    about_it: Scenario = vars(scenario(READABLE_BY_NODE)(test_pauses))["scenario"]
    assert said_by_node(tried(about_it, bench_of(mini(ops=reads_not()), mini())))
    assert READABLE_BY_NODE in load_ledger()


def pausing_together(pauser: Participant, listener: Participant) -> None:
    pauser.queue().call(Pause())
    listener.queue()


def test_the_oracle_does_not_read_the_very_same_that_it_has_left_itself(
    mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    assert said_by_node(tried(PAUSES, bench_of(mini(ops=reads_not()), mini()))) == []


# Handing over and sharing.


def test_a_handover_casts_by_its_assignment(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    cast: list[tuple[str, str]] = []

    def test_notes(pauser: Participant, listener: Participant, size: int) -> None:
        assert pauser.prefix == listener.prefix
        cast.append((pauser.role, listener.role) if size == 7 else ("", ""))

    noting: Scenario = vars(handover(HARMLESS)(test_notes))["scenario"]
    bench = bench_of(mini(), mini())
    for assignment in assignments(noting.participants):
        assert summary(tried(noting, bench, assignment=assignment, size=7)) == NOTHING_TO_SAY
    assert cast == [("client", "oracle"), ("oracle", "client")]


@pytest.mark.parametrize(("lacks", "who"), [("client", "the client"), ("oracle", "its partner")])
def test_an_assignment_with_an_unsupported_role_is_excluded_before_the_start(
    mini: MiniatureDrivers, bench_of: BenchOf, lacks: str, who: str
) -> None:
    limited, able = mini(ops={"queue.pause": None}), mini()
    bench = bench_of(able, limited) if lacks == "client" else bench_of(limited, able)
    said = []
    for assignment in assignments(HANDS_OVER.participants):
        evidence = tried(HANDS_OVER, bench, assignment=assignment)
        said.append(evidence.unsupported)
        assert evidence.findings == []
        assert not evidence.error
    assert sorted(said) == ["", f"{who} cannot be the pauser: its driver does not declare queue.pause"]


def test_a_partner_takes_the_oracles_place(mini: MiniatureDrivers, server: RedisInstance) -> None:
    cast: list[tuple[str, str]] = []

    def test_notes(pauser: Participant, listener: Participant) -> None:
        cast.append((pauser.role, listener.role))
        pauser.queue().pause()
        equal(listener.queue().call(CountPending()).count, 1, "there is one job")

    noting: Scenario = vars(handover(COUNTED)(test_notes))["scenario"]
    oracle = mini()
    bench = Bench(server, oracle, mini(count=5), partner=mini())
    try:
        first, second = [tried(noting, bench, assignment=roles) for roles in assignments(noting.participants)]
    finally:
        bench.close()
    assert cast == [("client", "partner"), ("partner", "client")]
    assert [finding.message for finding in first.findings if finding.source == "assertion"] == []
    [found] = [finding for finding in second.findings if finding.source == "assertion"]
    assert found.message == "there is one job"
    assert [(step.by, step.do) for step in second.steps if step.do == "queue.pause"] == [("partner", "queue.pause")]


def test_a_broken_partner_does_not_fail_the_client(
    mini: MiniatureDrivers, child: ChildDriver, server: RedisInstance
) -> None:
    bench = Bench(server, mini(), mini(), partner=child("op == 'queue.count' and die(3)"))
    try:
        evidence = tried(HANDS_OVER, bench, assignment=assignments(HANDS_OVER.participants)[0])
    finally:
        bench.close()
    assert evidence.findings == []
    assert "the partner itself" in evidence.error


def test_a_shared_scenario_judges_the_client(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    assert summary(tried(SHARES, bench_of(mini(), mini()))) == NOTHING_TO_SAY
    [found] = tried(SHARES, bench_of(mini(), mini(count=5))).findings
    assert found.message == "both count the same"


@pytest.mark.parametrize(
    "error", [ResponseError("BUSY Redis is busy running a script."), ConnectionError("Error 111: Connection refused.")]
)
def test_a_redis_that_another_process_has_kept_busy_asks_for_a_repetition(
    error: Exception, mini: MiniatureDrivers, bench_of: BenchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(mini(), mini())
    monkeypatch.setattr(bench.scripts_of_client, "begin", Mock(side_effect=error))
    evidence = tried(COUNTS, bench)
    assert (evidence.error, evidence.findings, evidence.reached_end) == ("", [], False)
    assert evidence.doubt == "Redis was busy with a script that did not end"
