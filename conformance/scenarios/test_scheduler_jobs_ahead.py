"""Job schedulers: exactly one job is ahead, at the right time, after everything that can happen to the one before."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.protocol.states import DELAY_FACTOR
from conformance.scenarios.support.steps import HOUR_MS, START_MS, YEARLY, claim_current_job, current_job, due_of

EVERY = {"every": HOUR_MS}
SECOND_OF_JANUARY = {"pattern": "0 0 2 1 *", "tz": "UTC"}
DAY_MS = 24 * HOUR_MS
SCHEDULES = pytest.mark.parametrize("repeat", [EVERY, YEARLY], ids=["every", "pattern"])


def _ahead(queue: QueueHandle) -> list[str]:
    """Ids of the jobs that are still to run."""
    view = queue.redis
    waiting = view.elements("wait") + view.elements("paused") + view.members("prioritized")
    return sorted(waiting + view.members("delayed"))


def _one_is_ahead(queue: QueueHandle) -> None:
    ahead = _ahead(queue)
    holds(len(ahead) == 1, "exactly one job is ahead", seen=ahead)


@pytest.mark.parametrize("place", ["wait", "paused", "prioritized"])
@scenario("scheduler.upsert.pending", tier="full", cases={"paused": "<6"})
def test_another_pattern_replaces_the_job_that_waits(client: Participant, place: str) -> None:
    """Also one that was promoted, in every place where it can wait."""
    queue = client.queue()
    if place == "paused":
        queue.pause()
    opts = {"priority": 4} if place == "prioritized" else {}
    queue.schedule("s", YEARLY, name="before", **opts)
    queue.promote(current_job(queue))
    queue.schedule("s", SECOND_OF_JANUARY, name="after", **opts)
    _one_is_ahead(queue)
    equal(queue.redis.field(_ahead(queue)[0], "name"), "after", "it is made of the new template", where="job.name")


@scenario("scheduler.next.once", tier="full")
def test_an_outdated_job_makes_no_successor(client: Participant) -> None:
    """A job of a schedule that has changed since it was made is not the current one."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", YEARLY)
    queue.promote(current_job(queue))
    queue.schedule("s", SECOND_OF_JANUARY)
    worker.claim()
    equal(len(queue.redis.members("delayed")), 1, "exactly one job is to come")


@scenario("scheduler.upsert.pending", tier="full")
def test_an_interval_is_changed_again_and_again(client: Participant) -> None:
    """Its first job runs meanwhile."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", EVERY)
    claim_current_job(queue, worker)
    for times in (2, 3, 4):
        client.pass_time(1)
        queue.schedule("s", {"every": times * HOUR_MS})
    _one_is_ahead(queue)


@scenario("scheduler.upsert.pending", tier="full")
def test_upserts_in_quick_succession(client: Participant) -> None:
    """In another ms each."""
    queue = client.queue()
    for _ in range(4):
        queue.schedule("s", EVERY)
        client.pass_time(1)
    _one_is_ahead(queue)


@pytest.mark.parametrize(("repeat", "period_ms"), [(EVERY, HOUR_MS), (YEARLY, 366 * DAY_MS)], ids=["every", "pattern"])
@scenario("scheduler.next.once", tier="full")
def test_a_job_is_retried_when_its_successor_is_overdue(
    client: Participant, repeat: dict[str, Any], period_ms: int
) -> None:
    """It has made that successor already, and makes no other for the time of the retry."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", repeat)
    job = claim_current_job(queue, worker)
    worker.fail(job)
    queue.retry(job)
    if client.clock.frozen:
        client.pass_time(2 * period_ms)
    equal(worker.claim_one().id, job, "the job is retried")
    _one_is_ahead(queue)


@scenario("scheduler.upsert.pending", tier="full", compare=False)
def test_two_upserts_at_the_same_time(client: Participant) -> None:
    """The second one comes while the first waits for Redis: one of both has made the job."""
    queue, another = client.queue(), client.queue()
    with client.tap.hold("addJobScheduler", phase="after-execute") as barrier:
        first = client.meanwhile(lambda: queue.schedule("s", EVERY))
        barrier.wait()
        client.pass_time(1)
        another.schedule("s", EVERY)
        barrier.release()
        first.result()
    _one_is_ahead(queue)


