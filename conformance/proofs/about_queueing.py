"""Adding jobs, and which job comes next: ids, options, the hash, the keys, the claim."""

from __future__ import annotations

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import between, equal, holds
from conformance.participants.participant import Participant
from conformance.proofs.proof import proof


@proof("add.id.counter")
def ids_are_numbers(oracle: Participant) -> str:
    """Add three jobs, the second one with an id of its own, and a flow."""
    queue = oracle.queue()
    ids = [queue.add("plain"), queue.add("named", {}, jobId="mine"), queue.add("plain")]
    equal(ids, ["1", "mine", "3"], "ids are the numbers of a counter, which also counts the named job")
    counted = queue.redis.string("id")
    equal(counted, "3", "the counter is at the last of them")
    child = (
        oracle.flow().add({"name": "parent", "queue": "q", "children": [{"name": "c", "queue": "q"}]}).children[0].id
    )
    holds(len(child) == 36 and child.count("-") == 4, "the child of a flow gets a UUID", seen=child)
    return f"the ids are {', '.join(ids)}, and the counter `id` is at {counted}; a child of a flow is {child}"


@proof("add.duplicate.ignored")
def a_duplicate_is_no_error(oracle: Participant) -> str:
    """Add the same id twice."""
    queue = oracle.queue()
    queue.add("first", {"n": 1}, jobId="mine")
    answer = queue.add("second", {"n": 2}, jobId="mine")
    equal((answer, queue.redis.field("mine", "name")), ("mine", "first"), "the first job stays and its id is answered")
    equal(queue.redis.event_names()[-1], "duplicated", "the stream tells it")
    return "the second add answers the id `mine`, the first job is unchanged, and the stream says `duplicated`"


