"""Job schedulers: changing, removing and listing them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import flow as flow_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal, holds
from conformance.participants.marks import handover, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, YEARLY, claim_current_job, current_job, due_of, required


@pytest.mark.parametrize("moment", ["waiting", "delayed", "prioritized"])
@scenario("scheduler.upsert.pending")
def test_an_upsert_replaces_the_pending_job(client: Participant, moment: str) -> None:
    """The time stays, everything else is new."""
    _upsert_twice(client, moment)


@scenario("scheduler.upsert.pending", bullmq="<6")
def test_an_upsert_replaces_the_parked_job(client: Participant) -> None:
    """Also while the queue is paused."""
    client.queue().pause()
    _upsert_twice(client, "waiting")


@scenario("scheduler.upsert.pending", bullmq=">=6")
def test_an_upsert_of_a_paused_queue_puts_the_first_job_off(client: Participant) -> None:
    """The waiting job is not found in `paused` any more: it is replaced by the one of the next time."""
    queue = client.queue()
    queue.pause()
    queue.schedule("s", {"every": HOUR_MS}, name="before")
    due = due_of(queue)
    job = required(queue.schedule("s", {"every": HOUR_MS}, name="after"))
    equal((due_of(queue), queue.redis.state(job.id)), (due + HOUR_MS, ["delayed"]), "the job is one interval later")
    equal(queue.redis.field(job.id, "name"), "after", "it is made of the new template", where="job.name")


def _upsert_twice(client: Participant, moment: str) -> None:
    queue = client.queue()
    repeat: dict[str, Any] = YEARLY if moment == "delayed" else {"every": HOUR_MS}
    queue.schedule("s", repeat, name="before", data={"n": 1}, priority=5 if moment == "prioritized" else 0)
    due, state = due_of(queue), queue.redis.state(current_job(queue))
    job = required(
        queue.schedule("s", repeat, name="after", data={"n": 2}, priority=5 if moment == "prioritized" else 0)
    )
    equal((due_of(queue), queue.redis.state(job.id)), (due, state), "the job has the same time and place")
    equal(queue.redis.field(job.id, "name"), "after", "it is made of the new template", where="job.name")
    names = queue.redis.event_names()
    holds("removed" not in names, "there is no event about the job that was replaced", seen=names)
    equal(queue.redis.field("repeat:s", "ic"), "1", "it counts as the same iteration", where="scheduler.ic")


@scenario("scheduler.upsert.pending")
def test_an_upsert_while_a_job_runs(client: Participant) -> None:
    """A running job does not change; its successor is replaced."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS}, name="before")
    running = claim_current_job(queue, worker)
    queue.schedule("s", {"every": HOUR_MS}, name="after")
    worker.complete(running)
    equal(queue.redis.field(running, "name"), "before", "the running job keeps its name")
    equal(queue.redis.field(current_job(queue), "name"), "after", "the next one has the new name")
    equal(len(queue.redis.members("delayed")), 1, "there is one next job")
    equal(queue.redis.field("repeat:s", "ic"), "2", "the count of iterations goes on")


@scenario("scheduler.remove")
def test_removing_a_scheduler_with_a_delayed_job(client: Participant) -> None:
    """Record and job go."""
    queue = client.queue()
    queue.schedule("s", YEARLY)
    job = current_job(queue)
    equal(queue.unschedule("s"), True, "the scheduler existed")
    left = [name for name in ("repeat", "repeat:s", job) if queue.redis.exists(name)]
    equal(left, [], "nothing of it is left")
    equal(queue.unschedule("s"), False, "it no longer exists")


@pytest.mark.parametrize("change", ["removed", "replaced"])
@scenario("scheduler.remove", "scheduler.upsert.pending")
def test_the_log_of_the_pending_job_goes_too(client: Participant, change: str) -> None:
    """Whether its scheduler is removed or changed."""
    queue = client.queue()
    queue.schedule("s", YEARLY)
    job = current_job(queue)
    queue.log(job, "a row")
    if change == "removed":
        queue.unschedule("s")
    else:
        queue.schedule("s", {**YEARLY, "limit": 5})
    equal(queue.redis.exists(f"{job}:logs"), False, "no log is left of a job that is gone")


@pytest.mark.parametrize("moment", ["waiting", "active"])
@scenario("scheduler.remove")
def test_removing_a_scheduler_whose_job_has_come(client: Participant, moment: str) -> None:
    """The job that has come still runs, as the last one."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS})
    job = current_job(queue)
    if moment == "active":
        worker.claim_one()
    queue.unschedule("s")
    if moment == "waiting":
        equal(worker.claim_one().id, job, "the job still runs")
    worker.complete(job)
    equal(queue.redis.members("delayed"), [], "there is no next job")


@scenario("scheduler.job-protected")
def test_the_current_job_is_protected(client: Participant) -> None:
    """Only the scheduler as a whole can be removed."""
    queue = client.queue()
    queue.schedule("s", {"every": HOUR_MS})
    queue.schedule("later", YEARLY)
    for scheduler in ("s", "later"):
        with client.refuses("scheduler-job", "the current job of a scheduler is not removed"):
            queue.remove(current_job(queue, scheduler))
    queue.call(queue_ops.Drain(delayed=True))
    client.pass_time(20)
    for state in ("wait", "delayed"):
        queue.call(queue_ops.Clean(grace_ms=0, limit=100, type=state))
    there = [queue.redis.exists(current_job(queue, scheduler)) for scheduler in ("s", "later")]
    equal(there, [True, True], "both jobs are still there")


@scenario("scheduler.job-protected")
def test_a_former_job_can_be_removed(client: Participant) -> None:
    """Only the current job is protected."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS})
    job = claim_current_job(queue, worker)
    worker.complete(job)
    equal(queue.remove(job), 1, "a finished job is removed")
    equal(queue.redis.exists(job), False, "it is gone")


