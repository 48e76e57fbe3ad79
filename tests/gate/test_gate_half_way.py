"""A failure that is excused does not hide the other differences of its scenario: pairs of defects, in one process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import queue as ops
from conformance.driver.serve import Handler, Json, OpError
from conformance.gate.judge import ORACLE_HEALTH
from conformance.gate.known_failures import KnownFailure
from conformance.gate.options import RunConfig
from conformance.gate.records import ScenarioRecord
from conformance.gate.trial_result import TrialResult
from conformance.gate.verdicts import make_record, verdict_of
from conformance.ledger.loader import load_ledger
from conformance.ledger.operations import load_operations
from conformance.observe.differences import difference
from conformance.observe.moves import apart_from_moves
from conformance.participants.clock import FROZEN_START_MS
from conformance.participants.expect import equal
from conformance.participants.marks import Scenario, scenario
from conformance.participants.participant import Participant
from conformance.protocol.states import DELAY_FACTOR
from conformance.servers import RedisInstance

from .gate_builders import item
from .miniature_drivers import BenchOf, answers, fails, refuses
from .small_scenarios import COUNTED, MiniatureDrivers, tried

SCORE = float((FROZEN_START_MS + 5000) * DELAY_FACTOR)
STYLE = min(
    row.id
    for row in load_ledger().values()
    if row.level == "SHOULD" and not row.owns and not load_operations().about(row.id)
)
"""A requirement that only warns, and is about no operation in particular."""


@dataclass(frozen=True)
class Defect:
    """Deviations of a client: `hash` and `meta` replace fields; `where` is the locator of the difference."""

    where: str = ""
    hash: dict[str, str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    answer: dict[str, Any] = field(default_factory=dict)
    score: float = SCORE
    container: str = "delayed"
    announces: bool = True
    counts: Handler | None = None


def adding(server: RedisInstance, *defects: Defect) -> dict[str, Handler | None]:
    """The operations of a client that adds one delayed job, with these defects."""
    opened: dict[str | None, Json] = {}
    hashes = {name: text for defect in defects for name, text in defect.hash.items()}
    metas = {name: text for defect in defects for name, text in defect.meta.items()}
    view = {"id": "1", "name": "n", "data_raw": "{}"} | {k: v for defect in defects for k, v in defect.answer.items()}
    score = next((defect.score for defect in defects if defect.score != SCORE), SCORE)
    container = next((defect.container for defect in defects if defect.container != "delayed"), "delayed")

    async def open_handle(handle: str | None, args: Json) -> Json:
        opened[handle] = args
        return {}

    def base(handle: str | None) -> str:
        return f"{opened[handle]['prefix']}:{opened[handle]['queue']}:"

    async def add(handle: str | None, _args: Json) -> Json:
        # Straight to the server, because the tap would report commands outside of scripts.
        with server.connect() as client:
            plain = {"name": "n", "data": "{}", "opts": '{"attempts":3,"delay":5000}', "delay": "5000", "priority": "0"}
            client.hset(f"{base(handle)}1", mapping={**plain, "timestamp": str(FROZEN_START_MS), **hashes})
            client.hset(f"{base(handle)}meta", mapping={"opts.maxLenEvents": "10000", "version": "mini:1", **metas})
            client.set(f"{base(handle)}id", 1)
            if container == "delayed":
                client.zadd(f"{base(handle)}delayed", {"1": score})
                client.zadd(f"{base(handle)}marker", {"1": FROZEN_START_MS + 5000})
            else:
                client.lpush(f"{base(handle)}wait", "1")
                client.zadd(f"{base(handle)}marker", {"0": 0})
            client.xadd(f"{base(handle)}events", {"event": "added", "jobId": "1", "name": "n"})
            if all(defect.announces for defect in defects):
                due = {"event": "delayed", "jobId": "1", "delay": FROZEN_START_MS + 5000}
                client.xadd(f"{base(handle)}events", due)
        return {"id": "1"}

    async def pause(handle: str | None, _args: Json) -> Json:
        with server.connect() as client:
            client.hset(f"{base(handle)}meta", "paused", "1")
        return {}

    counts = next((defect.counts for defect in defects if defect.counts), answers(count=1))
    return {
        "open": open_handle,
        "queue.add": add,
        "queue.getJob": answers(job=view),
        "queue.count": counts,
        "queue.pause": pause,
    }


def steps(client: Participant) -> ops.CountPending:
    queue = client.queue()
    queue.call(ops.Add(name="n", opts={"delay": 5000}))
    queue.call(ops.GetJob(job="1"))
    return ops.CountPending()


def score_is_due(client: Participant) -> None:
    """The score of a delayed job is its due time."""
    steps(client)
    queue = client.queue()
    equal(queue.redis.score("delayed", "1"), SCORE, "the score is the due time", where="membership.delayed.score")
    queue.call(ops.Pause())


def counts_one(client: Participant) -> None:
    """There is one job."""
    count, queue = steps(client), client.queue()
    equal(queue.call(count).count, 1, "there is one job")
    queue.call(ops.Pause())


def counts_one_at_last(client: Participant) -> None:
    """There is one job sooner or later."""
    count, queue = steps(client), client.queue()
    client.eventually(lambda: queue.call(count).count, lambda seen: seen == 1, "there is one job", within_ms=200)
    queue.call(ops.Pause())


def of(function: Callable[..., None], requirement: str = COUNTED) -> Scenario:
    marked = scenario(requirement, without={ORACLE_HEALTH: "a miniature has no getters"})(function)
    found: Scenario = vars(marked)["scenario"]
    return found


FIRST: dict[str, tuple[Scenario, Defect]] = {
    "a listed state": (of(score_is_due), Defect(score=SCORE + DELAY_FACTOR)),
    "a listed answer": (of(counts_one), Defect(counts=answers(count=2))),
    "a listed refusal": (of(counts_one), Defect(counts=fails("missing-job", "gone"))),
    "a listed wait": (of(counts_one_at_last), Defect(counts=answers(count=2))),
    "a warning": (of(counts_one, STYLE), Defect(counts=answers(count=2))),
    "an undecided step": (of(counts_one), Defect(counts=refuses())),
}
"""The failure that stops the steps, and is excused."""

SECOND: dict[str, Defect] = {
    "a name": Defect("job.name", hash={"name": "other"}),
    "an option": Defect("job.opts.attempts", hash={"opts": '{"attempts":4,"delay":5000}'}),
    "a timestamp": Defect("job.timestamp", hash={"timestamp": str(FROZEN_START_MS + 1)}),
    "a setting": Defect("meta.opts.maxLenEvents", meta={"opts.maxLenEvents": "5"}),
    "an answer": Defect("answer.queue.getJob.job.name", answer={"name": "other"}),
    "a field": Defect("job.priority", hash={"priority": "7"}),
    "an event": Defect("event.delayed", announces=False),
}
ON_ITS_WAY = {"a field", "an event"}
"""Defects that a job may have because it is late: behind a wait that ran out they may be its consequence."""

PAIRS = [
    (first, second) for first in FIRST for second in SECOND if not (first == "a listed wait" and second in ON_ITS_WAY)
]


def judged(name: str, result: TrialResult) -> ScenarioRecord:
    """The record, with the failure that stopped the steps in the list of known ones."""
    found, _ = FIRST[name]
    stopping = [finding for finding in result.findings if finding.source in ("assertion", "protocol")]
    known = [
        KnownFailure(requirement=finding.requirement, reason="listed", where=finding.where) for finding in stopping
    ]
    return make_record(item(found), found, result, config=RunConfig(), known=known, ledger=load_ledger())


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 30


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_the_second_defect_of_a_scenario_is_found(
    first: str, second: str, mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    found, stopping = FIRST[first]
    result = tried(found, bench_of(mini(ops=adding(server)), mini(ops=adding(server, stopping, SECOND[second]))))
    record = judged(first, result)
    assert not result.reached_end
    [shown] = [finding for finding in record.findings if finding.where == SECOND[second].where]
    assert shown.requirement not in record.known
    assert record.requirements[shown.requirement] == verdict_of(shown, load_ledger()) != "pass"


@pytest.mark.parametrize("first", FIRST)
def test_an_excused_failure_alone_has_no_other_findings(
    first: str, mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    found, stopping = FIRST[first]
    result = tried(found, bench_of(mini(ops=adding(server)), mini(ops=adding(server, stopping))))
    assert [finding for finding in result.findings if finding.source not in ("assertion", "protocol")] == []
    assert len(result.findings) == (0 if first == "an undecided step" else 1)
    assert judged(first, result).verdict in ("pass", "unsupported", "warn")


@pytest.mark.parametrize("second", SECOND)
def test_a_job_that_is_elsewhere_is_a_consequence_and_its_own_fields_are_not(
    second: str, mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    """A score cannot be read of a job that is in the wrong container."""
    at_once = Defect(container="wait", announces=False)
    alone = tried(of(score_is_due), bench_of(mini(ops=adding(server)), mini(ops=adding(server, at_once))))
    assert [finding.source for finding in alone.findings] == ["assertion"]
    both = tried(
        of(score_is_due), bench_of(mini(ops=adding(server)), mini(ops=adding(server, at_once, SECOND[second])))
    )
    others = [finding.where for finding in both.findings if finding.source != "assertion"]
    assert others == ([] if second in ON_ITS_WAY else [SECOND[second].where])


def test_children_in_other_queues_follow_a_moved_job_and_nothing_else_there_does() -> None:
    moved = difference("wrong-state", "membership.state", "q:1", "wait", "active")
    child = difference("missing-member", "dependency.pending", "below:2", "p:q:1", None)
    marker = difference("missing-member", "marker.base", "below:marker", "0", None)
    assert apart_from_moves([moved, child, marker], moving=False) == [marker]


@pytest.mark.parametrize("hurt", ["disturb", "meanwhile"])
def test_steps_without_a_fixed_order_are_not_compared_half_way(
    hurt: str, mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    def test_hurts(client: Participant) -> None:
        if hurt == "disturb":
            client.transcript.disturb("every connection is cut")
        else:
            client.meanwhile(lambda: None).result()
        counts_one(client)

    client = mini(ops=adding(server, Defect(counts=answers(count=2)), SECOND["a name"]))
    result = tried(of(test_hurts), bench_of(mini(ops=adding(server)), client))
    assert [finding.source for finding in result.findings] == ["assertion"]


def finds_no_other(client: Participant) -> None:
    """There is one job; and this is only a step of a scenario about its score."""
    steps(client)
    found = client.queue().call(ops.GetJob(job="2")).job
    equal(found, None, "there is no other job", where="row.getters.job")


def test_an_answer_that_an_assertion_reads_is_one_finding(
    mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    async def any_job(_handle: str | None, args: Json) -> Json:
        return {"job": {"id": args["job"], "name": "n", "data_raw": "{}"}}

    async def one_job(handle: str | None, args: Json) -> Json:
        return await any_job(handle, args) if args["job"] == "1" else {"job": None}

    oracle, client = (mini(ops=adding(server) | {"queue.getJob": getter}) for getter in (one_job, any_job))
    result = tried(of(finds_no_other, "order.delayed.score"), bench_of(oracle, client))
    assert [finding.requirement for finding in result.findings] == ["getters.job"]


def adds_and_pauses(client: Participant) -> None:
    """A job is added to a queue that is then paused."""
    steps(client)
    client.queue().call(ops.Pause())


@pytest.mark.parametrize(("worked", "row"), [(False, "pause.moves-wait"), (True, "pause.marker")])
def test_an_operation_that_always_fails_is_at_fault_itself_also_for_what_it_has_changed(
    worked: bool, row: str, mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    ops_of_client = adding(server, SECOND["a field"])
    pause = ops_of_client["queue.pause"]

    async def failing(handle: str | None, args: Json) -> Json:
        assert pause is not None
        await pause(handle, args)
        raise OpError("other", "redis: nil")

    client = mini(ops=ops_of_client | {"queue.pause": failing})
    if worked:
        client.breakdowns.worked("queue.pause")
    result = tried(of(adds_and_pauses, "pause.marker"), bench_of(mini(ops=adding(server)), client))
    assert {finding.requirement for finding in result.findings} == {row, "job.hash.priority"}


def tries_to_pause(client: Participant) -> None:
    """A job is added; whether the queue can be paused shows in the answer only."""
    with suppress(OperationFailed):
        adds_and_pauses(client)


def test_an_operation_that_always_fails_is_at_fault_for_what_it_does_not_do(
    mini: MiniatureDrivers, bench_of: BenchOf, server: RedisInstance
) -> None:
    client = mini(ops=adding(server, SECOND["a field"]) | {"queue.pause": fails("other", "redis: nil")})
    result = tried(of(tries_to_pause, "pause.marker"), bench_of(mini(ops=adding(server)), client))
    assert {finding.requirement for finding in result.findings} == {"pause.moves-wait", "job.hash.priority"}


# Keys that only the kit wrote.


def counts_an_owner(client: Participant) -> None:
    """A job that owns a deduplication id is counted."""
    queue = client.queue()
    queue.call(ops.Pause())
    queue.call(ops.Add(name="n", opts={"delay": 5000}))
    queue.redis.set_string("de:its", "1")
    equal(queue.call(ops.CountPending()).count, 1, "there is one job")


def notes_one(client: Participant) -> None:
    """A job gets a field."""
    queue = client.queue()
    queue.call(ops.Add(name="n", opts={"delay": 5000}))
    queue.redis.set_field("1", "note", "x")


CLAIMS_TO_ADD: dict[str, Handler | None] = {"queue.add": answers(id="1"), "queue.count": answers(count=0)}


@pytest.mark.parametrize("pauses", [False, True], ids=["writes-nothing", "writes-something-else"])
def test_a_key_that_only_the_kit_wrote_is_not_the_client_s_mistake(
    server: RedisInstance, mini: MiniatureDrivers, bench_of: BenchOf, *, pauses: bool
) -> None:
    client = mini(ops=CLAIMS_TO_ADD if pauses else {**CLAIMS_TO_ADD, "queue.pause": answers()})
    result = tried(of(counts_an_owner), bench_of(mini(ops=adding(server)), client))
    assert [finding.message for finding in result.findings if finding.source == "assertion"] == ["there is one job"]
    assert [finding.message for finding in result.findings if finding.source == "invariant"] == []
    assert not result.error


def test_the_kit_adds_no_field_to_a_job_that_is_not_there(
    server: RedisInstance, mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    result = tried(of(notes_one), bench_of(mini(ops=adding(server)), mini(ops=CLAIMS_TO_ADD)))
    assert [finding.message for finding in result.findings if finding.source == "assertion"] == ["job 1 exists"]
    assert [finding.message for finding in result.findings if finding.source == "invariant"] == []


def test_a_key_that_the_client_damages_is_its_mistake(
    server: RedisInstance, mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    healthy, scripted = adding(server), adding(server, Defect(hash={"data": "{"}, counts=answers(count=0)))
    result = tried(of(counts_one), bench_of(mini(ops=healthy), mini(ops=scripted)))
    assert [finding.where for finding in result.findings if finding.source == "invariant"] == ["invariant.json-texts"]


def counts_meanwhile(client: Participant) -> None:
    """A call that another thread makes is answered."""
    queue = client.queue()
    pending = client.meanwhile(lambda: queue.call(ops.CountPending()))
    client.eventually(lambda: pending.done and not pending.failure, bool, "it is answered", within_ms=300)


@pytest.mark.parametrize(
    ("answer", "blamed", "unsupported"), [(refuses(), [], True), (fails("other", "broken"), ["assertion"], False)]
)
def test_a_wait_for_an_unsupported_call_of_another_thread_blames_no_client(
    answer: Handler, blamed: list[str], mini: MiniatureDrivers, bench_of: BenchOf, *, unsupported: bool
) -> None:
    result = tried(of(counts_meanwhile), bench_of(mini(), mini(ops={"queue.count": answer})))
    assert [finding.source for finding in result.findings] == blamed
    assert bool(result.unsupported) == unsupported
