"""Deduplication with `keepLastIfActive`: the last job that comes while the owner of its id is active runs after it."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import handover, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import let_stall, node

TTL_MS = 60_000
KEY, KEPT = "de:once", "dn:once"

Options = dict[str, Any]


def _once(**more: Any) -> Options:
    return {"id": "once", "keepLastIfActive": True, **more}


def _add(queue: QueueHandle, job: str, *, deduplication: Options | None = None, **opts: Any) -> str:
    """Add a job under an id of its own, because releases before 5.77.4 number kept jobs differently."""
    return queue.add(job, {"of": job}, jobId=job, deduplication=deduplication or _once(), **opts)


def _at_work(client: Participant, **owner: Any) -> tuple[QueueHandle, WorkerHandle]:
    """A queue and a worker that holds the owner of the id, `first`."""
    queue, worker = client.queue(), client.worker()
    _add(queue, "first", **owner)
    worker.claim_one()
    return queue, worker


def _end(worker: WorkerHandle, job: str, how: str) -> None:
    if how == "complete":
        worker.complete(job)
    else:
        worker.fail(job, unrecoverable=how == "unrecoverable")


def _deduplicated(queue: QueueHandle) -> list[str]:
    """The job of each event `deduplicated`."""
    return [event["jobId"] for event in queue.redis.events() if event["event"] == "deduplicated"]


@pytest.mark.parametrize("how", ["complete", "fail", "unrecoverable"])
@scenario("dedup.keep-last", bullmq=">=5.77.4")
def test_the_last_job_follows_the_active_one(client: Participant, how: str) -> None:
    """Of the jobs that come meanwhile only the last one is stored, when the active one ends, and owns the id."""
    queue, worker = _at_work(client)
    ids = [_add(queue, job) for job in ("second", "third")]
    equal(ids, ["first", "first"], "each add is answered with the owner")
    equal(_deduplicated(queue), ["first", "first"], "an event reports each, and names the owner")
    equal(queue.redis.elements("wait"), [], "none of them waits")
    _end(worker, "first", how)
    equal(queue.redis.elements("wait"), ["third"], "the last one waits when the active one has ended")
    equal(queue.dedup_owner("once"), "third", "it owns the id")
    equal(queue.redis.exists(KEPT), False, "it is kept back no longer")
    equal(worker.claim_one().data_raw, '{"of":"third"}', "it runs with its own data")
    worker.complete("third")
    equal(queue.redis.exists(KEY), False, "the id is free when it has ended")


@scenario("dedup.keep-last", bullmq=">=5.77.4")
def test_a_job_that_was_kept_back_keeps_back_others(client: Participant) -> None:
    """As long as jobs come, one runs and one is kept back."""
    queue, worker = _at_work(client)
    for ended, job in (("first", "second"), ("second", "third"), ("third", "fourth")):
        _add(queue, job)
        worker.complete(ended)
        equal(queue.redis.elements("wait"), [job], "the next job waits when the one before has ended")
        worker.claim_one()
    worker.complete("fourth")
    equal([queue.redis.exists(key) for key in (KEY, KEPT)], [False, False], "nothing is left in the end")


@pytest.mark.parametrize("opts", [{}, {"delay": TTL_MS}, {"priority": 2}], ids=["waiting", "delayed", "prioritized"])
@scenario("dedup.keep-last", bullmq=">=5.72")
def test_nothing_is_kept_back_for_an_owner_that_is_not_active(client: Participant, opts: Options) -> None:
    """A job that comes before the owner has started is ignored: the owner will run after it was added."""
    queue, worker = client.queue(), client.worker()
    _add(queue, "first", **opts)
    equal(_add(queue, "second"), "first", "the add is answered with the owner")
    if "delay" in opts:
        queue.promote("first")
    worker.claim_one()
    worker.complete("first")
    equal([queue.redis.exists(key) for key in ("second", KEY, KEPT)], [False] * 3, "nothing follows the owner")


@scenario("dedup.keep-last", bullmq=">=5.77.4")
def test_a_retry_is_not_an_end(client: Participant) -> None:
    """The job that is kept back waits for the last attempt."""
    queue, worker = _at_work(client, attempts=2)
    _add(queue, "second")
    worker.fail("first")
    equal(queue.redis.elements("wait"), ["first"], "the owner runs again first")
    equal(queue.dedup_owner("once"), "first", "and still owns the id")
    worker.claim_one()
    worker.fail("first")
    equal(queue.redis.elements("wait"), ["second"], "the job follows the last attempt")
    equal(queue.dedup_owner("once"), "second", "and owns the id")


@pytest.mark.parametrize("limit", [1, 0], ids=["recovered", "failed"])
@scenario("dedup.keep-last", bullmq=">=5.77.4", clock="real")
def test_the_owner_stalls(client: Participant, limit: int) -> None:
    """A job that was kept back is not lost with the worker of the owner."""
    queue = client.queue()
    worker = client.worker(maxStalledCount=limit)
    _add(queue, "first")
    worker.claim_one()
    _add(queue, "second")
    let_stall(queue, worker, "first")
    equal(queue.redis.elements("wait"), ["first"], "the owner is recovered, and still owns the id")
    client.worker("noop")
    client.eventually(
        lambda: queue.redis.state("second"), lambda state: state == ["completed"], "the job that was kept back runs"
    )
    equal(queue.redis.state("first"), ["completed" if limit else "failed"], "after the owner has ended")


@pytest.mark.parametrize(
    ("opts", "state"),
    [({"priority": 2}, "prioritized"), ({"delay": TTL_MS}, "delayed"), ({"delay": TTL_MS, "priority": 2}, "delayed")],
    ids=["priority", "delay", "both"],
)
@scenario("dedup.keep-last", bullmq=">=5.77.4")
def test_a_job_that_was_kept_back_has_its_own_options(client: Participant, opts: Options, state: str) -> None:
    """It gets the place that an add would give it, and a delay starts when the active one has ended."""
    queue, worker = _at_work(client)
    _add(queue, "second", **opts)
    worker.complete("first")
    equal(queue.redis.state("second"), [state], "it is where an add would have put it")
    delay = queue.redis.json("second", "opts").get("delay") or 0
    equal(delay, opts.get("delay", 0), "its options are as they were given")


@scenario("dedup.keep-last", bullmq=">=5.77.4")
def test_a_lifo_job_that_was_kept_back_is_the_next(client: Participant) -> None:
    """The order is that of a job that is added when the active one ends."""
    queue, worker = _at_work(client)
    queue.add("other", {}, jobId="other")
    _add(queue, "second", lifo=True)
    worker.complete("first")
    equal(queue.redis.elements("wait"), ["other", "second"], "it is taken before the job that waits already")


@scenario("dedup.keep-last", "paused.everything-parks", bullmq=">=6")
def test_a_job_that_was_kept_back_waits_in_a_paused_queue(client: Participant) -> None:
    """It is not lost, and runs after the resume."""
    queue, worker = _at_work(client)
    _add(queue, "second")
    queue.pause()
    worker.complete("first")
    equal(queue.redis.elements("wait"), ["second"], "it waits")
    equal(worker.claim(), None, "and nothing starts while the queue is paused")
    queue.resume()
    equal(worker.claim_one().id, "second", "it runs after the resume")


@scenario("dedup.keep-last", "paused.everything-parks", bullmq=">=5.77.4,<6")
def test_a_job_that_was_kept_back_parks_in_a_paused_queue(client: Participant) -> None:
    """It is not lost, and runs after the resume."""
    queue, worker = _at_work(client)
    _add(queue, "second")
    queue.pause()
    worker.complete("first")
    equal(queue.redis.elements("paused"), ["second"], "it parks with the others")
    queue.resume()
    equal(worker.claim_one().id, "second", "it runs after the resume")


@pytest.mark.parametrize("more", [{}, {"extend": True}, {"replace": True}], ids=["ttl", "extend", "replace"])
@scenario("dedup.keep-last.no-expiry", bullmq=">=5.72")
def test_a_ttl_does_not_free_the_id_of_an_active_job(client: Participant, more: Options) -> None:
    """The id is taken until the job ends, because two jobs of an id never run at once."""
    queue, worker = client.queue(), client.worker()
    mode = _once(ttl=TTL_MS, **more)
    _add(queue, "first", deduplication=mode)
    equal(queue.redis.ttl_ms(KEY), -1, "the id does not expire", where="dedup.ttl")
    worker.claim_one()
    equal(_add(queue, "second", deduplication=mode), "first", "the job is kept back")
    equal(queue.redis.ttl_ms(KEY), -1, "the id does not expire then either", where="dedup.ttl")
    worker.complete("first")
    follower = worker.claim_one()
    equal(follower.data_raw, '{"of":"second"}', "the job follows")
    worker.complete(follower.id)
    equal(queue.redis.exists(KEY), False, "the id is free when nothing follows")


@scenario("dedup.keep-last.no-expiry", bullmq=">=5.72")
def test_a_job_that_is_kept_back_makes_the_id_last(client: Participant) -> None:
    """An owner that has only a ttl keeps its id while a job waits for its end."""
    queue, worker = _at_work(client, deduplication={"id": "once", "ttl": TTL_MS})
    _add(queue, "second")
    equal(queue.redis.ttl_ms(KEY), -1, "the id no longer expires", where="dedup.ttl")
    worker.complete("first")
    equal(worker.claim_one().data_raw, '{"of":"second"}', "the job follows")


@scenario("dedup.keep-last", bullmq=">=5.72")
def test_a_worker_runs_the_last_job_after_the_active_one(client: Participant) -> None:
    """A loop with free places gets no second job of the id before the first has ended, and then the last one."""
    queue = client.queue()
    worker = client.worker("ask", concurrency=2)
    _add(queue, "first")
    running = worker.next_job().job
    for job in ("second", "third"):
        _add(queue, job)
    queue.add("other", {"of": "other"})
    equal(worker.next_job().job.data_raw, '{"of":"other"}', "the free place is taken by a job without the id")
    worker.resolve(running.id)
    equal(worker.next_job().job.data_raw, '{"of":"third"}', "the last job starts when the first has ended")


@handover("dedup.keep-last", "interop.no-job-lost", bullmq=">=5.72")
def test_a_job_kept_back_by_one_side_follows_the_job_of_the_other(producer: Participant, consumer: Participant) -> None:
    """The side that ends the owner stores the job that the other side has added."""
    queue, worker = producer.queue(), consumer.worker("ask")
    _add(queue, "first")
    running = worker.next_job().job
    for job in ("second", "third"):
        equal(_add(queue, job), "first", "a job that comes meanwhile is kept back")
    worker.resolve(running.id)
    follower = worker.next_job().job
    equal(follower.data_raw, '{"of":"third"}', "the last job follows")
    worker.resolve(follower.id)
    worker.wait_local("completed", follower.id)
    equal([queue.redis.exists(key) for key in (KEY, KEPT)], [False, False], "nothing is left in the end")


@pytest.mark.parametrize("mode", [{}, {"keepLastIfActive": True}, {"replace": True}], ids=["simple", "keep", "replace"])
@scenario(
    "dedup.stale-owner",
    bullmq=">=6.3.7",
    without=dict.fromkeys(("no-ghosts", "locks", "owned-keys", "oracle-health"), "the hash of the owner is lost"),
)
def test_an_id_whose_owner_is_gone_is_taken_over(client: Participant, mode: Options) -> None:
    """An owner without a hash ends never: the next job takes its id, and what was kept back for it is dropped."""
    queue, worker = _at_work(client)
    _add(queue, "second")
    queue.redis.delete("first")
    equal(_add(queue, "third", deduplication={"id": "once", **mode}), "third", "the job is stored")
    equal(queue.dedup_owner("once"), "third", "it owns the id")
    equal(queue.redis.exists(KEPT), False, "the job that was kept back for the lost one is dropped")
    equal(worker.claim_one().id, "third", "it runs")


@scenario("dedup.replace", bullmq=">=6.3.7")
def test_a_replaced_owner_takes_along_the_job_that_was_kept_back_for_it(client: Participant) -> None:
    """The latest job counts: one that came before it must not run after it."""
    queue, worker = _at_work(client, attempts=2, backoff=TTL_MS)
    _add(queue, "second")
    worker.fail("first")
    equal(queue.redis.members("delayed"), ["first"], "the owner waits for its second attempt")
    equal(_add(queue, "third", deduplication=_once(replace=True)), "third", "the new job is stored")
    equal(queue.redis.exists(KEPT), False, "the job that was kept back is dropped")
    worker.claim_one()
    worker.complete("third")
    equal(queue.redis.exists("second"), False, "it does not come back")


@pytest.mark.parametrize("mode", [{}, {"keepLastIfActive": True}], ids=["simple", "keep"])
@pytest.mark.parametrize("how", ["add", "flow"])
@scenario("dedup.child-refused", bullmq=">=5.70.4", cases={"*keep*": ">=5.72"})
def test_a_child_has_no_id(client: Participant, how: str, mode: Options) -> None:
    """A child that is ignored would leave its parent without it: such a job, or its whole flow, is refused."""
    queue, flow, worker = client.queue(), client.flow(), client.worker()
    asking: Options = {"deduplication": {"id": "once", **mode}}
    flow.add(node("parent", node("other")))
    with client.refuses("invalid-argument", "the child is refused"):
        if how == "flow":
            flow.add(node("root", node("child", **asking)))
        else:
            queue.add("child", {}, jobId="child", parent={"id": "parent", "queue": queue.redis.key("")[:-1]}, **asking)
    equal([queue.redis.exists(job) for job in ("root", "child")], [False, False], "nothing is stored")
    equal(queue.dedup_owner("once"), None, "the id is free")
    worker.claim_one()
    worker.complete("other")
    equal(queue.redis.elements("wait"), ["parent"], "the parent does not wait for the child")


@pytest.mark.parametrize("delay_ms", [0, 30_000, 2 * TTL_MS], ids=["now", "sooner", "later"])
@scenario("dedup.reschedule", bullmq=">=6.7")
def test_a_delayed_owner_is_rescheduled(client: Participant, delay_ms: int) -> None:
    """The owner gets the delay of the new job, from now on, and keeps its id and data."""
    queue = client.queue()
    queue.add("first", {"n": 1}, deduplication={"id": "once"}, delay=TTL_MS)
    client.pass_time(1000)
    opts: Options = {"delay": delay_ms} if delay_ms else {}
    equal(queue.add("second", {"n": 2}, deduplication={"id": "once", "reschedule": True}, **opts), "1", "it is ignored")
    equal(queue.redis.members("delayed"), ["1"], "the owner is still delayed")
    equal(queue.redis.field("1", "delay"), str(delay_ms), "it has the new delay", where="job.delay")
    equal(queue.redis.json("1", "data"), {"n": 1}, "and its own data")


@scenario("dedup.reschedule", bullmq=">=6.7")
def test_without_the_option_the_delay_stays(client: Participant) -> None:
    """Only the option changes the time at which the owner is due."""
    queue = client.queue()
    queue.add("first", {}, deduplication={"id": "once"}, delay=TTL_MS)
    before = queue.redis.zset("delayed")
    queue.add("second", {}, deduplication={"id": "once"}, delay=1000)
    equal(queue.redis.zset("delayed"), before, "the owner is due as before")


@pytest.mark.parametrize("state", ["waiting", "active"])
@scenario("dedup.reschedule", bullmq=">=6.7")
def test_an_owner_that_is_not_delayed_is_not_rescheduled(client: Participant, state: str) -> None:
    """A job that waits or runs is not delayed again."""
    queue, worker = client.queue(), client.worker()
    queue.add("first", {}, deduplication={"id": "once"})
    if state == "active":
        worker.claim_one()
    queue.add("second", {}, deduplication={"id": "once", "reschedule": True}, delay=TTL_MS)
    equal(queue.redis.state("1"), ["active" if state == "active" else "wait"], "the owner stays where it is")
    equal(queue.redis.exists("2"), False, "the new job is not stored")


@scenario("dedup.reschedule", bullmq=">=6.7")
def test_replacing_goes_before_rescheduling(client: Participant) -> None:
    """With `replace` the new job takes the place of the owner, and nothing is rescheduled."""
    queue = client.queue()
    queue.add("first", {}, deduplication={"id": "once"}, delay=TTL_MS)
    mode = {"id": "once", "replace": True, "reschedule": True}
    equal(queue.add("second", {}, deduplication=mode, delay=1000), "2", "the new job is stored")
    equal(queue.redis.members("delayed"), ["2"], "the former owner is gone")


@pytest.mark.parametrize("whose", ["its-own", "of-another", "of-a-ttl"])
@scenario("dedup.key-removal.job", bullmq=">=5.65")
def test_a_job_gives_up_its_own_id(client: Participant, whose: str) -> None:
    """Only the owner frees the id; a job that lost it leaves it to the new owner."""
    queue = client.queue()
    mode: Options = {"id": "once", **({"ttl": TTL_MS} if whose == "of-a-ttl" else {})}
    queue.add("first", {}, deduplication=mode)
    if whose == "of-another":
        queue.call(queue_ops.RemoveDeduplicationKey(id="once"))
        queue.add("second", {}, deduplication=mode)
    equal(queue.free_own_dedup_id("1"), whose != "of-another", "the answer says whether the id was the job's")
    owner = "2" if whose == "of-another" else None
    equal(queue.dedup_owner("once"), owner, "the id has the owner that it should have")
    equal(queue.free_own_dedup_id("1"), False, "a second call frees nothing")
