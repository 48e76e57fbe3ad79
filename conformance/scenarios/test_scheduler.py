"""Job schedulers: when their jobs are due, who makes the next one, and what changing and removing them does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.driver.ops import flow as flow_ops
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops.base import JobView
from conformance.gate.expect import equal, holds
from conformance.gate.handles import QueueHandle, WorkerHandle
from conformance.gate.participant import Participant
from conformance.gate.scenario import handover, scenario

HOUR_MS = 3_600_000
YEARLY = {"pattern": "0 0 1 1 *", "tz": "UTC"}


def _due(queue: QueueHandle, scheduler: str = "s") -> int:
    """When the next job is due (Unix ms), as Redis has it."""
    score = queue.redis.score("repeat", scheduler)
    holds(score is not None, f"`repeat` holds the scheduler {scheduler}")
    return int(score or 0)


def _current(queue: QueueHandle, scheduler: str = "s") -> str:
    """Id of the job that is due next."""
    return f"repeat:{scheduler}:{_due(queue, scheduler)}"


def _made(job: JobView | None) -> JobView:
    holds(job is not None, "the answer is the next job")
    assert job is not None
    return job


def _claim(queue: QueueHandle, worker: WorkerHandle, scheduler: str = "s") -> str:
    """Make the scheduler's next job run now, and claim it."""
    job = _current(queue, scheduler)
    if queue.redis.state(job) == ["delayed"]:
        queue.promote(job)
    equal(worker.claim_one().id, job, "the scheduler's job is the next to run")
    return job


@scenario("scheduler.every.first", "scheduler.record", tier="full")
def test_an_interval_begins_now(client: Participant) -> None:
    """The first job is due at once, and named after its time."""
    queue = client.queue()
    job = _made(queue.schedule("s", {"every": HOUR_MS}, name="tick", data={"n": 1}))
    equal(job.id, _current(queue), "the id names the scheduler and the time")
    equal(queue.redis.state(job.id), ["wait"], "the job waits")
    equal(queue.redis.field(job.id, "rjk"), "s", "it names its scheduler", where="job.rjk")
    equal(queue.redis.field(job.id, "data"), '{"n":1}', "it has the data of the template", where="job.data")
    record = queue.redis.hash("repeat:s")
    equal(
        {name: record.get(name) for name in ("name", "every", "ic")},
        {"name": "tick", "every": str(HOUR_MS), "ic": "1"},
        "the record holds what the scheduler was made with",
    )


@scenario("scheduler.every.start", tier="full")
def test_an_interval_begins_at_its_start(client: Participant) -> None:
    """The phase of the start is kept."""
    queue, worker = client.queue(), client.worker()
    start = 4_000_000_000_123
    queue.schedule("s", {"every": HOUR_MS, "startDate": start})
    equal(_due(queue), start, "the first job is due at the start")
    equal(queue.redis.state(_current(queue)), ["delayed"], "until then it is delayed")
    _claim(queue, worker)
    equal(_due(queue), start + HOUR_MS, "the next job is due one interval later")


@pytest.mark.parametrize(
    "repeat",
    [
        YEARLY,
        {"pattern": "0 30 2 29 2 *", "tz": "Europe/Berlin"},
        {"pattern": "15 10 L * *", "tz": "America/New_York"},
        {"pattern": "0 0 * 6 5L", "tz": "Asia/Kolkata"},
        {"pattern": "0 9 * dec MON#1", "tz": "UTC"},
        {"pattern": "0 0 13 */6 5", "tz": "UTC"},
        {"pattern": "0 0 * * *", "tz": "Pacific/Auckland", "startDate": "2040-05-06T07:08:09.000Z"},
        {"pattern": "@monthly", "tz": "UTC", "startDate": 2_000_000_000_000},
    ],
    ids=lambda repeat: f"{repeat['pattern']} {repeat['tz']}",
)
@scenario("scheduler.pattern", tier="full")
def test_a_pattern_says_when(client: Participant, repeat: dict[str, Any]) -> None:
    """The first three times are those of the oracle."""
    queue, worker = client.queue(), client.worker()
    job = _made(queue.schedule("s", repeat))
    equal(job.id, _current(queue), "the id names the scheduler and the time")
    for _ in range(2):
        worker.complete(_claim(queue, worker))
    equal(queue.redis.field("repeat:s", "ic"), "3", "three jobs were made", where="scheduler.ic")


