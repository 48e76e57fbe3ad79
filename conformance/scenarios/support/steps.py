"""Steps that scenarios of several areas share: filling a queue and waiting for it, flows, schedulers, rate limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from math import ceil
from operator import le
from typing import Any

from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops.base import JobView
from conformance.participants.expect import Mismatch, equal, holds
from conformance.participants.handles import FlowHandle, QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView

# Queues and their jobs.

ENDINGS = ("completed", "failed")
"""Events of jobs that leave `active` finally."""
FAILING = "row.lifecycle.fail.moves"
"""The requirement that fails if nothing is shown because a job does not fail."""


def fill(queue: QueueHandle, jobs: int) -> None:
    """Add plain jobs; their ids count from 1."""
    for number in range(1, jobs + 1):
        queue.add(f"job {number}")


MOST_CLAIMS = 100
"""More jobs than any scenario has that claims until nothing is left."""


def claimed_until_empty(worker: WorkerHandle, token: str = "token-1") -> Iterator[JobView]:
    """Claim job after job until none is left. Raises Mismatch where there is always another one."""
    for _ in range(MOST_CLAIMS):
        job = worker.claim(token)
        if job is None:
            return
        yield job
    raise Mismatch("the queue runs empty", expected=f"at most {MOST_CLAIMS} jobs", actual="there is always another one")


def wait_for_finished(
    participant: Participant, jobs: int, *, state: str = "completed", within_ms: int = 15_000
) -> RedisView:
    """Wait until at least this many jobs are finished; `within_ms` is for each quarter of them.

    A deadline per quarter lets a slow machine finish many jobs, and still detects a stopped client early.
    """
    view = participant.redis()
    # Quarters: a client that stops is detected after one of them and not after the time for all jobs.
    for quarter in sorted({ceil(jobs * part / 4) for part in (1, 2, 3, 4)}):
        participant.eventually(
            lambda: len(view.members(state)),
            partial(le, quarter),
            f"{jobs} jobs are {state}",
            within_ms=within_ms,
            where=FAILING if state == "failed" else "",
        )
    return view


def wait_for_all_completed(client: Participant, jobs: int) -> None:
    """Wait until exactly this many jobs are completed."""
    # Read after the wait: one job too many shows only then.
    completed = len(wait_for_finished(client, jobs).members("completed"))
    equal(completed, jobs, "nothing but these jobs is completed")


def ran_once(queue: QueueHandle, *jobs: str) -> None:
    """No job was handed out again. Without an event `active` it was not either: that is a requirement of its own."""
    again = [job for job in jobs if queue.redis.runs(job) > 1]
    equal(again, [], "no job ran again")


def lives_for(redis: RedisView, job: str, duration_ms: int) -> None:
    """The lock of the job ends in time: else no other worker gets the job of one that is gone."""
    left_ms = redis.ttl_ms(f"{job}:lock")
    # -2 of a lock that has expired meanwhile; -1 of one that never does.
    in_time = left_ms == -2 or 0 <= left_ms <= duration_ms
    holds(in_time, f"the lock lives for {duration_ms} ms", seen=left_ms, where="row.lock.duration", certain=True)


def most_at_once(redis: RedisView) -> int:
    """The largest number of active jobs: scripts are atomic, so the stream has every change in its order."""
    active = most = 0
    for name in redis.event_names():
        active += (name == "active") - (name in ENDINGS)
        most = max(most, active)
    return most


def echoed(client: Participant) -> str:
    """The data of job 1, as it comes back from a processor that returns what it got."""
    client.worker("echo")
    view = wait_for_finished(client, 1)
    return view.field("1", "returnvalue") or ""


def check_stalled_again(queue: QueueHandle, worker: WorkerHandle) -> list[str]:
    """One more stalled check, as after `stalledInterval`; ids of the jobs that it puts back."""
    # As long as `stalled-check` lives, a check does nothing: it throttles all workers together.
    queue.redis.delete("stalled-check")
    return worker.check_stalled()


def let_stall(queue: QueueHandle, worker: WorkerHandle, job: str) -> list[str]:
    """Lose the lock of an active job, and make the two checks after which it is put back."""
    # Deleted instead of waited for: an expired lock is a missing key.
    queue.redis.delete(f"{job}:lock")
    # Two checks: the first only marks what is active, the second takes what has no lock.
    return check_stalled_again(queue, worker) + check_stalled_again(queue, worker)


# Flows.


def node(name: str, *children: dict[str, Any], queue: str = "q", **opts: Any) -> dict[str, Any]:
    """A job of a flow whose id is its name."""
    own = {"jobId": name, **opts}
    return {"name": name, "queue": queue, "data_raw": json.dumps({"n": name}), "opts": own, "children": list(children)}


def with_option(option: str) -> dict[str, Any]:
    """The option as arguments of `node`."""
    return {option: True}


def open_flow_handles(client: Participant) -> tuple[FlowHandle, QueueHandle, WorkerHandle]:
    """A flow producer, and a queue with a worker that is driven step by step."""
    return client.flow(), client.queue(), client.worker()


def run_next(worker: WorkerHandle, job: str, value: Any = None) -> None:
    """Claim the next job, which must be this one, and complete it."""
    equal(worker.claim_one().id, job, f"{job} is the next to run")
    worker.complete(job, value)


def children_of(queue: QueueHandle, job: str, kind: str) -> list[str]:
    """Ids of the children in one of the keys of a parent."""
    view = queue.redis
    key = f"{job}:{kind}"
    members = {"zset": view.members, "hash": lambda name: list(view.hash(name)), "set": view.set_members}
    return sorted(member.rpartition(":")[2] for member in members.get(view.type(key), lambda _: [])(key))


def add_child(queue: QueueHandle, parent: str, above: QueueHandle | None = None, **opts: Any) -> None:
    """Add a child of a job that is there already, in this queue or the one above; from then on it is waited for."""
    above = above or queue
    child = queue.add("child", {}, parent={"id": parent, "queue": above.redis.base[:-1]}, **opts)
    linked = children_of(above, parent, "dependencies")
    holds(child in linked, "the parent waits for its child", seen=linked, where="row.flow.child.linked")


# Job schedulers.

HOUR_MS = 3_600_000
YEARLY = {"pattern": "0 0 1 1 *", "tz": "UTC"}
START_MS = 2_000_000_000_000
"""A start of schedulers in 2033 (Unix ms): the same for both sides, as one counted from a clock that runs is not."""


def due_of(queue: QueueHandle, scheduler: str = "s") -> int:
    """When the next job is due (Unix ms), as Redis has it."""
    score = queue.redis.score("repeat", scheduler)
    holds(score is not None, f"`repeat` holds the scheduler {scheduler}", seen=queue.redis.zset("repeat"))
    return int(score or 0)


def current_job(queue: QueueHandle, scheduler: str = "s") -> str:
    """Id of the job that is due next."""
    return f"repeat:{scheduler}:{due_of(queue, scheduler)}"


def required(job: JobView | None) -> JobView:
    """Return a job that must be there."""
    holds(job is not None, "the answer is the next job", seen=job)
    assert job is not None
    return job


def claim_current_job(queue: QueueHandle, worker: WorkerHandle, scheduler: str = "s") -> str:
    """Make the scheduler's next job run now, and claim it."""
    job = current_job(queue, scheduler)
    # An iteration that is due later must not make the scenario wait.
    if queue.redis.state(job) == ["delayed"]:
        queue.promote(job)
    equal(worker.claim_one().id, job, "the scheduler's job is the next to run")
    return job