@proof("add.options.attempts-default")
def no_attempts_by_default(oracle: Participant) -> str:
    """Add a job without options and let it fail once."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("plain")
    stored = queue.redis.field("1", "opts")
    equal(stored, '{"attempts":0}', "attempts 0 are stored, and no back-off")
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.state("1"), ["failed"], "one failure is final")
    return f"the stored options are {stored}, and the first failure is final"


@proof("add.options.backoff-number")
def names_of_the_backoff(oracle: Participant) -> str:
    """Add a job with a bare number, and one with a jitter."""
    queue = oracle.queue()
    queue.add("number", {}, backoff=100)
    queue.add("jitter", {}, backoff={"type": "fixed", "delay": 100, "jitter": 0.5})
    number, jitter = queue.redis.field("1", "opts") or "", queue.redis.field("2", "opts") or ""
    holds('"type":"fixed"' in number and '"delay":100' in number, "a number is a fixed delay", seen=number)
    holds('"jitter":0.5' in jitter, "the third name is jitter", seen=jitter)
    return f"a back-off of 100 is stored as {number}, and one with jitter as {jitter}"


@proof("job.hash.data")
def any_data(oracle: Participant) -> str:
    """Add a list, a text, a number and null."""
    queue = oracle.queue()
    texts = ["[1,2]", '"text"', "7", "null"]
    stored = [queue.redis.field(queue.add("any", raw=text), "data") for text in texts]
    equal(stored, texts, "any JSON value is kept")
    equal(queue.redis.field(queue.add("none"), "data"), "{}", "no data is `{}`")
    return f"the data {', '.join(texts)} are stored as they are"


@proof("job.hash.no-others")
def a_new_hash(oracle: Participant) -> str:
    """Look at the fields of a new job."""
    queue = oracle.queue()
    queue.add("new")
    fields = sorted(queue.redis.hash("1"))
    equal(fields, ["data", "delay", "name", "opts", "priority", "timestamp"], "six fields, none of them a zero to be")
    return f"a new job has the fields {', '.join(fields)}"


@proof("key.plain")
def no_braces(oracle: Participant) -> str:
    """Add a job to the queue `q` and look where it is."""
    queue = oracle.queue("q")
    queue.add("plain")
    wanted = f"{oracle.prefix}:q:wait"
    equal(queue.redis.key("wait"), wanted, "the key has no braces of the kit's own")
    equal(queue.redis.elements("wait"), ["1"], "the job is in the key without braces")
    equal(oracle.redis("{q}").elements("wait"), [], "there is nothing under the name with braces")
    return f"the job waits in {wanted}, and the key with braces around the queue does not exist"


@proof("order.delayed.score")
def delayed_score(oracle: Participant) -> str:
    """Add two jobs that are due in the same ms."""
    queue = oracle.queue()
    for _ in range(2):
        queue.add("later", {}, delay=5000, timestamp=1_700_000_000_000)
    due = 1_700_000_005_000
    equal(
        queue.redis.zset("delayed"), [("1", due * 4096.0), ("2", due * 4096.0 + 1)], "due time times 4096, counted on"
    )
    return f"jobs due at {due} have the scores {due} * 4096 and {due} * 4096 + 1"


@proof("order.prioritized.score")
def prioritized_score(oracle: Participant) -> str:
    """Add two jobs of priority 5."""
    queue = oracle.queue()
    for _ in range(2):
        queue.add("urgent", {}, priority=5)
    wanted = [("1", 5 * 2.0**32 + 1), ("2", 5 * 2.0**32 + 2)]
    equal(queue.redis.zset("prioritized"), wanted, "priority times 2^32 plus the counter")
    return "the scores are 5 * 2^32 + 1 and 5 * 2^32 + 2"


@proof("order.meta")
def the_queue_sets_the_event_limit(oracle: Participant) -> str:
    """Open a worker and a queue, and look at `meta`."""
    oracle.worker(streams={"events": {"maxLen": 77}})
    before = oracle.redis().field("meta", "opts.maxLenEvents")
    queue = oracle.queue(streams={"events": {"maxLen": 500}})
    queue.add("any")
    stored = queue.redis.field("meta", "opts.maxLenEvents")
    equal((before, stored), (None, "500"), "the worker's option is ignored and the queue's is stored")
    return "the same option on a worker leaves nothing, on a queue it leaves opts.maxLenEvents 500 in `meta`"


@proof("order.no-other-keys")
def more_keys(oracle: Participant) -> str:
    """Use what a queue can do, and name keys that the paper does not know."""
    queue = oracle.queue()
    worker = oracle.worker(metrics={"maxDataPoints": 10}, limiter={"max": 100, "duration": 60_000})
    queue.add("plain")
    queue.add("other")
    queue.add("urgent", {}, priority=1)
    queue.add("once", {}, deduplication={"id": "once"})
    queue.schedule("s", {"every": 3_600_000})
    oracle.flow().add({"name": "parent", "queue": "q", "children": [{"name": "child", "queue": "below"}]})
    worker.complete(worker.claim_one().id)
    worker.claim_one()
    worker.check_stalled()
    while_it_runs = [name for name in ("marker",) if queue.redis.exists(name)]
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
    there = while_it_runs + [name for name in names if queue.redis.exists(name)]
    equal(there, ["marker", *names], "each of these keys exists")
    return f"there are also {', '.join(there)}"


@proof("getters.job.missing-fields")
def a_bare_job_is_run(oracle: Participant) -> str:
    """Leave a hash with only name and data in `wait`, and claim it."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("whole")
    queue.redis.delete("1")
    queue.redis.set_field("1", "name", "bare")
    queue.redis.set_field("1", "data", "{}")
    claimed = worker.claim_one()
    equal((claimed.id, claimed.name), ("1", "bare"), "the job is handed out")
    worker.complete("1", "done")
    equal(queue.redis.state("1"), ["completed"], "and it can be completed")
    return "a job without options, time, delay and priority is handed out and completed"


@proof("lifecycle.claim.oldest-first")
def from_right_to_left(oracle: Participant) -> str:
    """Add three jobs and claim two."""
    queue, worker = oracle.queue(), oracle.worker()
    for name in ("a", "b", "c"):
        queue.add(name)
    waiting = queue.redis.elements("wait")
    equal(waiting, ["3", "2", "1"], "new jobs are added at the left")
    worker.claim_one("token-1")
    worker.claim_one("token-2")
    equal(queue.redis.elements("active"), ["2", "1"], "claimed jobs are added at the left of `active`")
    return "`wait` was 3, 2, 1; after two claims 1 and 2 are taken and `active` is 2, 1, from left to right"