@scenario("scheduler.pattern.immediately", tier="full")
def test_a_pattern_may_begin_at_once(client: Participant) -> None:
    """Only the first job does not wait for the pattern."""
    queue, worker = client.queue(), client.worker()
    job = _made(queue.schedule("s", {**YEARLY, "immediately": True}))
    equal(queue.redis.state(job.id), ["wait"], "the first job waits")
    equal(worker.claim_one().id, job.id, "it can be claimed")
    equal(queue.redis.state(_current(queue)), ["delayed"], "the next one is due by the pattern")


@pytest.mark.parametrize("repeat", [{"every": HOUR_MS}, YEARLY], ids=["every", "pattern"])
@scenario("scheduler.next", tier="full")
def test_fetching_makes_the_next_job(client: Participant, repeat: dict[str, Any]) -> None:
    """The successor is there before the job is done."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", repeat)
    first = _claim(queue, worker)
    second = _current(queue)
    holds(second != first, "there is a next job", seen=second)
    equal(queue.redis.state(second), ["delayed"], "it is delayed")
    equal(queue.redis.field(first, "nrjid"), second, "the first one names it", where="job.nrjid")
    worker.complete(first)
    equal(queue.redis.members("delayed"), [second], "finishing makes no other")


@scenario("scheduler.next", tier="full")
def test_fetching_with_a_finish_makes_the_next_job(client: Participant) -> None:
    """It does not matter how a job was fetched."""
    queue, worker = client.queue(), client.worker()
    queue.add("before")
    queue.schedule("s", {"every": HOUR_MS})
    worker.claim_one()
    fetched = _made(worker.complete("1", fetch_next=True))
    holds(_current(queue) != fetched.id, "the fetched job has a successor")
    equal(queue.redis.state(_current(queue)), ["delayed"], "it is delayed")


@scenario("scheduler.next.once", tier="full")
def test_a_retry_makes_no_second_successor(client: Participant) -> None:
    """A job makes its successor only once."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS}, attempts=3)
    first = _claim(queue, worker)
    for _ in range(2):
        worker.fail(first, "again")
        equal(worker.claim_one().id, first, "the job is retried")
    equal(len(queue.redis.members("delayed")), 1, "there is one successor")
    equal(queue.redis.field("repeat:s", "ic"), "2", "two jobs were made", where="scheduler.ic")


