"""The measures. Each measures the client, not the pipe to its driver.

Bulk operations run inside the driver, or inside the client's worker, and are observed in Redis by the server's clock.
From operations that are called job by job, the driver's own part is subtracted: after the calls, the driver gets as
many calls with the same arguments for an unknown operation, which cost the same pipe and the same JSON.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from conformance.driver.messages import Ready
from conformance.driver.ops import Op
from conformance.driver.ops.job import Log, UpdateProgress
from conformance.driver.ops.queue import Add, AddBulk, NewJob
from conformance.driver.ops.worker import CheckStalled, ExtendLock, GetNextJob, MoveToCompleted
from conformance.speed.bare_commands import bare_connection, packed, words_of
from conformance.speed.peers import SpeedHandle, SpeedPeer, SpeedPlace, Unmeasurable

CONCURRENCY = 10
TOKEN = "bench"
LOCK_MS = 60_000
ACTIVE = 10_000
"""Active jobs of a stalled check, by the written specification."""
CHECKS = 5
ROUND_TRIP_MS = 40.0
"""Between client and Redis, as between two regions: the specification names no network. Nearer to Redis, waking the
process of a client takes more than its library: with 1 ms, Node.js itself needs 120 to 138 % of the bare commands."""

OVERHEAD_IN_JOBS = 40
"""Fewer calls for the overhead, each of which takes three round trips."""

JOBS_OF_A_LEAK = 10_000
"""Jobs in which a worker must not grow, by the written specification. As many fill its caches before."""
JOBS_FOR_A_SINGLE_CALL = 10
"""Fewer jobs for calls job by job: each of them crosses the pipe four times."""


@dataclass(frozen=True, kw_only=True)
class SpeedMeasure:
    """One measure. `needs`: operations and capabilities that a driver has to declare for it.

    `take`: takes one measurement with this many jobs, in `unit`. `more_is_better`: the direction.
    `timed`: whether a busy machine changes it.
    """

    name: str
    meaning: str
    unit: str
    needs: frozenset[str]
    take: Callable[[SpeedPeer, int], float]
    more_is_better: bool = False
    timed: bool = True

    def lacking(self, ready: Ready) -> list[str]:
        """Needed operations and capabilities that a driver does not declare."""
        return sorted(self.needs - {*ready.ops, *ready.capabilities})

    def ratio(self, client: float, oracle: float) -> float:
        """The client's part of what the oracle does: 0.5 is half as fast, or twice the memory."""
        return client / oracle if self.more_is_better else oracle / client


