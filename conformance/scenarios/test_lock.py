"""Locks and tokens: who may touch an active job, and for how long."""

from __future__ import annotations

import math

import pytest

from conformance.observe.tap.recording import CommandRecord
from conformance.participants.expect import between, equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView
from conformance.scenarios.support.steps import fill, lives_for, wait_for_finished

LATE_MS = 700
"""How late a timer may be (ms). Pauses of half a second were seen on busy machines; locks live for seconds."""

A_RENEWAL_MS = 50
"""A smaller step (ms) is not a renewal: within a script, Redis reads its clock separately for TIME and PTTL."""


@scenario("lock.finished-quiet", clock="real", compare=False, bullmq=">=5.65.1")
def test_a_job_that_ends_has_not_lost_its_lock(client: Participant) -> None:
    """A renewal that meets the end of a job finds no lock any more, which is not an error."""
    queue = client.queue()
    ending, running = queue.add("ending"), queue.add("running")
    # 4 s of life: a renewal comes before half of it, and the rest of it is time for a busy machine.
    worker = client.worker("ask", concurrency=2, lockDuration=4000, skipStalledCheck=True)
    tokens = {taken.job.id: taken.token for taken in (worker.next_job(), worker.next_job())}
    first = queue.redis.expires_at_ms(f"{running}:lock")
    with client.tap.hold("moveToFinished") as finishing:
        worker.resolve(ending)
        finishing.wait()
        client.eventually(
            lambda: (queue.redis.ttl_ms(f"{running}:lock"), queue.redis.expires_at_ms(f"{running}:lock")),
            # A client with one connection sends the renewal behind the command that is held.
            lambda lock: lock[0] < 1800 or lock[1] > first,
            "a renewal is due",
        )
        for job, token in tokens.items():
            queue.redis.set_string(f"{job}:lock", token, ttl_ms=60_000)
    worker.wait_local("completed", ending)
    worker.resolve(running)
    worker.wait_local("completed", running)
    worker.close()
    equal(worker.errors(), [], "the worker has emitted no error")


@scenario("lock.token", "lock.duration", tier="smoke")
def test_a_claim_sets_the_lock(client: Participant) -> None:
    """The lock holds the token and lives for `lockDuration`."""
    queue, worker = client.queue(), client.worker(lockDuration=40_000)
    queue.add("work")
    worker.claim_one("token-mine")
    # Some of the life may have passed since the claim; 10 s is more than any machine takes. Before the token, which is
    # gone if the lock is too short.
    between(queue.redis.ttl_ms("1:lock"), 30_000, 40_000, "the lock lives for lockDuration", where="lock.ttl")
    equal(queue.redis.string("1:lock"), "token-mine", "the lock holds the token", where="lock.token")


@scenario("lock.extend")
def test_the_owner_extends_its_lock(client: Participant) -> None:
    """An extension restarts the time to live."""
    queue, worker = client.queue(), client.worker(lockDuration=10_000)
    queue.add("work")
    worker.claim_one()
    equal(worker.extend_lock("1", 90_000), True, "the owner may extend")
    between(queue.redis.ttl_ms("1:lock"), 80_000, 90_000, "the lock lives for the new duration")


@scenario("lock.extend.stale-token-refused")
def test_another_token_cannot_extend(client: Participant) -> None:
    """Neither a foreign nor a missing lock can be extended."""
    queue, worker = client.queue(), client.worker(lockDuration=10_000)
    queue.add("work")
    worker.claim_one("token-mine")
    equal(worker.extend_lock("1", 90_000, "token-other"), False, "a foreign token may not extend")
    # Between 0 and the old life: an extension would have set 90 s.
    between(queue.redis.ttl_ms("1:lock"), 0, 10_000, "the lock keeps its time to live")
    queue.redis.delete("1:lock")
    equal(worker.extend_lock("1", 90_000, "token-mine"), False, "a lock that is gone stays gone")
    equal(queue.redis.value("1:lock"), None, "no lock was created again")


@scenario("lock.extend-many")
def test_a_common_renewal_names_the_locks_that_were_lost(client: Participant) -> None:
    """One call renews many locks and answers the ids that it could not renew."""
    queue, worker = client.queue(), client.worker(lockDuration=10_000)
    for number in range(3):
        queue.add(f"job {number}")
        worker.claim_one(f"token-{number + 1}")
    queue.redis.delete("2:lock")
    queue.redis.set_string("3:lock", "token-other", ttl_ms=10_000)
    lost = worker.extend_locks(["1", "2", "3"], ["token-1", "token-2", "token-3"], 90_000)
    equal(sorted(lost), ["2", "3"], "the missing and the foreign lock are named")
    between(queue.redis.ttl_ms("1:lock"), 80_000, 90_000, "the first lock was renewed")


