"""Counts, getters, and what an operator does with the jobs of a queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import between, equal
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant

STATES = ("waiting", "active", "delayed", "prioritized", "completed", "failed")


def _one_of_each(client: Participant) -> tuple[QueueHandle, WorkerHandle]:
    """Jobs 1 completed, 2 failed, 3 active, 4 and 5 waiting, 6 delayed, 7 prioritized."""
    queue, worker = client.queue(), client.worker()
    for name in ("completed", "failed", "active", "waiting", "waiting too"):
        queue.add(name, {"is": name})
    queue.add("delayed", {}, delay=60_000)
    queue.add("prioritized", {}, priority=3)
    worker.complete(worker.claim_one("token-1").id, {"ok": 1}, "token-1")
    worker.fail(worker.claim_one("token-2").id, "boom", "token-2")
    worker.claim_one("token-3")
    equal(queue.redis.state("6"), ["delayed"], "the delayed job is not due", where="row.order.delayed.score")
    return queue, worker


@scenario("getters.counts", tier="smoke")
def test_counts_agree_with_redis(client: Participant) -> None:
    """Every state is counted from its container."""
    queue, _ = _one_of_each(client)
    wanted = {"waiting": 2, "active": 1, "delayed": 1, "prioritized": 1, "completed": 1, "failed": 1}
    counts = queue.counts(*STATES)
    equal({state: counts.get(state) for state in STATES}, wanted, "each state is counted")
    queue.call(queue_ops.GetJobCountByTypes(types=["waiting", "delayed"]))


@scenario("getters.meta", bullmq=">=5.63")
def test_the_settings_of_a_queue(client: Participant) -> None:
    """Settings that are not set are missing, numbers are numbers, and `paused` is always there."""
    queue = client.queue()
    before = queue.call(queue_ops.GetMeta())
    equal((before.paused, before.concurrency, before.max, before.duration_ms), (False, None, None, None), "at first")
    equal(before.max_len_events, 10_000, "the length of the stream is set by the queue itself")
    equal(before.version, queue.redis.field("meta", "version"), "so is the version")
    queue.call(queue_ops.SetGlobalConcurrency(concurrency=3))
    queue.call(queue_ops.SetGlobalRateLimit(max=5, duration_ms=2000))
    queue.pause()
    after = queue.call(queue_ops.GetMeta())
    equal((after.paused, after.concurrency, after.max, after.duration_ms), (True, 3, 5, 2000), "each setting is there")


@pytest.mark.parametrize("first", STATES)
@scenario("getters.counts", tier="full")
def test_counts_come_in_any_order(client: Participant, first: str) -> None:
    """The counts are the same for every order of the requested states."""
    queue, _ = _one_of_each(client)
    counts = queue.counts(first, *(state for state in reversed(STATES) if state != first))
    equal(sum(counts.values()), 7, "every job is counted once")


@scenario("getters.counts")
def test_without_types_all_are_meant(client: Participant) -> None:
    """Without types, all states are counted and listed."""
    queue, _ = _one_of_each(client)
    counts = queue.call(queue_ops.GetJobCounts()).counts
    equal(sum(counts.values()), 7, "every job is counted once")
    equal(queue.call(queue_ops.GetJobCountByTypes()).count, 7, "their sum is that of all jobs")
    found = [job.id for job in queue.call(queue_ops.GetJobs()).jobs if job is not None]
    equal(sorted(found), ["1", "2", "3", "4", "5", "6", "7"], "every job is listed once")


@scenario("getters.count-pending")
def test_count_takes_what_is_to_be_done(client: Participant) -> None:
    """Active and finished jobs are not counted."""
    queue, _ = _one_of_each(client)
    equal(queue.call(queue_ops.CountPending()).count, 4, "four jobs still wait to be processed")


@scenario("getters.counts-per-priority")
def test_counts_per_priority(client: Participant) -> None:
    """Priority 0 is what waits without priority."""
    queue = client.queue()
    for priority in (0, 0, 1, 3, 3):
        queue.add("job", {}, priority=priority)
    counts = queue.call(queue_ops.GetCountsPerPriority(priorities=[0, 1, 2, 3])).counts
    equal(counts, {"0": 2, "1": 1, "2": 0, "3": 2}, "each priority is counted")


@scenario("getters.state", tier="smoke")
def test_the_state_is_the_container(client: Participant) -> None:
    """The client names the state that Redis holds."""
    queue, _ = _one_of_each(client)
    states = [queue.state(str(number)) for number in range(1, 9)]
    expected = ["completed", "failed", "active", "waiting", "waiting", "delayed", "prioritized", "unknown"]
    equal(states, expected, "each job's state is its container")


@scenario("getters.job", "getters.job.fields", "getters.job.options")
def test_a_job_is_read_back(client: Participant) -> None:
    """Getters return what is in Redis."""
    queue, _ = _one_of_each(client)
    for number in range(1, 8):
        found = queue.job(str(number))
        equal(found.id if found else None, str(number), "the job is found")
    equal(queue.job("missing"), None, "getting a missing job returns nothing")


@pytest.mark.parametrize("asc", [True, False], ids=["oldest-first", "newest-first"])
@pytest.mark.parametrize("state", ["waiting", "delayed", "prioritized", "completed", "failed"])
@scenario("getters.order")
def test_jobs_are_listed_in_order(client: Participant, state: str, asc: bool) -> None:
    """Whole lists and pages come in the same order."""
    queue, worker = client.queue(), client.worker()
    opts: dict[str, Any] = {"delayed": {"delay": 60_000}, "prioritized": {"priority": 2}}.get(state, {})
    for number in range(5):
        queue.add(f"job {number}", {}, **opts)
    for _ in range(5 if state in ("completed", "failed") else 0):
        client.pass_time(3)
        if state == "completed":
            worker.complete(worker.claim_one().id)
        else:
            worker.fail(worker.claim_one().id)
    everything = queue.jobs(state, asc=asc)
    equal(sorted(map(str, everything)), ["1", "2", "3", "4", "5"], "all jobs are listed")
    queue.jobs(state, start=1, end=2, asc=asc)
    queue.jobs(state, start=-1, asc=asc)
    queue.jobs(state, start=-2, end=-1, asc=asc)


@pytest.mark.parametrize("opts", [{}, {"priority": 4}], ids=["plain", "prioritized"])
@scenario("getters.promote")
def test_promoting_a_delayed_job(client: Participant, opts: dict[str, Any]) -> None:
    """A promoted job can be claimed at once."""
    queue, worker = client.queue(), client.worker()
    queue.add("later", {}, delay=60_000, **opts)
    queue.add("waiting", {}, **opts)
    queue.promote("1")
    equal(queue.redis.state("1"), ["prioritized" if opts else "wait"], "the job is where its options put it")
    equal(queue.redis.field("1", "delay"), "0", "its delay is 0", where="job.delay")
    equal([worker.claim_one(f"token-{n}").id for n in (1, 2)], ["2", "1"], "it can be claimed, after the waiting ones")


@pytest.mark.parametrize("place", ["wait", "paused"])
@scenario("getters.promote", tier="full", bullmq="<6")
@also_in_core("paused | wait")
def test_promoting_drops_the_marker_of_a_former_version(client: Participant, place: str) -> None:
    """Before version 5 a marker was an element of the list: it is dropped, and no job with it."""
    queue = client.queue()
    if place == "paused":
        queue.pause()
    queue.add("late", {}, delay=60_000)
    queue.add("waiting")
    queue.redis.push_left(place, "0:60000")
    queue.promote("1")
    equal(queue.redis.elements(place), ["1", "2"], "both jobs wait, and no marker")


@scenario("getters.promote.wrong-state")
def test_only_delayed_jobs_are_promoted(client: Participant) -> None:
    """A waiting job cannot be promoted."""
    queue = client.queue()
    queue.add("waiting")
    with client.refuses("wrong-state", "a waiting job cannot be promoted"):
        queue.promote("1")
    equal(queue.redis.elements("wait"), ["1"], "the job waits once")


@scenario("getters.change-delay")
def test_changing_a_delay(client: Participant) -> None:
    """The new delay counts from now."""
    queue = client.queue()
    queue.add("later", {}, delay=60_000)
    queue.add("waiting")
    client.pass_time(50)
    queue.call(job_ops.ChangeDelay(job="1", delay_ms=5000))
    due = (queue.redis.score("delayed", "1") or 0) / 4096
    between(due - client.clock.now_ms(), 4000, 5001, "the new delay counts from now")
    equal(queue.redis.field("1", "delay"), "5000", "the hash holds the new delay", where="job.delay")
    with client.refuses("wrong-state", "a waiting job has no delay to change"):
        queue.call(job_ops.ChangeDelay(job="2", delay_ms=5000))


@pytest.mark.parametrize(("before", "after"), [(0, 5), (5, 0), (5, 2), (5, 5)])
@scenario("getters.change-priority", "getters.job.fields")
def test_changing_a_priority(client: Participant, before: int, after: int) -> None:
    """The job moves to where its new priority belongs."""
    queue = client.queue()
    queue.add("moving", {}, priority=before)
    queue.add("other", {}, priority=5)
    queue.add("plain")
    queue.call(job_ops.ChangePriority(job="1", priority=after))
    equal(queue.redis.state("1"), ["prioritized" if after else "wait"], "the job is where its priority belongs")
    if not after:
        equal(queue.redis.elements("wait"), ["1", "3"], "it waits behind the jobs that already wait")
    equal(queue.redis.field("1", "priority"), str(after), "the hash holds the priority", where="job.priority")
    # Compared with Node: a job that is read back has the new priority too.
    queue.job("1")


@pytest.mark.parametrize("delayed", [False, True], ids=["keep-delayed", "with-delayed"])
@scenario("getters.drain")
def test_draining(client: Participant, delayed: bool) -> None:
    """Only jobs that have not started are removed."""
    queue, _ = _one_of_each(client)
    queue.call(queue_ops.Drain(delayed=delayed))
    left = [number for number in range(1, 8) if queue.redis.exists(str(number))]
    equal(left, [1, 2, 3] if delayed else [1, 2, 3, 6], "the waiting jobs are gone")


@pytest.mark.parametrize("state", ["completed", "failed", "wait", "delayed", "prioritized"])
@scenario("getters.clean")
def test_cleaning_a_state(client: Participant, state: Any) -> None:
    """Cleaning takes one state and leaves the others."""
    queue, _ = _one_of_each(client)
    client.pass_time(50)
    cleaned = queue.call(queue_ops.Clean(grace_ms=0, limit=100, type=state)).ids
    expected = {"completed": ["1"], "failed": ["2"], "wait": ["4", "5"], "delayed": ["6"], "prioritized": ["7"]}[state]
    equal(sorted(cleaned), expected, "the jobs of this state are cleaned")
    equal([queue.redis.exists(job) for job in expected], [False] * len(expected), "their hashes are gone")


@scenario("getters.clean", "lifecycle.leaves-nothing")
def test_cleaning_takes_the_log_too(client: Participant) -> None:
    """Nothing of a cleaned job is left."""
    queue, worker = client.queue(), client.worker()
    queue.add("done")
    queue.log("1", "a row")
    worker.complete(worker.claim_one().id)
    client.pass_time(20)
    queue.call(queue_ops.Clean(grace_ms=0, limit=10))
    equal((queue.redis.exists("1"), queue.redis.exists("1:logs")), (False, False), "hash and log are gone")


@scenario("getters.clean")
def test_cleaning_respects_grace_and_limit(client: Participant) -> None:
    """Young jobs stay, and the oldest go first."""
    queue, worker = client.queue(), client.worker()
    for number in range(4):
        queue.add(f"job {number}")
        worker.complete(worker.claim_one().id)
        client.pass_time(10)
    equal(queue.call(queue_ops.Clean(grace_ms=3_600_000, limit=100)).ids, [], "young jobs stay")
    cleaned = queue.call(queue_ops.Clean(grace_ms=0, limit=2)).ids
    equal(sorted(cleaned), ["1", "2"], "the oldest two are cleaned")


@scenario("getters.obliterate")
def test_obliterating(client: Participant) -> None:
    """Active jobs protect a queue, unless it is forced."""
    queue, _ = _one_of_each(client)
    with client.refuses("other", "a queue with an active job is not obliterated"):
        queue.call(queue_ops.Obliterate())
    queue.call(queue_ops.Obliterate(force=True))
    left = [
        name
        for name in ("wait", "paused", "active", "delayed", "completed", "failed", "meta", "id", "events", "3")
        if queue.redis.exists(name)
    ]
    equal(left, [], "nothing of the queue is left")


@scenario("getters.obliterate")
def test_obliterating_an_idle_queue(client: Participant) -> None:
    """Without active jobs no force is needed."""
    queue = client.queue()
    queue.add("waiting")
    queue.add("later", {}, delay=60_000)
    queue.call(queue_ops.Obliterate())
    equal(queue.redis.value("1"), None, "the jobs are gone")


BARE_HASHES: dict[str, dict[str, str]] = {
    "name-and-data": {"name": "bare", "data": '{"n":1}'},
    "name-only": {"name": "bare"},
    "data-only": {"data": '{"n":1}'},
    "empty-texts": {"name": "", "data": "", "opts": "", "timestamp": "", "delay": "", "priority": ""},
    "no-numbers": {"name": "bare", "data": "{}", "timestamp": "soon", "delay": "long", "priority": "high"},
    "fractions": {"name": "bare", "data": "{}", "timestamp": "1700000000000.7", "delay": "5.9", "priority": "3.9"},
    "no-stack-traces": {"name": "bare", "data": "{}", "stacktrace": "oops"},
    "foreign-fields": {"name": "bare", "data": "{}", "opts": "{}", "colour": "blue", "attemptsMade": "2"},
}
"""Job hashes that Node never writes, but reads."""


@pytest.mark.parametrize("fields", list(BARE_HASHES.values()), ids=list(BARE_HASHES))
@scenario(
    "getters.job.missing-fields",
    without={
        "required-fields": "the scenario stores a job without them",
        "numbers": "the scenario stores other texts in fields of numbers",
        "times": "the scenario stores other texts in fields of times",
        "json-texts": "the scenario stores texts that are not JSON",
    },
)
def test_incomplete_jobs_are_read_and_run(client: Participant, fields: dict[str, str]) -> None:
    """Missing fields have their defaults, and the job is run like any other."""
    queue, worker = client.queue(), client.worker()
    queue.add("complete")
    queue.redis.delete("1")
    for field, value in fields.items():
        queue.redis.set_field("1", field, value, of_lost_job=True)
    # Not compared: `getters.job.fields`, a MUST, does not decide whether a text counts as a number.
    with client.transcript.not_compared():
        seen = queue.job("1")
    read = (seen.name, json.loads(seen.data_raw), seen.opts.get("attempts", 0)) if seen else None
    wanted = (fields.get("name", ""), json.loads(fields.get("data") or "{}"), 0)
    equal(read, wanted, "the job is read with defaults")
    with client.transcript.not_compared():
        claimed = worker.claim_one()
    equal(claimed.name, fields.get("name", ""), "it is handed to a worker")
    worker.complete("1", {"ok": True})
    equal(queue.redis.state("1"), ["completed"], "it is completed")


@pytest.mark.parametrize("by", ["queue", "job"])
@scenario("getters.state")
def test_a_job_is_asked_where_it_is(client: Participant, by: str) -> None:
    """The job says what its queue says."""
    queue, _ = _one_of_each(client)
    states = [queue.state(job) if by == "queue" else queue.call(job_ops.GetState(job=job)).state for job in "123467"]
    equal(
        states, ["completed", "failed", "active", "waiting", "delayed", "prioritized"], "each is where it was brought"
    )


@scenario("getters.workers-unlisted", compare=False)
def test_a_redis_that_lists_no_connections(client: Participant) -> None:
    """Hosted ones do not know CLIENT LIST: Node then returns one worker, which says why."""
    queue = client.queue()
    queue.add()
    listing = client.tap.error(
        "ERR unknown command `client`", "CLIENT", call=None, where=lambda command: command.args[1].upper() == b"LIST"
    )
    # Not compared: a client that returns no workers is as good.
    with listing, client.transcript.not_compared():
        queue.call(queue_ops.GetWorkers())
        queue.call(queue_ops.GetWorkersCount())


@scenario("lifecycle.remove.locked", "lifecycle.remove.waiting")
def test_a_job_removes_itself(client: Participant) -> None:
    """Without a lock it is gone; with one it stays."""
    queue, _ = _one_of_each(client)
    queue.call(job_ops.RemoveJob(job="4"))
    equal(queue.redis.exists("4"), False, "the waiting job is gone")
    with client.refuses("lock-mismatch", "the active job is locked"):
        queue.call(job_ops.RemoveJob(job="3"))
    equal(queue.redis.state("3"), ["active"], "it stays")
