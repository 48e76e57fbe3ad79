"""Scripts that take long, because they walk through everything that there is."""

from __future__ import annotations

import time

from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.proofs.registry import proof

MANY = 1100
"""More than the 1000 that are said to be the limit of every loop."""
CLEARLY = 3
"""How many times as long is a difference that is no chance."""


def _make_active(oracle: Participant, jobs: int) -> tuple[QueueHandle, WorkerHandle]:
    """A queue with so many active jobs, each locked for a minute, and a worker that can check for stalled ones."""
    queue, worker = oracle.queue(), oracle.worker(lockDuration=60_000)
    queue.add_bulk(*(("job", {}, {}) for _ in range(jobs)))
    with oracle.transcript.silent():
        for number in range(1, jobs + 1):
            worker.claim_one(f"token-{number}")
    return queue, worker


def _lose_locks(queue: QueueHandle, jobs: int) -> None:
    for number in range(1, jobs + 1):
        queue.redis.delete(f"{number}:lock")


def _check(queue: QueueHandle, worker: WorkerHandle) -> tuple[int, float]:
    """One stalled check: how many jobs it recovered, and how many ms it took."""
    queue.redis.delete("stalled-check")
    began = time.perf_counter()
    recovered = worker.check_stalled()
    return len(recovered), (time.perf_counter() - began) * 1000


@proof("script.long-loops", clock="real")
def one_check_for_all(oracle: Participant) -> str:
    """Let more than 1000 jobs lose their locks, and check twice."""
    queue, worker = _make_active(oracle, MANY)
    _lose_locks(queue, MANY)
    _check(queue, worker)
    recovered, _ = _check(queue, worker)
    equal(recovered, MANY, "one call of one script recovers them all")
    return f"one call of moveStalledJobsToWait recovered {recovered} jobs"


@proof("performance.stalled-check", clock="real")
def a_check_takes_as_long_as_it_finds(oracle: Participant) -> str:
    """Time a check of jobs whose locks all live, and one of the same jobs when all locks are lost."""
    queue, worker = _make_active(oracle, MANY)
    _check(queue, worker)
    living = min(_check(queue, worker)[1] for _ in range(3))
    _lose_locks(queue, MANY)
    recovered, stalled = _check(queue, worker)
    equal(recovered, MANY, "all of them have stalled")
    holds(stalled > CLEARLY * living, f"that takes more than {CLEARLY} times as long", seen=(living, stalled))
    for_all = stalled / MANY * 10_000
    return f"{living:.1f} ms while {MANY} locks live, {stalled:.1f} ms when all are lost: {for_all:.0f} ms for 10000"