@scenario("scheduler.list")
def test_a_scheduler_that_does_not_exist_cannot_be_read(client: Participant) -> None:
    """There is none of that name yet, and none any more."""
    queue = client.queue()
    equal(queue.scheduler("s"), None, "there is none before it is made")
    queue.schedule("s", YEARLY)
    queue.unschedule("s")
    equal(queue.scheduler("s"), None, "there is none after it was removed")


@scenario("scheduler.list")
def test_schedulers_are_listed(client: Participant) -> None:
    """In order of their next time, from both ends, page by page."""
    queue = client.queue()
    for name, start in (("b", 4_000_000_002_000), ("a", 4_000_000_001_000), ("c", 4_000_000_003_000)):
        queue.schedule(name, {"every": HOUR_MS, "startDate": start, "limit": 7}, data={"of": name}, attempts=2)
    equal(queue.call(flow_ops.GetJobSchedulersCount()).count, 3, "there are three")

    def keys(start: int, end: int, *, asc: bool) -> list[str]:
        found = queue.call(flow_ops.GetJobSchedulers(start=start, end=end, asc=asc)).schedulers
        return [scheduler.key for scheduler in found]

    equal(keys(0, -1, asc=True), ["a", "b", "c"], "the one that is due first comes first")
    equal(keys(0, -1, asc=False), ["c", "b", "a"], "or last")
    equal(keys(1, 1, asc=True), ["b"], "page by page")
    found = queue.scheduler("b")
    equal(found.template_data_raw if found else None, '{"of":"b"}', "one scheduler is read with its template")


@pytest.mark.parametrize(
    "repeat",
    [
        {},
        {"every": HOUR_MS, "pattern": "* * * * *"},
        {"pattern": "* * * * *", "immediately": True, "startDate": 4_000_000_000_000},
        {"pattern": "61 * * * *"},
        {"pattern": "every day"},
        {"pattern": "* * * * *", "tz": "Nowhere/City"},
        {"pattern": "*/0 * * * *"},
        {"pattern": "*/x * * * *"},
        {"pattern": "x-5 * * * *"},
        {"pattern": "9-5 * * * *"},
    ],
    ids=[
        "nothing",
        "both",
        "immediately-and-start",
        "out-of-range",
        "not-a-pattern",
        "no-such-zone",
        "no-step",
        "step-is-no-number",
        "range-is-no-number",
        "range-backwards",
    ],
)
@scenario("scheduler.arguments")
def test_arguments_that_make_no_schedule(client: Participant, repeat: dict[str, Any]) -> None:
    """Nothing is stored."""
    queue = client.queue()
    with client.refuses("invalid-argument", f"repeat options {repeat} are refused"):
        queue.schedule("s", repeat)
    equal(queue.redis.exists("repeat"), False, "there is no scheduler")


@scenario("scheduler.collision")
def test_a_time_that_is_taken(client: Participant) -> None:
    """A pattern cannot have the same time twice; an interval takes the next slot."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("cron", YEARLY)
    taken = claim_current_job(queue, worker, "cron")
    worker.complete(taken)
    queue.unschedule("cron")
    with client.refuses("scheduler-collision", "a time whose job has ended is refused"):
        queue.schedule("cron", YEARLY)
    start = 4_000_000_000_000
    queue.schedule("every", {"every": HOUR_MS, "startDate": start})
    worker.complete(claim_current_job(queue, worker, "every"))
    queue.unschedule("every")
    queue.schedule("every", {"every": HOUR_MS, "startDate": start})
    equal(due_of(queue, "every"), start + HOUR_MS, "the interval takes the next slot")


@pytest.mark.parametrize(
    "repeat",
    [{"every": HOUR_MS, "key": "mine"}, {**YEARLY, "key": "mine"}, YEARLY],
    ids=["every", "pattern", "hashed-key"],
)
@scenario("scheduler.legacy-repeat", bullmq="<6")
def test_the_older_option_repeat(client: Participant, repeat: dict[str, Any]) -> None:
    """A repeating job is a scheduler under its key."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", {"n": 1}, repeat=repeat)
    schedulers = queue.redis.members("repeat")
    equal(len(schedulers), 1, "there is one scheduler")
    key = schedulers[0]
    equal(key if "key" in repeat else len(key), repeat.get("key", 32), "the key is given, or a hash of the options")
    holds(queue.scheduler(key) is not None, "it is read like a scheduler", seen=queue.redis.hash(f"repeat:{key}"))
    worker.complete(claim_current_job(queue, worker, key))
    equal(queue.redis.state(current_job(queue, key)), ["delayed"], "it goes on like a scheduler")


@scenario("scheduler.legacy-repeat", bullmq=">=6")
def test_the_older_option_repeat_makes_no_scheduler(client: Participant) -> None:
    """A job with the option is a job like any other."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", {"n": 1}, repeat={"every": HOUR_MS, "key": "mine"})
    equal(queue.redis.members("repeat"), [], "there is no scheduler")
    worker.complete(worker.claim_one().id)
    equal(queue.redis.members("delayed"), [], "and no next job")


@handover("scheduler.next")
def test_a_schedule_is_kept_by_the_other(producer: Participant, consumer: Participant) -> None:
    """The worker of one side keeps the scheduler of the other going."""
    queue = producer.queue()
    queue.schedule("s", {"every": 200, "limit": 3}, name="tick", data={"n": 1})
    worker = consumer.worker("noop")
    consumer.eventually(
        lambda: len(queue.redis.members("completed")),
        lambda done: done == 3,
        "three jobs of the schedule are completed",
    )
    worker.close()
    equal(queue.redis.field("repeat:s", "ic"), "3", "the scheduler counts them")
