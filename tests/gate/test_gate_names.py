"""Clients that choose other names than Node, or report less: the findings about that, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import msgspec
import pytest

from conformance.driver.errors import OperationUnanswered, OperationUnsupported
from conformance.environment.clients import Launch
from conformance.gate.bench import Bench
from conformance.gate.judge import Judge
from conformance.ledger.loader import load_ledger
from conformance.participants.job_ids import JobIds
from conformance.participants.key_translation import read_named
from conformance.participants.marks import Scenario
from conformance.participants.missing_answers import MissingValue
from conformance.participants.names import Names
from conformance.participants.roles import Assignment, assignments
from conformance.servers import RedisInstance

from .gate_builders import finding
from .limited_in_process import LimitedDriver
from .naming_scenarios import (
    ADDS,
    FAMILY,
    HANDOVER,
    LOSES_THE_COUNTER,
    NEEDS_NO_COUNT,
    NEEDS_THE_COUNT,
    OWN_LOOP,
    TRIMMED,
    UNHEARD,
    WHOLE_LIFE,
)
from .small_scenarios import NOTHING_TO_SAY, keys, summary, tried

BenchWith = Callable[..., Bench]


@pytest.fixture
def bench_with(server: RedisInstance) -> Iterator[BenchWith]:
    """The reference as the oracle, and itself with limits as the client."""
    with ExitStack() as stack:

        def make(*limits: str) -> Bench:
            oracle = LimitedDriver(Launch("oracle", []), seed=1)
            bench = Bench(server, oracle, LimitedDriver(Launch("limited", []), seed=1, limits=limits))
            stack.callback(bench.close)
            return bench

        yield make


EVERYWHERE = [
    (),
    ("--ids", "uuid"),
    ("--ids", "named"),
    ("--fixed-prefix", "bull"),
    ("--ids", "uuid", "--fixed-prefix", "x:y"),
]
UNANSWERED = ("--no-answer", "queue.add,queue.addBulk")


@pytest.mark.parametrize("limits", [*EVERYWHERE, UNANSWERED, (*UNANSWERED, "--ids", "uuid")], ids=" ".join)
@pytest.mark.parametrize("scenario", [WHOLE_LIFE, OWN_LOOP], ids=lambda scenario: scenario.name)
def test_other_names_do_not_cause_other_findings(
    bench_with: BenchWith, scenario: Scenario, limits: tuple[str, ...]
) -> None:
    evidence = tried(scenario, bench_with(*limits))
    assert summary(evidence) == NOTHING_TO_SAY, evidence.findings


@pytest.mark.parametrize("limits", EVERYWHERE, ids=" ".join)
@pytest.mark.parametrize("assignment", assignments(HANDOVER.participants), ids=str)
def test_both_work_in_one_queue(bench_with: BenchWith, limits: tuple[str, ...], assignment: Assignment) -> None:
    evidence = tried(HANDOVER, bench_with(*limits), assignment=assignment)
    assert summary(evidence) == NOTHING_TO_SAY, evidence.findings


@pytest.mark.parametrize(
    ("limits", "said"),
    [((), []), (("--ids", "uuid"), ["identity.job-ids"]), (("--fixed-prefix", "bull"), ["identity.prefix"])],
)
def test_the_row_about_it_says_it_once(bench_with: BenchWith, limits: tuple[str, ...], said: list[str]) -> None:
    evidence = tried(ADDS, bench_with(*limits))
    assert [finding.where for finding in evidence.findings] == said


@pytest.mark.parametrize("limits", EVERYWHERE, ids=" ".join)
def test_an_invariant_of_a_job_counts_against_the_call_that_names_it(
    bench_with: BenchWith, limits: tuple[str, ...]
) -> None:
    bench = bench_with(*limits)
    client = bench.participant("client", bench.names("client"), bench.clock(frozen=False))
    queue = client.queue()
    queue.add("work")
    queue.pause()
    names = client.names
    key = f"{names.client_queue('q')}:{names.ids('q').to_client('1')}"
    broken = msgspec.structs.replace(finding("add.plain.waits", where="invariant.some"), source="invariant", key=key)
    judge = Judge(replace(ADDS, requirements=()), load_ledger(), client)
    assert judge.attributed(broken).requirement == "add.plain.waits"


def test_keys_of_others_under_the_fixed_prefix_stay(bench_with: BenchWith, server: RedisInstance) -> None:
    with server.connect() as client:
        client.hset("bull:q:1", mapping={"name": "not the kit's"})
        client.lpush("bull:q:wait", "1")
    before = keys(server)
    evidence = tried(WHOLE_LIFE, bench_with("--fixed-prefix", "bull"))
    assert summary(evidence) == NOTHING_TO_SAY
    assert keys(server) == before
    server.remove_prefix("bull")


def test_families_are_the_same_under_other_names(bench_with: BenchWith) -> None:
    evidence = tried(FAMILY, bench_with("--ids", "uuid", "--fixed-prefix", "bull"))
    assert summary(evidence) == NOTHING_TO_SAY, evidence.findings


def test_an_unchecked_result_is_not_missed(bench_with: BenchWith) -> None:
    evidence = tried(NEEDS_NO_COUNT, bench_with("--no-answer", "job.log"))
    assert summary(evidence) == NOTHING_TO_SAY
    assert evidence.unanswered == ["job.log"]


def test_a_scenario_about_the_answer_is_unsupported(bench_with: BenchWith) -> None:
    evidence = tried(NEEDS_THE_COUNT, bench_with("--no-answer", "job.log"))
    assert evidence.unsupported == "job.log is unsupported: the client does not return the result"
    assert not evidence.findings


def test_the_order_of_a_bulk_is_found_in_wait_where_the_stream_was_trimmed(bench_with: BenchWith) -> None:
    assert summary(tried(TRIMMED, bench_with(*UNANSWERED))) == NOTHING_TO_SAY


def test_an_unreportable_call_is_not_repeated(bench_with: BenchWith) -> None:
    evidence = tried(UNHEARD, bench_with(*UNANSWERED))
    assert evidence.unsupported == "queue.add is unsupported: the client does not return the result"
    assert not evidence.findings


def test_results_that_depend_on_the_counter_are_unsupported_for_other_ids(bench_with: BenchWith) -> None:
    assert not tried(LOSES_THE_COUNTER, bench_with()).unsupported
    assert "a lost counter id" in tried(LOSES_THE_COUNTER, bench_with("--ids", "uuid")).unsupported


# Ids of one queue.


def learned(ids: JobIds, *answers: str | None, counter: int = 0) -> str:
    with ids.adding(len(answers)):
        return ids.learn(answers, lambda: counter)


def test_a_client_that_counts_is_never_asked_about() -> None:
    ids = JobIds()
    with ids.adding(2):
        ids.learn(["1", "2"], pytest.fail)
    assert ids.same


def test_a_counter_that_advanced_elsewhere_still_matches_node() -> None:
    ids = JobIds()
    assert not learned(ids, "7", counter=7)
    assert ids.to_scenario("7") == "7"
    assert ids.same


def test_numbers_from_zero_are_another_scheme() -> None:
    ids = JobIds()
    assert learned(ids, "0") == "'0' for job 1"
    assert learned(ids, "1") == "'1' for job 2"
    assert [ids.to_client("1"), ids.to_client("2")] == ["0", "1"]
    assert [ids.to_scenario("0"), ids.to_scenario("1")] == ["1", "2"]


def test_a_counter_that_other_calls_moved_is_followed() -> None:
    ids = JobIds()
    learned(ids, "x", counter=1)
    learned(ids, "y", counter=5)
    assert ids.to_client("5") == "y"


def test_the_users_own_ids_stay_and_count() -> None:
    ids = JobIds()
    ids.name("mine")
    learned(ids, None)
    learned(ids, "x", counter=2)
    assert (ids.to_client("mine"), ids.to_client("2")) == ("mine", "x")


@pytest.mark.parametrize("later", [["x", "y"], ["xy"]], ids=["one by one", "a bulk"])
def test_a_duplicate_is_the_owner_again_and_takes_a_number(later: list[str]) -> None:
    ids = JobIds()
    for answers in ["x", *later]:
        learned(ids, *answers)
    assert (ids.to_client("1"), ids.to_client("3")) == ("x", "y")
    assert ids.duplicate_to_scenario("never reported") == "2"


def test_ids_restart_after_an_obliteration() -> None:
    ids = JobIds()
    learned(ids, "x", counter=1)
    with ids.obliterating(lambda: True):
        pass
    learned(ids, "y", counter=1)
    assert ids.to_client("1") == "y"


def test_a_refused_obliteration_changes_nothing() -> None:
    ids = JobIds()
    learned(ids, "x", counter=1)
    with ids.obliterating(lambda: False):
        pass
    learned(ids, "y", counter=2)
    assert (ids.to_client("1"), ids.to_client("2")) == ("x", "y")


def test_an_obliterated_job_keeps_its_number() -> None:
    ids = JobIds()
    learned(ids, "x", counter=1)
    with ids.adding(1):
        with ids.obliterating(lambda: True):
            pass
        ids.learn(["y"], lambda: 0)
    assert ids.to_scenario("y") == "2"


def test_ids_restart_after_an_unobserved_obliteration() -> None:
    ids = JobIds()
    learned(ids, "x", counter=1)
    with ids.obliterating(lambda: True):
        learned(ids, "y", counter=1)
    assert ids.to_client("1") == "y"


def test_a_flow_has_uuids() -> None:
    ids = JobIds()
    assert not ids.learn_of_flow("26b0f6a1-6f0c-4b8e-9d3a-0f8f2f0f9f11")
    assert ids.learn_of_flow("job-2") == "'job-2' for a job of a flow"


# Keys in texts.


def test_full_keys_are_renamed_in_any_text() -> None:
    names = Names("bc1", fixed_prefix="bull")
    learned(names.ids("q"), "x")
    assert names.to_client("child bc1:q:1 failed") == "child bull:q-bc1:x failed"
    assert names.to_scenario({"bull:q-bc1:x": ['{"queueKey":"bull:q-bc1"}']}) == {"bc1:q:1": ['{"queueKey":"bc1:q"}']}
    assert names.to_scenario("bull:q:x") == "bull:q:x"


def test_a_queue_whose_ids_are_not_counted_has_a_counter_for_the_comparison(server: RedisInstance) -> None:
    names = Names("bc1")
    learned(names.ids("q"), "x", "y")
    with server.connect() as client:
        client.rpush("bc1:q:wait", "x", "y")
        actual, renamed = read_named(client, names)
    server.remove_prefix("bc1")
    assert {row.queue: row.value for row in renamed.counters} == {"q": "2"}
    assert not actual.counters


def test_full_keys_are_renamed_with_ids_of_any_characters() -> None:
    names = Names("bc1")
    learned(names.ids("q"), "x", 'x y:"2"', 'x y:"2"\r\n3')
    assert names.to_scenario('bc1:q:x y:"2"\r\n3') == "bc1:q:3"
    assert names.to_scenario('child bc1:q:x y:"2" failed') == "child bc1:q:2 failed"
    assert names.to_scenario("child bc1:q:x failed") == "child bc1:q:1 failed"


def test_a_parent_is_known_in_either_name_of_its_queue() -> None:
    names = Names("bc1", fixed_prefix="bull")
    learned(names.ids("q"), "x")
    for full in ("bull:q-bc1", "bc1:q"):
        assert names.parent_to_scenario({"id": "x", "queue": full}) == {"id": "1", "queue": "bc1:q"}


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"p:q:1":', "}")])
def test_data_may_be_nested_deeper_than_calls(opening: str, closing: str) -> None:
    deep = f'{opening * 400}"p:q:1"{closing * 400}'
    names = Names("p", fixed_prefix="bull")
    sent, depth = names.to_client(json.loads(deep)), 0
    while not isinstance(sent, str):
        [sent], depth = (sent if isinstance(sent, list) else sent.values()), depth + 1
    assert (sent, depth) == ("bull:q-p:1", 400)


def test_a_missing_result_cannot_be_checked() -> None:
    missing = MissingValue("job.log")
    for look in (bool, int, str, len, list, lambda value: value == 1, lambda value: value > 1, lambda value: value.id):
        with pytest.raises(OperationUnanswered):
            look(missing)
    assert issubclass(OperationUnanswered, OperationUnsupported)
