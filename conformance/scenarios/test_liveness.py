"""Nothing hangs: the real loop of a worker, on the real clock."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from typing import Any

import pytest

from conformance.driver.errors import OperationFailed, OperationUnsupported
from conformance.driver.ops.worker import IsWorkerPaused, IsWorkerRunning, Outcome, PauseWorker, ResumeWorker
from conformance.participants.expect import Mismatch, behind, between, equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import FAILING, add_child, let_stall, lives_for, node, wait_for_finished


@scenario("liveness.pickup", clock="real", tier="smoke")
def test_an_idle_worker_picks_up_a_job(client: Participant) -> None:
    """The marker wakes a sleeping worker. Redis says when: `processedOn` may be from before the job came."""
    # `drainDelay` of 5 s: a worker that polls instead of being woken needs longer than the bound below.
    queue, worker = client.queue(), client.worker("noop", drainDelay=5)
    queue.add("warm up")
    # After the first job the worker sleeps; a start would find the job without being woken.
    worker.wait_local("completed", "1")
    queue.add("work")
    # More than the bound that is checked: a late worker is then reported with its time and not as a timeout.
    worker.wait_local("completed", "2", within_ms=4000)
    # 1000 ms covers a busy machine, and is far below the 5 s of polling.
    between(_started_after_ms(queue, "2"), 0, 1000, "the job is started in less than 1000 ms")
    worker.close()


@scenario("liveness.pickup", clock="real", slow=True, compare=False)
def test_a_worker_that_has_been_idle_picks_up_a_job(client: Participant) -> None:
    """Also after a second without work, when a client may have given up its blocking read."""
    queue, worker = client.queue(), client.worker("noop", drainDelay=5)
    worker.wait_local("completed", queue.add("warm up"))
    idle_since = queue.redis.now_ms()
    client.eventually(lambda: queue.redis.now_ms() - idle_since, lambda idle: idle > 1000, "the worker has been idle")
    job = queue.add("work")
    worker.wait_local("completed", job, within_ms=4000)
    between(_started_after_ms(queue, job), 0, 1000, "the job is started in less than 1000 ms")
    worker.close()


def _started_after_ms(queue: QueueHandle, job: str) -> float:
    """From the first event of a job to its start."""
    stamps = [(entry["event"], stamp) for stamp, entry in queue.redis.stamped_events() if entry.get("jobId") == job]
    if "active" not in dict(stamps):
        raise Mismatch("an event reports the start", expected="active", actual=None, where="event.active")
    return dict(stamps)["active"] - stamps[0][1]


@scenario("liveness.delayed", clock="real", slow=True)
def test_delayed_jobs_run_in_time(client: Participant) -> None:
    """Delays below and above the longest sleep of a worker, and one that outlasts a usual socket timeout of 5 s."""
    queue, worker = client.queue(), client.worker("noop")
    # In mixed order, so that the first added is not the first due.
    delays = {queue.add(f"after {delay} ms", {}, delay=delay): delay for delay in (12_000, 1000, 9000, 3000)}
    in_order = sorted(delays.items(), key=lambda job_and_delay: job_and_delay[1])
    for (job, delay), (_, before) in zip(in_order, [("", 0), *in_order], strict=False):
        # Only the rest since the job before, plus 3 s for a late worker.
        worker.wait_local("completed", job, within_ms=delay - before + 3000)
        fields = queue.redis.hash(job)
        # From the job's own fields, because waiting in the kit adds its own delay.
        late = float(fields["processedOn"]) - float(fields["timestamp"]) - delay
        between(late, 0, 1000, f"the job delayed by {delay} ms is started within 1000 ms of its time")
    worker.close()


@pytest.mark.parametrize("when", ["at-the-start", "after-a-job"])
@scenario("liveness.delayed", clock="real", compare=False)
def test_the_next_due_job_is_waited_for(client: Participant, when: str) -> None:
    """A claim without a job returns when the first delayed job is due, if another worker took its marker."""
    queue = client.queue()
    if when == "after-a-job":
        queue.add("now")
        # 60 s: a worker that polls instead of reading the delayed jobs misses the deadline by far.
        worker = client.worker("ask", drainDelay=60)
        worker.next_job()
    later = {delay: queue.add(f"after {delay} ms", {}, delay=delay) for delay in (50_000, 2500)}
    # Without the marker only the answer of a claim shows when the first job is due.
    queue.redis.delete("marker")
    if when == "after-a-job":
        worker.resolve("1")
    else:
        worker = client.worker("ask", drainDelay=60)
    # Far below the 60 s and the 50 s of the other job.
    equal(worker.next_job(within_ms=12_000).job.id, later[2500], "the first of the delayed jobs is run")
    fields = queue.redis.hash(later[2500])
    late = float(fields["processedOn"]) - float(fields["timestamp"]) - 2500
    between(late, 0, 1000, "it is started within 1000 ms of its time")
    worker.resolve(later[2500])
    worker.wait_local("completed", later[2500])
    worker.close()


@scenario("liveness.delayed", clock="real", compare=False)
def test_a_due_time_with_a_fraction_is_read(client: Participant) -> None:
    """Jobs that are due in the same ms differ by fractions of it, and so does the marker."""
    queue, worker = client.queue(), client.worker("noop", drainDelay=60)
    worker.wait_local("completed", queue.add("warm up"))
    job = queue.add("one of many", {}, delay=50_000)
    due_ms = queue.redis.now_ms() + 2000
    # As if 2048 jobs with the same due time had been added before it.
    queue.redis.set_score("delayed", job, due_ms * 4096 + 2048)
    # The marker has the due time of the first job, and is written again for each delayed one.
    queue.add("later", {}, delay=60_000)
    worker.wait_local("completed", job, within_ms=6000)
    between(int(queue.redis.hash(job)["processedOn"]) - due_ms, 0, 1000, "it is started within 1000 ms of its time")
    worker.close()


@scenario(
    "liveness.blocks-for-a-time",
    clock="real",
    compare=False,
    without={"worker-errors": "a worker may complain of its options in any way"},
)
def test_a_blocking_read_ends_by_itself(client: Participant) -> None:
    """Also just before a delayed job is due, and with a `drainDelay` of 0 if the client takes it."""
    queue = client.queue()
    worker = client.worker("noop")
    # 80 due times 4 ms apart: when a job has ended, some of the next ones are due within a ms.
    queue.add_bulk(*(("soon", {}, {"delay": 1000 + 4 * number}) for number in range(80)))
    with behind("liveness.delayed"):
        wait_for_finished(client, 80)
    worker.close()
    with suppress(OperationFailed):
        client.worker("noop", drainDelay=0)
        queue.add("last")
        wait_for_finished(client, 81)
    times_s = _times_of_blocking_reads(client)
    if not times_s:
        raise OperationUnsupported("worker.run", "this client waits for work without a blocking command")
    least_s = queue.redis.least_block_s
    equal([time_s for time_s in times_s if time_s < least_s], [], "every blocking read ends by itself (s)")


def _times_of_blocking_reads(client: Participant) -> list[float]:
    return [float(command.args[-1]) for command in client.tap.commands(where=lambda sent: sent.waits_for_work)]


def _closed_while_a_job_runs(client: Participant, *ending: dict[str, Any]) -> QueueHandle:
    """Close a worker that runs one of two jobs, and see that it ends that one and leaves the other."""
    queue = client.queue()
    # The sleep is longer than the wait below, so that the job runs during the close.
    queue.add("running", {"steps": [{"do": "progress", "value": 1}, {"do": "sleep", "ms": 1500}, *ending]})
    queue.add("waiting", {"steps": []})
    worker = client.worker("steps")
    client.eventually(lambda: queue.redis.state("1"), lambda state: state == ["active"], "the first job is active")
    # Its processor must have it: a close right after the claim is another requirement. Some clients store 0 when they
    # add a job; a driver may leave out progress, and then a second must do.
    with suppress(Mismatch):
        has_started = {None, "0"}.isdisjoint
        client.eventually(lambda: {queue.redis.field("1", "progress")}, has_started, "it runs", within_ms=1000)
    worker.close()
    equal(queue.redis.elements("active"), [], "close returns when no job is running", where="close.waits")
    equal(queue.redis.state("2"), ["wait"], "the other job was left to others")
    return queue


@scenario("liveness.close", clock="real")
def test_closing_waits_for_the_running_job(client: Participant) -> None:
    """A graceful close loses nothing."""
    equal(_closed_while_a_job_runs(client).redis.state("1"), ["completed"], "the running job was finished")


@scenario("liveness.close", clock="real")
def test_closing_waits_for_a_job_that_fails(client: Participant) -> None:
    """A worker that closes takes no other job with the end of its last one, also if that fails."""
    queue = _closed_while_a_job_runs(client, {"do": "fail", "message": "no"})
    equal(queue.redis.state("1"), ["failed"], "the running job has failed")


@scenario("liveness.close-ends", clock="real")
def test_an_idle_worker_closes_at_once(client: Participant) -> None:
    """It waits for no job and for no marker; every other scenario that closes a handle checks this too."""
    queue = client.queue()
    queue.add("before")
    # 30 s of blocking: a close that waits for the blocking call misses the deadline.
    worker = client.worker("noop", drainDelay=30)
    # Closed right after the last job: a poll of the client's own, such as one of 5 s, has just started.
    worker.wait_local("completed", "1")
    # Node needs milliseconds. A close that waits for a poll takes seconds; starvation is excused as everywhere.
    worker.close(within_ms=8000, at_most_ms=1500)


def _use_events(client: Participant, queue: QueueHandle, job: str) -> None:
    events = client.events()
    queue.add(jobId=job)
    events.wait_for("added", job)
    events.close()


def _use_worker(client: Participant, queue: QueueHandle, job: str) -> None:
    worker = client.worker("noop")
    queue.add(jobId=job)
    worker.wait_local("completed", job)
    worker.close()


def _use_flow(client: Participant, _queue: QueueHandle, job: str) -> None:
    flow = client.flow()
    flow.add(node(f"parent-{job}", node(f"child-{job}")))
    flow.close()


def _use_queue(client: Participant, _queue: QueueHandle, job: str) -> None:
    queue = client.queue("another")
    queue.add(jobId=job)
    queue.close()


USES = {"events": _use_events, "worker": _use_worker, "flow": _use_flow, "queue": _use_queue}
"""Something is opened, used for a job, and closed."""
ROUNDS = 6
"""More of them than one opens connections, so that one that is left in each round is more than are ever open."""


@pytest.mark.parametrize("what", USES)
@scenario("liveness.close-connections", clock="real", compare=False)
def test_what_is_closed_leaves_no_connection(client: Participant, what: str) -> None:
    """A program that opens and closes queues for months would otherwise fill Redis with connections."""
    queue = client.queue()
    USES[what](client, queue, "job-0")
    # After the first use, because pools and shared connections open once.
    once = len(client.tap.connections())
    for number in range(1, ROUNDS):
        USES[what](client, queue, f"job-{number}")
    # Eventually: a server learns of a closed connection a moment later.
    client.eventually(
        lambda: len(client.tap.connections()),
        lambda left: left <= once,
        f"after {ROUNDS} rounds there are no more connections than after one",
    )


@pytest.mark.parametrize("outcome", ["delay", "wait", "waiting-children"])
@scenario("liveness.moved-by-processor", clock="real")
def test_a_processor_moves_its_job(client: Participant, outcome: Outcome) -> None:
    """The worker lets go of it, goes on, and runs it once more when its time has come."""
    queue, worker = client.queue(), client.worker("ask")
    job = queue.add("moved", {}, jobId="moved")
    worker.next_job()
    if outcome == "waiting-children":
        add_child(queue, job, jobId="child", delay=60_000)
    # 60 s for the delay: it must not pass by itself; a promotion ends it.
    worker.resolve(job, outcome, ms=60_000 if outcome == "delay" else 0)
    if outcome == "wait":
        equal(worker.next_job().job.id, job, "the job that was given back is run again")
    else:
        place = {"delay": "delayed"}.get(outcome, outcome)
        # The outcome is stored after `resolve` returns.
        client.eventually(
            lambda: queue.redis.state(job), lambda state: state == [place], "the job is where it was moved"
        )
        queue.promote(job if outcome == "delay" else "child")
        if outcome == "waiting-children":
            worker.resolve(worker.next_job().job.id)
        equal(worker.next_job().job.id, job, "the job is run again")
    worker.resolve(job)
    worker.wait_local("completed", job)
    reported = [event["event"] for event in queue.redis.events() if event.get("jobId") == job]
    equal([name for name in reported if name in ("completed", "failed")], ["completed"], "it has ended once")
    worker.close()


@scenario("liveness.autorun", clock="real", compare=False)
def test_a_worker_that_does_not_run_takes_nothing(client: Participant) -> None:
    """With `autorun` false, a worker whose `run` was not called leaves every job to the other worker."""
    queue = client.queue()
    idle, busy = client.worker("echo", autorun=False), client.worker("noop")
    # Both workers are open before any job comes, so that the idle one could take some.
    jobs = [queue.add(f"job {number}", {"by": "idle"}) for number in range(12)]
    done = wait_for_finished(client, len(jobs))
    # Results show which worker ran a job: workers need not sign their jobs.
    taken = [job for job in jobs if done.json(job, "returnvalue") == {"by": "idle"}]
    equal(taken, [], "the worker that does not run has run no job")
    for worker in (busy, idle):
        worker.close()


@scenario("liveness.started-limit", clock="real", bullmq="<6")
def test_a_job_may_be_started_so_many_times(client: Participant) -> None:
    """The second start is the last that is allowed; the third is none."""
    queue, worker = client.queue(), client.worker("ask", maxStartedAttempts=2)
    job = queue.add("shaky", {}, attempts=9)
    for _ in range(2):
        equal(worker.next_job().job.id, job, "a start that is allowed comes to the processor")
        worker.resolve(job, "fail", message="not yet")
    client.eventually(lambda: queue.redis.state(job), lambda state: state == ["failed"], "the third start fails it")
    reason = "job started more than allowable limit"
    equal(queue.redis.field(job, "failedReason"), reason, "it says why", where="job.failedReason")
    worker.close()


@scenario("liveness.idle-after-work", clock="real")
def test_a_drained_worker_takes_the_next_job(client: Participant) -> None:
    """Running out of work is not the end."""
    queue, worker = client.queue(), client.worker("noop")
    for number in range(1, 6):
        queue.add(f"job {number}")
        worker.wait_local("completed", str(number), within_ms=2000)
    worker.close()


@scenario("liveness.concurrency", clock="real")
def test_concurrency_is_used_and_kept(client: Participant) -> None:
    """Three jobs at once, and a fourth only when one is done."""
    queue = client.queue()
    for number in range(4):
        queue.add(f"job {number}")
    worker = client.worker("ask", concurrency=3)
    running = {worker.next_job().job.id for _ in range(3)}
    equal(running, {"1", "2", "3"}, "three jobs run at once")
    equal(queue.redis.state("4"), ["wait"], "the fourth waits")
    worker.resolve("1")
    equal(worker.next_job().job.id, "4", "it follows when one is done")
    for completed, job in enumerate(("2", "3", "4"), start=2):
        worker.resolve(job)
        # One after the other: which of three jobs ends first depends on the machine.
        wait_for_finished(client, completed)
    worker.close()


@scenario("liveness.no-errors", clock="real")
def test_a_day_like_any_other_has_no_errors(client: Participant) -> None:
    """Jobs that succeed, that are retried and that fail, a pause and an empty queue are nothing to complain of."""
    queue = client.queue()
    worker = client.worker("ask", drainDelay=1)
    queue.add("shaky", {}, attempts=2)
    worker.resolve(worker.next_job().job.id, "fail", message="thrown")
    worker.resolve(worker.next_job().job.id)
    worker.wait_local("completed", "1")
    queue.add("doomed")
    worker.resolve(worker.next_job().job.id, "fail", message="thrown")
    worker.wait_local("failed", "2")
    queue.pause()
    queue.add("parked")
    queue.resume()
    worker.resolve(worker.next_job().job.id)
    worker.wait_local("completed", "3")
    worker.close()
    equal(worker.errors(), [], "the worker has emitted no error", where="worker.error")


@pytest.mark.parametrize("cause", ["stalled", "child"])
@scenario("liveness.no-errors.deferred", clock="real", compare=False)
def test_a_deferred_failure_is_no_error_of_the_worker(client: Participant, cause: str) -> None:
    """The job stalled too often, or its child has failed; the worker that takes it next fails it."""
    queue, manual = client.queue(), client.worker(maxStalledCount=0)
    if cause == "stalled":
        queue.add(jobId="doomed")
        manual.claim_one()
        let_stall(queue, manual, "doomed")
    else:
        client.flow().add(node("doomed", node("child", failParentOnFailure=True)))
        manual.fail(manual.claim_one().id, unrecoverable=True)
    fields = queue.redis.hash("doomed")
    holds(bool(fields.get("defa")), "its failure is deferred", seen=fields)
    worker = client.worker("noop")
    with behind("stalled.limit" if cause == "stalled" else "flow.fail.parent"):
        worker.wait_local("failed", "doomed")
    worker.wait_local("completed", queue.add("after"))
    worker.close()
    equal(worker.errors(), [], "the worker has emitted no error")


@scenario("liveness.error-in-job", clock="real")
def test_an_error_fails_one_job_only(client: Participant) -> None:
    """The worker survives what its processor throws."""
    queue = client.queue()
    queue.add("doomed")
    queue.add("fine")
    worker = client.worker("ask")
    worker.resolve(worker.next_job().job.id, "fail", message="thrown")
    worker.resolve(worker.next_job().job.id, "complete", value_raw='"fine"')
    worker.wait_local("completed", "2")
    states = (queue.redis.state("1"), queue.redis.state("2"))
    equal(states, (["failed"], ["completed"]), "only one job failed", where=FAILING)
    equal(queue.redis.field("1", "failedReason"), "thrown", "the reason is what was thrown", where="job.failedReason")
    worker.close()


# Node asks about twice for each job: a worker that does not sleep asks dozens of times, also on a busy machine.
@pytest.mark.parametrize(("delay_ms", "jobs", "most"), [(40, 10, 40), (2000, 1, 10)], ids=["soon", "late"])
@scenario("liveness.sleeps", clock="real", compare=False)
def test_a_worker_asks_for_jobs_only_when_one_may_be_there(
    client: Participant, delay_ms: int, jobs: int, most: int
) -> None:
    """It sleeps until a delayed job is due, however soon or late that is."""
    queue, worker = client.queue(), client.worker("noop")
    # After the first job the worker sleeps.
    worker.wait_local("completed", queue.add("warm up"))
    before = len(client.tap.calls("moveToActive"))
    with behind("liveness.delayed"):
        for _ in range(jobs):
            worker.wait_local("completed", queue.add("later", {}, delay=delay_ms), within_ms=delay_ms + 4000)
    asked = len(client.tap.calls("moveToActive")) - before
    holds(asked <= most, f"the worker asks not more than {most} times", seen=asked)
    worker.close()


MOST_IDLE_COMMANDS = 100
"""In a second. Node blocks for seconds; 20 polls a second of five commands each still pass."""


@scenario("liveness.idle-traffic", clock="real", compare=False)
def test_an_idle_worker_leaves_redis_to_others(client: Participant) -> None:
    """The tap counts its commands during a second, after a job has shown that it works."""
    queue, worker = client.queue(), client.worker("noop")
    worker.wait_local("completed", queue.add("warm up"))
    before, since_ms = client.tap.sent_so_far, queue.redis.now_ms()
    client.eventually(lambda: queue.redis.now_ms() - since_ms, lambda idle: idle > 1000, "the worker has been idle")
    # Only the busiest fifth of the second counts: on a busy machine a client that floods does so when it has its turn.
    came_s = [sent.arrived_s for sent in client.tap.commands(where=lambda sent: sent.sequence > before)]
    busiest = max((bisect_left(came_s, start + 0.2) - place for place, start in enumerate(came_s)), default=0)
    what = f"the idle worker sends at most {MOST_IDLE_COMMANDS} commands a second"
    holds(5 * busiest <= MOST_IDLE_COMMANDS, what, seen=f"{5 * busiest} a second", certain=True)
    worker.close()


@pytest.mark.parametrize("refused", ["the-first", "a-later"])
@scenario("liveness.fetch-fails", clock="real", compare=False, without={"worker-errors": "the refusal is an error"})
def test_a_worker_outlives_a_fetch_that_fails(client: Participant, refused: str) -> None:
    """Redis has no memory for one fetch: the worker reports that, and takes the next job."""
    queue = client.queue()
    # Short, because a worker may wait that long before it asks again.
    quick: dict[str, Any] = {"runRetryDelay": 200, "drainDelay": 1}
    worker = client.worker("noop", **quick) if refused == "a-later" else None
    if worker is not None:
        worker.wait_local("completed", queue.add("before"))
    with client.tap.error("OOM command not allowed when used memory > 'maxmemory'.", "moveToActive") as refusal:
        worker = worker or client.worker("noop", **quick)
        queue.add("meanwhile")
        refusal.wait()
    worker.wait_for_error()
    worker.wait_local("completed", queue.add("after"))
    worker.close()


@scenario("liveness.no-errors", clock="real")
def test_the_lock_of_a_finished_job_is_let_go(client: Participant) -> None:
    """A worker renews the locks of running jobs only; that of any other would be lost, and that an error."""
    queue = client.queue()
    queue.add("finished")
    queue.add("running")
    # 3 s of life: the first renewal comes before half of it, so two are seen within the deadline.
    worker = client.worker("ask", lockDuration=3000, skipStalledCheck=True)
    worker.resolve(worker.next_job().job.id)
    # A running job keeps the renewals going.
    worker.next_job()
    lives_for(queue.redis, "2", 3000)
    first = queue.redis.expires_at_ms("2:lock")
    client.eventually(
        lambda: queue.redis.expires_at_ms("2:lock") - first,
        # A move by more than 2 s takes at least two renewals: one adds at most half of the 3 s.
        lambda later_ms: later_ms > 2000,
        "the lock of the running job has been renewed twice",
        within_ms=8000,
    )
    worker.resolve("2")
    worker.wait_local("completed", "2")
    worker.close()
    equal(worker.errors(), [], "the worker has emitted no error", where="worker.error")


@scenario("liveness.skips-check", clock="real", compare=False)
def test_a_worker_that_checks_nothing(client: Participant) -> None:
    """It works, and leaves what has stalled to others: a check would be its first command."""
    queue = client.queue()
    queue.add("work")
    worker = client.worker("noop", skipStalledCheck=True)
    worker.wait_local("completed", "1")
    equal(queue.redis.exists("stalled-check"), False, "no worker has checked for stalled jobs")
    equal([call.script for call in client.tap.calls("moveStalledJobsToWait")], [], "no worker has called the check")
    worker.close()


@scenario("liveness.skips-renewal", clock="real", compare=False)
def test_a_worker_that_renews_nothing(client: Participant) -> None:
    """The lock of its job runs down, below what a worker that renews ever lets it."""
    life_ms = 4000
    queue = client.queue()
    worker = client.worker("ask", lockDuration=life_ms, skipLockRenewal=True, skipStalledCheck=True)
    token = worker.next_job().token if queue.add("long") else ""
    lives_for(queue.redis, "1", life_ms)
    # A renewal comes before half of the life has passed.
    client.eventually(
        lambda: queue.redis.ttl_ms("1:lock"), lambda ttl: ttl < life_ms * 0.3, "the lock runs down", within_ms=8000
    )
    # Set again by hand, so that the job can end on a slow machine too.
    queue.redis.set_string("1:lock", token, ttl_ms=60_000)
    worker.resolve("1")
    worker.wait_local("completed", "1")
    worker.close()


@scenario("liveness.tells", clock="real")
def test_a_worker_tells_what_happens(client: Participant) -> None:
    """Its listeners hear of every job, of the end of the work, and of what is done to the worker."""
    queue = client.queue()
    good, bad = queue.add("good", {"steps": []}), queue.add("bad", {"steps": [{"do": "throw", "message": "no"}]})
    worker = client.worker("steps")
    for event, job in (("active", good), ("completed", good), ("active", bad), ("failed", bad), ("drained", None)):
        worker.wait_local(event, job)
    worker.call(PauseWorker())
    worker.wait_local("paused")
    worker.call(ResumeWorker())
    worker.wait_local("resumed")
    worker.close()
    worker.wait_local("closed")


@scenario("liveness.tells", clock="real")
def test_a_worker_tells_what_has_stalled(client: Participant) -> None:
    """The one that finds the job of another one that is gone."""
    queue, gone = client.queue(), client.worker()
    job = queue.add("left behind")
    gone.claim_one()
    # The lock is deleted instead of waited for.
    queue.redis.delete(f"{job}:lock")
    # Two intervals of 500 ms are waited for; the default would be a minute.
    worker = client.worker("noop", stalledInterval=500)
    worker.wait_local("stalled", job)
    worker.wait_local("completed", job)
    worker.close()


@scenario("liveness.state", clock="real")
def test_a_worker_says_what_it_does(client: Participant) -> None:
    """It runs, it is paused, and it runs again."""
    queue, worker = client.queue(), client.worker("noop")
    worker.wait_local("completed", queue.add("before"))
    equal(_state(worker), {"runs": True, "is paused": False}, "it runs")
    worker.call(PauseWorker())
    # Pausing waits for the jobs that run, so the state may follow later.
    client.eventually(lambda: _state(worker), lambda state: state == {"runs": False, "is paused": True}, "it is paused")
    job = queue.add("meanwhile")
    worker.call(ResumeWorker())
    worker.wait_local("completed", job)
    equal(_state(worker), {"runs": True, "is paused": False}, "it runs again")
    worker.close()


def _state(worker: WorkerHandle) -> dict[str, bool]:
    return {"runs": worker.call(IsWorkerRunning()).value, "is paused": worker.call(IsWorkerPaused()).value}


@pytest.mark.parametrize(
    ("least", "too_small"),
    [
        ({"concurrency": 1}, {"concurrency": 0}),
        ({"drainDelay": 1}, {"drainDelay": 0}),
        ({"maxStalledCount": 0}, {"maxStalledCount": -1}),
        ({"maxStartedAttempts": 0}, {"maxStartedAttempts": -1}),
        ({"stalledInterval": 1}, {"stalledInterval": 0}),
    ],
)
@scenario("liveness.options-refused", clock="real", compare=False)
def test_options_out_of_range_are_refused(
    client: Participant, least: dict[str, Any], too_small: dict[str, Any]
) -> None:
    """A worker that never looked again, or ran nothing, would be worse than none."""
    with client.refuses("invalid-argument", f"{too_small} is refused"):
        client.worker("noop", **too_small)
    client.worker("noop", **least).close()
