"""Job schedulers of newer releases: when the jobs of an offset are due, and those of a schedule that was changed."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import flow as flow_ops
from conformance.participants.expect import equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, YEARLY, claim_current_job, current_job, due_of

MINUTE_MS = 60_000
MOMENTS = {"before-its-time": 5, "after-its-time": 40}
"""Minutes of the hour at which a scheduler with an offset of 20 minutes is made, or its late job claimed."""


def _turn_to(client: Participant, minute: int) -> None:
    """Let time pass until that minute of an hour. Does nothing on a running clock."""
    if client.clock.frozen:
        client.pass_time((minute * MINUTE_MS - client.clock.now_ms()) % HOUR_MS)


@pytest.mark.parametrize("minute", MOMENTS.values(), ids=list(MOMENTS))
@pytest.mark.parametrize("offset", [20 * MINUTE_MS, str(20 * MINUTE_MS)], ids=["number", "text"])
@scenario("scheduler.every.offset", tier="full", bullmq=">=5.76.8", cases={"text-*": ">=5.79.4"})
def test_the_first_job_of_an_offset(client: Participant, offset: int | str, minute: int) -> None:
    """It waits for its time, whichever type the offset has."""
    queue = client.queue()
    _turn_to(client, minute)
    queue.schedule("s", {"every": HOUR_MS, "offset": offset})
    due = due_of(queue)
    equal(due % HOUR_MS, 20 * MINUTE_MS, "the first job is due at its offset")
    holds(0 < due - client.clock.now_ms() <= HOUR_MS, "it is the next such time", seen=due)
    equal(queue.redis.state(current_job(queue)), ["delayed"], "until then it is delayed")


@pytest.mark.parametrize("minute", MOMENTS.values(), ids=list(MOMENTS))
@scenario("scheduler.every.offset", bullmq=">=5.80.2")
def test_a_late_claim_keeps_the_offset(client: Participant, minute: int) -> None:
    """No slot is left out after a pause of several intervals."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {"every": HOUR_MS, "offset": 20 * MINUTE_MS})
    if client.clock.frozen:
        client.pass_time(3 * HOUR_MS)
    _turn_to(client, minute)
    claim_current_job(queue, worker)
    due = due_of(queue)
    equal(due % HOUR_MS, 20 * MINUTE_MS, "the next job is due at its offset")
    # A running clock cannot be late: the promoted job is early, and the next one is due in the interval after its own.
    most = HOUR_MS if client.clock.frozen else 2 * HOUR_MS
    holds(0 < due - client.clock.now_ms() <= most, "it is the next such time", seen=due)


SHORTER = ({"every": HOUR_MS}, {"every": HOUR_MS // 2})
ANOTHER_DAY = (YEARLY, {**YEARLY, "pattern": "0 0 2 1 *"})


@pytest.mark.parametrize(("before", "after"), [SHORTER, ANOTHER_DAY], ids=["every", "pattern"])
@scenario("scheduler.upsert.pending", tier="full", bullmq=">=5.62.2", cases={"every": ">=5.63.1"})
def test_the_pending_job_gets_the_time_of_the_new_schedule(
    client: Participant, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """It is due neither later nor earlier than the new schedule asks for."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", before)
    worker.complete(claim_current_job(queue, worker))
    former = due_of(queue)
    client.pass_time(1)  # the time of the first job is taken
    queue.schedule("s", after)
    holds(due_of(queue) != former, "the job has another time", seen=due_of(queue))
    holds(not queue.redis.exists(f"repeat:s:{former}"), "the former one is gone", seen=former)
    if "every" in after:
        holds(due_of(queue) <= client.clock.now_ms(), "the first job of another interval is due at once", seen=former)


@pytest.mark.parametrize("scheduler", ["a:b", "a:b:c:d", "a:b:c:d:e", "tenant:region:env:service:queue:task"])
@scenario("scheduler.next.colons", bullmq=">=5.76.1")
def test_a_scheduler_whose_id_has_colons(client: Participant, scheduler: str) -> None:
    """Its next job is made under the same id."""
    queue, worker = client.queue(), client.worker()
    queue.schedule(scheduler, YEARLY)
    for _ in range(2):
        worker.complete(claim_current_job(queue, worker, scheduler))
    equal(queue.redis.members("repeat"), [scheduler], "there is no second scheduler")
    equal(queue.redis.members("delayed"), [current_job(queue, scheduler)], "its next job is to come")


@scenario(
    "scheduler.list",
    tier="full",
    bullmq=">=5.69.3,<6",
    without={"schedulers": "a key of an older version has no hash"},
)
def test_a_key_without_a_record_is_listed(client: Participant) -> None:
    """Its parts are those of the key, as an older version made it."""
    queue = client.queue()
    key = "name:id:::*/5 * * * * *"
    queue.redis.set_score("repeat", key, 4_000_000_000_000)
    listed = queue.call(flow_ops.GetJobSchedulers()).schedulers
    equal(
        [(scheduler.key, scheduler.name, scheduler.pattern) for scheduler in listed],
        [(key, "name", "*/5 * * * * *")],
        "the scheduler is listed with its name and pattern",
        where="answer.queue.getJobSchedulers",
    )
