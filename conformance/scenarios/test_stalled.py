"""Stalled jobs: found by two checks, put back to run next, and failed when it happens too often."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import between, equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView
from conformance.scenarios.support.steps import HOUR_MS, YEARLY, check_stalled_again, claim_current_job, let_stall

LATE_MS = 1000
"""How late a timer, and what follows it, may be on a busy machine."""


@scenario("stalled.two-checks", "stalled.counter", "stalled.events", tier="smoke")
def test_a_stalled_job_is_recovered_by_the_second_check(client: Participant) -> None:
    """The first check marks what is active, the second takes what has no lock."""
    queue, worker = client.queue(), client.worker()
    queue.add("lost")
    worker.claim_one()
    # As if the lock had expired, because a TTL is Redis's own time.
    queue.redis.delete("1:lock")
    equal(check_stalled_again(queue, worker), [], "the first check recovers nothing")
    equal(queue.redis.state("1"), ["active"], "the job is still active")
    equal(check_stalled_again(queue, worker), ["1"], "the second check recovers the job")
    equal(queue.redis.state("1"), ["wait"], "the job waits again")
    equal(queue.redis.field("1", "stc"), "1", "it was counted once", where="job.stc")


@scenario("stalled.two-checks")
def test_a_job_that_was_cleaned_meanwhile_stays_away(client: Participant) -> None:
    """A job that was marked as stalled and then cleaned is not put back."""
    queue, worker = client.queue(), client.worker()
    queue.add("cleaned")
    worker.claim_one()
    queue.add("waiting")
    equal(check_stalled_again(queue, worker), [], "the first check suspects the active job")
    # Removed after the first check: only then is the job marked as well as unlocked.
    queue.redis.delete("1:lock")
    # `clean` takes jobs that are older than now.
    client.pass_time(20)
    queue.call(queue_ops.Clean(grace_ms=0, limit=10, type="active"))
    equal(check_stalled_again(queue, worker), [], "the second check recovers nothing")
    equal(queue.redis.exists("1"), False, "the job stays removed")
    equal(queue.redis.elements("wait"), ["2"], "only the other job waits")


@scenario("stalled.two-checks", bullmq="<6")
def test_a_marker_of_a_former_version_does_not_stall(client: Participant) -> None:
    """Before version 5 a marker was an element of the list, and could become active: it is dropped."""
    queue, worker = client.queue(), client.worker()
    queue.add("busy")
    worker.claim_one()
    queue.redis.push_left("active", "0:0")
    equal(check_stalled_again(queue, worker), [], "the first check recovers nothing")
    equal(check_stalled_again(queue, worker), [], "the second check recovers nothing")
    equal(queue.redis.elements("active"), ["1"], "the marker is gone")


@scenario("stalled.locked-is-left")
def test_a_locked_job_is_left_alone(client: Participant) -> None:
    """As long as the lock lives, no check takes the job."""
    queue, worker = client.queue(), client.worker(lockDuration=60_000)
    queue.add("busy")
    queue.add("lost")
    worker.claim_one("token-1")
    worker.claim_one("token-2")
    equal(let_stall(queue, worker, "2"), ["2"], "only the job without lock is recovered")
    equal(queue.redis.state("1"), ["active"], "the job with a lock is still active")


@scenario("stalled.limit", "stalled.two-checks")
def test_a_check_that_meets_an_option_for_children_goes_on(client: Participant) -> None:
    """A job without a parent may have an option for its parent; the jobs after it are handled as well."""
    queue, worker = client.queue(), client.worker(maxStalledCount=0)
    options: tuple[dict[str, Any], ...] = ({}, {"ignoreDependencyOnFailure": True}, {})
    for option in options:
        queue.add("lost", {}, **option)
    for number in ("1", "2", "3"):
        worker.claim_one(f"token-{number}")
        queue.redis.delete(f"{number}:lock")
    for _ in range(2):
        check_stalled_again(queue, worker)
    equal(queue.redis.elements("active"), [], "no job is left behind")


@pytest.mark.parametrize("how", ["complete", "fail", "retry", "extend", "extend-many"])
@scenario("stalled.forgotten")
def test_a_job_that_lives_is_no_longer_suspected(client: Participant, how: str) -> None:
    """A check suspects every active job; a renewal or the end of the activity clears it."""
    queue, worker = client.queue(), client.worker()
    queue.add("suspected", {}, attempts=2 if how == "retry" else 1)
    worker.claim_one()
    check_stalled_again(queue, worker)
    equal(queue.redis.type("stalled"), "set", "the check suspects the active job")
    # Marked is not recovered: only a second check would take the job.
    if how == "extend":
        worker.extend_lock("1", 30_000)
    elif how == "extend-many":
        worker.extend_locks(["1"], ["token-1"], 30_000)
    elif how == "complete":
        worker.complete("1")
    else:
        worker.fail("1")
    equal(queue.redis.type("stalled"), "none", "the job is no longer suspected", where="membership.stalled")


@scenario("stalled.runs-next")
def test_a_recovered_job_runs_next(client: Participant) -> None:
    """A stalled job goes before those that wait, also if it came from `prioritized`."""
    queue, worker = client.queue(), client.worker()
    queue.add("urgent", {}, priority=5)
    worker.claim_one()
    queue.add("waiting")
    let_stall(queue, worker, "1")
    equal(queue.redis.elements("wait"), ["2", "1"], "the recovered job is at the right end of `wait`")
    equal(worker.claim_one("token-2").id, "1", "the recovered job runs next")


@scenario("stalled.throttle")
def test_only_one_check_per_interval_works(client: Participant) -> None:
    """While `stalled-check` lives, another check changes nothing."""
    queue, worker = client.queue(), client.worker(stalledInterval=60_000)
    queue.add("lost")
    worker.claim_one()
    queue.redis.delete("1:lock")
    equal(worker.check_stalled(), [], "the first check marks the job")
    equal(worker.check_stalled(), [], "the second is throttled")
    equal(queue.redis.state("1"), ["active"], "the job is still active")
    equal(check_stalled_again(queue, worker), ["1"], "after the interval the job is recovered")


@scenario("stalled.limit")
def test_stalling_too_often_defers_a_failure(client: Participant) -> None:
    """Above `maxStalledCount` the job is marked with the failure that it will get."""
    queue, worker = client.queue(), client.worker(maxStalledCount=1)
    queue.add("poison")
    worker.claim_one()
    let_stall(queue, worker, "1")
    equal(queue.redis.field("1", "defa"), None, "the first time is forgiven", where="job.defa")
    worker.claim_one()
    let_stall(queue, worker, "1")
    equal(queue.redis.field("1", "stc"), "2", "it was counted twice", where="job.stc")
    job = queue.redis.hash("1")
    holds(job.get("defa"), "the second time defers a failure", seen=job, where="job.defa")
    equal(queue.redis.state("1"), ["wait"], "the check itself does not fail the job")


@pytest.mark.parametrize("repeat", [{"every": HOUR_MS}, YEARLY], ids=repr)
@scenario("stalled.limit")
def test_a_job_of_a_scheduler_may_stall_for_ever(client: Participant, repeat: dict[str, Any]) -> None:
    """It is counted, and put back without a deferred failure, however often it stalls."""
    queue, worker = client.queue(), client.worker(maxStalledCount=0)
    queue.schedule("s", repeat)
    job = claim_current_job(queue, worker)
    equal(let_stall(queue, worker, job), [job], "the checks recover the job")
    equal(queue.redis.field(job, "stc"), "1", "it was counted", where="job.stc")
    equal(queue.redis.field(job, "defa"), None, "it is forgiven", where="job.defa")


@pytest.mark.parametrize("repeat", [{"every": HOUR_MS}, YEARLY], ids=repr)
@scenario("stalled.limit", bullmq=">=5.78.1")
def test_a_job_of_a_removed_scheduler_may_not(client: Participant, repeat: dict[str, Any]) -> None:
    """Only a scheduler that still exists needs its job to go on."""
    queue, worker = client.queue(), client.worker(maxStalledCount=0)
    queue.schedule("s", repeat)
    job = claim_current_job(queue, worker)
    queue.unschedule("s")
    equal(let_stall(queue, worker, job), [job], "the checks recover the job")
    fields = queue.redis.hash(job)
    holds(fields.get("defa"), "it is not forgiven", seen=fields, where="job.defa")


@scenario("stalled.limit", bullmq=">=5.80.7,<6")
def test_a_claim_fails_a_job_that_stalled_too_often(client: Participant) -> None:
    """A caller that claims by itself gets the next job instead, and never the one with the deferred failure."""
    queue, worker = client.queue(), client.worker(maxStalledCount=0)
    queue.add("poison")
    worker.claim_one()
    let_stall(queue, worker, "1")
    queue.add("fine")
    claimed = worker.claim("token-2")
    equal(claimed.id if claimed else None, "2", "the claim gets the next job")
    equal(queue.redis.state("1"), ["failed"], "the job that stalled too often has failed")
    equal(queue.redis.field("1", "defa"), None, "the deferred failure is used up", where="job.defa")


@scenario("stalled.limit", clock="real")
def test_the_next_worker_fails_a_job_that_stalled_too_often(client: Participant) -> None:
    """The worker that takes a job with a deferred failure fails it without running it."""
    queue, manual = client.queue(), client.worker(maxStalledCount=0)
    queue.add("poison")
    manual.claim_one()
    let_stall(queue, manual, "1")
    # It only starts now, so that it finds the deferred failure and not the stalled job.
    worker = client.worker("noop")
    client.eventually(lambda: queue.redis.state("1"), lambda state: state == ["failed"], "the job is failed")
    equal(queue.redis.field("1", "defa"), None, "the deferred failure is used up", where="job.defa")
    worker.close()


@scenario("stalled.check-at-start", clock="real")
def test_a_starting_worker_checks_at_once(client: Participant) -> None:
    """The throttle of the check is there soon after the start, long before `stalledInterval` has passed."""
    queue = client.queue()
    # A minute: only the check at the start can write the throttle within the deadline.
    worker = client.worker("noop", stalledInterval=60_000)
    client.eventually(lambda: queue.redis.exists("stalled-check"), bool, "the first check was done at the start")
    worker.close()


@scenario("stalled.independent", clock="real")
def test_a_busy_worker_checks_all_the_same(client: Participant) -> None:
    """A worker without a free place recovers the job of another one."""
    queue, lost = client.queue(), client.worker()
    queue.add("lost")
    lost.claim_one()
    queue.add("long")
    # Short, so that two checks come soon while the worker is busy.
    busy = client.worker("ask", stalledInterval=150)
    equal(busy.next_job().job.id, "2", "the worker is busy")
    # The lock is lost after the worker is busy: a free worker would run the job at once.
    queue.redis.delete("1:lock")
    client.eventually(lambda: queue.redis.state("1"), lambda state: state == ["wait"], "the lost job is recovered")
    equal(queue.redis.state("2"), ["active"], "the worker is still busy")
    busy.resolve("2")
    equal(busy.next_job().job.id, "1", "it runs the recovered job as soon as it can")
    busy.resolve("1")
    busy.wait_local("completed", "1")


class StalledCheckCounter:
    """Counts the stalled checks that do anything: each of them notes its time in `stalled-check`. Reads a job, too."""

    def __init__(self, view: RedisView, job: str) -> None:
        self._view, self._job = view, job
        self._seen: set[str] = set()

    def observe(self) -> dict[str, Any]:
        """Read once more: the checks first, so that none is counted that came after the job was put back."""
        check = self._view.string("stalled-check")
        self._seen |= {check} if check else set()
        stalls = [event for event in self._view.events() if (event["event"], event["jobId"]) == ("stalled", self._job)]
        return {"checks": len(self._seen), "stalls": len(stalls)}


@scenario("stalled.recovery-time", clock="real")
def test_two_checks_are_enough(client: Participant) -> None:
    """A job whose worker is gone is put back by the second check, two intervals after its start at the latest."""
    queue, lost = client.queue(), client.worker()
    queue.add("lost")
    lost.claim_one()
    queue.redis.delete("1:lock")
    counter = StalledCheckCounter(queue.redis, "1")
    started = client.clock.now_ms()
    worker = client.worker("ask", stalledInterval=400)
    seen = client.eventually(counter.observe, lambda seen: seen["stalls"], "the job is put back")
    equal(worker.next_job().job.id, "1", "the job is run again")
    # The observer may miss a check between two reads, hence one or two.
    between(seen["checks"], 1, 2, "no more than two checks were needed")
    # A little less than the interval that has to pass between the two checks.
    between(client.clock.now_ms() - started, 300, 2 * 400 + LATE_MS, "the job runs again within two intervals (ms)")
    worker.resolve("1")
    worker.wait_local("completed", "1")


@pytest.mark.parametrize("limit", [-1, -2])
@scenario("stalled.limit.negative", clock="real", compare=False)
def test_a_negative_limit_of_stalls_is_refused(client: Participant, limit: int) -> None:
    """No job could stall so rarely."""
    with client.refuses("invalid-argument", f"a job cannot be allowed to stall {limit} times"):
        client.worker("noop", maxStalledCount=limit)
    client.worker("noop", maxStalledCount=0).close()
