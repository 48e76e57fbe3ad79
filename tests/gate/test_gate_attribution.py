"""Which requirement a finding counts against, case by case, on the real ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from conformance.checkers.snapshot_checks import check_snapshot
from conformance.driver.ops import REGISTRY
from conformance.findings import Finding
from conformance.gate.attribution import (
    BY_DOING,
    Attribution,
    culprits_at,
    culprits_now,
    jobs_named,
    may_follow_from_a_move,
    misled_jobs,
    operation_of,
    reads,
)
from conformance.ledger.loader import load_ledger
from conformance.ledger.operations import WORKER_RUN, load_operations
from conformance.participants.expect import Mismatch, behind, equal
from conformance.participants.stand_in import PerformedOperations
from conformance.participants.transcript import RecordedCall, Transcript
from tests.observe.snapshot_builders import ADDED, Zset, job, snapshot

EVERYTHING = frozenset({*REGISTRY, WORKER_RUN})

ADD = RecordedCall("queue.add", "ok", {"id": "1"}, {"name": "work", "opts": {}})
ADD_TWO = RecordedCall("queue.add", "ok", {"id": "2"}, {"name": "work", "opts": {}})
PAUSE = RecordedCall("queue.pause", "ok", {})
CLAIM = RecordedCall("worker.getNextJob", "ok", {"job": {"id": "1", "name": "work"}}, {"token": "t"})
COMPLETE = RecordedCall("worker.moveToCompleted", "ok", {"job": None}, {"job": "1", "token": "t"})
RETRY = RecordedCall("job.retry", "ok", {}, {"job": "1", "state": "failed"})
RESUME = RecordedCall("queue.resume", "ok", {})
BY_OTHER = replace(ADD, by="stand-in")
PROMOTE = RecordedCall("job.promote", "ok", {}, {"job": "1"})
STATE = RecordedCall("queue.getJobState", "ok", {"state": "waiting"}, {"job": "1"})
CLOSE = RecordedCall("close", "ok", {})
QUEUE = RecordedCall("open", "ok", {}, {"role": "queue", "queue": "q"})
BY_HAND = RecordedCall("open", "ok", {}, {"role": "worker", "processor": "manual"})
BY_ITSELF = RecordedCall("open", "ok", {}, {"role": "worker", "processor": "noop"})
RESOLVE = RecordedCall("resolve", "ok", {}, {"job": "1", "outcome": "complete"})


def blame(
    *requirements: str,
    calls: tuple[RecordedCall, ...] = (),
    declared: frozenset[str] = EVERYTHING,
    not_refused: RecordedCall | None = None,
) -> Attribution:
    return Attribution(requirements, load_ledger(), load_operations(), declared, calls, not_refused)


def found(
    where: str, key: str = "q:1", place: str = "", source: Literal["snapshot", "invariant"] = "snapshot"
) -> Finding:
    return Finding(
        requirement="",
        source=source,
        kind="wrong-value",
        severity="wrong-behaviour",
        where=where,
        key=key,
        expected="one",
        actual="another",
        message="they differ",
        place=place,
    )


@pytest.mark.parametrize("where", ["membership.state", "invariant.paused-list"])
@pytest.mark.parametrize(
    ("calls", "row"),
    [
        ((ADD, PAUSE), "pause.moves-wait"),
        ((ADD, PAUSE, ADD_TWO), "pause.moves-wait"),
        ((BY_OTHER, PAUSE), "pause.moves-wait"),
        ((PROMOTE, RESUME), "pause.moves-wait"),
        ((PAUSE, ADD), "paused.everything-parks"),
        ((ADD, PAUSE, PROMOTE), "paused.everything-parks"),
        ((ADD, PAUSE, BY_OTHER), "paused.everything-parks"),
        ((ADD, CLAIM, PAUSE), "paused.everything-parks"),
        ((BY_ITSELF, ADD, PAUSE), "paused.everything-parks"),
    ],
)
def test_a_job_that_a_pause_leaves_in_wait_counts_against_the_pause(
    where: str, calls: tuple[RecordedCall, ...], row: str
) -> None:
    left = msgspec.structs.replace(found(where), expected='["paused"]', actual='["wait"]')
    own = tuple(call for call in calls if call.by == "self")
    assert replace(blame("paused.everything-parks", calls=own), history=calls).of_finding(left) == row


@pytest.mark.parametrize(
    ("calls", "place", "row"),
    [
        ((CLAIM, RETRY, RESOLVE), "event.waiting", "event.waiting"),
        ((ADD, CLAIM), "event.waiting", "event.waiting"),
        ((ADD, CLAIM, COMPLETE), "event.waiting", "interop.run-once"),
        ((ADD, CLAIM), "event.active", "interop.run-once"),
    ],
)
def test_a_start_whose_reason_is_known_lacks_only_its_event(
    calls: tuple[RecordedCall, ...], place: str, row: str
) -> None:
    twice = found("handover.twice", place=place, source="invariant")
    assert blame("interop.run-once", calls=calls).of_finding(twice) == row


RETRIES = replace(ADD, args={"name": "work", "opts": {"attempts": 2}})
LATER = replace(ADD, args={"name": "work", "opts": {"delay": 60_000, "attempts": "some"}})
URGENT = replace(ADD, args={"name": "work", "opts": {"priority": 3}})
COUNTED = {"q:1": job(atm="2", attemptsMade="0"), "q:wait": ["1"]}
WITH_BACK_OFF = {"q:1": job(opts='{"backoff":{"type":"fixed","delay":9}}'), "q:delayed": Zset({"1": 1})}


@pytest.mark.parametrize(
    ("call", "left", "own", "stand_in", "misled"),
    [
        (RETRIES, WITH_BACK_OFF, "", "", [("q:1", "job.opts.backoff")]),
        (RETRIES, WITH_BACK_OFF, "", "worker.moveToDelayed", []),
        (RETRIES, {"q:1": job(), "q:delayed": Zset({"1": 1})}, "", "", []),
        (RETRIES, COUNTED, "", "job.promote", [("q:1", "job.*")]),
        (RETRIES, COUNTED, "job.retry", "", []),
        (RETRIES, {"q:1": job(atm="2"), "q:wait": ["1"]}, "", "", []),
        (URGENT, {"q:1": {"name": "n"}, "q:wait": ["1"]}, "", "", [("q:1", "job.priority")]),
        (URGENT, {"q:1": job(), "q:wait": ["1"]}, "", "", []),
        (LATER, {"q:1": job(), "q:wait": ["1"]}, "", "worker.getNextJob", [("q:1", "membership.delayed.score")]),
        (LATER, {"q:1": job(), "q:wait": ["1"]}, "worker.getNextJob", "", []),
        (LATER, {"q:1": job(), "q:wait": ["1"]}, "", "", []),
        (LATER, {"q:1": job(timestamp="9"), "q:wait": ["1"]}, "", "worker.getNextJob", []),
        (RETRIES, {"q:1": job(), "q:wait": ["1"]}, "", WORKER_RUN, [("q:1", "marker.base")]),
        (RETRIES, {"q:1": job(), "q:wait": ["1"], "q:marker": Zset({"0": 0})}, "", WORKER_RUN, []),
    ],
)
def test_a_value_that_an_add_stored_is_the_cause_of_where_others_put_the_job(
    call: RecordedCall, left: dict[str, Any], own: str, stand_in: str, misled: list[tuple[str, str]]
) -> None:
    performed = PerformedOperations(own={own}, stand_in={stand_in})
    assert list(misled_jobs(snapshot(left), [call], performed, ADDED)) == misled


@pytest.mark.parametrize(
    ("where", "key", "kind", "follows"),
    [
        ("membership.state", "q:1", "wrong-state", True),
        ("membership.state", "q:2", "wrong-state", False),
        ("job.delay", "q:1", "wrong-value", True),
        ("job.ats", "q:1", "wrong-value", False),
        ("event.delayed", "q:1", "extra-event", True),
        ("event.delayed.delay", "q:1", "event-field", False),
        ("event.added", "q:1", "missing-event", False),
        ("event.order", "q:events", "wrong-event-order", True),
    ],
)
def test_only_the_way_of_a_misled_job_is_a_consequence(where: str, key: str, kind: str, follows: bool) -> None:
    assert may_follow_from_a_move(msgspec.structs.replace(found(where, key), kind=kind), "q:1") == follows


# By the place.


@pytest.mark.parametrize(
    ("where", "place", "row"),
    [
        ("job.timestamp", "", "job.hash.timestamp"),
        ("invariant.times", "job.timestamp", "job.hash.timestamp"),
        ("invariant.required-fields", "job.opts", "add.options.kept"),
        ("invariant.event-fields", "event.waiting.prev", "event.waiting"),
        ("invariant.locks", "lock.ttl", "lock.duration"),
        ("invariant.locks", "lock.left", "lock.released"),
        ("lock.left", "", "lock.released"),
        ("invariant.no-ghosts", "membership.wait", "lifecycle.one-state"),
        ("membership.ghost", "", "lifecycle.one-state"),
        ("oracle.ghosts", "", "lifecycle.one-state"),
        ("oracle.getters", "", "event.readable-by-node"),
        ("invariant.paused-list", "membership.wait", "paused.everything-parks"),
        ("invariant.deduplication", "dedup.job", "dedup.simple.ends"),
        ("event.no-such-event", "", "event.no-common-fields"),
        ("dependency.pending.score", "", "flow.child.linked"),
        ("answer.queue.getJob.job.attempts_made", "", "getters.job.fields"),
        ("answer.worker.getNextJob.job.attempts_made", "", "job.hash.attempts-made"),
    ],
)
def test_the_owner_of_the_place_answers(where: str, place: str, row: str) -> None:
    assert blame("add.lifo", calls=(ADD,)).of_finding(found(where, place=place)) == row


def test_a_client_is_not_blamed_for_operations_that_it_lacks() -> None:
    """A client that only adds has no locks: what is odd about one is its adding's doing."""
    adds = frozenset({"open", "close", "queue.add"})
    only = blame("lock.token", "add.lifo", calls=(ADD,), declared=adds)
    assert only.of_finding(found("lock.token")) == "add.lifo"
    assert blame("lock.token", calls=(ADD,), declared=adds).of_finding(found("lock.token")) == "add.plain.waits"
    assert blame("add.lifo", calls=(ADD,)).of_finding(found("lock.token")) == "lock.token"


