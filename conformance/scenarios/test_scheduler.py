"""Job schedulers: when their jobs are due, who makes the next one, and when they end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.participants.expect import equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import (
    HOUR_MS,
    YEARLY,
    claim_current_job,
    claim_with_successor,
    current_job,
    due_of,
    required,
)


@scenario("scheduler.every.first", "scheduler.record", "getters.job.options")
def test_an_interval_begins_now(client: Participant) -> None:
    """The first job is due at once, and named after its time."""
    queue = client.queue()
    job = required(queue.schedule("s", {"every": HOUR_MS}, name="tick", data={"n": 1}))
    equal(job.id, current_job(queue), "the id names the scheduler and the time")
    equal(queue.redis.state(job.id), ["wait"], "the job waits")
    equal(queue.redis.field(job.id, "rjk"), "s", "it names its scheduler", where="job.rjk")
    equal(queue.redis.field(job.id, "data"), '{"n":1}', "it has the data of the template", where="job.data")
    record = queue.redis.hash("repeat:s")
    equal(
        {name: record.get(name) for name in ("name", "every", "ic")},
        {"name": "tick", "every": str(HOUR_MS), "ic": "1"},
        "the record holds the scheduler's options",
    )


@scenario("scheduler.every.start")
def test_an_interval_begins_at_its_start(client: Participant) -> None:
    """The phase of the start is kept."""
    queue, worker = client.queue(), client.worker()
    start = 4_000_000_000_123
    queue.schedule("s", {"every": HOUR_MS, "startDate": start})
    equal(due_of(queue), start, "the first job is due at the start")
    equal(queue.redis.state(current_job(queue)), ["delayed"], "until then it is delayed")
    claim_current_job(queue, worker)
    equal(due_of(queue), start + HOUR_MS, "the next job is due one interval later")


@pytest.mark.parametrize(
    "repeat",
    [
        YEARLY,
        {"pattern": "0 30 2 29 2 *", "tz": "Europe/Berlin"},
        {"pattern": "15 10 L * *", "tz": "America/New_York"},
        {"pattern": "0 0 * 6 5L", "tz": "Asia/Kolkata"},
        {"pattern": "0 9 * dec MON#1", "tz": "UTC"},
        {"pattern": "0 0 13 */6 5", "tz": "UTC"},
        {"pattern": "0 0 31 4,5 *", "tz": "UTC"},
        {"pattern": "15 30 2 1 1 *", "tz": "UTC"},
        {"pattern": "0 0 * * *", "tz": "Pacific/Auckland", "startDate": "2040-05-06T07:08:09.000Z"},
        {"pattern": "@monthly", "tz": "UTC", "startDate": 2_000_000_000_000},
        {"pattern": "0 0 * * 7L", "tz": "UTC"},
        {"pattern": "7 * * * *", "tz": "UTC", "startDate": 2_000_000_031_457},
        {"pattern": "*/20 59 23 * * *", "tz": "UTC", "startDate": 2_000_000_031_457},
        # When clocks are put forward there is no 2:30, and when they are put back there are two.
        {"pattern": "30 2 * * *", "tz": "Europe/Berlin", "startDate": "2040-03-24T12:00:00.000Z"},
        {"pattern": "0 2,3 * * *", "tz": "Europe/Berlin", "startDate": "2040-03-24T12:00:00.000Z"},
        {"pattern": "*/30 2 * * *", "tz": "Europe/Berlin", "startDate": "2040-10-27T12:00:00.000Z"},
    ],
    ids=lambda repeat: f"{repeat['pattern']} {repeat['tz']}",
)
@scenario("scheduler.pattern")
def test_a_pattern_says_when(client: Participant, repeat: dict[str, Any]) -> None:
    """The first three times are those of the oracle."""
    queue, worker = client.queue(), client.worker()
    job = required(queue.schedule("s", repeat))
    equal(job.id, current_job(queue), "the id names the scheduler and the time")
    for _ in range(2):
        worker.complete(claim_current_job(queue, worker))
    equal(queue.redis.field("repeat:s", "ic"), "3", "three jobs were made", where="scheduler.ic")


@scenario("scheduler.pattern.immediately")
def test_a_pattern_may_begin_at_once(client: Participant) -> None:
    """Only the first job does not wait for the pattern."""
    queue, worker = client.queue(), client.worker()
    job = required(queue.schedule("s", {**YEARLY, "immediately": True}))
    equal(queue.redis.state(job.id), ["wait"], "the first job waits")
    equal(worker.claim_one().id, job.id, "it can be claimed")
    equal(queue.redis.state(current_job(queue)), ["delayed"], "the next one is due by the pattern")


@pytest.mark.parametrize("repeat", [{"every": HOUR_MS}, YEARLY], ids=["every", "pattern"])
@scenario("scheduler.next", bullmq="<6.0.0")
def test_fetching_makes_the_next_job(client: Participant, repeat: dict[str, Any]) -> None:
    """The successor is there before the job is done."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", repeat)
    first = claim_with_successor(queue, worker)
    second = current_job(queue)
    equal(queue.redis.state(second), ["delayed"], "it is delayed")
    equal(queue.redis.field(first, "nrjid"), second, "the first one names it", where="job.nrjid")
    worker.complete(first)
    equal(queue.redis.members("delayed"), [second], "finishing makes no other")


