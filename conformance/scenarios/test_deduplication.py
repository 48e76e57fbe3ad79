"""Deduplication: which adds are ignored, which replace the owner, and when an id is free again."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import between, equal, holds
from conformance.participants.marks import handover, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import node

TTL_MS = 60_000
KEY = "de:once"


def _once(**more: Any) -> dict[str, Any]:
    """The option deduplication."""
    return {"id": "once", **more}


@pytest.mark.parametrize(
    "mode", [{}, {"ttl": TTL_MS}, {"ttl": TTL_MS, "extend": True}], ids=["simple", "ttl", "extend"]
)
@scenario("dedup.simple", "dedup.field", "dedup.owner")
def test_a_second_add_is_ignored(client: Participant, mode: dict[str, Any]) -> None:
    """The first job stays as it is, and is the answer."""
    queue = client.queue()
    first = queue.add("first", {"n": 1}, deduplication=_once(**mode))
    second = queue.add("second", {"n": 2}, deduplication=_once(**mode), priority=3)
    equal(second, first, "the answer is the id of the owner")
    equal(queue.redis.elements("wait"), [first], "only the first job is stored")
    equal(queue.redis.field(first, "deid"), "once", "it names its deduplication id", where="job.deid")
    equal(queue.dedup_owner("once"), first, "it owns the id", where="answer.queue.getDeduplicationJobId")
    events = [event for event in queue.redis.events() if event["event"] == "deduplicated"]
    equal([event["jobId"] for event in events], [first], "one event reports it, and names the owner")


@scenario("dedup.simple", bullmq=">=5.73.2")
def test_a_flow_that_is_ignored_has_the_id_of_the_owner(client: Participant) -> None:
    """The producer of a flow gets the id under which the work runs, and not one that does not exist."""
    queue, flow = client.queue(), client.flow()
    queue.add("owner", {}, jobId="owner", deduplication=_once())
    equal(flow.add(node("ignored", deduplication=_once())).id, "owner", "the answer is the id of the owner")
    equal(queue.redis.exists("ignored"), False, "only the first job is stored")


@pytest.mark.parametrize("opts", [{"delay": 60_000}, {"priority": 2}, {"lifo": True}], ids="-".join)
@scenario("dedup.simple")
def test_every_kind_of_job_can_own_an_id(client: Participant, opts: dict[str, Any]) -> None:
    """Delayed and prioritized jobs are deduplicated too."""
    queue = client.queue()
    ids = [queue.add(name, {}, deduplication=_once(), **opts) for name in ("first", "second")]
    equal(ids, ["1", "1"], "the second add is ignored")


@scenario("dedup.simple")
def test_a_bulk_is_deduplicated(client: Participant) -> None:
    """The first of a bulk wins; other ids are not touched."""
    queue = client.queue()
    ids = queue.add_bulk(
        ("a", {}, {"deduplication": _once()}),
        ("b", {}, {"deduplication": _once()}),
        ("c", {}, {"deduplication": {"id": "other"}}),
        ("d", {}, {}),
    )
    equal(ids, ["1", "1", "3", "4"], "only the second is ignored")


@scenario("dedup.simple", bullmq="<6")
def test_the_former_name_debounce(client: Participant) -> None:
    """The option `debounce` is the same under its former name."""
    queue = client.queue()
    queue.add("first", {}, debounce=_once())
    equal(queue.add("second", {}, deduplication=_once()), "1", "both options share their ids")


@scenario("dedup.former-name-refused", bullmq=">=6")
def test_the_former_name_debounce_is_refused(client: Participant) -> None:
    """The option `debounce` is known no more, and nothing is stored."""
    queue = client.queue()
    with client.refuses("invalid-argument", "the option is refused"):
        queue.add("first", {}, debounce=_once())
    equal(queue.add("second", {}, deduplication=_once()), "1", "the refused job took no number and no id")


@pytest.mark.parametrize("how", ["complete", "fail"])
@scenario("dedup.simple.ends")
def test_the_end_of_the_owner_frees_its_id(client: Participant, how: str) -> None:
    """A finished job deduplicates nothing."""
    queue, worker = client.queue(), client.worker()
    queue.add("first", {}, deduplication=_once())
    worker.claim_one()
    equal(queue.add("meanwhile", {}, deduplication=_once()), "1", "an active job still owns its id")
    if how == "complete":
        worker.complete("1")
    else:
        worker.fail("1")
    equal(queue.redis.exists(KEY), False, "the id is free")
    equal(queue.add("next", {}, deduplication=_once()), "3", "the next add is stored")


@scenario("dedup.simple.ends")
def test_a_retry_keeps_the_id(client: Participant) -> None:
    """Only the last attempt ends a job."""
    queue, worker = client.queue(), client.worker()
    queue.add("shaky", {}, deduplication=_once(), attempts=2)
    worker.claim_one()
    worker.fail("1")
    equal(queue.dedup_owner("once"), "1", "a job that is retried still owns its id")


@pytest.mark.parametrize("mode", [{}, {"ttl": TTL_MS}], ids=["simple", "ttl"])
@scenario("dedup.removal")
def test_removing_the_owner_frees_its_id(client: Participant, mode: dict[str, Any]) -> None:
    """An id is not kept for a job that is gone."""
    queue = client.queue()
    queue.add("other")
    queue.add("owner", {}, deduplication=_once(**mode))
    queue.remove("1")
    equal(queue.dedup_owner("once"), "2", "removing another job changes nothing")
    queue.remove("2")
    equal(queue.dedup_owner("once"), None, "removing the owner frees the id")


@scenario("dedup.removal")
def test_removing_a_former_owner_leaves_the_id(client: Participant) -> None:
    """A job that lost its id does not take it from the new owner."""
    queue = client.queue()
    queue.add("former", {}, deduplication=_once())
    queue.redis.delete(KEY)
    queue.add("owner", {}, deduplication=_once())
    queue.remove("1")
    equal(queue.dedup_owner("once"), "2", "the new owner keeps the id")


@scenario("dedup.ttl")
def test_a_ttl_outlives_its_owner(client: Participant) -> None:
    """Until the time is over nothing is added, and then everything is."""
    queue, worker = client.queue(), client.worker()
    queue.add("first", {}, deduplication=_once(ttl=TTL_MS))
    between(queue.redis.ttl_ms(KEY), 1, TTL_MS, "the key expires after the ttl", where="dedup.ttl")
    worker.claim_one()
    worker.complete("1")
    equal(queue.add("too soon", {}, deduplication=_once(ttl=TTL_MS)), "1", "the id outlives its owner")
    queue.redis.delete(KEY)  # as the expiry does
    equal(queue.add("later", {}, deduplication=_once(ttl=TTL_MS)), "3", "after the ttl the id is free")


@scenario("dedup.ttl", clock="real")
def test_a_short_ttl_ends_by_itself(client: Participant) -> None:
    """An id that expires does not have to be freed."""
    queue = client.queue()
    queue.add("first", {}, deduplication=_once(ttl=150))
    client.eventually(lambda: queue.redis.exists(KEY), lambda there: not there, "the key expires")
    equal(queue.add("second", {}, deduplication=_once(ttl=TTL_MS)), "2", "the next add is stored")


@pytest.mark.parametrize("extend", [True, False], ids=["extend", "keep"])
@scenario("dedup.extend")
def test_extending_the_ttl(client: Participant, extend: bool) -> None:
    """Only with `extend` an ignored add restarts the ttl."""
    queue = client.queue()
    queue.add("first", {}, deduplication=_once(ttl=TTL_MS))
    queue.redis.set_string(KEY, "1", ttl_ms=TTL_MS // 2)  # half of the time has passed
    equal(queue.add("second", {}, deduplication=_once(ttl=TTL_MS, extend=extend)), "1", "the add is ignored")
    low, high = (TTL_MS // 2 + 1, TTL_MS) if extend else (1, TTL_MS // 2)
    between(queue.redis.ttl_ms(KEY), low, high, "the ttl restarts only with `extend`", where="dedup.ttl")


@scenario("dedup.replace")
def test_a_delayed_owner_is_replaced(client: Participant) -> None:
    """The latest job counts while none has started."""
    queue = client.queue()
    opts: dict[str, Any] = {"deduplication": _once(replace=True), "delay": 60_000}
    ids = [queue.add(name, {"name": name}, **opts) for name in ("first", "second", "third")]
    equal(ids, ["1", "2", "3"], "each add is answered with a new job")
    equal(queue.redis.members("delayed"), ["3"], "only the last one is left")
    equal([queue.redis.exists("1"), queue.redis.exists("2")], [False, False], "the others are gone")
    equal(queue.dedup_owner("once"), "3", "the last one owns the id")
    removed = [event["jobId"] for event in queue.redis.events() if event["event"] == "removed"]
    equal(removed, ["1", "2"], "an event reports each job that was replaced", where="event.removed")


@pytest.mark.parametrize("state", ["waiting", "active", "promoted"])
@scenario("dedup.replace")
def test_an_owner_that_is_not_delayed_stays(client: Participant, state: str) -> None:
    """An owner that waits or runs is not replaced; the new job is ignored without an event."""
    queue, worker = client.queue(), client.worker()
    opts: dict[str, Any] = {"deduplication": _once(replace=True)}
    queue.add("owner", {}, **opts, delay=60_000 if state == "promoted" else 0)
    if state == "promoted":
        queue.promote("1")
    if state == "active":
        worker.claim_one()
    before = queue.redis.event_names()
    equal(queue.add("new", {}, **opts, delay=60_000), "1", "the answer is the owner")
    equal(queue.redis.event_names(), before, "there is no event about it")
    equal(queue.redis.exists("2"), False, "the new job is not stored")


@pytest.mark.parametrize("extend", [True, False], ids=["extend", "keep"])
@scenario("dedup.debounce")
def test_debouncing(client: Participant, extend: bool) -> None:
    """Each add replaces the one before, until it is quiet for long enough."""
    queue, worker = client.queue(), client.worker()
    opts: dict[str, Any] = {"deduplication": _once(ttl=TTL_MS, replace=True, extend=extend), "delay": TTL_MS}
    queue.add("first", {"n": 1}, **opts)
    queue.redis.set_string(KEY, "1", ttl_ms=TTL_MS // 2)  # half of the time has passed
    equal(queue.add("second", {"n": 2}, **opts), "2", "the answer is the new job")
    low, high = (TTL_MS // 2 + 1, TTL_MS) if extend else (1, TTL_MS // 2)
    between(queue.redis.ttl_ms(KEY), low, high, "the ttl restarts only with `extend`", where="dedup.ttl")
    equal(queue.redis.members("delayed"), ["2"], "only the latest job is left")
    queue.promote("2")
    equal(worker.claim_one().data_raw, '{"n":2}', "the latest job is run")


@scenario("dedup.key-removal")
def test_an_id_is_freed_by_hand(client: Participant) -> None:
    """The owner does not notice."""
    queue = client.queue()
    queue.add("owner", {}, deduplication=_once())
    equal(queue.call(queue_ops.RemoveDeduplicationKey(id="once")).count, 1, "one key is removed")
    equal(queue.call(queue_ops.RemoveDeduplicationKey(id="once")).count, 0, "then there is none")
    equal(queue.dedup_owner("once"), None, "the id has no owner")
    equal(queue.add("next", {}, deduplication=_once()), "2", "the next add is stored")
    equal(queue.redis.elements("wait"), ["2", "1"], "both jobs wait")


@scenario("dedup.duplicate-first")
def test_a_duplicate_is_not_deduplicated(client: Participant) -> None:
    """A job id that exists decides before the deduplication id does."""
    queue = client.queue()
    queue.add("plain", {}, jobId="mine")
    queue.add("owner", {}, deduplication=_once())
    equal(queue.add("both", {}, jobId="mine", deduplication=_once()), "mine", "the answer is the duplicate")
    events = queue.redis.event_names()
    holds("duplicated" in events and "deduplicated" not in events, "it counts as a duplicate only", seen=events)


@pytest.mark.parametrize("option", [{}, {"id": ""}, {"ttl": TTL_MS}], ids=str)
@scenario("dedup.id-required")
def test_an_id_is_required(client: Participant, option: dict[str, Any]) -> None:
    """Without id there is nothing to compare."""
    queue = client.queue()
    with client.refuses("invalid-argument", "deduplication without an id is refused"):
        queue.add("anonymous", {}, deduplication=option)
    equal(queue.redis.exists("1"), False, "no job is stored")


@handover("dedup.simple", "dedup.simple.ends")
def test_ids_are_shared_between_clients(producer: Participant, consumer: Participant) -> None:
    """An id owned by a job of one side is taken for the other side, until that finishes the job."""
    mine, theirs = producer.queue(), consumer.queue()
    job = mine.add("first", {}, deduplication=_once())
    equal(theirs.add("second", {}, deduplication=_once()), job, "the other side sees that the id is taken")
    worker = consumer.worker("ask")
    worker.resolve(worker.next_job().job.id)
    worker.wait_local("completed", job)
    equal(mine.dedup_owner("once"), None, "the id is free when the other side has finished")


@scenario("add.custom-id", bullmq=">=5.77.4")
def test_the_job_that_is_kept_back_keeps_its_id(client: Participant) -> None:
    """With `keepLastIfActive` the last job of an id that is at work is stored after it, as it was added."""
    queue, worker = client.queue(), client.worker()
    queue.add("first", {}, jobId="first", deduplication=_once(keepLastIfActive=True))
    worker.claim_one()
    for job in ("second", "third"):
        queue.add(job, {"of": job}, jobId=job, deduplication=_once(keepLastIfActive=True))
    worker.complete("first")
    equal(queue.redis.elements("wait"), ["third"], "the last job is stored under its own id")
