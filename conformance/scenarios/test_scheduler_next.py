"""The next job of a scheduler where it cannot be made as usual: its place is taken, or there is to be none."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.protocol.states import DELAY_FACTOR
from conformance.scenarios.support.steps import HOUR_MS, START_MS, YEARLY, claim_current_job, current_job, due_of, node
from conformance.scenarios.support.waiting import MOVING, QUEUE_STATES, add_family, open_busy_queue

SECOND_MS = 1000

OWNED_BY_A_NAME = {"deduplication": "the new owner is a name only, so that nothing can remove it"}


@scenario("scheduler.next.once", "add.duplicate.ignored")
def test_the_next_job_is_there_already(client: Participant) -> None:
    """A job that already has the id of the next iteration stays unchanged, and the scheduler ends with it."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS})
    # Taken before the scheduler makes its next job, which would have this id.
    following = f"repeat:s:{due_of(queue) + HOUR_MS}"
    queue.add("taken", {"by": "hand"}, jobId=following)
    claim_current_job(queue, worker)
    equal(queue.redis.field(following, "name"), "taken", "the job that was there stays", where="job.name")
    equal(queue.redis.state(following), ["wait"], "where it was")
    duplicated = [event["jobId"] for event in queue.redis.events() if event.get("event") == "duplicated"]
    equal(duplicated, [following], "an event reports the schedule that ends")


@pytest.mark.parametrize("change", [{"every": HOUR_MS}, {"every": HOUR_MS, "limit": 3}, YEARLY], ids=repr)
@scenario("scheduler.upsert.pending", "scheduler.limit", tier="full")
@also_in_core("{'every': 3600000, 'limit': 3} | {'every': 3600000}")
def test_an_exhausted_scheduler_is_changed_while_its_last_job_runs(client: Participant, change: dict[str, Any]) -> None:
    """The running job stays, and another one is to come."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS, "limit": 1})
    # Claimed, because the running job is what must survive the change.
    last = claim_current_job(queue, worker)
    equal(queue.redis.members("delayed"), [], "no further job is to come")
    job = queue.schedule("s", change)
    holds(job is not None and job.id != last, "another job is to come", seen=job)
    equal(queue.redis.state(last), ["active"], "the last one still runs")


@scenario(
    "scheduler.upsert.pending",
    "dedup.removal",
    tier="full",
    without={"deduplication": "the owner of the id is a name only, so that nothing can remove it"},
)
def test_a_pending_job_that_names_an_id_is_replaced(client: Participant) -> None:
    """The id is another job's, and stays so."""
    queue = client.queue()
    queue.schedule("s", YEARLY, deduplication={"id": "its"})
    queue.redis.set_string("de:its", "another job")
    queue.schedule("s", {"every": HOUR_MS, "startDate": START_MS})
    equal(queue.redis.state(current_job(queue)), ["delayed"], "the new one is to come")
    equal(queue.redis.string("de:its"), "another job", "the other job keeps the id")


@pytest.mark.parametrize("opts", [{}, {"lifo": True}, {"priority": 3}], ids=["plain", "lifo", "prioritized"])
@scenario("scheduler.next", tier="full")
def test_the_next_job_is_due_when_the_last_is_fetched(client: Participant, opts: dict[str, Any]) -> None:
    """It waits at once, where its options put it."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS}, **opts)
    queue.add("other", {}, **opts)
    if client.clock.frozen:  # a running clock cannot fetch in exactly this ms
        client.pass_time(due_of(queue) + HOUR_MS - client.clock.now_ms())
    worker.claim_one("token-1")
    worker.claim_one("token-2")
    if client.clock.frozen:
        place = "prioritized" if "priority" in opts else "wait"
        equal(queue.redis.state(current_job(queue)), [place], "the next job waits where its options put it")


@pytest.mark.parametrize("opts", [{}, {"priority": 3}], ids=["plain", "prioritized"])
@scenario("scheduler.legacy-repeat", tier="full", bullmq="<6")
@also_in_core("{'priority': 3} | {}")
def test_the_older_option_repeat_begins_at_once(client: Participant, opts: dict[str, Any]) -> None:
    """The first job waits where its options put it, and goes on like a scheduler's."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", {"n": 1}, repeat={**YEARLY, "key": "mine", "immediately": True}, **opts)
    equal(queue.redis.members("repeat"), ["mine"], "there is one scheduler")
    worker.complete(claim_current_job(queue, worker, "mine"))
    equal(queue.redis.state(current_job(queue, "mine")), ["delayed"], "it goes on like a scheduler")