# By the doing.


@pytest.mark.parametrize(
    ("requirements", "calls", "row"),
    [
        (("pause.meta", "add.lifo"), (ADD, PAUSE), "add.lifo"),
        (("pause.meta", "add.lifo"), (ADD_TWO, PAUSE), "pause.meta"),
        (("getters.promote", "add.delayed.set"), (ADD, PROMOTE, STATE, CLOSE), "getters.promote"),
        (("getters.state", "interop.plain"), (ADD,), "interop.plain"),
        (("getters.state",), (ADD,), "add.plain.waits"),
        (("add.lifo", "liveness.pickup"), (ADD, BY_ITSELF), "liveness.pickup"),
        (("liveness.close-ends",), (QUEUE, CLOSE), "liveness.close-ends"),
        (("getters.state",), (), "order.meta"),
    ],
    ids=[
        "by-its-job",
        "by-the-last-write",
        "readers-write-nothing",
        "generic",
        "own-row",
        "worker",
        "close",
        "nothing",
    ],
)
def test_the_operation_that_did_it_answers(
    requirements: tuple[str, ...], calls: tuple[RecordedCall, ...], row: str
) -> None:
    assert blame(*requirements, calls=calls).of_finding(found("membership.state")) == row


@pytest.mark.parametrize(
    ("where", "row"),
    [
        ("answer.queue.getJobState.state", "getters.state"),
        ("answer.queue.count.count", "getters.count-pending"),
        ("answer.queue.getMetrics.data", "metrics.read"),
        ("answer.open.outcome", "order.meta"),
        ("answer.worker.moveToCompleted.outcome", "lifecycle.complete.moves"),
        ("answer.queue.getJobs.jobs.id", "getters.order"),
    ],
)
def test_a_result_counts_against_its_operation(where: str, row: str) -> None:
    assert blame("pause.meta", calls=(ADD, PAUSE)).of_finding(found(where, key="")) == row