@pytest.mark.parametrize("repeat", [{"every": HOUR_MS}, YEARLY], ids=["every", "pattern"])
@scenario("scheduler.limit", tier="full")
def test_a_limit_ends_a_scheduler(client: Participant, repeat: dict[str, Any]) -> None:
    """The last job makes no other; the record stays."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {**repeat, "limit": 2})
    for _ in range(2):
        worker.complete(_claim(queue, worker))
    equal(queue.redis.members("delayed"), [], "there is no third job")
    equal(queue.redis.exists("repeat:s"), True, "the record is still there")
    equal(worker.claim(), None, "nothing is left to do")


@scenario("scheduler.end", tier="full")
def test_no_job_after_the_end(client: Participant) -> None:
    """A pattern ends with its endDate."""
    queue, worker = client.queue(), client.worker()
    end = 2_556_144_000_000 + HOUR_MS  # one hour into 2051
    queue.schedule("s", {**YEARLY, "startDate": "2049-06-01T00:00:00Z", "endDate": end})
    for _ in range(2):
        worker.complete(_claim(queue, worker))
    equal(queue.redis.members("delayed"), [], "there is no job after the end")


@scenario("scheduler.end", tier="full")
def test_an_end_that_has_passed_is_refused(client: Participant) -> None:
    """Nothing is stored."""
    queue = client.queue()
    with client.refuses("invalid-argument", "an endDate in the past is refused"):
        queue.schedule("s", {"every": HOUR_MS, "endDate": 1_000_000_000_000})
    equal(queue.redis.exists("repeat"), False, "there is no scheduler")


@pytest.mark.parametrize(
    "opts",
    [{}, {"attempts": 3, "backoff": 100}, {"priority": 4}, {"removeOnComplete": True}, {"lifo": True, "keepLogs": 2}],
    ids=lambda opts: "-".join(opts) or "none",
)
@scenario("scheduler.template", tier="full")
def test_every_job_is_made_of_the_template(client: Participant, opts: dict[str, Any]) -> None:
    """Data and options go from job to job."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS}, data={"n": [1, "zwei"]}, **opts)
    for _ in range(2):
        worker.complete(_claim(queue, worker))
    third = _current(queue)
    equal(queue.redis.field(third, "name"), "s", "the name is the scheduler's id", where="job.name")
    equal(queue.redis.field(third, "data"), '{"n":[1,"zwei"]}', "the data is the template's", where="job.data")
    stored = json.loads(queue.redis.field(third, "opts") or "{}")
    holds(stored.get("priority") == opts.get("priority"), "the options are the template's", seen=stored)


@pytest.mark.parametrize("moment", ["waiting", "delayed", "prioritized", "paused"])
@scenario("scheduler.upsert.pending", tier="full")
def test_an_upsert_replaces_the_pending_job(client: Participant, moment: str) -> None:
    """The time stays, everything else is new."""
    queue = client.queue()
    if moment == "paused":
        queue.pause()
    repeat: dict[str, Any] = YEARLY if moment == "delayed" else {"every": HOUR_MS}
    queue.schedule("s", repeat, name="before", data={"n": 1}, priority=5 if moment == "prioritized" else 0)
    due, state = _due(queue), queue.redis.state(_current(queue))
    job = _made(queue.schedule("s", repeat, name="after", data={"n": 2}, priority=5 if moment == "prioritized" else 0))
    equal((_due(queue), queue.redis.state(job.id)), (due, state), "the job has the same time and place")
    equal(queue.redis.field(job.id, "name"), "after", "it is made of the new template", where="job.name")
    holds("removed" not in queue.redis.event_names(), "no event tells of the job that was replaced")
    equal(queue.redis.field("repeat:s", "ic"), "1", "it counts as the same iteration", where="scheduler.ic")


@scenario("scheduler.upsert.pending", tier="full")
def test_an_upsert_while_a_job_runs(client: Participant) -> None:
    """What runs is left alone; its successor is replaced."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS}, name="before")
    running = _claim(queue, worker)
    queue.schedule("s", {"every": HOUR_MS}, name="after")
    worker.complete(running)
    equal(queue.redis.field(running, "name"), "before", "the running job keeps its name")
    equal(queue.redis.field(_current(queue), "name"), "after", "the next one has the new name")
    equal(len(queue.redis.members("delayed")), 1, "there is one next job")


@scenario("scheduler.remove", tier="full")
def test_removing_a_scheduler_with_a_delayed_job(client: Participant) -> None:
    """Record and job go."""
    queue = client.queue()
    queue.schedule("s", YEARLY)
    job = _current(queue)
    holds(queue.unschedule("s"), "the scheduler existed")
    left = [name for name in ("repeat", "repeat:s", job) if queue.redis.exists(name)]
    equal(left, [], "nothing of it is left")
    holds(not queue.unschedule("s"), "it does not exist any more")
    equal(queue.scheduler("s"), None, "it cannot be read any more")


@pytest.mark.parametrize("moment", ["waiting", "active"])
@scenario("scheduler.remove", tier="full")
def test_removing_a_scheduler_whose_job_has_come(client: Participant, moment: str) -> None:
    """The job that has come still runs, as the last one."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS})
    job = _current(queue)
    if moment == "active":
        worker.claim_one()
    queue.unschedule("s")
    if moment == "waiting":
        equal(worker.claim_one().id, job, "the job still runs")
    worker.complete(job)
    equal(queue.redis.members("delayed"), [], "there is no next job")


