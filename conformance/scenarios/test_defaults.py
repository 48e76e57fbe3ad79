"""A worker that was opened without any option."""

from __future__ import annotations

from conformance.driver.errors import OperationUnsupported
from conformance.participants.expect import between, equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView
from conformance.scenarios.support.races import LOOKS, wait_for_blocking
from conformance.scenarios.support.steps import fill, let_stall, most_at_once, wait_for_all_completed

LOCK_MS = 30_000
STALLED_INTERVAL_MS = 30_000
DRAIN_DELAY_S = 5.0
INACCURACY_MS = 200
"""Redis reads its clock once per script, and not for each of its commands."""


@scenario("lock.duration.default", clock="real")
def test_a_lock_lives_for_thirty_seconds(client: Participant) -> None:
    """Without `lockDuration`. Start and end are both taken from Redis, so it does not matter who is slow."""
    queue, worker = client.queue(), client.worker("ask")
    queue.add("long")
    worker.next_job()
    life_ms = queue.redis.expires_at_ms("1:lock") - _started_at_ms(queue.redis)
    between(life_ms, LOCK_MS - INACCURACY_MS, LOCK_MS + INACCURACY_MS, "the lock lives for 30 s (ms)")
    worker.resolve("1")
    worker.wait_local("completed", "1")
    worker.close()


def _started_at_ms(redis: RedisView) -> int:
    """When the first job was started, on the clock of Redis (Unix ms)."""
    return next(stamp for stamp, entry in redis.stamped_events() if entry["event"] == "active")


@scenario("stalled.interval.default")
def test_a_stalled_check_counts_for_thirty_seconds(client: Participant) -> None:
    """Without `stalledInterval` a check keeps all other workers from checking for 30 s."""
    queue, worker = client.queue(), client.worker()
    before_ms = queue.redis.now_ms()
    worker.check_stalled()
    after_ms = queue.redis.now_ms()
    started_ms = queue.redis.expires_at_ms("stalled-check") - STALLED_INTERVAL_MS
    between(
        started_ms, before_ms - INACCURACY_MS, after_ms + INACCURACY_MS, "no worker checks again within 30 s (Unix ms)"
    )


@scenario("stalled.limit.default")
def test_a_job_may_stall_once(client: Participant) -> None:
    """Without `maxStalledCount`: the second stall is one too many."""
    queue, worker = client.queue(), client.worker()
    queue.add("poison")
    deferred = []
    for _ in range(2):
        worker.claim_one()
        let_stall(queue, worker, "1")
        deferred.append(queue.redis.field("1", "defa") is not None)
    equal(deferred, [False, True], "the first stall is forgiven, and the second defers a failure")


@scenario("liveness.concurrency.default", clock="real")
def test_a_worker_runs_one_job_at_a_time(client: Participant) -> None:
    """Without `concurrency`."""
    queue = client.queue()
    fill(queue, 5)
    worker = client.worker("sleep", processor_args={"ms": 30})
    wait_for_all_completed(client, 5)
    worker.close()
    equal(most_at_once(queue.redis), 1, "never more than one job was active")


@scenario("liveness.idle-wait.default", clock="real")
def test_an_idle_worker_looks_again_after_five_seconds(client: Participant) -> None:
    """Without `drainDelay`: nothing that could wake it is waited for any longer."""
    worker = client.worker("noop")
    try:
        _, timeout_s = wait_for_blocking(client)
    except OperationUnsupported:
        looks = client.tap.commands(where=lambda sent: sent.found_no_work)
        alike = [sent.arrived_s for sent in looks if (sent.name, sent.digest) == (looks[-1].name, looks[-1].digest)]
        if len(alike) < LOOKS:
            raise
        timeout_s = alike[-1] - alike[-2]
    holds(timeout_s == DRAIN_DELAY_S, "an idle worker waits for 5 s", seen=timeout_s)
    worker.close()


@scenario("retention.default", clock="real")
def test_finished_jobs_are_kept(client: Participant) -> None:
    """Without `removeOnComplete` and `removeOnFail`, of the job as of the worker."""
    queue = client.queue()
    fill(queue, 2)
    worker = client.worker("ask")
    worker.resolve(worker.next_job().job.id, "complete")
    worker.resolve(worker.next_job().job.id, "fail", message="boom")
    worker.wait_local("completed", "1")
    worker.wait_local("failed", "2")
    worker.close()
    kept = {state: queue.redis.members(state) for state in ("completed", "failed")}
    equal(kept, {"completed": ["1"], "failed": ["2"]}, "both jobs are kept")
    equal([queue.redis.exists(job) for job in ("1", "2")], [True, True], "with their data")