@pytest.mark.parametrize("repeat", [{"every": HOUR_MS}, YEARLY], ids=["every", "pattern"])
@scenario("scheduler.next", bullmq=">=6.0.0")
def test_fetching_makes_the_next_job_without_naming_it(client: Participant, repeat: dict[str, Any]) -> None:
    """The successor is there before the job is done, and the job does not name it."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", repeat)
    first = claim_with_successor(queue, worker)
    second = current_job(queue)
    equal(queue.redis.state(second), ["delayed"], "it is delayed")
    equal(queue.redis.field(first, "nrjid"), None, "the first one does not name it", where="job.nrjid")
    worker.complete(first)
    equal(queue.redis.members("delayed"), [second], "finishing makes no other")


@scenario("scheduler.next")
def test_fetching_with_a_finish_makes_the_next_job(client: Participant) -> None:
    """It does not matter how a job was fetched."""
    queue, worker = client.queue(), client.worker()
    queue.add("before")
    queue.schedule("s", {"every": HOUR_MS})
    worker.claim_one()
    fetched = required(worker.complete("1", fetch_next=True))
    holds(current_job(queue) != fetched.id, "the fetched job has a successor", seen=fetched.id)
    equal(queue.redis.state(current_job(queue)), ["delayed"], "it is delayed")


@scenario("scheduler.next.once")
def test_a_retry_makes_no_second_successor(client: Participant) -> None:
    """A job makes its successor only once."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS}, attempts=3)
    first = claim_current_job(queue, worker)
    for _ in range(2):
        worker.fail(first, "again")
        equal(worker.claim_one().id, first, "the job is retried")
    equal(len(queue.redis.members("delayed")), 1, "there is one successor")
    equal(queue.redis.field("repeat:s", "ic"), "2", "two jobs were made", where="scheduler.ic")


@pytest.mark.parametrize("repeat", [{"every": HOUR_MS}, YEARLY], ids=["every", "pattern"])
@scenario("scheduler.limit")
def test_a_limit_ends_a_scheduler(client: Participant, repeat: dict[str, Any]) -> None:
    """The last job makes no other; the record stays."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {**repeat, "limit": 2})
    for claim in (claim_with_successor, claim_current_job):
        worker.complete(claim(queue, worker))
    equal(queue.redis.members("delayed"), [], "there is no third job")
    equal(queue.redis.exists("repeat:s"), True, "the record is still there")
    equal(worker.claim(), None, "nothing is left to do")


@pytest.mark.parametrize("after_ms", [HOUR_MS, 0, -1], ids=["later", "just-then", "just-before"])
@scenario("scheduler.end")
def test_no_job_after_the_end(client: Participant, after_ms: int) -> None:
    """A pattern ends with its endDate; what is due in the same ms still comes."""
    queue, worker = client.queue(), client.worker()
    new_year = 2_556_144_000_000 if after_ms >= 0 else 2_587_680_000_000
    queue.schedule("s", {**YEARLY, "startDate": "2049-06-01T00:00:00Z", "endDate": new_year + after_ms})
    for claim in (claim_with_successor, claim_current_job):
        worker.complete(claim(queue, worker))
    equal(queue.redis.members("delayed"), [], "there is no job after the end")


@scenario("scheduler.end")
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
@scenario("scheduler.template")
def test_every_job_is_made_of_the_template(client: Participant, opts: dict[str, Any]) -> None:
    """Data and options go from job to job."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS}, data={"n": [1, "zwei"]}, **opts)
    for _ in range(2):
        worker.complete(claim_with_successor(queue, worker))
    third = current_job(queue)
    equal(queue.redis.field(third, "name"), "s", "the name is the scheduler's id", where="job.name")
    equal(queue.redis.field(third, "data"), '{"n":[1,"zwei"]}', "the data is the template's", where="job.data")
    stored = json.loads(queue.redis.field(third, "opts") or "{}")
    holds(stored.get("priority") == opts.get("priority"), "the options are the template's", seen=stored)