@pytest.mark.parametrize("queue_state", QUEUE_STATES)
@scenario("scheduler.legacy-repeat", "paused.everything-parks", "concurrency.no-marker", tier="full", bullmq="<6")
@also_in_core("full | paused | with-room | without-meta")
def test_a_parent_loses_the_job_of_an_older_option_that_is_changed(client: Participant, queue_state: str) -> None:
    """The job that was to come is replaced; the parent that waited for it alone waits where a new job would."""
    prepared = open_busy_queue(client)
    queue, below = prepared.queue, prepared.below.queue
    add_family(prepared)
    below.add("old", repeat={**YEARLY, "key": "mine"}, parent={"id": MOVING, "queue": queue.redis.base[:-1]})
    replaced = current_job(below, "mine")
    below.remove("child")
    pending = queue.redis.set_members(f"{MOVING}:dependencies")
    equal(len(pending), 1, "the parent waits for the job that is to come", where="row.flow.remove.child")
    QUEUE_STATES[queue_state](prepared)
    queue.redis.delete("marker")
    below.add("old", repeat={**YEARLY, "pattern": "0 0 2 1 *", "key": "mine"})
    equal(below.redis.exists(replaced), False, "another job is to come instead")
    equal(queue.redis.state(MOVING), ["paused" if queue_state == "paused" else "wait"], "the parent waits to be run")
    markers = queue.redis.members("marker")
    equal(
        "0" in markers, queue_state in ("with-room", "without-meta"), "who could run it is woken", where="marker.base"
    )


DAY_MS = 24 * HOUR_MS


def _one_is_to_come(queue: QueueHandle) -> str:
    """The only delayed job; nothing else waits either."""
    delayed = queue.redis.members("delayed")
    equal((len(delayed), queue.redis.elements("wait")), (1, []), "exactly one job is to come, and later")
    return delayed[0]


@scenario("scheduler.legacy-repeat.ahead", tier="full", bullmq="<6")
def test_an_older_option_repeat_is_added_again_after_a_run(client: Participant) -> None:
    """The job that is to come stays, or is made again."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", repeat=YEARLY)
    queue.add("old", repeat=YEARLY)
    queue.promote(_one_is_to_come(queue))
    worker.complete(worker.claim_one().id)
    _one_is_to_come(queue)
    queue.add("old", repeat=YEARLY)
    _one_is_to_come(queue)


@scenario("scheduler.legacy-repeat.ahead", bullmq="<6")
def test_an_older_option_repeat_is_changed(client: Participant) -> None:
    """Under the same key, the job of the new pattern takes the place of the old one."""
    queue = client.queue()
    queue.add("old", {"n": 1}, repeat={**YEARLY, "key": "mine"})
    former = _one_is_to_come(queue)
    queue.add("old", {"n": 2}, repeat={**YEARLY, "pattern": "0 0 2 1 *", "key": "mine"})
    holds(_one_is_to_come(queue) != former, "it is another job", seen=former)
    equal(queue.redis.exists(former), False, "nothing is left of the former one")


@scenario("scheduler.legacy-repeat.ahead", tier="full", bullmq="<6")
def test_an_older_option_repeat_that_begins_at_once_goes_on_by_its_pattern(client: Participant) -> None:
    """The second job is due at midnight, as the pattern says."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", repeat={**YEARLY, "immediately": True})
    worker.complete(worker.claim_one().id)
    due = int(_one_is_to_come(queue).rpartition(":")[2])
    equal(due % DAY_MS, 0, "the second job is named after midnight")
    score = int(queue.redis.zset("delayed")[0][1]) // DELAY_FACTOR
    equal(score, due, "and it is due then", where="membership.delayed.score")