@proof("lifecycle.claim.waiting-before-prioritized")
def smallest_number_first(oracle: Participant) -> str:
    """Add the priorities 10, 1, none and 3, and claim all."""
    queue, worker = oracle.queue(), oracle.worker()
    for priority in (10, 1, 0, 3):
        queue.add("job", {}, priority=priority)
    order = [int(worker.claim_one(f"token-{number}").priority or 0) for number in range(4)]
    equal(order, [0, 1, 3, 10], "no priority first, then the smallest number")
    return f"they ran in the order {', '.join(map(str, order))}"


@proof("job.hash.processed-on")
def no_start_before_the_start(oracle: Participant) -> str:
    """Look at `processedOn` before and after the claim, and after a second one."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work", {}, attempts=2)
    before = queue.redis.field("1", "processedOn")
    worker.claim_one()
    after = queue.redis.field("1", "processedOn")
    equal((before, after), (None, str(oracle.clock.now_ms())), "the field appears with the start")
    worker.fail("1")
    oracle.pass_time(50)
    worker.claim_one()
    again = queue.redis.field("1", "processedOn")
    equal(again, str(int(after or 0) + 50), "each start writes it anew")
    return f"before the start there is no such field, afterwards it holds {after}"


@proof("job.hash.processed-by")
def a_name_and_no_id(oracle: Participant) -> str:
    """Claim a job by a worker with a name and one by a worker without."""
    queue = oracle.queue()
    queue.add("signed")
    queue.add("unsigned")
    oracle.worker(name="worker-7").claim_one("token-1")
    oracle.worker().claim_one("token-2")
    equal([queue.redis.field(job, "workerId") for job in ("1", "2")], [None, None], "there is no worker id")
    equal([queue.redis.field(job, "pb") for job in ("1", "2")], ["worker-7", None], "only the name is kept")
    return "`pb` is worker-7 for one job and missing for the other; `workerId` does not exist"


@proof("lock.token")
def the_client_brings_the_token(oracle: Participant) -> str:
    """Claim with a token that is no UUID."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one("any text")
    equal(queue.redis.string("1:lock"), "any text", "the lock holds what the client brought")
    holds("any text" not in queue.redis.hash("1").values(), "it is not in the hash", seen=queue.redis.hash("1"))
    return "the key 1:lock holds `any text`, and the hash knows no token"


@proof("FR-2.3")
def nodes_own_token(oracle: Participant) -> str:
    """Let Node's own loop run a job, and look at the token it chose."""
    oracle.queue().add("work")
    worker = oracle.worker("ask")
    token = worker.next_job().token
    worker.resolve("1")
    worker.wait_local("completed", "1")
    holds(len(token) > 36 and token[36] == ":" and token[37:].isdigit(), "a UUID, a colon and a number", seen=token)
    return f"its own token is {token}"


@proof("lock.duration")
def the_lock_is_overwritten(oracle: Participant) -> str:
    """Claim a job whose lock is already there."""
    queue, worker = oracle.queue(), oracle.worker(lockDuration=1500)
    queue.add("work")
    queue.redis.set_string("1:lock", "somebody else", ttl_ms=60_000)
    worker.claim_one("token-new")
    equal(queue.redis.string("1:lock"), "token-new", "the lock is overwritten")
    between(queue.redis.ttl_ms("1:lock"), 0, 1500, "it lives for 1500 ms, which is no number of seconds")
    return "the lock of somebody else is replaced, and the new one lives for 1500 ms"


@proof("ratelimit.inside-the-claim")
def the_claim_counts(oracle: Participant) -> str:
    """Limit the queue to one start per minute and claim twice."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.call(queue_ops.SetGlobalRateLimit(max=1, duration_ms=60_000))
    queue.add("first")
    queue.add("second")
    worker.claim_one("token-1")
    equal(worker.claim("token-2"), None, "the second claim gets nothing")
    equal((queue.redis.string("limiter"), queue.redis.elements("wait")), ("1", ["2"]), "the claim counted the start")
    return "the first claim set `limiter` to 1, the second got nothing although a job waits"
