"""Disputed rows about adding and claiming, on the oracle alone: ids, options, the hash, the keys, the order."""

from __future__ import annotations

from conformance.participants.expect import between, equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS


@scenario("add.id.counter")
def test_children_of_flows_get_uuids(client: Participant) -> None:
    """A plain job's id is a number of the counter `id`; the child of a flow gets a UUID."""
    queue = client.queue()
    queue.add("plain")
    equal(queue.redis.string("id"), "1", "the counter is at the last id")
    flow = client.flow().add({"name": "parent", "queue": "q", "children": [{"name": "c", "queue": "q"}]})
    child = flow.children[0].id
    holds(len(child) == 36 and child.count("-") == 4, "the child's id is a UUID", seen=child)


@scenario("add.duplicate.ignored")
def test_a_duplicate_leaves_an_event(client: Participant) -> None:
    """Adding an id twice is not an error: the id is returned and the event `duplicated` is left."""
    queue = client.queue()
    queue.add("first", {}, jobId="mine")
    equal(queue.add("second", {}, jobId="mine"), "mine", "the second add returns the id")
    equal(queue.redis.event_names()[-1], "duplicated", "the last event is `duplicated`")


@scenario("add.options.attempts-default")
def test_no_attempts_by_default(client: Participant) -> None:
    """Without options `attempts` 0 is stored, no back-off, and the first failure is final."""
    queue, worker = client.queue(), client.worker()
    queue.add("plain")
    equal(queue.redis.field("1", "opts"), '{"attempts":0}', "the stored options")
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.state("1"), ["failed"], "one failure is final")


@scenario("add.options.backoff-number")
def test_names_of_the_backoff(client: Participant) -> None:
    """A back-off is stored as `type`, `delay` and `jitter`; a bare number becomes the type `fixed`."""
    queue = client.queue()
    queue.add("number", {}, backoff=100)
    queue.add("jitter", {}, backoff={"type": "fixed", "delay": 100, "jitter": 0.5})
    equal(queue.redis.json("1", "opts")["backoff"], {"type": "fixed", "delay": 100}, "a number is a fixed delay")
    equal(queue.redis.json("2", "opts")["backoff"]["jitter"], 0.5, "the third name is `jitter`")


@scenario("key.plain")
def test_keys_have_no_braces(client: Participant) -> None:
    """The keys of the queue `q` contain no braces."""
    queue = client.queue("q")
    queue.add("plain")
    equal(queue.redis.key("wait"), f"{client.prefix}:q:wait", "the kit reads the key without braces")
    equal(queue.redis.elements("wait"), ["1"], "the job is in that key")
    equal(client.redis("{q}").elements("wait"), [], "the key with braces around the queue does not exist")


@scenario("order.no-other-keys")
def test_keys_that_the_paper_does_not_list(client: Participant) -> None:
    """A queue has more keys than the six that the paper lists."""
    queue = client.queue()
    worker = client.worker(metrics={"maxDataPoints": 10}, limiter={"max": 100, "duration": 60_000})
    queue.add("plain")
    queue.add("other")
    queue.add("urgent", {}, priority=1)
    queue.add("once", {}, deduplication={"id": "once"})
    queue.schedule("s", {"every": HOUR_MS})
    client.flow().add({"name": "parent", "queue": "q", "children": [{"name": "child", "queue": "below"}]})
    worker.complete(worker.claim_one().id)
    worker.claim_one()
    worker.check_stalled()
    # A paused queue has no `marker`, and a running one no `paused`.
    equal(queue.redis.exists("marker"), True, "a running queue has `marker`")
    queue.pause()
    names = [
        "paused",
        "stalled",
        "waiting-children",
        "meta",
        "id",
        "pc",
        "limiter",
        "stalled-check",
        "events",
        "repeat",
    ]
    names += ["de:once", "metrics:completed"]
    equal([name for name in names if queue.redis.exists(name)], names, "each of these keys exists")