@scenario("scheduler.end", tier="full", bullmq="<6")
def test_an_older_option_repeat_whose_end_has_passed_is_refused(client: Participant) -> None:
    """Nothing is stored."""
    queue = client.queue()
    with client.refuses("invalid-argument", "an endDate in the past is refused"):
        queue.add("old", repeat={"every": HOUR_MS, "endDate": 1_000_000_000_000})
    equal(queue.redis.exists("repeat"), False, "there is no scheduler")


@scenario("scheduler.remove", "scheduler.legacy-repeat.ahead", tier="full", bullmq="<6")
def test_an_older_option_repeat_is_removed(client: Participant) -> None:
    """By its key, as a scheduler is."""
    queue = client.queue()
    queue.add("old", repeat={**YEARLY, "key": "mine"})
    job = _one_is_to_come(queue)
    equal(queue.unschedule("mine"), True, "it existed")
    left = [name for name in ("repeat", "repeat:mine", job) if queue.redis.exists(name)]
    equal(left, [], "nothing of it is left")


LEGACY_KEY = "old:mine::UTC:yearly"
"""Of five parts, as BullMQ 3 and older made them; the job of such a key has an id that is made from a hash."""


@scenario("scheduler.legacy-repeat.ahead", "scheduler.legacy-repeat", bullmq="<6")
def test_a_key_of_five_parts_goes_on_as_it_did(client: Participant) -> None:
    """Its next job comes when the one before is fetched."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", repeat={**YEARLY, "key": LEGACY_KEY})
    equal(queue.redis.members("repeat"), [LEGACY_KEY], "the key is in use as it was given")
    first, first_due = queue.redis.members("delayed")[0], queue.redis.score("repeat", LEGACY_KEY)
    queue.promote(first)
    worker.complete(worker.claim_one().id)
    equal(len(queue.redis.members("delayed")), 1, "another job is to come")
    following, due = queue.redis.members("delayed")[0], queue.redis.score("repeat", LEGACY_KEY)
    holds((due or 0) > (first_due or 0), "the key has the time of that job", seen=[first_due, due])
    equal(following.rpartition(":")[2], str(int(due or 0)), "the job is named after its time")
    equal(following.rpartition(":")[0], first.rpartition(":")[0], "and after the same hash")


@scenario("scheduler.legacy-repeat.ahead", "scheduler.legacy-repeat", bullmq="<6")
def test_the_key_of_an_older_version_is_still_used(client: Participant) -> None:
    """A record under the options themselves, and not under their hash, is changed and goes on."""
    queue, worker = client.queue(), client.worker()
    legacy = f"old:::UTC:{YEARLY['pattern']}"
    queue.add("old", repeat={**YEARLY, "tz": "UTC", "key": legacy})
    # Without the key in its options, as the older version had it.
    queue.add("old", repeat={**YEARLY, "tz": "UTC"})
    equal(queue.redis.members("repeat"), [legacy], "there is no second record")
    queue.promote(queue.redis.members("delayed")[0])
    worker.complete(worker.claim_one().id)
    equal(queue.redis.members("repeat"), [legacy], "there is none afterwards either")
    due = str(int(queue.redis.score("repeat", legacy) or 0))
    equal(len(queue.redis.members("delayed")), 1, "another job is to come")
    equal(queue.redis.members("delayed")[0].rpartition(":")[2], due, "at the time of the record")


@scenario("scheduler.legacy-repeat", bullmq="<6")
def test_the_end_of_an_older_option_repeat_is_kept(client: Participant) -> None:
    """The record holds it in ms, whichever form it is given in."""
    queue = client.queue()
    queue.add("old", repeat={**YEARLY, "key": "mine", "endDate": "2099-01-02T03:04:05.000Z"})
    record = queue.redis.hash("repeat:mine")
    equal(record.get("endDate"), "4071006245000", "the end is in the record", where="scheduler.endDate")
    equal(record.get("pattern"), YEARLY["pattern"], "and the pattern")


@pytest.mark.parametrize("owner", ["it", "another job"])
@scenario("scheduler.legacy-repeat", "dedup.removal", tier="full", bullmq="<6", without=OWNED_BY_A_NAME)
@also_in_core("another job | it")
def test_the_job_of_an_older_option_that_is_changed_frees_its_id(client: Participant, owner: str) -> None:
    """Unless the id has become another job's."""
    queue = client.queue()
    queue.add("old", repeat={**YEARLY, "key": "mine"}, deduplication={"id": "its"})
    equal(queue.redis.string("de:its"), current_job(queue, "mine"), "the job that is to come owns the id")
    if owner == "another job":
        queue.redis.set_string("de:its", owner)
    queue.add("old", repeat={**YEARLY, "pattern": "0 0 2 1 *", "key": "mine"})
    equal(queue.redis.string("de:its"), owner if owner == "another job" else None, "the id is free, or the other job's")