def test_a_row_with_locators_is_about_these_only() -> None:
    """That Node reads all events is a statement about the stream: it does not answer for a refused call."""
    rows = ("event.readable-by-node", "script.arguments")
    refused = blame(*rows, calls=(QUEUE,))
    assert refused.of_call(QUEUE) == "order.meta"
    assert refused.of_operation("queue.pause") == "pause.moves-wait"
    assert blame(*rows, calls=(ADD,)).of_finding(found("membership.state")) == "add.plain.waits"
    assert blame(*rows, "interop.plain", calls=(ADD,)).of_finding(found("membership.state")) == "interop.plain"
    assert refused.of_mismatch("") == "event.readable-by-node", "the scenario's own statement"


def test_a_statement_counts_against_what_the_scenario_says_of_the_last_call() -> None:
    two = ("lifecycle.claim.oldest-first", "lifecycle.complete.moves")
    assert blame(*two, calls=(ADD, CLAIM)).of_mismatch("") == "lifecycle.claim.oldest-first"
    assert blame("lifecycle.fail.moves", "lock.released", calls=(ADD, CLAIM, COMPLETE)).of_mismatch("") == (
        "lock.released"
    )
    assert blame("getters.promote", calls=(ADD, PROMOTE, STATE)).of_mismatch("") == "getters.promote"
    assert blame("getters.promote", "getters.state", calls=(ADD, PROMOTE, STATE)).of_mismatch("") == "getters.state"
    assert blame("getters.promote", calls=(ADD,)).of_mismatch("") == "add.plain.waits"
    assert blame("liveness.pickup", calls=(BY_ITSELF, ADD)).of_mismatch("") == "liveness.pickup"