def _renews(command: CommandRecord) -> bool:
    """Whether a command is a call that renews locks: by its keys, since a client may have a script of its own."""
    return bool(command.keys) and command.keys[-1].endswith(b":stalled")


@scenario("lock.extend-many", clock="real", slow=True)
def test_a_loop_renews_the_locks_that_it_still_has(client: Participant) -> None:
    """A worker with a lost and a foreign lock goes on renewing the third one, and takes neither of the others back."""
    queue = client.queue()
    for number in range(3):
        queue.add(f"job {number}")
    worker = client.worker("ask", concurrency=3, lockDuration=20_000, lockRenewTime=500, skipStalledCheck=True)
    for _ in range(3):
        worker.next_job()
    queue.redis.delete("2:lock")
    queue.redis.set_string("3:lock", "token-other", ttl_ms=60_000)
    until, sent = queue.redis.expires_at_ms("1:lock"), len(client.tap.commands(where=_renews))
    # Three more: the first one may have been on its way, and the last one need not have arrived.
    client.tap.wait_for(_renews, count=sent + 3, within_ms=10_000)
    renewed = queue.redis.expires_at_ms("1:lock")
    holds(renewed > until + A_RENEWAL_MS, "the first lock is renewed again", seen=renewed - until)
    equal(queue.redis.value("2:lock"), None, "no lock was created again")
    equal(queue.redis.string("3:lock"), "token-other", "the foreign lock stays")


@pytest.mark.parametrize("finish", ["complete", "fail"])
@scenario("lock.stale-token-refused")
def test_a_stale_token_cannot_finish(client: Participant, finish: str) -> None:
    """A late worker does not finish what another one holds."""
    queue, worker = client.queue(), client.worker()
    queue.add("contended")
    worker.claim_one("token-late")
    # Set by hand: this is what a second worker leaves that has recovered and claimed the job.
    queue.redis.set_string("1:lock", "token-new", ttl_ms=60_000)
    with client.refuses("lock-mismatch", "the late worker is refused"):
        worker.complete("1", "late", "token-late") if finish == "complete" else worker.fail("1", "late", "token-late")
    equal(queue.redis.state("1"), ["active"], "the job is still active")
    equal(queue.redis.string("1:lock"), "token-new", "the lock still belongs to the other worker")
    worker.complete("1", "right", "token-new")
    equal(queue.redis.field("1", "returnvalue"), '"right"', "the owner's result counts", where="job.returnvalue")


@pytest.mark.parametrize("finish", ["complete", "fail"])
@scenario("lock.missing-refused")
def test_a_lost_lock_cannot_finish(client: Participant, finish: str) -> None:
    """A worker whose lock expired does not finish the job."""
    queue, worker = client.queue(), client.worker()
    queue.add("slow")
    worker.claim_one()
    queue.redis.delete("1:lock")
    with client.refuses("missing-lock", "the worker without lock is refused"):
        worker.complete("1", "late") if finish == "complete" else worker.fail("1", "late")
    equal(queue.redis.state("1"), ["active"], "the job is still active")


@pytest.mark.parametrize("finish", ["complete", "fail", "retry"])
@scenario("lock.released")
def test_the_lock_goes_with_the_activity(client: Participant, finish: str) -> None:
    """However a job leaves `active`, its lock is gone."""
    queue, worker = client.queue(), client.worker()
    queue.add("work", {}, attempts=2 if finish == "retry" else 1)
    worker.claim_one()
    worker.complete("1") if finish == "complete" else worker.fail("1")
    equal(queue.redis.value("1:lock"), None, "the lock is gone")