def _worker(peer: SpeedPeer, jobs: int) -> float:
    """From a tenth of the jobs to all of them: connecting, and loading the scripts, does not count."""
    with peer.place() as place:
        place.add(jobs)
        peer.open(place, "worker", "noop", concurrency=CONCURRENCY)
        started, first = place.wait_for(max(1, jobs // 10))
        ended, last = place.wait_for(jobs)
        if last == first:
            raise Unmeasurable(f"{jobs} jobs are finished too soon to be measured: give more --jobs")
        return (last - first) / (ended - started)


def _add_bulk(peer: SpeedPeer, jobs: int) -> float:
    call = AddBulk(jobs=[NewJob(name="bench", data_raw='{"a":1}') for _ in range(jobs)])
    with peer.place() as place:
        queue = peer.open(place, "queue")
        queue.timed(AddBulk(jobs=call.jobs[:1]))  # connects, and loads the script
        _, took_s = queue.timed(call)
        return jobs / _without_driver(queue, call, [took_s])


def _overhead(peer: SpeedPeer, jobs: int) -> float:
    """An add, in percent of the time of its bare commands; in turns, so that all meet the same machine."""
    call = Add(name="bench", data_raw='{"a":1}')
    arguments, adds, bare, parts = msgspec.to_builtins(call), [], [], []
    with peer.place() as place, peer.distant(ROUND_TRIP_MS / 2) as point:
        queue = peer.open(place, "queue", address=point.address)
        queue.timed(call)  # connects, and loads the script
        assert point.tap is not None
        mark = point.tap.recording.mark()
        queue.timed(call)
        try:
            words = words_of(point.tap.recording.commands(after=mark))
        except ValueError as error:
            raise Unmeasurable(str(error)) from error
        with bare_connection(point.address) as by_hand:
            by_hand.took_s(packed(words), len(words))
            for _ in range(max(5, jobs // OVERHEAD_IN_JOBS)):
                adds.append(queue.timed(call)[1])
                bare.append(by_hand.took_s(packed(words), len(words)))
                # The driver slept for as long before `add`: a process that has just run answers several times as fast.
                time.sleep(ROUND_TRIP_MS / 1000)
                parts.append(queue.driver_part(arguments))
        own_s = statistics.median(adds) - statistics.median(parts)
        return 100 * own_s / statistics.median(bare)


def _pickup(peer: SpeedPeer, jobs: int) -> float:
    """The mean of many pickups: a single one is only known to the ms, their sum is more precise."""
    with peer.place() as place:
        peer.open(place, "worker", "noop")
        count = _single_calls(jobs)
        for number in range(1, count + 1):
            place.add(1)
            place.wait_for(number)
        return _mean_pickup(place)


def _mean_pickup(place: SpeedPlace) -> float:
    waiting, active = place.events("waiting"), place.events("active")
    times = [active[job] - since for job, since in waiting.items() if job in active]
    if not times:
        raise Unmeasurable("the event stream has no `active` of these jobs")
    if not sum(times):
        raise Unmeasurable("every pickup took less than a ms: give more --jobs")
    return statistics.fmean(times)


def _claim(peer: SpeedPeer, jobs: int) -> float:
    with _worker_by_hand(peer, jobs) as worker:
        _, took_ms = _claimed(worker, _single_calls(jobs))
        return took_ms


def _extend(peer: SpeedPeer, jobs: int) -> float:
    with _worker_by_hand(peer, jobs) as worker:
        held, _ = _claimed(worker, _single_calls(jobs))
        return _own_part_ms(worker, [ExtendLock(job=job, token=TOKEN, duration_ms=LOCK_MS) for job in held])


def _finish(peer: SpeedPeer, jobs: int) -> float:
    with _worker_by_hand(peer, jobs) as worker:
        held, _ = _claimed(worker, _single_calls(jobs))
        return _own_part_ms(worker, [MoveToCompleted(job=job, token=TOKEN, value_raw="1") for job in held])


def _stalled_check(peer: SpeedPeer, _jobs: int) -> float:
    """A check of `ACTIVE` jobs with living locks, each of which an earlier check has already marked."""
    with peer.place() as place:
        worker = peer.open(place, "worker", "manual", lockDuration=LOCK_MS)
        place.activate(ACTIVE)
        call, times = CheckStalled(), []
        for _ in range(CHECKS + 1):
            # Otherwise the check would be left out: only one is made within an interval.
            place.redis.delete(place.key("stalled-check"))
            answer, took_s = worker.timed(call)
            if answer is not None and answer.ids:
                raise Unmeasurable(f"the check recovers {len(answer.ids)} jobs whose locks live")
            times.append(took_s)
        # The first check connects, and marks the jobs.
        return _without_driver(worker, call, times[1:]) * 1000


def _progress(peer: SpeedPeer, jobs: int) -> float:
    return _on_one_job(peer, jobs, lambda number: UpdateProgress(job="1", value_raw=str(number)))


def _log(peer: SpeedPeer, jobs: int) -> float:
    return _on_one_job(peer, jobs, lambda number: Log(job="1", row=f"row {number}"))


def _on_one_job(peer: SpeedPeer, jobs: int, call: Callable[[int], Op[Any]]) -> float:
    with peer.place() as place:
        place.add(1)
        queue = peer.open(place, "queue")
        queue.timed(call(0))  # connects, and loads the script
        return _own_part_ms(queue, [call(number) for number in range(1, _single_calls(jobs) + 1)])


def _memory(peer: SpeedPeer, jobs: int) -> float:
    """Memory of the process after a run of the worker."""
    _worker(peer, jobs)
    return peer.resident_bytes() / 1e6


def _growth(peer: SpeedPeer, _jobs: int) -> float:
    """Memory of a new process after further jobs, in percent of that after its first ones, which fill caches."""
    # Earlier leaks of an old process would make its further growth look small.
    peer.driver.close()
    with peer.place() as place:
        peer.open(place, "worker", "noop", concurrency=CONCURRENCY)
        sizes = []
        for total in (JOBS_OF_A_LEAK, 2 * JOBS_OF_A_LEAK):
            place.add(JOBS_OF_A_LEAK)
            place.wait_for(total)
            sizes.append(peer.resident_bytes())
        return 100 * sizes[1] / sizes[0]


@contextmanager
def _worker_by_hand(peer: SpeedPeer, jobs: int) -> Iterator[SpeedHandle]:
    """A worker without a loop, on a queue with enough jobs; one of them it has claimed already."""
    with peer.place() as place:
        place.add(_single_calls(jobs) + 1)
        worker = peer.open(place, "worker", "manual", lockDuration=LOCK_MS)
        # The first claim connects and loads the script, which is not what is measured.
        worker.timed(GetNextJob(token=TOKEN))
        yield worker


def _claimed(worker: SpeedHandle, count: int) -> tuple[list[str], float]:
    """Claim this many jobs: returns their ids, and how long one claim takes the client (ms)."""
    call = GetNextJob(token=TOKEN)
    claims = [worker.timed(call) for _ in range(count)]
    held = [answer.job.id for answer, _ in claims if answer is not None and answer.job is not None]
    if len(held) < count:
        raise Unmeasurable(f"{count - len(held)} of {count} claims found no job")
    return held, _without_driver(worker, call, [took_s for _, took_s in claims]) * 1000


def _own_part_ms(handle: SpeedHandle, calls: Sequence[Op[Any]]) -> float:
    """How long one of these calls takes the client (ms)."""
    times = [handle.timed(call)[1] for call in calls]
    return _without_driver(handle, calls[0], times) * 1000


def _without_driver(handle: SpeedHandle, call: Op[Any], times: Sequence[float]) -> float:
    """The median of these times (s) without the driver's own part, which is measured as often right after them."""
    arguments = msgspec.to_builtins(call)
    # Right after the calls, so that both are measured under the same load of the machine.
    driver_part = statistics.median(handle.driver_part(arguments) for _ in times)
    # Medians, because a single pause of the garbage collector would dominate a mean.
    own = statistics.median(times) - driver_part
    if own <= 0:
        raise Unmeasurable("the machine's own noise is more than what the client takes")
    return own


def _single_calls(jobs: int) -> int:
    return max(5, jobs // JOBS_FOR_A_SINGLE_CALL)


MEASURES: tuple[SpeedMeasure, ...] = (
    SpeedMeasure(
        name="worker",
        meaning=f"empty jobs through the client's own loop, concurrency {CONCURRENCY}",
        unit="jobs/s",
        needs=frozenset({"managed-worker"}),
        take=_worker,
        more_is_better=True,
    ),
    SpeedMeasure(
        name="addBulk",
        meaning="Queue.addBulk, all jobs in one call",
        unit="jobs/s",
        needs=frozenset({"queue.addBulk"}),
        take=_add_bulk,
        more_is_better=True,
    ),
    SpeedMeasure(
        name="overhead",
        meaning=f"Queue.add, in percent of its bare commands; a round trip takes {ROUND_TRIP_MS:g} ms",
        unit="%",
        needs=frozenset({"queue.add"}),
        take=_overhead,
    ),
    SpeedMeasure(
        name="pickup",
        meaning="from `waiting` to `active`, with an idle worker",
        unit="ms",
        needs=frozenset({"managed-worker"}),
        take=_pickup,
    ),
    SpeedMeasure(
        name="claim",
        meaning="Worker.getNextJob",
        unit="ms",
        needs=frozenset({"manual-worker", "worker.getNextJob"}),
        take=_claim,
    ),
    SpeedMeasure(
        name="finish",
        meaning="Job.moveToCompleted",
        unit="ms",
        needs=frozenset({"manual-worker", "worker.getNextJob", "worker.moveToCompleted"}),
        take=_finish,
    ),
    SpeedMeasure(
        name="extend",
        meaning="Job.extendLock",
        unit="ms",
        needs=frozenset({"manual-worker", "worker.getNextJob", "worker.extendLock"}),
        take=_extend,
    ),
    SpeedMeasure(
        name="stalled-check",
        meaning=f"a stalled check of {ACTIVE:,} active jobs with living locks",
        unit="ms",
        needs=frozenset({"manual-worker", "worker.checkStalled"}),
        take=_stalled_check,
    ),
    SpeedMeasure(
        name="progress",
        meaning="Job.updateProgress",
        unit="ms",
        needs=frozenset({"job.updateProgress"}),
        take=_progress,
    ),
    SpeedMeasure(name="log", meaning="Job.log", unit="ms", needs=frozenset({"job.log"}), take=_log),
    SpeedMeasure(
        name="memory",
        meaning="resident memory of the driver after a run of its worker",
        unit="MB",
        needs=frozenset({"managed-worker"}),
        take=_memory,
        timed=False,
    ),
    SpeedMeasure(
        name="growth",
        meaning=f"memory after {JOBS_OF_A_LEAK:,} jobs more, in percent of that after the first {JOBS_OF_A_LEAK:,}",
        unit="%",
        needs=frozenset({"managed-worker"}),
        take=_growth,
        timed=False,
    ),
)
"""All measures, in the order in which they are taken."""

MEASURE_NAMES = tuple(measure.name for measure in MEASURES)
