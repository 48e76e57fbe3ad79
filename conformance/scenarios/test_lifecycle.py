"""From waiting to finished: claiming, completing, failing, keeping and removing, one step at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from operator import lt
from typing import Any

import pytest

from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import FAILING

MOST_COMMANDS_OF_A_CLAIM = 20
"""Node sends one, and a second where Redis has forgotten the script."""
MOST_COMMANDS_OF_A_LOOP = 40
"""Those of connecting and of reading the queue's settings included."""


@scenario("lifecycle.claim.oldest-first", tier="smoke")
def test_a_claim_takes_the_oldest_job(client: Participant) -> None:
    """The first job in is the first job out, and it is locked in `active`."""
    queue, worker = client.queue(), client.worker()
    queue.add("first", {"n": 1})
    queue.add("second", {"n": 2})
    claimed = worker.claim_one("token-a")
    equal((claimed.id, claimed.name, claimed.data_raw), ("1", "first", '{"n":1}'), "the oldest job is handed out")
    equal(queue.redis.elements("active"), ["1"], "the job is in `active`")
    equal(queue.redis.string("1:lock"), "token-a", "the lock holds the worker's token")
    equal(queue.redis.field("1", "ats"), "1", "one attempt was started", where="job.ats")


@pytest.mark.parametrize("opts", [{}, {"priority": 3}], ids=["plain", "prioritized"])
@scenario("lifecycle.claim.atomic")
def test_a_claim_is_one_step(client: Participant, opts: dict[str, Any]) -> None:
    """After each command of a claim the job either waits, or is active and locked."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {}, **opts)
    place = "prioritized" if opts else "wait"
    with client.tap.hold(phase="after-execute", call=None) as held:
        claim = client.meanwhile(lambda: worker.claim_one("token-mine"))
        for sent in range(MOST_COMMANDS_OF_A_CLAIM):
            client.eventually(
                lambda sent=sent: claim.done or len(held.commands) > sent,  # type: ignore[misc]
                bool,
                "the client sends a command or is done",
            )
            # Whether there is a lock, not whose: a loop in place of a manual worker has a token that is learned later.
            seen = (queue.redis.state("1"), queue.redis.exists("1:lock"))
            whole = seen in (([place], False), (["active"], True))
            holds(whole, "the job waits, or is active and locked", seen=seen)
            held.release()
            if claim.done:
                break
    claim.result()
    equal(queue.redis.state("1"), ["active"], "the job was claimed")
    equal(queue.redis.string("1:lock"), "token-mine", "the lock holds the worker's token")


def _place_and_lock(queue: QueueHandle) -> tuple[list[str], bool]:
    """The containers of job 1, and whether it is locked, at one moment: another connection may act in between."""
    for _ in range(MOST_COMMANDS_OF_A_LOOP):
        locked = queue.redis.exists("1:lock")
        places = queue.redis.state("1")
        if queue.redis.exists("1:lock") == locked:
            break
    return places, locked


@pytest.mark.parametrize("opts", [{}, {"priority": 3}], ids=["plain", "prioritized"])
@scenario("lifecycle.claim.atomic", clock="real")
def test_a_loop_claims_in_one_step(client: Participant, opts: dict[str, Any]) -> None:
    """After each command of a worker's own loop the job either waits, or is active and locked."""
    queue = client.queue()
    queue.add("work", {}, **opts)
    place = "prioritized" if opts else "wait"
    seen: list[tuple[list[str], bool]] = []
    # A client may load all scripts first: SCRIPT LOAD changes no key.
    with client.tap.hold(phase="after-execute", call=None, where=lambda sent: sent.name != "SCRIPT") as held:
        client.opening("worker", "ask", skipStalledCheck=True, skipLockRenewal=True)
        for sent in range(MOST_COMMANDS_OF_A_LOOP):
            client.eventually(lambda: len(held.commands), partial(lt, sent), "the loop sends a command")
            seen.append(_place_and_lock(queue))
            held.release()
            if seen[-1] == (["active"], True):
                break
    allowed = [([place], False), (["active"], True)]
    equal([step for step in seen if step not in allowed], [], "states in which the job neither waits nor is locked")
    equal(seen[-1:], [(["active"], True)], "the loop claims the job")