@scenario("scheduler.job-protected", tier="full")
def test_the_current_job_is_protected(client: Participant) -> None:
    """Only the scheduler as a whole can be removed."""
    queue = client.queue()
    queue.schedule("s", {"every": HOUR_MS})
    queue.schedule("later", YEARLY)
    for scheduler in ("s", "later"):
        with client.refuses("scheduler-job", "the current job of a scheduler is not removed"):
            queue.remove(_current(queue, scheduler))
    queue.call(queue_ops.Drain(delayed=True))
    client.pass_time(20)
    for state in ("wait", "delayed"):
        queue.call(queue_ops.Clean(grace_ms=0, limit=100, type=state))
    there = [queue.redis.exists(_current(queue, scheduler)) for scheduler in ("s", "later")]
    equal(there, [True, True], "both jobs are still there")


@scenario("scheduler.job-protected", tier="full")
def test_a_former_job_can_be_removed(client: Participant) -> None:
    """Only the current job is protected."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS})
    job = _claim(queue, worker)
    worker.complete(job)
    equal(queue.remove(job), 1, "a finished job is removed")
    equal(queue.redis.exists(job), False, "it is gone")


@scenario("scheduler.list", tier="full")
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
    ],
    ids=["nothing", "both", "immediately-and-start", "out-of-range", "not-a-pattern", "no-such-zone"],
)
@scenario("scheduler.arguments", tier="full")
def test_arguments_that_make_no_schedule(client: Participant, repeat: dict[str, Any]) -> None:
    """Nothing is stored."""
    queue = client.queue()
    with client.refuses("invalid-argument", f"repeat options {repeat} are refused"):
        queue.schedule("s", repeat)
    equal(queue.redis.exists("repeat"), False, "there is no scheduler")


@scenario("scheduler.collision", tier="full")
def test_a_time_that_is_taken(client: Participant) -> None:
    """A pattern cannot have the same time twice; an interval takes the next slot."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("cron", YEARLY)
    taken = _claim(queue, worker, "cron")
    worker.complete(taken)
    queue.unschedule("cron")
    with client.refuses("scheduler-collision", "a time whose job has ended is refused"):
        queue.schedule("cron", YEARLY)
    start = 4_000_000_000_000
    queue.schedule("every", {"every": HOUR_MS, "startDate": start})
    worker.complete(_claim(queue, worker, "every"))
    queue.unschedule("every")
    queue.schedule("every", {"every": HOUR_MS, "startDate": start})
    equal(_due(queue, "every"), start + HOUR_MS, "the interval takes the next slot")


@pytest.mark.parametrize(
    "repeat",
    [{"every": HOUR_MS, "key": "mine"}, {**YEARLY, "key": "mine"}, YEARLY],
    ids=["every", "pattern", "hashed-key"],
)
@scenario("scheduler.legacy-repeat", tier="full")
def test_the_older_option_repeat(client: Participant, repeat: dict[str, Any]) -> None:
    """A repeating job is a scheduler under its key."""
    queue, worker = client.queue(), client.worker()
    queue.add("old", {"n": 1}, repeat=repeat)
    (key,) = queue.redis.members("repeat")
    equal(key if "key" in repeat else len(key), repeat.get("key", 32), "the key is given, or a hash of the options")
    worker.complete(_claim(queue, worker, key))
    equal(queue.redis.state(_current(queue, key)), ["delayed"], "it goes on like a scheduler")


@handover("scheduler.next", tier="full")
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
