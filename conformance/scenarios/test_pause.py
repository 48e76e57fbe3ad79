"""Pausing and resuming a whole queue."""

from __future__ import annotations

from conformance.participants.expect import equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.protocol.states import DELAY_FACTOR


@scenario("pause.moves-wait", "pause.meta", tier="smoke", bullmq="<6")
def test_pausing_parks_the_waiting_jobs(client: Participant) -> None:
    """All waiting jobs move to `paused` and back, in order."""
    queue = client.queue()
    for name in ("a", "b", "c"):
        queue.add(name)
    queue.pause()
    equal(
        (queue.redis.elements("paused"), queue.redis.elements("wait")),
        (["3", "2", "1"], []),
        "the jobs are in `paused`",
    )
    meta = queue.redis.hash("meta")
    holds("paused" in meta, "meta says that the queue is paused", seen=meta, where="meta.paused")
    queue.resume()
    equal(
        (queue.redis.elements("wait"), queue.redis.elements("paused")),
        (["3", "2", "1"], []),
        "the jobs are back in `wait`",
    )
    equal(queue.redis.field("meta", "paused"), None, "`paused` is removed from meta", where="meta.paused")


@scenario("pause.moves-wait", "pause.meta", tier="smoke", bullmq=">=6")
def test_pausing_leaves_the_waiting_jobs(client: Participant) -> None:
    """All waiting jobs stay in `wait`, in order, and no worker gets one."""
    queue, worker = client.queue(), client.worker()
    for name in ("a", "b", "c"):
        queue.add(name)
    queue.pause()
    stay: tuple[list[str], list[str]] = (["3", "2", "1"], [])
    equal((queue.redis.elements("wait"), queue.redis.elements("paused")), stay, "the jobs are still in `wait`")
    meta = queue.redis.hash("meta")
    holds("paused" in meta, "meta says that the queue is paused", seen=meta, where="meta.paused")
    equal(worker.claim(), None, "no job is handed out")
    queue.resume()
    equal((queue.redis.elements("wait"), queue.redis.elements("paused")), stay, "they are there after the resume")
    equal(queue.redis.field("meta", "paused"), None, "`paused` is removed from meta", where="meta.paused")


@scenario("pause.parked-by-older", bullmq=">=6")
def test_a_resume_brings_back_what_older_versions_have_parked(client: Participant) -> None:
    """Jobs in `paused` go behind those that wait: they are the next to run."""
    queue, worker = client.queue(), client.worker()
    queue.add("parked")
    queue.pause()
    queue.redis.rename("wait", "paused")
    queue.add("added since")
    queue.resume()
    equal((queue.redis.elements("wait"), queue.redis.elements("paused")), (["2", "1"], []), "both jobs wait")
    equal(worker.claim_one().id, "1", "the parked one runs first")


@scenario("pause.marker")
def test_resuming_wakes_idle_workers(client: Participant) -> None:
    """A paused queue has no marker; a resumed one with jobs has."""
    queue = client.queue()
    queue.add("a")
    queue.pause()
    equal(queue.redis.type("marker"), "none", "pausing deletes the marker")
    queue.resume()
    equal(queue.redis.members("marker"), ["0"], "resuming sets the base marker")


@scenario("pause.marker")
def test_resuming_with_only_delayed_jobs_sets_their_marker(client: Participant) -> None:
    """The marker comes back with the time of the first of them."""
    queue = client.queue()
    queue.add("much later", {}, delay=120_000)
    queue.add("later", {}, delay=60_000)
    queue.pause()
    queue.resume()
    equal(queue.redis.members("marker"), ["1"], "resuming sets the delay marker")
    due_ms = (queue.redis.score("delayed", "2") or 0) // DELAY_FACTOR
    equal(queue.redis.score("marker", "1"), due_ms, "it has the time of the first of them", where="marker.delay")


@scenario("pause.running-goes-on", bullmq="<6")
def test_an_active_job_can_be_finished_while_paused(client: Participant) -> None:
    """Pausing stops only jobs that have not started."""
    queue, worker = client.queue(), client.worker()
    queue.add("running")
    queue.add("waiting")
    worker.claim_one()
    queue.pause()
    equal(worker.complete("1", "done", fetch_next=True), None, "finishing hands out no further job")
    equal((queue.redis.state("1"), queue.redis.state("2")), (["completed"], ["paused"]), "only the active job moved")


@scenario("pause.running-goes-on", bullmq=">=6")
def test_an_active_job_can_be_finished_beside_those_that_wait(client: Participant) -> None:
    """Pausing stops jobs that have not started, and moves none."""
    queue, worker = client.queue(), client.worker()
    queue.add("running")
    queue.add("waiting")
    worker.claim_one()
    queue.pause()
    equal(worker.complete("1", "done", fetch_next=True), None, "finishing hands out no further job")
    equal((queue.redis.state("1"), queue.redis.state("2")), (["completed"], ["wait"]), "only the active job moved")


@scenario("pause.again", bullmq="<6")
def test_pausing_twice_and_resuming_twice(client: Participant) -> None:
    """Repeating changes no job."""
    queue = client.queue()
    queue.add("a")
    queue.pause()
    equal(queue.redis.elements("paused"), ["1"], "the job is in `paused`", where="row.pause.moves-wait")
    queue.pause()
    equal(queue.redis.elements("paused"), ["1"], "the job is still in `paused`")
    queue.resume()
    queue.resume()
    equal(queue.redis.elements("wait"), ["1"], "the job is back in `wait`")


@scenario("pause.again", bullmq=">=6")
def test_repeating_leaves_the_job(client: Participant) -> None:
    """Repeating changes no job, which stays in `wait`."""
    queue = client.queue()
    queue.add("a")
    for repeated in (queue.pause, queue.pause, queue.resume, queue.resume):
        repeated()
        equal(queue.redis.elements("wait"), ["1"], "the job is in `wait`")


@scenario("pause.answer")
def test_is_paused_tells(client: Participant) -> None:
    """The getter follows what anyone did."""
    queue = client.queue()
    equal(queue.is_paused(), False, "a new queue runs")
    queue.pause()
    equal(queue.is_paused(), True, "a paused queue says so")
    queue.resume()
    equal(queue.is_paused(), False, "a resumed queue runs")


@scenario("pause.delayed-promoted", bullmq="<6")
def test_due_jobs_are_parked_while_paused(client: Participant) -> None:
    """A delay that ends during a pause moves the job to `paused`, not to `wait`."""
    queue, worker = client.queue(), client.worker()
    queue.add("due", {}, delay=30)
    queue.pause()
    client.pass_time(60)
    equal(worker.claim(), None, "nothing is handed out")
    equal(queue.redis.state("1"), ["paused"], "the job is parked")


@scenario("pause.delayed-promoted", bullmq=">=6")
def test_due_jobs_wait_while_paused(client: Participant) -> None:
    """A delay that ends during a pause moves the job to `wait`, where no worker gets it."""
    queue, worker = client.queue(), client.worker()
    queue.add("due", {}, delay=30)
    queue.pause()
    client.pass_time(60)
    equal(worker.claim(), None, "nothing is handed out")
    equal(queue.redis.state("1"), ["wait"], "the job waits")