def claim_with_successor(queue: QueueHandle, worker: WorkerHandle) -> str:
    """Claim the scheduler's next job like `claim_current_job`; the claim makes the one after it."""
    job = claim_current_job(queue, worker)
    successor = current_job(queue)
    holds(successor != job, "there is a next job", seen=successor, where="row.scheduler.next")
    return job


# Rate limits.

MINUTE_MS = 60_000
OF_LIMIT = {"queue": "row.ratelimit.queue-wide", "worker": ""}
"""By whose limit it is: the requirement that fails if a client ignores it, which shows nothing else about limits."""
FULL_WINDOW = "9007199254740991"
"""What `rateLimit()` stores: the largest integer that JavaScript counts exactly, so that every limit is reached."""


def limit_queue(queue: QueueHandle, most: int, duration_ms: int = MINUTE_MS) -> None:
    """Limit the queue as a whole, in `meta`."""
    queue.call(queue_ops.SetGlobalRateLimit(max=most, duration_ms=duration_ms))


def apply_limit(whose: str, queue: QueueHandle, most: int, duration_ms: int = MINUTE_MS) -> dict[str, Any]:
    """Limit the queue as a whole (`queue`), or nothing yet (`worker`). Returns the options that its workers need."""
    if whose == "worker":
        return {"limiter": {"max": most, "duration": duration_ms}}
    limit_queue(queue, most, duration_ms)
    return {}


def after_window(client: Participant, queue: QueueHandle, worker: WorkerHandle, **limiter: Any) -> WorkerHandle:
    """The window of a minute is over: the key has expired. Returns a worker that may claim again.

    On a frozen clock the minute passes, and the worker is the same. On a running clock the scenario does not wait for a
    minute: the worker that met the limit remembers its end, so another with the same `limiter` goes on.
    """
    # Deleted, because the TTL is Redis's own time, which no clock of the kit moves.
    queue.redis.delete("limiter")
    if client.clock.frozen:
        client.pass_time(MINUTE_MS)
        return worker
    return client.worker(**limiter)


def window_gaps_ms(redis: RedisView, *, most: int) -> list[int]:
    """The time (ms) from the start of each full window to that of the next, by the stamps of Redis."""
    stamps = [stamp for stamp, entry in redis.stamped_events() if entry["event"] == "active"]
    # Every `most`-th start opens a window, as long as jobs wait.
    return [later - earlier for earlier, later in pairwise(stamps[::most])]


def started_in_windows(redis: RedisView, *, most: int, duration_ms: int, where: str = "") -> None:
    """While jobs wait, every window is used up: its first start and that of the next are `duration_ms` apart.

    A window starts with the script that starts its first job. `processedOn` is from before that script, the event's
    stamp from within it, so that no measured gap is shorter than the real one. Both clocks must be real. Nothing
    is shown by no gap at all, and that fails.
    """
    starts = [(stamp, entry["jobId"]) for stamp, entry in redis.stamped_events() if entry["event"] == "active"]
    gaps = [stamp - int(redis.hash(first)["processedOn"]) for (_, first), (stamp, _) in pairwise(starts[::most])]
    holds(
        gaps and all(gap >= duration_ms for gap in gaps),
        f"at most {most} jobs are started per {duration_ms} ms",
        seen=f"ms between the windows: {gaps}",
        where=where,
    )
    redis.delete("limiter")  # it is about to expire: the two snapshots could differ by chance