PENDING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "delayed": (YEARLY, {}),
    "waiting": ({"every": HOUR_MS}, {}),
    "prioritized": ({"every": HOUR_MS}, {"priority": 3}),
}
"""Containers of the next job of a scheduler: its schedule, and the options of its jobs."""


@pytest.mark.parametrize("place", PENDING)
@pytest.mark.parametrize("owner", ["it", "another job"])
@scenario("scheduler.upsert.pending", "dedup.removal", tier="full", without=OWNED_BY_A_NAME)
@also_in_core("another job-delayed | another job-waiting | it-delayed | it-waiting")
def test_the_pending_job_of_a_scheduler_that_is_changed_frees_its_id(
    client: Participant, owner: str, place: str
) -> None:
    """Unless the id has become another job's."""
    queue, (repeat, opts) = client.queue(), PENDING[place]
    queue.schedule("s", repeat, deduplication={"id": "its"}, **opts)
    queue.redis.set_string("de:its", current_job(queue) if owner == "it" else owner)
    queue.redis.set_field(current_job(queue), "deid", "its")
    queue.schedule("s", {**YEARLY, "pattern": "0 0 2 1 *"})
    equal(queue.redis.string("de:its"), owner if owner == "another job" else None, "the id is free, or the other job's")


@pytest.mark.parametrize("child", [{}, {"deduplication": {"id": "its"}}], ids=["plain", "an-owner"])
@scenario("scheduler.legacy-repeat", tier="full", bullmq="<6", cases={"an-owner": "<5.70.4"})
@also_in_core("{'deduplication': {'id': 'its'}} | {}")
def test_a_parent_in_the_same_queue_goes_with_the_job_of_an_older_option(
    client: Participant, child: dict[str, Any]
) -> None:
    """The job that was to come is replaced, and with it goes the parent that waited for it alone."""
    family, queue = client.flow(), client.queue()
    family.add(node("parent", node("child")))
    queue.add("old", repeat={**YEARLY, "key": "mine"}, parent={"id": "parent", "queue": queue.redis.base[:-1]}, **child)
    queue.remove("child")
    pending = queue.redis.set_members("parent:dependencies")
    equal(len(pending), 1, "the parent waits for the job that is to come", where="row.flow.remove.child")
    queue.log("parent", "a row")
    queue.add("old", repeat={**YEARLY, "pattern": "0 0 2 1 *", "key": "mine"})
    equal(queue.redis.state("parent"), [], "the parent is nowhere")
    equal((queue.redis.exists("parent"), queue.redis.exists("parent:logs")), (False, False), "nothing of it is left")
    equal(queue.redis.exists("de:its"), False, "the id of the child is free")