def test_a_field_of_what_a_client_cannot_do_is_one_too_many_like_any_other() -> None:
    adds = blame("add.plain.waits", calls=(ADD,), declared=frozenset({"queue.add"}))
    extra = msgspec.structs.replace(found("job.rjk"), kind="extra-field")
    assert adds.of_finding(extra) == "job.hash.no-others"
    assert adds.of_finding(found("job.rjk")) == "add.plain.waits"


def test_a_missing_field_counts_against_its_own_row() -> None:
    runs = blame("liveness.pickup", calls=(BY_ITSELF, ADD))
    assert runs.of_mismatch("job.ats", missing=True) == "job.hash.attempts-started"
    assert runs.of_mismatch("job.ats") == "liveness.pickup"


def test_an_assertion_can_name_the_row_on_which_its_scenario_builds() -> None:
    full = "row.concurrency.queue-wide"
    assert blame("concurrency.promotes", calls=(CLAIM,)).of_mismatch(full) == "concurrency.queue-wide"
    adds = blame("add.plain.waits", calls=(ADD,), declared=frozenset({"queue.add"}))
    assert adds.of_mismatch(full) == "add.plain.waits"


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ({"atm": "1"}, "job.hash.attempts-started"),
        ({"atm": "2", "ats": "1"}, "job.hash.attempts-made"),
    ],
)
def test_more_attempts_than_starts_count_against_what_was_not_counted(fields: dict[str, str], row: str) -> None:
    left = snapshot({"q:1": job(**fields)})
    [broken] = [finding for finding in check_snapshot(left, {}) if finding.where == "invariant.attempts"]
    assert blame("lock.token", calls=(CLAIM,)).of_finding(broken) == row


@pytest.mark.parametrize("where", ["scheduler.next", "invariant.schedulers", "job"])
def test_a_schedule_of_a_client_that_makes_none_counts_against_its_claims(where: str) -> None:
    seen = found(where, "q:repeat:s:1700000000000")
    claims = blame("stalled.limit", calls=(CLAIM,), declared=frozenset({"worker.getNextJob"}))
    assert claims.of_finding(seen) == "scheduler.next"
    assert blame("stalled.limit", calls=(CLAIM,)).of_finding(seen) != "scheduler.next"


def test_a_located_statement_counts_against_the_owner_that_the_scenario_names() -> None:
    delays = ("retry.backoff.fixed", "job.hash.delay")
    failed = RecordedCall("worker.moveToFailed", "ok", {"job": None}, {"job": "1"})
    assert blame(*delays, calls=(ADD, CLAIM, failed)).of_mismatch("job.delay") == "job.hash.delay"
    assert blame(delays[0], calls=(ADD, CLAIM, failed)).of_mismatch("job.delay") == "retry.backoff.fixed"
    assert blame(delays[0], calls=(ADD,)).of_mismatch("job.delay") == "job.hash.delay"


def test_a_named_requirement_that_a_scenario_needs_takes_the_failure() -> None:
    asleep = blame("liveness.sleeps", calls=(BY_ITSELF, ADD))
    with pytest.raises(Mismatch) as needed, behind("liveness.delayed"):
        equal(["delayed"], ["completed"], "it ran")
    assert asleep.of_mismatch(needed.value.where) == "liveness.delayed"
    with pytest.raises(Mismatch) as located, behind("liveness.delayed"):
        equal(1, 2, "it was started", where="job.ats")
    assert located.value.where == "job.ats"


LOG = RecordedCall("job.log", "ok", {}, {"job": "1", "row": "a row"})
"Accepted, although there is no job 1."


