"""Metrics: finished jobs per minute. Points are stored when the first job of a new minute is finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.driver.ops import queue as queue_ops
from conformance.participants.clock import MINUTE_MS, one_minute
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant

ENOUGH_MS = 8_000
"""Time (ms) that a scenario needs within one minute: on a running clock no minute may end during its steps."""

LONG_PAUSE = 7001
"""Minutes, one more than the elements of one LPUSH."""

COMPLETED, FAILED = "metrics:completed", "metrics:failed"


@contextmanager
def _opened(client: Participant, *, points: int = 10) -> Iterator[tuple[QueueHandle, WorkerHandle]]:
    """A queue, and a worker that keeps this many points. Both are used within one minute."""
    # Otherwise a minute could end between two steps, and store a point too many.
    with one_minute(client.clock, needs_ms=ENOUGH_MS):
        yield client.queue(), client.worker(metrics={"maxDataPoints": points})


def _complete(queue: QueueHandle, worker: WorkerHandle, **opts: Any) -> None:
    queue.add("work", {}, **opts)
    worker.complete(worker.claim_one().id)


def _fail(queue: QueueHandle, worker: WorkerHandle, **opts: Any) -> None:
    queue.add("doomed", {}, **opts)
    worker.fail(worker.claim_one().id)


def _minutes_pass(client: Participant, queue: QueueHandle, minutes: int) -> None:
    """Let whole minutes pass, or go back. On a running clock, move the time of the last point instead."""
    if client.clock.frozen:
        client.pass_time(minutes * MINUTE_MS)
        return
    for name in (COMPLETED, FAILED):
        # The script compares minutes of the last point with now, so an older point has the same effect.
        before = queue.redis.field(name, "prevTS")
        if before is not None:
            queue.redis.set_field(name, "prevTS", str(int(before) - minutes * MINUTE_MS))


@pytest.mark.parametrize("variables", [None, {"region": "north"}], ids=["plain", "labelled"])
@scenario("metrics.prometheus", compare=False)
def test_counts_for_prometheus(client: Participant, variables: dict[str, str] | None) -> None:
    """Each state of the queue is a line of the text, with the labels of the user."""
    queue, worker = client.queue(), client.worker()
    queue.add("done")
    worker.complete(worker.claim_one().id)
    queue.add("waits")
    text = queue.call(queue_ops.ExportPrometheusMetrics(variables=variables)).value or ""
    labels = ', region="north"' if variables else ""
    for state, count in (("waiting", 1), ("completed", 1), ("failed", 0)):
        line = f'bullmq_job_count{{queue="q", state="{state}"{labels}}} {count}'
        holds(line in text.splitlines(), f"there is a line for {state}", seen=text)


@scenario("metrics.prometheus", compare=False, bullmq=">=5.76.3")
def test_totals_for_prometheus(client: Participant) -> None:
    """Jobs that were removed at their end are counted as well."""
    with _opened(client) as (queue, worker):
        for _ in range(2):
            _complete(queue, worker, removeOnComplete=True)
        _fail(queue, worker)
        text = queue.call(queue_ops.ExportPrometheusMetrics()).value or ""
    for line in ('bullmq_job_completed_total{queue="q"} 2', 'bullmq_job_failed_total{queue="q"} 1'):
        holds(line in text.splitlines(), "the text has the totals", seen=text)


@scenario("metrics.off")
def test_nothing_is_counted_without_metrics(client: Participant) -> None:
    """Metrics are written by workers that were asked to."""
    queue, worker = client.queue(), client.worker()
    _complete(queue, worker)
    _fail(queue, worker)
    equal([queue.redis.exists(name) for name in (COMPLETED, FAILED)], [False, False], "there are no metrics")


@scenario("metrics.counted")
def test_every_finish_is_counted(client: Participant) -> None:
    """Completed and failed jobs are counted apart, each once."""
    with _opened(client) as (queue, worker):
        _complete(queue, worker)
        _complete(queue, worker, removeOnComplete=True)
        _fail(queue, worker, attempts=2)
        equal(queue.redis.exists(FAILED), False, "a failure that is retried is not counted")
        worker.fail(worker.claim_one().id)
        equal(queue.redis.field(COMPLETED, "count"), "2", "completed jobs are counted, kept or not")
        equal(queue.redis.field(FAILED, "count"), "1", "failed jobs are counted apart")
        equal(queue.redis.elements(f"{COMPLETED}:data"), [], "the first minute is not over, and so has no point")


@scenario("metrics.counted")
def test_a_finish_that_fetches_is_counted(client: Participant) -> None:
    """Claiming the next job in the same step makes no difference."""
    with _opened(client) as (queue, worker):
        for _ in range(3):
            queue.add("work")
        worker.claim_one()
        for number in range(1, 4):
            worker.complete(str(number), fetch_next=True)
        equal(queue.redis.field(COMPLETED, "count"), "3", "three jobs are counted")


@scenario("metrics.counted", "metrics.off")
def test_each_worker_counts_its_own(client: Participant) -> None:
    """Workers with and without metrics can work on one queue."""
    with _opened(client) as (queue, counting):
        _complete(queue, counting)
        _complete(queue, client.worker())
        _complete(queue, client.worker(metrics={"maxDataPoints": 2}))
        equal(queue.redis.field(COMPLETED, "count"), "2", "two of three finishes are counted")


@pytest.mark.parametrize(
    ("minutes", "points"),
    [
        ([0, 0], []),
        ([0, 1], ["1"]),
        ([0, 0, 0, 1], ["3"]),
        ([0, 1, 1], ["1", "1"]),
        ([0, 0, 1, 0, 4], ["0", "0", "0", "2", "2"]),
        ([0, 0, -1, 0, 1], []),
        ([0, 0, -2, 3], ["3"]),
    ],
    ids=["same-minute", "next", "three-then-next", "each", "pause", "backwards", "back-and-forth"],
)
@scenario("metrics.points")
def test_a_new_minute_stores_a_point(client: Participant, minutes: list[int], points: list[str]) -> None:
    """`minutes` pass before each finish; the newest point comes first."""
    with _opened(client) as (queue, worker):
        for passed in minutes:
            _minutes_pass(client, queue, passed)
            _complete(queue, worker)
        equal(queue.redis.elements(f"{COMPLETED}:data"), points, "the points are those of the minutes that are over")
        stored = queue.redis.hash(COMPLETED)
        in_points = sum(map(int, points))
        equal(
            (stored["count"], stored["prevCount"]),
            (str(len(minutes)), str(in_points)),
            "all finishes are counted, and separately those in points",
        )


@pytest.mark.parametrize(
    ("minutes", "points"),
    [([0, 1, 1, 1, 1], ["1", "1", "1"]), ([0, 1, 1000], ["0", "0", "1"]), ([0, 1, 1, 2], ["0", "1", "1"])],
    ids=["too-many-points", "too-long-a-pause", "both"],
)
@scenario("metrics.trimmed")
def test_old_points_are_dropped(client: Participant, minutes: list[int], points: list[str]) -> None:
    """Three points are kept, the newest."""
    with _opened(client, points=3) as (queue, worker):
        for passed in minutes:
            _minutes_pass(client, queue, passed)
            _fail(queue, worker)
        equal(queue.redis.elements(f"{FAILED}:data"), points, "the newest three points are kept")


@scenario("metrics.trimmed", tier="full")
def test_a_pause_has_a_point_for_each_minute(client: Participant) -> None:
    """Also one that is longer than the number of elements that Redis takes in one call."""
    with _opened(client, points=LONG_PAUSE) as (queue, worker):
        _fail(queue, worker)
        _minutes_pass(client, queue, LONG_PAUSE)
        _fail(queue, worker)
        points = queue.redis.elements(f"{FAILED}:data")
        equal(
            (len(points), points[-1]), (LONG_PAUSE, "1"), "as many points as minutes; the oldest counts the first job"
        )


@scenario("metrics.read")
def test_metrics_are_read_by_page(client: Participant) -> None:
    """Pages start at the newest point; the count is that of all points."""
    with _opened(client) as (queue, worker):
        for passed in (0, 1, 1, 2, 1):
            _minutes_pass(client, queue, passed)
            _complete(queue, worker)
        everything = queue.call(queue_ops.GetMetrics(type="completed"))
        equal((everything.data, everything.count), ([1, 0, 1, 1, 1], 5), "all points come, the newest first")
        equal((everything.meta["count"], everything.meta["prevCount"]), (5, 4), "the counters come with them")
        page = queue.call(queue_ops.GetMetrics(type="completed", start=1, end=2))
        equal((page.data, page.count), ([0, 1], 5), "a page has its points and the number of all")


@scenario("metrics.read")
def test_metrics_that_are_not_there(client: Participant) -> None:
    """Nothing was counted yet."""
    found = client.queue().call(queue_ops.GetMetrics(type="failed"))
    equal((found.data, found.count, found.meta.get("count")), ([], 0, 0), "there are no points, and nothing is counted")


@scenario("metrics.removed")
def test_metrics_end_with_the_queue(client: Participant) -> None:
    """Counting is about what happened, not about what is kept."""
    with _opened(client) as (queue, worker):
        for passed in (0, 1):
            _minutes_pass(client, queue, passed)
            _complete(queue, worker)
        client.pass_time(20)
        queue.call(queue_ops.Clean(grace_ms=0, limit=0))
        equal(queue.redis.field(COMPLETED, "count"), "2", "cleaning leaves the metrics")
        queue.call(queue_ops.Obliterate())
        equal(
            [queue.redis.exists(name) for name in (COMPLETED, f"{COMPLETED}:data")],
            [False] * 2,
            "obliterating does not",
        )


@scenario("metrics.points")
def test_a_point_is_for_a_minute_of_the_clock(client: Participant) -> None:
    """A minute ends with the clock, and not 60 s after the last finish."""
    with _opened(client) as (queue, worker):
        _complete(queue, worker)
        _end_the_minute(queue)
        _complete(queue, worker)
        equal(len(queue.redis.elements(f"{COMPLETED}:data")), 1, "the minute before is over, and has its point")


@scenario("metrics.points", clock="real")
def test_a_running_worker_stores_a_point_for_a_minute_of_the_clock(client: Participant) -> None:
    """A worker that runs by itself counts the minutes in the same way."""
    with one_minute(client.clock, needs_ms=ENOUGH_MS):
        queue, worker = client.queue(), client.worker("noop", metrics={"maxDataPoints": 10})
        worker.wait_local("completed", queue.add("first"))
        _end_the_minute(queue)
        worker.wait_local("completed", queue.add("second"))
        equal(len(queue.redis.elements(f"{COMPLETED}:data")), 1, "the minute before is over, and has its point")
        worker.close()


def _end_the_minute(queue: QueueHandle) -> None:
    """As if the last job had finished at the end of the minute before."""
    last = int(queue.redis.field(COMPLETED, "prevTS") or 0)
    queue.redis.set_field(COMPLETED, "prevTS", str(last - last % MINUTE_MS - 1))