@scenario("lifecycle.claim.waiting-before-prioritized")
def test_waiting_jobs_come_before_prioritized_ones(client: Participant) -> None:
    """No priority comes before every priority, and a smaller number before a larger one."""
    queue, worker = client.queue(), client.worker()
    for name, priority in (("ten", 10), ("one", 1), ("none", 0), ("three", 3), ("one again", 1)):
        queue.add(name, {}, priority=priority)
    placed = queue.redis.members("prioritized")
    equal(placed, ["2", "5", "4", "1"], "their scores are in this order", where="row.order.prioritized.score")
    order = [worker.claim_one(f"token-{number}").name for number in range(5)]
    equal(order, ["none", "one", "one again", "three", "ten"], "jobs run by priority, then by age")


@scenario("lifecycle.claim.nothing")
def test_an_empty_queue_hands_out_nothing(client: Participant) -> None:
    """A claim on an empty queue, and on one with only delayed jobs, gets nothing."""
    queue, worker = client.queue(), client.worker()
    equal(worker.claim(), None, "an empty queue has no job")
    queue.add("later", {}, delay=60_000)
    equal(worker.claim(), None, "a delayed job is not handed out early")
    queue.add("now")
    equal(worker.claim_one().name, "now", "the worker is alive and gets the job that waits")


@scenario("lifecycle.claim.paused")
def test_a_paused_queue_hands_out_nothing(client: Participant) -> None:
    """Neither waiting nor prioritized jobs leave a paused queue."""
    queue, worker = client.queue(), client.worker()
    queue.add("plain")
    queue.add("urgent", {}, priority=1)
    queue.pause()
    equal(worker.claim(), None, "a paused queue has no job for a worker")
    queue.resume()
    equal(worker.claim_one("token-1").name, "plain", "after resume the plain job runs")
    equal(worker.claim_one("token-2").name, "urgent", "and then the prioritized one")


@scenario(
    "lifecycle.complete.moves",
    "job.hash.returnvalue",
    "job.hash.finished-on",
    "job.hash.attempts-made",
    "lifecycle.no-expiry",
    tier="smoke",
)
def test_completing_moves_a_job_to_completed(client: Participant) -> None:
    """A completed job has its result and is locked no more."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {"n": 1})
    worker.claim_one("token-a")
    client.pass_time(20)
    worker.complete("1", {"done": True}, "token-a")
    equal(queue.redis.state("1"), ["completed"], "the job is in `completed` and nowhere else")
    equal(queue.redis.json("1", "returnvalue"), {"done": True}, "the result is stored", where="job.returnvalue")
    equal(queue.redis.value("1:lock"), None, "the lock is gone")


@pytest.mark.parametrize("raw", ["null", "0", '""', "false", "[]", '{"a":[1,2,{"b":null}]}', '"é🎉"'])
@scenario("lifecycle.complete.value", "job.hash.returnvalue")
def test_a_result_is_stored_as_json(client: Participant, raw: str) -> None:
    """Every value that a processor returns is JSON in Redis."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one()
    worker.complete("1", raw=raw)
    equal(queue.redis.json("1", "returnvalue"), json.loads(raw), "the field `returnvalue` is the result as JSON text")


@scenario("lifecycle.complete.fetches-next")
def test_completing_can_claim_the_next_job(client: Participant) -> None:
    """Fetch-next finishes one job and claims another in one step."""
    queue, worker = client.queue(), client.worker()
    queue.add("first")
    queue.add("second")
    worker.claim_one("token-a")
    following = worker.complete("1", "ok", "token-a", fetch_next=True)
    equal(following.id if following else None, "2", "the next job comes with the answer")
    equal(queue.redis.string("2:lock"), "token-a", "it is locked under the same token")
    equal(worker.complete("2", "ok", "token-a", fetch_next=True), None, "after the last job there is none")


@scenario("lifecycle.complete.not-active")
def test_a_job_that_is_not_active_cannot_be_completed(client: Participant) -> None:
    """A lock alone does not make a job active."""
    queue, worker = client.queue(), client.worker()
    queue.add("waiting")
    queue.redis.set_string("1:lock", "token-1", ttl_ms=60_000)
    with client.refuses("wrong-state", "a waiting job cannot be completed"):
        worker.complete("1")
    equal(queue.redis.state("1"), ["wait"], "the job still waits")