@pytest.mark.parametrize(
    ("finding", "row"),
    [
        (found("invariant.owned-keys", place="log", source="invariant"), "log.missing-job"),
        (found("invariant.id-counter", "q:id", "counter.id", "invariant"), "log.missing-job"),
        (found("invariant.owned-keys", "q:2", "log", "invariant"), "lifecycle.leaves-nothing"),
        (found("invariant.owned-keys", place="log"), "lifecycle.leaves-nothing"),
    ],
    ids=["at-its-job", "of-the-queue", "at-another-job", "no-invariant"],
)
def test_leftovers_of_a_call_that_should_be_refused_count_against_its_acceptance(finding: Finding, row: str) -> None:
    calls = (ADD, ADD_TWO, LOG)
    accepted = blame("log.missing-job", calls=calls, not_refused=LOG)
    assert accepted.of_finding(finding) == row
    owner = "add.id.counter" if finding.key == "q:id" else "lifecycle.leaves-nothing"
    assert blame("log.missing-job", calls=calls).of_finding(finding) == owner


def test_an_accepted_call_that_only_asks_has_left_nothing() -> None:
    leftover = found("invariant.owned-keys", place="log", source="invariant")
    asked = blame("getters.state", calls=(ADD, STATE), not_refused=STATE)
    assert asked.of_finding(leftover) == "lifecycle.leaves-nothing"


def test_a_failed_call_counts_against_its_operation() -> None:
    assert blame("retention.silent", "pause.meta", calls=(ADD, PAUSE)).of_call(ADD) == "add.plain.waits"
    assert blame("retention.silent", "pause.meta", calls=(ADD, PAUSE)).of_call(PAUSE) == "pause.meta"
    assert blame("pause.meta").of_call(BY_ITSELF) == "liveness.pickup"
    assert blame("pause.meta").of_call(BY_HAND) == "lifecycle.claim.oldest-first"
    assert blame("pause.meta", calls=(PAUSE,)).of_call(None) == "pause.meta"


def test_an_unknown_finding_about_an_operation_counts_against_it_and_not_against_the_call_before() -> None:
    assert blame("pause.meta", calls=(ADD,)).of_operation("queue.pause") == "pause.meta"
    assert blame("add.plain.waits", calls=(ADD,)).of_operation("queue.pause") == "pause.moves-wait"


def test_a_broken_driver_counts_against_one_requirement_in_any_scenario() -> None:
    for own in ("pause.meta", "race.pause-and-fetch", "retention.silent"):
        assert blame(own).of_breakage(PAUSE) == "pause.moves-wait"
    assert blame("pause.meta", calls=(PAUSE,)).of_breakage(None) == "pause.meta"


def test_of_several_concurrent_calls_the_last_started_one_broke_the_driver() -> None:
    transcript = Transcript()
    for call, started_s in ((ADD, 1.0), (PAUSE, 2.0), (ADD, 1.5)):
        transcript.record_breakage(call, started_s)
    assert transcript.broken_in == PAUSE


# Results of calls.


def test_a_managed_workers_doing_is_its_own() -> None:
    assert [operation_of(call) for call in (BY_ITSELF, RESOLVE, BY_HAND, QUEUE, ADD)] == [
        *(WORKER_RUN, WORKER_RUN, "worker.getNextJob", "open", "queue.add")
    ]
    assert culprits_at("membership.state", "q:1", (BY_ITSELF, ADD)) == (WORKER_RUN, "queue.add")
    assert culprits_now((BY_ITSELF, ADD, ADD_TWO)) == ("queue.add", WORKER_RUN)


@pytest.mark.parametrize(
    ("args", "value", "jobs"),
    [
        ({"job": "7", "name": "8"}, {}, {"7"}),
        ({"jobs": ["1", "2"], "tokens": ["3"]}, {"ids": ["2"]}, {"1", "2"}),
        ({"opts": {"jobId": "mine"}}, {"id": "mine"}, {"mine"}),
        ({}, {"job": {"id": "5", "name": "6"}}, {"5"}),
        ({}, {"flow": {"job": {"id": "p"}, "children": [{"job": {"id": "c"}}]}}, {"p", "c"}),
    ],
)
def test_the_jobs_that_a_call_names(args: dict[str, Any], value: Any, jobs: set[str]) -> None:
    assert jobs_named(RecordedCall("some.call", "ok", value, args)) == jobs


def test_operations_that_only_read_leave_nothing() -> None:
    asking = {op for op in REGISTRY if reads(op)}
    assert {"queue.getJob", "queue.count", "queue.isPaused", "job.getState", "worker.isRunning"} <= asking
    assert not asking & {"worker.getNextJob", "queue.add", "open", "resolve", "job.retry"}


# Every place has an owner.


@pytest.mark.parametrize("where", BY_DOING)
def test_places_that_the_operation_decides_have_no_owner(where: str) -> None:
    assert load_ledger().owner_of(where) is None