@scenario("lock.renewed-by-worker", clock="real", slow=True)
def test_a_running_worker_renews_its_lock(client: Participant) -> None:
    """A job may take several times as long as a lock lives."""
    # 2 s: long enough for late timers, short enough that two and a half lives fit into the scenario.
    life_ms = 2000
    queue, worker = client.queue(), client.worker("ask", lockDuration=life_ms, stalledInterval=life_ms // 2)
    queue.add("long")
    worker.next_job()
    lives_for(queue.redis, "1", life_ms)
    started = client.clock.now_ms()
    # Watched the whole time: a lock that is lost and set again would look right at the end.
    client.eventually(
        lambda: (queue.redis.exists("1:lock"), client.clock.now_ms() - started),
        lambda seen: not seen[0] or seen[1] > 2.5 * life_ms,
        "the job runs for more than two lock durations",
        within_ms=4 * life_ms,
    )
    lock = queue.redis.value("1:lock")
    holds(lock, "the lock is still there after more than two lock durations", seen=lock)
    worker.resolve("1", "complete", value_raw='"done"')
    worker.wait_local("completed", "1")
    equal(queue.redis.field("1", "stc"), None, "the job was never counted as stalled")


@scenario("lock.renewed-by-worker", clock="real", slow=True)
def test_a_worker_with_several_jobs_renews_the_lock_of_each(client: Participant) -> None:
    """Each with its own token: a renewal with another one has no effect, and the job would run twice."""
    life_ms = 2000
    jobs = ["1", "2", "3"]
    queue = client.queue()
    worker = client.worker("ask", lockDuration=life_ms, stalledInterval=life_ms // 2, concurrency=len(jobs))
    for job in jobs:
        queue.add("long")
        worker.next_job()
        lives_for(queue.redis, job, life_ms)
    # One job more than the worker can run: if it claims that one, it must renew its lock too.
    queue.add("waiting")
    started, tokens = client.clock.now_ms(), [queue.redis.string(f"{job}:lock") for job in jobs]
    # Watched the whole time: a lock that is lost and set again would look right at the end.
    client.eventually(
        lambda: ([queue.redis.string(f"{job}:lock") for job in jobs] == tokens, client.clock.now_ms() - started),
        lambda seen: not seen[0] or seen[1] > 2.5 * life_ms,
        "the jobs run for more than two lock durations",
        within_ms=4 * life_ms,
    )
    equal([queue.redis.string(f"{job}:lock") for job in jobs], tokens, "each job still has its lock")
    unlocked = [job for job in queue.redis.elements("active") if not queue.redis.exists(f"{job}:lock")]
    equal(unlocked, [], "the worker holds no job without a lock")
    equal(queue.redis.field("4", "stc"), None, "the worker never held a job without a lock")
    for job in jobs:
        worker.resolve(job, "complete", value_raw='"done"')
        worker.wait_local("completed", job)
    worker.resolve(worker.next_job().job.id)
    worker.wait_local("completed", "4")
    equal([queue.redis.field(job, "stc") for job in jobs], [None] * 3, "no job was counted as stalled")


class LockObserver:
    """Reads when a lock expires again and again, and remembers what it saw.

    A renewal puts that moment off by exactly the time since the last one, however long the observer did not run.
    """

    def __init__(self, view: RedisView, lock: str) -> None:
        self._view, self._lock = view, lock
        self._expires_at_ms = view.expires_at_ms(lock)
        self.lowest = view.ttl_ms(lock)
        self._ages_ms: list[int] = []

    def observe(self) -> dict[str, float]:
        """Read it once more. Raises Mismatch if the lock is gone.

        `quickest_ms` is the least that had passed when a lock was renewed that had been renewed before.
        """
        expires_at_ms, ttl_ms = self._view.expires_at_ms(self._lock), self._view.ttl_ms(self._lock)
        # Not every change is a renewal: the clock of PTTL is read at another moment.
        if expires_at_ms - self._expires_at_ms > A_RENEWAL_MS:
            self._ages_ms.append(expires_at_ms - self._expires_at_ms)
            self._expires_at_ms = expires_at_ms
        self.lowest = min(self.lowest, ttl_ms)
        return {
            "ttl_ms": ttl_ms,
            "lowest_ms": self.lowest,
            "renewals": len(self._ages_ms),
            # Without the first age: it counts from the claim, and that one may take half of a life.
            "quickest_ms": min(self._ages_ms[1:], default=math.inf),
        }


@scenario("lock.renewal.interval", clock="real")
def test_locks_are_renewed_in_the_interval_of_the_user(client: Participant) -> None:
    """With `lockRenewTime` a long lock is renewed early, so that a worker that dies is noticed by its last renewal."""
    queue, worker = client.queue(), client.worker("ask", lockDuration=10 * 60_000, lockRenewTime=300)
    queue.add("long")
    worker.next_job()
    first_ms = queue.redis.expires_at_ms("1:lock")
    client.eventually(
        lambda: queue.redis.expires_at_ms("1:lock"),
        lambda ends_ms: ends_ms > first_ms + A_RENEWAL_MS,
        "the lock is renewed long before half of its life is over",
    )
    worker.resolve("1")
    worker.wait_local("completed", "1")


@scenario(
    "lock.renewal.reported",
    clock="real",
    bullmq=">=5.63.2",
    without={"worker-errors": "a lock that cannot be renewed is reported as an error as well"},
)
def test_a_worker_reports_renewals_and_lost_locks(client: Participant) -> None:
    """The user of a worker can cancel a job whose lock was lost."""
    queue, worker = client.queue(), client.worker("ask", lockDuration=60_000, lockRenewTime=300)
    fill(queue, 1)
    worker.next_job()
    equal(worker.wait_local("locksRenewed").args, {"jobs": ["1"]}, "the renewal names the job")
    token = queue.redis.string("1:lock") or ""
    queue.redis.set_string("1:lock", "of another worker", ttl_ms=60_000)
    equal(worker.wait_local("lockRenewalFailed").args, {"jobs": ["1"]}, "the loss names the job")
    queue.redis.set_string("1:lock", token, ttl_ms=60_000)
    worker.resolve("1")
    worker.wait_local("completed", "1")


@scenario("lock.renewal.in-time", clock="real", slow=True)
def test_a_lock_is_renewed_every_quarter_of_its_life(client: Participant) -> None:
    """The first time before half of `lockDuration` has passed, and then again after a quarter: one may fail.

    Of several renewals the quickest counts: a starved machine makes some of them late, and none early.
    """
    life_ms = 4000
    queue, worker = client.queue(), client.worker("ask", lockDuration=life_ms)
    queue.add("long")
    worker.next_job()
    lives_for(queue.redis, "1", life_ms)
    observer = LockObserver(queue.redis, "1:lock")
    client.eventually(
        observer.observe,
        # Between a quarter and a half: a client that renews only after half of a life is never below it.
        lambda seen: seen["renewals"] >= 2 and seen["quickest_ms"] < 0.375 * life_ms,
        "the lock is renewed again after a quarter of its life, and not after half of it",
        within_ms=3 * life_ms,
    )
    # LATE_MS less than half, because the timer that renews may be late.
    between(observer.lowest, life_ms // 2 - LATE_MS, life_ms, "at least half of the time to live was left")
    worker.resolve("1")
    worker.wait_local("completed", "1")


@scenario("lock.lost.worker-goes-on", clock="real")
def test_other_jobs_are_run_without_the_lock(client: Participant) -> None:
    """The renewal does not create a lock that is gone, and the worker takes jobs with its other place."""
    queue = client.queue()
    # The stalled check must not recover the job while its lock is gone.
    worker = client.worker("ask", concurrency=2, lockDuration=2000, stalledInterval=60_000)
    queue.add("unlucky")
    queue.add("neighbour")
    worker.next_job()
    worker.next_job()
    lives_for(queue.redis, "2", 2000)
    first = queue.redis.expires_at_ms("2:lock")
    queue.redis.delete("1:lock")
    # One call renews both locks: after it the worker has met the missing one.
    client.eventually(
        lambda: queue.redis.expires_at_ms("2:lock"),
        lambda expires: expires > first + A_RENEWAL_MS,
        "the other lock is renewed",
    )
    equal(queue.redis.value("1:lock"), None, "the renewal does not create the lock again")
    worker.resolve("2")
    wait_for_finished(client, 1)
    for completed, other in enumerate(("3", "4"), start=2):
        queue.add("other")
        equal(worker.next_job().job.id, other, "other jobs are run")
        worker.resolve(other)
        wait_for_finished(client, completed)
    equal(queue.redis.value("1:lock"), None, "no later renewal creates it either")


@scenario("lock.lost.handler-goes-on", clock="real")
def test_a_worker_goes_on_without_the_lock(client: Participant) -> None:
    """The processor runs on, and the next renewal is still tried."""
    queue = client.queue()
    # The stalled check must not recover the job while its lock is gone.
    worker = client.worker("ask", concurrency=2, lockDuration=2000, stalledInterval=60_000)
    queue.add("unlucky")
    token = worker.next_job().token
    queue.redis.delete("1:lock")
    worker.wait_for_error()
    # Below the 2 s of a life, so that a renewal makes it longer.
    queue.redis.set_string("1:lock", token, ttl_ms=1900)
    observer = LockObserver(queue.redis, "1:lock")
    client.eventually(observer.observe, lambda seen: seen["renewals"], "a lock that is back is renewed again")
    worker.resolve("1", value_raw='"done"')
    worker.wait_local("completed", "1")
    equal(queue.redis.field("1", "returnvalue"), '"done"', "the processor ran to its end", where="job.returnvalue")


@scenario("lock.lost.runs-twice", clock="real")
def test_a_job_without_its_lock_runs_twice_and_ends_once(client: Participant) -> None:
    """Another worker takes over; what the first one returns too late is not stored."""
    # Short intervals, because two checks have to come before the second worker gets the job.
    queue, first = client.queue(), client.worker("ask", stalledInterval=100)
    queue.add("contended")
    first.next_job()
    second = client.worker("ask", stalledInterval=100)
    queue.redis.delete("1:lock")
    equal(second.next_job().job.id, "1", "the second worker runs the job while the first still does")
    first.resolve("1", value_raw='"late"')
    queue.add("next")
    equal(first.next_job().job.id, "2", "the first worker has given the job up and goes on")
    equal(queue.redis.state("1"), ["active"], "the result of the first one did not finish it")
    second.resolve("1", value_raw='"right"')
    second.wait_local("completed", "1")
    equal(
        queue.redis.field("1", "returnvalue"),
        '"right"',
        "the result of the last owner is stored",
        where="job.returnvalue",
    )
    first.resolve("2")
    first.wait_local("completed", "2")