@scenario("lifecycle.claim.oldest-first")
def test_claims_move_jobs_from_right_to_left(client: Participant) -> None:
    """A claim takes the job at the right end of `wait` and puts it at the left end of `active`."""
    queue, worker = client.queue(), client.worker()
    for name in ("a", "b", "c"):
        queue.add(name)
    equal(queue.redis.elements("wait"), ["3", "2", "1"], "new jobs are added at the left of `wait`")
    worker.claim_one("token-1")
    worker.claim_one("token-2")
    equal(queue.redis.elements("active"), ["2", "1"], "claimed jobs are added at the left of `active`")


@scenario("job.hash.processed-on", "job.hash.finished-on", "job.hash.attempts-made")
def test_fields_appear_with_their_event(client: Participant) -> None:
    """`processedOn` appears with the first start, `finishedOn` with the finish; no field holds 0 before."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    early = {"processedOn", "finishedOn", "atm", "ats"} & queue.redis.hash("1").keys()
    equal(early, set(), "a new job has none of these fields")
    worker.claim_one()
    equal(queue.redis.field("1", "processedOn"), str(client.clock.now_ms()), "the start writes `processedOn`")
    equal(queue.redis.field("1", "finishedOn"), None, "an active job has no `finishedOn`")
    worker.complete("1")
    fields = queue.redis.hash("1")
    equal(fields["finishedOn"], str(client.clock.now_ms()), "the finish writes `finishedOn`")
    counted = (fields["atm"], fields["ats"], "attemptsMade" in fields)
    equal(counted, ("1", "1", False), "a success counts in `atm`, although the job has 0 attempts")


@scenario("job.hash.processed-on")
def test_each_start_writes_its_time(client: Participant) -> None:
    """A second start overwrites `processedOn`."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {}, attempts=2)
    worker.claim_one()
    first = int(queue.redis.field("1", "processedOn") or 0)
    worker.fail("1")
    client.pass_time(50)
    worker.claim_one()
    equal(queue.redis.field("1", "processedOn"), str(first + 50), "the second start is 50 ms later")


@scenario("job.hash.processed-by")
def test_the_hash_has_no_worker_id(client: Participant) -> None:
    """A claimed job keeps the worker's name in `pb` and has no field `workerId`."""
    queue = client.queue()
    queue.add("signed")
    client.worker(name="worker-7").claim_one()
    fields = queue.redis.hash("1")
    equal((fields.get("pb"), fields.get("workerId")), ("worker-7", None), "only the name is stored")


@scenario("lock.token")
def test_the_token_is_not_in_the_hash(client: Participant) -> None:
    """The client chooses the token; only the key `<id>:lock` holds it."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one("any text")
    equal(queue.redis.string("1:lock"), "any text", "the lock holds the token of the client")
    holds("any text" not in queue.redis.hash("1").values(), "the hash does not hold it", seen=queue.redis.hash("1"))


@scenario("lock.token")
def test_the_token_of_nodes_worker(client: Participant) -> None:
    """Node's own worker uses a UUID, `:` and a number."""
    client.queue().add("work")
    worker = client.worker("ask")
    token = worker.next_job().token
    worker.resolve("1")
    worker.wait_local("completed", "1")
    holds(len(token) > 36 and token[36] == ":" and token[37:].isdigit(), "a UUID, a colon and a number", seen=token)


@scenario("lock.duration")
def test_a_claim_overwrites_the_lock(client: Participant) -> None:
    """A claim replaces a lock that exists; the new one expires after `lockDuration` ms."""
    queue, worker = client.queue(), client.worker(lockDuration=1500)
    queue.add("work")
    queue.redis.set_string("1:lock", "token-other", ttl_ms=60_000)
    worker.claim_one("token-new")
    equal(queue.redis.string("1:lock"), "token-new", "the lock is overwritten")
    between(queue.redis.ttl_ms("1:lock"), 0, 1500, "it lives for 1500 ms, which is not a whole number of seconds")