@scenario(
    "lifecycle.complete.missing",
    without={
        "no-ghosts": "the scenario deletes the hash",
        "locks": "the scenario deletes the hash",
        "oracle-health": "the scenario deletes the hash",
    },
)
def test_a_job_without_hash_cannot_be_completed(client: Participant) -> None:
    """A job whose hash was evicted or deleted cannot be completed."""
    queue, worker = client.queue(), client.worker()
    queue.add("vanishing")
    worker.claim_one()
    queue.redis.delete("1")
    with client.refuses("missing-job", "a job without hash cannot be completed"):
        worker.complete("1")
    equal(queue.redis.value("1"), None, "the hash is not created again")


@scenario("lifecycle.fail.moves", "job.hash.failed-reason", "job.hash.stacktrace", tier="smoke")
def test_a_final_failure_moves_a_job_to_failed(client: Participant) -> None:
    """A failed job keeps the reason as plain text."""
    queue, worker = client.queue(), client.worker()
    queue.add("doomed")
    worker.claim_one()
    client.pass_time(20)
    worker.fail("1", 'it "broke" / ü')
    equal(queue.redis.state("1"), ["failed"], "the job is in `failed` and nowhere else")
    reason = queue.redis.field("1", "failedReason")
    equal(reason, 'it "broke" / ü', "the reason is plain text", where="job.failedReason")


@scenario("lifecycle.fail.next-job")
def test_a_final_failure_can_claim_the_next_job(client: Participant) -> None:
    """Fetch-next works for failures as well."""
    queue, worker = client.queue(), client.worker()
    queue.add("doomed")
    queue.add("next")
    worker.claim_one("token-a")
    following = worker.fail("1", "boom", "token-a", fetch_next=True)
    equal(following.id if following else None, "2", "the next job comes with the answer")


@scenario("lifecycle.one-state")
def test_a_job_is_in_one_place_at_a_time(client: Participant) -> None:
    """Wherever a job goes, it leaves where it was."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {}, attempts=2, backoff=60_000)
    steps: dict[str, Callable[[], object]] = {
        "claimed": worker.claim_one,
        "put off": lambda: worker.fail("1"),
        "promoted": lambda: queue.promote("1"),
        "claimed again": worker.claim_one,
        "completed": lambda: worker.complete("1"),
    }
    for name, step in steps.items():
        step()
        places = queue.redis.state("1")
        holds(len(places) == 1, f"the job is in one place when {name}", seen=places, where="invariant.one-state")


@scenario("lifecycle.remove-on-complete.all", "lifecycle.leaves-nothing")
def test_remove_on_complete_true_leaves_no_keys(client: Participant) -> None:
    """The job is gone, the event that it completed is not."""
    queue, worker = client.queue(), client.worker()
    queue.add("brief", {}, removeOnComplete=True)
    queue.log("1", "a row")
    worker.claim_one()
    worker.complete("1", "gone")
    equal([queue.redis.exists(name) for name in ("1", "1:logs", "1:lock", "completed")], [False] * 4, "no key is left")
    names = queue.redis.event_names()
    holds("completed" in names, "the event is in the stream", seen=names)


@scenario("lifecycle.remove-on-complete.count")
def test_remove_on_complete_count_keeps_the_newest(client: Participant) -> None:
    """Only the newest completed jobs stay."""
    queue, worker = client.queue(), client.worker()
    for number in range(5):
        queue.add(f"job {number}", {}, removeOnComplete=2)
    for number in range(1, 6):
        client.pass_time(5)
        worker.complete(worker.claim_one().id, number)
    equal(queue.redis.members("completed"), ["4", "5"], "the newest two are kept")
    kept = [number for number in range(1, 6) if queue.redis.exists(str(number))]
    equal(kept, [4, 5], "older hashes are gone")


@scenario("lifecycle.remove-on-complete.age")
def test_remove_on_complete_age_removes_the_old(client: Participant) -> None:
    """A completion removes what is older than the age (s) of its own job; the ages of the others do not count."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", {}, removeOnComplete={"age": 3600})
    worker.complete(worker.claim_one().id)
    client.pass_time(59_000)
    queue.add("recent", {}, removeOnComplete={"age": 30})
    worker.complete(worker.claim_one().id)
    equal(queue.redis.members("completed"), ["2"], "the job older than 30 seconds is gone, and no other")
    client.pass_time(40_000)
    queue.add("plain")
    worker.complete(worker.claim_one().id)
    equal(queue.redis.members("completed"), ["2", "3"], "a job without the option removes nothing")
    client.pass_time(10_000)
    queue.add("new", {}, removeOnComplete={"age": 20})
    worker.complete(worker.claim_one().id)
    equal(queue.redis.members("completed"), ["3", "4"], "only the job older than 20 seconds is gone")


