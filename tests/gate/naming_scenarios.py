"""Scenarios in which ids, keys and answers go wherever they can."""

from __future__ import annotations

from conformance.driver.ops import job
from conformance.participants.expect import equal
from conformance.participants.marks import handover, scenario
from conformance.participants.participant import Participant


@scenario("add.plain.waits")
def test_whole_life(client: Participant) -> None:
    """Jobs go everywhere where their ids can stand."""
    queue, worker_ = client.queue(), client.worker()
    equal([queue.add("a"), queue.add("b"), queue.add("c", {}, jobId="own")], ["1", "2", "own"], "ids count")
    equal(queue.add_bulk(("d", {}, {}), ("e", {}, {})), ["4", "5"], "a bulk counts on")
    queue.add("dedup", {}, deduplication={"id": "once"})
    equal(queue.add("again", {}, deduplication={"id": "once"}), "6", "the owner's id is answered")
    equal(queue.redis.string("de:once"), "6", "it is the owner in Redis")
    queue.add("child", {}, parent={"id": "1", "queue": queue.redis.key("")[:-1]})
    equal(queue.redis.field("8", "parentKey"), queue.redis.key("1"), "the child knows its parent")
    equal(queue.redis.set_members("1:dependencies"), [queue.redis.key("8")], "the parent knows its child")
    first = worker_.claim_one()
    equal((first.id, queue.redis.exists("1:lock")), ("1", True), "the oldest job is claimed and locked")
    equal(worker_.extend_locks(["1"], ["token-1"], 30_000), [], "its lock is renewed")
    equal(worker_.wait_for_children("1"), True, "it waits for its child")
    view = queue.job("8")
    equal(view and view.opts.get("parent", {}).get("id"), "1", "the child's options name it")
    worker_.complete(worker_.claim_one().id)
    equal(queue.redis.members("completed"), ["2"], "the second is completed")
    equal(queue.jobs("completed"), ["2"], "and listed")
    equal(queue.redis.state("1"), ["waiting-children"], "the first is in its place")
    child_keys = queue.call(job.GetDependencies(job="1")).unprocessed
    equal(child_keys, [queue.redis.key("8")], "the client knows the child by its key")


@scenario("add.id.counter", "key.plain")
def test_adds(client: Participant) -> None:
    """Its subject is the names that a client chooses differently."""
    client.queue().add("a")


@scenario("add.plain.waits")
def test_family(client: Participant) -> None:
    """Bulks of jobs and of flows name parents and queues."""
    queue, flow = client.queue(), client.flow()
    parent, queue_key = queue.add("parent"), queue.redis.key("")[:-1]
    [child] = queue.add_bulk(("child", {}, {"parent": {"id": parent, "queue": queue_key}}))
    equal(queue.redis.field(child, "parentKey"), f"{queue_key}:{parent}", "the child of a bulk knows its parent")
    below = {"name": "child", "queue": "below", "opts": {"jobId": "own"}}
    [tree] = flow.add_bulk({"name": "parent", "queue": "q", "opts": {"jobId": "top"}, "children": [below]})
    equal((tree.id, tree.queue, tree.children[0].queue), ("top", "q", "below"), "the answer names the queues")
    equal(flow.get("top"), tree, "the flow is found by its id")


@scenario("add.plain.waits")
def test_own_loop(client: Participant) -> None:
    """Events bring ids, too."""
    events = client.events(lastEventId="0-0")
    queue, worker_ = client.queue(), client.worker("ask")
    added = queue.add("a")
    equal(worker_.next_job().job.id, added, "the loop hands it over")
    worker_.resolve(added)
    worker_.wait_local("completed", added)
    events.wait_for("completed", added)


@handover("add.plain.waits")
def test_handover(producer: Participant, consumer: Participant) -> None:
    """One adds and the other finishes."""
    queue, worker_ = producer.queue(), consumer.worker()
    added = [queue.add("a"), consumer.queue().add("b"), queue.add("c")]
    equal(added, ["1", "2", "3"], "both count on")
    for wanted in added:
        claimed = worker_.claim_one()
        equal(claimed.id, wanted, "in their order")
        worker_.complete(claimed.id)


@scenario("add.plain.waits", compare=False)
def test_trimmed(client: Participant) -> None:
    """The stream has lost the beginning of a bulk."""
    queue = client.queue(streams={"events": {"maxLen": 20}})
    added = queue.add_bulk(*(("job", {}, {}) for _ in range(300)))
    equal(added, [str(number) for number in range(1, 301)], "every job has its id, in order")
    equal(len(queue.redis.elements("wait")), 300, "each was added once")


@scenario("add.plain.waits")
def test_unheard(client: Participant) -> None:
    """A second job takes the id of the first."""
    queue = client.queue()
    queue.add("a")
    queue.redis.delete("id")
    equal(queue.add("b"), "1", "the id is given again")


@scenario("add.plain.waits")
def test_needs_no_count(client: Participant) -> None:
    """The result is not checked."""
    queue = client.queue()
    queue.log(queue.add("a"), "row")
    queue.log("1", "another")


@scenario("add.plain.waits")
def test_needs_the_count(client: Participant) -> None:
    """The result is the point."""
    queue = client.queue()
    equal(queue.log(queue.add("a"), "row"), 1, "one row is kept")


@scenario("add.plain.waits")
def test_loses_the_counter(client: Participant) -> None:
    """Later results depend on Node's ids."""
    queue = client.queue()
    queue.add("a")
    queue.redis.delete("id")
    equal(queue.add("b"), "1", "it starts again")


WHOLE_LIFE, FAMILY, ADDS, OWN_LOOP, HANDOVER, NEEDS_NO_COUNT, NEEDS_THE_COUNT, LOSES_THE_COUNTER, TRIMMED, UNHEARD = (
    vars(test)["scenario"]
    for test in (
        test_whole_life,
        test_family,
        test_adds,
        test_own_loop,
        test_handover,
        test_needs_no_count,
        test_needs_the_count,
        test_loses_the_counter,
        test_trimmed,
        test_unheard,
    )
)