@pytest.mark.parametrize(
    ("before", "after"),
    [(EVERY, {"every": HOUR_MS // 2}), (EVERY, YEARLY), ({**YEARLY, "limit": 9}, EVERY)],
    ids=["shorter", "every-to-pattern", "pattern-to-every"],
)
@scenario("scheduler.upsert.pending", "scheduler.record", tier="full")
def test_nothing_is_left_of_the_former_schedule(
    client: Participant, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Neither its pending job nor its options."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", before)
    first = claim_current_job(queue, worker)
    queue.schedule("s", after)
    jobs = sorted(name for name in queue.redis.types() if name.startswith("repeat:s:") and not name.endswith(":lock"))
    equal(jobs, sorted([first, current_job(queue)]), "only the job that runs and the next one are there")
    left = sorted(set(queue.redis.hash("repeat:s")) & (set(before) - set(after)))
    equal(left, [], "the record holds only the new schedule")


@SCHEDULES
@scenario("scheduler.remove", tier="full")
def test_a_job_that_has_come_does_not_bring_its_scheduler_back(client: Participant, repeat: dict[str, Any]) -> None:
    """It is fetched after the scheduler was removed."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", repeat)
    job = current_job(queue)
    if queue.redis.state(job) == ["delayed"]:
        queue.promote(job)
    queue.unschedule("s")
    equal(worker.claim_one().id, job, "the job still runs")
    equal(_ahead(queue), [], "there is no next job")
    equal(queue.redis.exists("repeat"), False, "the scheduler is still gone")


@pytest.mark.parametrize(
    "repeat", [EVERY, YEARLY, {**YEARLY, "immediately": True}], ids=["every", "pattern", "at-once"]
)
@scenario("scheduler.next", tier="full")
def test_jobs_that_are_promoted_before_their_time(client: Participant, repeat: dict[str, Any]) -> None:
    """Each makes the next one."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", repeat)
    for _ in range(3):
        worker.complete(claim_current_job(queue, worker))
        _one_is_ahead(queue)


@pytest.mark.parametrize("scheduler", ["a:b:c:d", "a:b:c:d:e", "tenant:region:env:service:queue:task"])
@scenario(
    "scheduler.next",
    tier="full",
    without={"packed-arguments": "a job of no key has an empty text for it, also from Node"},
)
def test_an_id_with_many_colons_goes_on(client: Participant, scheduler: str) -> None:
    """As any other id does."""
    queue, worker = client.queue(), client.worker()
    queue.schedule(scheduler, YEARLY)
    claim_current_job(queue, worker, scheduler)
    equal(len(queue.redis.members("delayed")), 1, "the next job is to come")


@pytest.mark.parametrize("state", ["completed", "failed"])
@scenario("scheduler.next", tier="full", clock="real")
def test_a_running_worker_makes_the_next_job(client: Participant, state: str) -> None:
    """Whether its job succeeds or not."""
    queue = client.queue()
    queue.schedule("s", YEARLY)
    job = current_job(queue)
    queue.promote(job)
    worker = (
        client.worker("noop") if state == "completed" else client.worker("throw", processor_args={"message": "boom"})
    )
    client.eventually(lambda: queue.redis.state(job), lambda state_of: state_of == [state], f"the job is {state}")
    worker.close()
    _one_is_ahead(queue)


@pytest.mark.parametrize("state", ["wait", "active"])
@scenario("lifecycle.one-state", tier="full")
def test_a_scheduler_is_made_again_while_its_former_job_is_there(client: Participant, state: str) -> None:
    """It does not add that job a second time."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", EVERY)
    job = current_job(queue)
    if state == "active":
        claim_current_job(queue, worker)
    queue.unschedule("s")
    queue.schedule("s", EVERY)
    places = [name for name in ("wait", "active") for element in queue.redis.elements(name) if element == job]
    equal(places, [state], "the job is where it was, once")


@SCHEDULES
@scenario("scheduler.end", tier="full")
def test_a_scheduler_without_an_end(client: Participant, repeat: dict[str, Any]) -> None:
    """An endDate of null is none."""
    queue = client.queue()
    queue.schedule("s", {**repeat, "endDate": None})
    equal(queue.redis.exists("repeat:s"), True, "there is a scheduler")
    _one_is_ahead(queue)


@scenario("scheduler.every.first", tier="full")
def test_an_offset_as_text_is_accepted(client: Participant) -> None:
    """As a client may pass it that has read it from Redis."""
    queue = client.queue()
    queue.schedule("s", {**EVERY, "offset": "60000"})
    _one_is_ahead(queue)


@scenario("order.marker.base", tier="full")
def test_the_first_job_wakes_an_idle_worker(client: Participant) -> None:
    """It waits, and the marker says so."""
    queue = client.queue()
    queue.schedule("s", EVERY)
    holds("0" in queue.redis.members("marker"), "the marker is set", seen=queue.redis.zset("marker"))


@scenario("scheduler.record", "scheduler.list", tier="full")
def test_the_iterations_are_counted(client: Participant) -> None:
    """In the record, from the first job on."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", YEARLY)
    equal(queue.redis.field("repeat:s", "ic"), "1", "one job was made", where="scheduler.ic")
    claim_current_job(queue, worker)
    equal(queue.redis.field("repeat:s", "ic"), "2", "two jobs were made", where="scheduler.ic")
    record = queue.scheduler("s")
    equal(record.iteration_count if record else None, 2, "the record says so, too")


@scenario("scheduler.record", tier="full")
def test_the_limit_is_in_the_record(client: Participant) -> None:
    """Every client reads it there."""
    queue = client.queue()
    queue.schedule("s", {**YEARLY, "limit": 5})
    equal(queue.redis.field("repeat:s", "limit"), "5", "the limit is in the record", where="scheduler.limit")


@pytest.mark.parametrize("state", ["completed", "failed"])
@scenario("getters.clean", "scheduler.job-protected", tier="full")
def test_finished_jobs_of_a_scheduler_are_cleaned(client: Participant, state: Literal["completed", "failed"]) -> None:
    """Only the current job is spared."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", YEARLY)
    job = claim_current_job(queue, worker)
    if state == "completed":
        worker.complete(job)
    else:
        worker.fail(job)
    client.pass_time(20)
    queue.call(queue_ops.Clean(grace_ms=0, limit=100, type=state))
    equal(queue.redis.members(state), [], "the finished job is removed")
    _one_is_ahead(queue)


@scenario("scheduler.template", tier="full", bullmq="<6")
def test_a_record_without_data(client: Participant) -> None:
    """The next job has the data of the one before, where an older version left no template."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", YEARLY, data={"n": 1})
    queue.redis.delete("repeat:s")
    for field, value in {"name": "s", **YEARLY}.items():
        queue.redis.set_field("repeat:s", field, value)
    claim_current_job(queue, worker)
    equal(queue.redis.field(current_job(queue), "data"), '{"n":1}', "the data is kept", where="job.data")