@pytest.mark.parametrize("keep", [True, 1, {"count": 1}], ids=["all", "count", "object"])
@scenario("lifecycle.remove-on-fail")
def test_remove_on_fail_follows_the_same_rules(client: Participant, keep: object) -> None:
    """Failed jobs are kept and removed like completed ones."""
    queue, worker = client.queue(), client.worker()
    for _ in range(3):
        queue.add("doomed", {}, removeOnFail=keep)
    for _ in range(3):
        client.pass_time(5)
        worker.fail(worker.claim_one().id)
    equal(queue.redis.members("failed"), [] if keep is True else ["3"], "failed jobs are kept by the rule")


@scenario("lifecycle.worker-keeps", clock="real")
def test_a_worker_has_rules_of_its_own(client: Participant) -> None:
    """The worker's removeOnComplete and removeOnFail count where the job says nothing; the job's own win."""
    queue = client.queue()
    queue.add("worker decides")
    queue.add("job decides", {}, removeOnComplete=False)
    queue.add("doomed")
    queue.add("doomed too")
    worker = client.worker("ask", removeOnComplete={"count": 0}, removeOnFail={"count": 1})
    for outcome in ("complete", "complete", "fail", "fail"):
        worker.resolve(worker.next_job().job.id, outcome)
    client.eventually(lambda: queue.redis.state("4"), lambda state: state == ["failed"], "all jobs end", where=FAILING)
    worker.close()
    equal(queue.redis.members("completed"), ["2"], "only the job that asks for it is kept")
    equal(queue.redis.members("failed"), ["4"], "only the newest failure is kept")


@scenario("lifecycle.remove-on-fail")
def test_remove_on_fail_age_removes_the_old(client: Participant) -> None:
    """A failure removes failures that are older than the age that its job allows."""
    queue, worker = client.queue(), client.worker()
    queue.add("old")
    worker.fail(worker.claim_one().id)
    client.pass_time(1500)
    queue.add("new", {}, removeOnFail={"age": 1})
    worker.fail(worker.claim_one().id)
    equal(queue.redis.members("failed"), ["2"], "the failure older than one second is gone")


@pytest.mark.parametrize("opts", [{}, {"delay": 60_000}, {"priority": 4}], ids=["wait", "delayed", "prioritized"])
@scenario("lifecycle.remove.waiting")
def test_a_pending_job_can_be_removed(client: Participant, opts: dict[str, Any]) -> None:
    """Nothing of a removed job is left."""
    queue = client.queue()
    queue.add("unwanted", {}, **opts)
    queue.log("1", "a row")
    equal(queue.remove("1"), 1, "the answer is 1")
    equal(queue.redis.state("1"), [], "the job is in no container")
    equal([queue.redis.exists(name) for name in ("1", "1:logs")], [False, False], "its keys are gone")


@scenario("lifecycle.remove.locked")
def test_a_locked_job_cannot_be_removed(client: Participant) -> None:
    """A worker's job is not taken away under its hands."""
    queue, worker = client.queue(), client.worker()
    queue.add("busy")
    worker.claim_one()
    equal(queue.remove("1"), 0, "the answer is 0")
    equal(queue.redis.state("1"), ["active"], "the job is still active")
    worker.complete("1")


@scenario("lifecycle.claim.marks-start")
def test_a_claim_marks_the_start(client: Participant) -> None:
    """A claimed job is locked, has a start time, and one more started attempt."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one("token-a")
    fields = queue.redis.hash("1")
    equal((fields.get("ats"), "processedOn" in fields), ("1", True), "the start is counted and timed")
    equal(queue.redis.string("1:lock"), "token-a", "the job is locked")
