"""Crashes, partitions, lost connections, restarts: each time all jobs are finished, by the workers that hold them.

The tap hurts the client under test alone; for combinations and long runs there is the room `chaos`.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from conformance.driver.errors import OperationIndeterminate
from conformance.observe.tap.recording import CommandRecord
from conformance.observe.tap.rules import TriggerPhase
from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import scenario, shared
from conformance.participants.own_redis import own_redis
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import lives_for, ran_once

# Short times, because the defaults would make each recovery wait for half a minute.
IMPATIENT: Final[dict[str, Any]] = {"lockDuration": 1000, "stalledInterval": 200, "drainDelay": 1, "runRetryDelay": 200}
"""Options of a worker that notices soon what has gone wrong. Of several workers all need them: who checks for stalled
jobs keeps the others from it for its own interval."""
LONG_MS = 15_000
"""Clients wait for seconds before they connect again."""


def _fill(queue: QueueHandle, jobs: int) -> None:
    queue.add_bulk(*((f"job {number}", {"n": number}, {}) for number in range(1, jobs + 1)))


def _wait_for_completed(participant: Participant, jobs: int) -> None:
    participant.eventually(
        lambda: participant.redis().members("completed"),
        lambda completed: len(completed) >= jobs,
        f"{jobs} jobs are completed",
        within_ms=LONG_MS,
    )


@pytest.mark.parametrize("killed", ["client", "oracle"])
@shared("chaos.crash", slow=True)
def test_a_killed_worker_costs_no_job(client: Participant, oracle: Participant, killed: str) -> None:
    """Its process is gone while it works on two jobs: the other recovers and finishes them."""
    lost, survivor = (client, oracle) if killed == "client" else (oracle, client)
    queue = survivor.queue()
    # One job more than the killed worker takes, so that the survivor also has work of its own.
    _fill(queue, 3)
    doomed = lost.worker("ask", concurrency=2, **IMPATIENT)
    held = sorted(doomed.next_job().job.id for _ in range(2))
    lost.driver.kill()
    worker = survivor.worker("noop", **IMPATIENT)
    _wait_for_completed(survivor, 3)
    worker.close()
    again = [job for job in ("1", "2", "3") if queue.redis.runs(job) > 1]
    equal([job for job in again if job not in held], [], "only the killed worker's job ran again")


@shared("chaos.partition", slow=True)
def test_a_worker_that_is_cut_off_loses_its_job(client: Participant, oracle: Participant) -> None:
    """Another worker runs the job meanwhile, and only what that one returns is stored."""
    queue = oracle.queue()
    queue.add("contested")
    mine = client.worker("ask", **IMPATIENT)
    mine.next_job()
    lives_for(queue.redis, "1", IMPATIENT["lockDuration"])
    with client.tap.silence():
        # Short, so that the two checks after the lost lock come soon.
        other = oracle.worker("ask", stalledInterval=200)
        equal(other.next_job(within_ms=LONG_MS).job.id, "1", "the job is handed out again")
        # The worker that is cut off returns first: so it is the lock that decides, and not who was faster.
        mine.resolve("1", value_raw='"too late"')
        other.resolve("1", value_raw='"in time"')
        other.wait_local("completed", "1")
    # The worker learns of the lost lock only when the network is back; some clients call that the end of the job.
    mine.wait_for_error("failed")
    mine.close()
    equal(
        queue.redis.field("1", "returnvalue"),
        '"in time"',
        "the result of the second worker is stored",
        where="job.returnvalue",
    )
    equal(queue.redis.event_names().count("completed"), 1, "the job was completed once")
    queue.add("next")
    equal(other.next_job().job.id, "2", "the other worker still works")
    other.resolve("2")
    other.wait_local("completed", "2")
    other.close()


@shared("chaos.reconnect", slow=True)
def test_a_worker_goes_on_after_an_outage(client: Participant, oracle: Participant) -> None:
    """Results returned during the outage are stored afterwards, and jobs added during it are run."""
    queue = oracle.queue()
    queue.add("running")
    worker = client.worker("ask", drainDelay=1, runRetryDelay=200)
    worker.next_job()
    with client.tap.outage():
        # Added while no connection is left for it, so that only a reconnection can bring it.
        queue.add("meanwhile")
        worker.resolve("1", value_raw='"kept"')
        # As long as a connection is left, the job that came meanwhile may be fetched, and rightly so.
        client.eventually(client.tap.connections, lambda connections: not connections, "no connection is left")
        equal(queue.redis.runs("2"), 0, "nothing is started meanwhile")
    worker.wait_local("completed", "1", within_ms=LONG_MS)
    equal(queue.redis.field("1", "returnvalue"), '"kept"', "the result is stored", where="job.returnvalue")
    ran_once(queue, "1")
    equal(worker.next_job(within_ms=LONG_MS).job.id, "2", "the next job is handed out")
    worker.resolve("2")
    worker.wait_local("completed", "2")
    worker.close()


@shared("chaos.reconnect", slow=True)
def test_a_result_survives_the_connection_it_was_sent_on(client: Participant, oracle: Participant) -> None:
    """Redis never saw it: the worker sends it again when it is connected again."""
    queue = oracle.queue()
    queue.add("running")
    worker = client.worker("ask", drainDelay=1, runRetryDelay=200)
    worker.next_job()
    with client.tap.cut("moveToFinished", reset=True) as barrier:
        worker.resolve("1", value_raw='"kept"')
        # The end of the block heals: without waiting, the result could be sent when nothing is broken any more.
        barrier.wait()
    worker.wait_local("completed", "1", within_ms=LONG_MS)
    equal(queue.redis.field("1", "returnvalue"), '"kept"', "the result is stored", where="job.returnvalue")
    ran_once(queue, "1")
    worker.close()


@shared("chaos.reconnect", slow=True)
def test_a_failure_survives_the_connection_it_was_sent_on(client: Participant, oracle: Participant) -> None:
    """Redis never saw it: the worker sends it again when it is connected again."""
    queue = oracle.queue()
    queue.add("running")
    worker = client.worker("ask", drainDelay=1, runRetryDelay=200)
    worker.next_job()
    with client.tap.cut("moveToFinished", reset=True) as barrier:
        worker.resolve("1", "fail", message="kept")
        # The end of the block heals: without waiting, the failure could be sent when nothing is broken any more.
        barrier.wait()
    worker.wait_local("failed", "1", within_ms=LONG_MS)
    equal(queue.redis.field("1", "failedReason"), "kept", "the reason is stored", where="job.failedReason")
    ran_once(queue, "1")
    worker.close()


@shared("chaos.reconnect", slow=True)
def test_an_idle_worker_survives_a_lost_connection(client: Participant, oracle: Participant) -> None:
    """It was waiting for work when its connections broke, and is woken again by the next job."""
    queue = oracle.queue()
    # 5 s of blocking: the connection breaks while the worker waits in it.
    worker = client.worker("noop", drainDelay=5, runRetryDelay=200)
    queue.add("before")
    worker.wait_local("completed", "1")
    client.tap.disconnect(reset=True)
    queue.add("after")
    worker.wait_local("completed", "2", within_ms=LONG_MS)
    worker.close()


@shared("chaos.reconnect", slow=True)
def test_a_reader_misses_nothing(client: Participant, oracle: Participant) -> None:
    """Events during the broken connection are delivered afterwards."""
    queue, reader = oracle.queue(), client.events()
    queue.add("before")
    # The reader has read up to here, so that later events are the ones at risk.
    reader.wait_for("waiting", "1")
    with client.tap.outage():
        queue.add("meanwhile")
    reader.wait_for("waiting", "2", within_ms=LONG_MS)


@scenario("chaos.reconnect", clock="real", slow=True, compare=False)
def test_a_producer_survives_a_lost_connection(client: Participant) -> None:
    """An add that meets the broken connection may be undecided; the same add, made again, is done once."""
    queue = client.queue()
    queue.add("before")
    client.tap.disconnect()
    client.eventually(lambda: _added(queue, "after"), bool, "the client adds again", within_ms=LONG_MS)
    equal(queue.redis.elements("wait"), ["after", "1"], "both jobs wait, each once")


def _added(queue: QueueHandle, job: str) -> str | None:
    """The id, or None if the client does not know whether the job was added."""
    try:
        return queue.add("job", {}, jobId=job)
    except OperationIndeterminate:
        return None


@pytest.mark.parametrize("trouble", ["silence", "lost connection"])
@shared("chaos.renewal-survives", slow=True)
def test_short_trouble_costs_no_lock(client: Participant, oracle: Participant, trouble: str) -> None:
    """For less than half of a lock's life: afterwards the lock is renewed, and no other worker has taken the job."""
    # 4 s: trouble of less than half of it leaves time for a renewal on a busy machine.
    life_ms = 4000
    queue = oracle.queue()
    queue.add("long")
    worker = client.worker("ask", lockDuration=life_ms, stalledInterval=100, runRetryDelay=200)
    worker.next_job()
    lives_for(queue.redis, "1", life_ms)
    rival = oracle.worker("noop", stalledInterval=100)
    # After a renewal, so that the trouble starts with a fresh lock.
    _await_renewal(client, queue, life_ms)
    if trouble == "silence":
        with client.tap.silence():
            # 0.4 of a life: the requirement is about trouble of less than half.
            _let_lock_age(client, queue, life_ms * 0.4)
    else:
        client.tap.disconnect(reset=True)
    # More than three quarters are left only after a renewal.
    client.eventually(
        lambda: queue.redis.ttl_ms("1:lock"), lambda ttl: ttl > life_ms * 0.75, "the lock is renewed", within_ms=life_ms
    )
    worker.resolve("1")
    worker.wait_local("completed", "1", within_ms=LONG_MS)
    ran_once(queue, "1")
    rival.close()
    worker.close()