@scenario("scheduler.pattern.immediately", tier="full")
def test_only_the_first_job_comes_at_once(client: Participant) -> None:
    """The second is due by the pattern."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", {**YEARLY, "immediately": True})
    claim_current_job(queue, worker)
    equal(due_of(queue) % DAY_MS, 0, "the next one is due at midnight, as the pattern says")


@scenario("scheduler.every.start", tier="full")
def test_no_job_before_the_start(client: Participant) -> None:
    """A start in many years."""
    queue = client.queue()
    queue.schedule("s", {**EVERY, "startDate": START_MS})
    holds(due_of(queue) >= START_MS, "the first job is not due before the start", seen=due_of(queue))


@pytest.mark.parametrize("late_ms", [HOUR_MS * 9 // 10, HOUR_MS * 5 // 2], ids=["part-of-a-slot", "more-than-a-slot"])
@scenario("scheduler.next", tier="full")
def test_the_next_job_of_a_late_one(client: Participant, late_ms: int) -> None:
    """It is due one interval after the last one, or in the future."""
    queue, worker = client.queue(), client.worker()
    queue.schedule("s", EVERY)
    claim_current_job(queue, worker)
    due = _delayed_until(queue)
    if client.clock.frozen:
        client.pass_time(due + late_ms - client.clock.now_ms())
    claim_current_job(queue, worker)
    following = _delayed_until(queue)
    if late_ms < HOUR_MS:
        equal(following, due + HOUR_MS, "the next job is due one interval after the last one")
    holds(following > client.clock.now_ms(), "the next job is due in the future", seen=following)


def _delayed_until(queue: QueueHandle) -> int:
    """When the only delayed job is due (Unix ms)."""
    delayed = queue.redis.zset("delayed")
    equal(len(delayed), 1, "one job is delayed")
    return int(delayed[0][1]) // DELAY_FACTOR