@pytest.mark.parametrize("lost", ["repeat", f"repeat:{LEGACY_KEY}"], ids=["times", "record"])
@scenario(
    "scheduler.legacy-repeat",
    tier="full",
    bullmq="<6",
    without={
        "schedulers": "one half of what the key is was deleted",
        "packed-arguments": "a job of no key has an empty text for it, also from Node",
    },
)
@also_in_core("repeat")
def test_a_key_of_five_parts_is_lost_while_its_job_waits(client: Participant, lost: str) -> None:
    """Its job runs, and the times of all keys are as Node leaves them."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", repeat={**YEARLY, "key": LEGACY_KEY})
    queue.add("another", repeat={**YEARLY, "key": "other"})
    first = next(job for job in queue.redis.members("delayed") if not job.startswith("repeat:other:"))
    queue.promote(first)
    queue.redis.delete(lost)
    worker.complete(worker.claim_one().id)
    equal(queue.redis.state(first), ["completed"], "the job that was there is done")


@scenario("scheduler.legacy-repeat", bullmq="<6")
def test_a_key_and_that_of_an_older_version_are_there(client: Participant) -> None:
    """Only the key that the job names goes on."""
    queue, worker = client.queue(), client.worker()
    older = f"old:::UTC:{YEARLY['pattern']}"
    queue.add("old", repeat={**YEARLY, "key": LEGACY_KEY})
    queue.redis.set_score("repeat", older, START_MS)
    queue.redis.set_field(f"repeat:{older}", "name", "old")
    due = queue.redis.score("repeat", LEGACY_KEY)
    queue.promote(queue.redis.members("delayed")[0])
    worker.complete(worker.claim_one().id)
    equal(queue.redis.score("repeat", older), START_MS, "the older key keeps its time")
    holds((queue.redis.score("repeat", LEGACY_KEY) or 0) > (due or 0), "the other one has the next", seen=due)


def _schedule_that_cannot_go_on(queue: QueueHandle) -> str:
    """Give its job a rule that cannot be parsed, as another version or a manual change could leave it."""
    queue.schedule("s", {"every": HOUR_MS})
    job = current_job(queue)
    queue.redis.set_field(job, "opts", '{"attempts":0,"repeat":{"pattern":"never"}}')
    return job


@scenario("scheduler.next.fails", clock="real")
def test_the_next_job_cannot_be_made(client: Participant) -> None:
    """The error event is the only sign of a schedule that stopped."""
    queue = client.queue()
    job = _schedule_that_cannot_go_on(queue)
    worker = client.worker("noop")
    worker.wait_local("error")
    # By the end of another job the broken one would have been run.
    worker.wait_local("completed", queue.add("other"))
    fields = queue.redis.hash(job)
    holds("finishedOn" not in fields, "the job has not been run", seen=fields)
    worker.close()


# Not compared: the fate of the broken job is another row.
@scenario("scheduler.next.worker-goes-on", clock="real", compare=False)
def test_a_broken_schedule_stops_no_other_job(client: Participant) -> None:
    """The worker that has met such a job runs the jobs that are added afterwards."""
    queue = client.queue()
    job = _schedule_that_cannot_go_on(queue)
    client.worker("noop")
    client.eventually(lambda: queue.redis.runs(job), bool, "the worker has taken the job")
    # One after the other, because the order of two jobs' events would depend on the machine.
    for _ in range(2):
        other = queue.add("other")
        client.eventually(partial(queue.redis.state, other), lambda state: state == ["completed"], "other jobs are run")


@scenario("scheduler.next.fails", clock="real", tier="full", bullmq=">=5.58.8,<5.62.1")
def test_a_job_without_successor_is_put_off(client: Participant) -> None:
    """The job is delayed, so that the schedule does not end with it."""
    queue = client.queue()
    job = _schedule_that_cannot_go_on(queue)
    worker = client.worker("noop")
    client.eventually(lambda: queue.redis.state(job), lambda state: state == ["delayed"], "the job is delayed")
    # The delay is read from the hash, because waiting until it has passed would take seconds.
    delay_ms = float(queue.redis.field(job, "delay") or 0)
    holds(delay_ms >= SECOND_MS, "it comes again some seconds later", seen=delay_ms)
    worker.close()