@shared("chaos.renewal-survives", slow=True)
def test_a_renewal_that_loses_its_connection_costs_no_lock(client: Participant, oracle: Participant) -> None:
    """Redis never saw it: the job runs on, and the next renewal keeps its lock."""
    life_ms = 4000
    queue = oracle.queue()
    queue.add("long")
    worker = client.worker("ask", lockDuration=life_ms, runRetryDelay=200)
    worker.next_job()
    lives_for(queue.redis, "1", life_ms)
    # Clients renew their locks one by one, or all of a worker in one call.
    with client.tap.cut(reset=True, where=_renews_a_lock) as barrier:
        barrier.wait()
    # More than three quarters are left only after a renewal. A client whose next chance is at the last moment loses the
    # lock or not by chance: it has to be earlier than in the last tenth.
    left_ms = max(queue.redis.ttl_ms("1:lock") - life_ms // 10, life_ms // 10)
    client.eventually(
        lambda: queue.redis.ttl_ms("1:lock"), lambda ttl: ttl > life_ms * 0.75, "the lock is renewed", within_ms=left_ms
    )
    equal(queue.redis.state("1"), ["active"], "the job still runs")
    worker.resolve("1")
    worker.wait_local("completed", "1", within_ms=LONG_MS)
    ran_once(queue, "1")
    worker.close()


def _renews_a_lock(command: CommandRecord) -> bool:
    """Whether a command calls extendLock or extendLocks, perhaps in a text of the client's own."""
    if command.script:
        return command.script.startswith("extendLock")
    # The lock and the stalled set of one job, or the stalled set alone for the jobs of a worker.
    keys = [key.rpartition(b":")[2] for key in command.keys]
    return keys in ([b"lock", b"stalled"], [b"stalled"])


def _await_renewal(client: Participant, queue: QueueHandle, life_ms: int) -> None:
    """Wait for the first renewal; but the trouble does not wait for a worker that takes more than two thirds for it."""
    client.eventually(
        lambda: (len(client.tap.calls("extendLocks")), queue.redis.ttl_ms("1:lock")),
        # Not for ever: a worker that renews late must not keep the trouble from coming.
        lambda seen: seen[0] > 0 or seen[1] < life_ms * 0.3,
        "the lock is renewed, or is nearly over",
    )


def _let_lock_age(client: Participant, queue: QueueHandle, by_ms: float) -> None:
    at_first = queue.redis.ttl_ms("1:lock")
    client.eventually(
        lambda: queue.redis.ttl_ms("1:lock"), lambda ttl: ttl <= at_first - by_ms, "the lock cannot be renewed"
    )


@scenario("chaos.redis-restart", clock="real", slow=True)
def test_a_restart_of_redis_costs_no_job(client: Participant) -> None:
    """Redis comes back with its data and without its scripts; running, waiting and delayed jobs are finished."""
    # Every write is synced before its reply, so that the restart cannot lose any.
    with own_redis(client, appendonly="yes", appendfsync="always") as alone:
        queue = alone.client.queue()
        for name in ("finished", "running", "waiting"):
            queue.add(name)
        # Due after the restart, so that a timer must survive it.
        queue.add("delayed", {}, delay=1000)
        worker = alone.client.worker("ask", drainDelay=1, runRetryDelay=200)
        worker.resolve(worker.next_job().job.id)
        worker.next_job()
        alone.restart()
        worker.resolve("2")
        for job in ("3", "4"):
            equal(worker.next_job(within_ms=LONG_MS).job.id, job, "the next job is handed out")
            worker.resolve(job)
        _wait_for_completed(alone.client, 4)
        ran_once(queue, "1", "2", "3", "4")
        worker.close()


CUTS: Final[list[tuple[str, TriggerPhase]]] = [
    ("moveToActive", "before-send"),
    ("moveToActive", "after-execute"),
    ("moveToActive", "mid-reply"),
    ("moveToFinished", "before-send"),
    ("moveToFinished", "after-execute"),
    ("moveToFinished", "mid-reply"),
]


@pytest.mark.parametrize(("script", "phase"), CUTS)
@scenario(
    "chaos.at-least-once",
    clock="real",
    compare=False,
    tier="full",
    slow=True,
    without={"worker-errors": "clients may report a lost connection in any way"},
)
def test_a_connection_that_breaks_at_the_worst_moment_costs_no_job(
    client: Participant, script: str, phase: TriggerPhase
) -> None:
    """A claim or a completion has or has not happened, and the client cannot know: still every job is completed."""
    queue = client.queue()
    _fill(queue, 3)
    with client.tap.cut(script, phase=phase) as cut:
        worker = client.worker("noop", **IMPATIENT)
        # The end of the block heals: without waiting, nothing might ever have broken.
        cut.wait()
    _wait_for_completed(client, 3)
    worker.close()


@shared("chaos.at-least-once", slow=True)
def test_lost_connections_cost_no_job(client: Participant, oracle: Participant) -> None:
    """Its connections break three times while a worker is busy; together with Node's it finishes all jobs."""
    queue = oracle.queue()
    jobs = 60
    _fill(queue, jobs)
    mine = client.worker("sleep", concurrency=4, processor_args={"ms": 10}, **IMPATIENT)
    other = oracle.worker("sleep", concurrency=1, processor_args={"ms": 10}, **IMPATIENT)
    # At three different moments, so that claims, renewals and completions are hit.
    for least in (10, 20, 30):
        _wait_for_completed(client, least)
        client.tap.disconnect(reset=True)
    _wait_for_completed(client, jobs)
    # Both are closed before `active` is read, so that no job is rightly in it.
    mine.close()
    other.close()
    equal(queue.redis.value("active"), None, "no worker holds a job")
