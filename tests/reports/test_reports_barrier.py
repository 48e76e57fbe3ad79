"""When a load starts, whose clock times it, and who is to blame for being late."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance
from reports.load import barrier as barrier_module
from reports.load.barrier import LEAD_MS, start_barrier, wait_for_start
from reports.load.histograms import Histogram, Latency
from reports.load.production import MICROSECONDS, ProducerWatch
from reports.load.redis_clock import clock_from, read_redis_clock
from reports.load.target import LoadTarget, forget_progress
from reports.load.workload import RampUp, Workload
from tests.reports.test_reports_pages import load_result


def target_on(server: RedisInstance, prefix: str, **changes: Any) -> LoadTarget:
    return LoadTarget(address=server, prefix=prefix, workload=Workload(rate=10, jobs=100), barrier="b", **changes)


def test_no_producer_starts_before_the_last_is_connected(server: RedisInstance, prefix: str) -> None:
    target = target_on(server, prefix, partitions=3)
    told: list[int] = []

    def produce(partition: int) -> None:
        with server.connect() as client:
            told.append(wait_for_start(client, target, partition))

    threads = [threading.Thread(target=produce, args=[number]) for number in range(3)]
    with start_barrier(target) as opened, server.connect() as client:
        for thread in threads[:2]:
            thread.start()
        while client.scard(target.barrier_key) < 2:
            assert not opened.is_open
        before_ms = read_redis_clock(server).now_ms()
        assert (opened.is_open, told) == (False, [])
        threads[2].start()
        for thread in threads:
            thread.join(60)
    assert told == [opened.segments[0].start_ms] * 3
    assert told[0] >= before_ms + LEAD_MS - 5
    forget_progress(target)


def test_a_producer_that_stays_away_ends_the_wait_of_the_others(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier_module, "DEADLINE_S", 0.3)
    target = target_on(server, prefix, partitions=2)
    with (
        start_barrier(target),
        server.connect() as client,
        pytest.raises(EnvironmentProblem, match="1 of 2 producers were connected") as caught,
    ):
        wait_for_start(client, target, 0)
    assert "--partitions" in caught.value.hint
    forget_progress(target)


def test_a_resumed_schedule_goes_on_where_it_broke_off(server: RedisInstance, prefix: str) -> None:
    first = target_on(server, prefix, partitions=2)
    with server.connect() as client:
        for target in (first, replace(first, barrier="c", resume=True)):
            for partition in range(2):
                client.sadd(target.barrier_key, partition)
            with start_barrier(target) as opened:
                assert wait_for_start(client, target, 0) == opened.segments[-1].start_ms
            now_ms = read_redis_clock(server).now_ms()
            client.set(first.progress_key(0), 30)
            client.set(first.progress_key(1), 20)
    assert [segment.done for segment in opened.segments] == [[0, 0], [30, 20]]
    # 20 jobs of the second partition are there: number 41 of the whole load is the next one, due 4.1 s after the start.
    assert abs(opened.segments[1].start_ms + 4100 - now_ms) < LEAD_MS + 5000
    forget_progress(replace(first, barrier="c"))
    forget_progress(first)


def test_the_clock_is_that_of_the_quickest_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    instants = iter([0.0, 1.0, 10.0, 10.002, *(value for n in range(20, 27) for value in (n, n + 0.5))])
    monkeypatch.setattr("reports.load.redis_clock.time.monotonic", lambda: next(instants))
    answers = iter([5.0, 1010.001, *[0.0] * 7])
    assert clock_from(lambda: next(answers)).ahead_s == pytest.approx(1000.0)


def measured(sent_and_confirmed: Sequence[tuple[float, float]], due: Sequence[Sequence[int]]) -> ProducerWatch:
    """Measurements of a producer that sends batches, and gets their answers, at these instants (ms)."""
    instants: Iterator[float] = (instant for pair in sent_and_confirmed for instant in pair)
    watch = ProducerWatch(lambda: next(instants), 1000.0)
    for rows in due:
        with watch.batch([{"scheduled_ms": at_ms} for at_ms in rows], has_schedule=True):
            pass
    return watch


def percentile(histogram: Histogram, name: str) -> float:
    return histogram.latency().percentiles[name]


def test_a_batch_is_as_late_as_its_latest_job() -> None:
    assert measured([(1500, 1510)], [[10, 300, 490]]).late_ms == 490


def test_waiting_for_the_system_is_not_the_harness_being_late() -> None:
    held_up = measured([(1000, 1900), (1901, 1950)], [[0], [100, 200]])
    assert percentile(held_up.harness, "100") == pytest.approx(1.0)
    assert held_up.late_ms == 801


def test_sleeping_too_long_is_the_harness_being_late() -> None:
    asleep = measured([(1000, 1010), (1400, 1410)], [[0], [100]])
    assert percentile(asleep.harness, "100") == pytest.approx(300.0, rel=0.001)
    assert percentile(asleep.service, "100") == pytest.approx(10.0, rel=0.001)


def harness(ms: float) -> Latency:
    histogram = Histogram(MICROSECONDS)
    histogram.record(round(ms * MICROSECONDS))
    return histogram.latency()


@pytest.mark.parametrize(("own_ms", "whole_ms", "spoils"), [(9, 10, False), (40, 50, True), (40, 500, False)])
def test_a_harness_that_is_late_spoils_what_it_measures(own_ms: int, whole_ms: int, spoils: bool) -> None:
    whole = Histogram()
    whole.record(whole_ms)
    found = msgspec.structs.replace(
        load_result(), latencies={"scheduled-to-added": whole.latency()}, harness=harness(own_ms)
    )
    assert bool(found.spoilt_by_harness) == spoils


def test_a_ramp_leads_to_the_rate() -> None:
    workload = Workload(rate=100, ramp=RampUp(first=20, seconds=10), jobs=1000)
    assert workload.ramp_jobs == 600
    assert (workload.due_ms(0), workload.due_ms(600), workload.due_ms(700)) == (0, 10_000, 11_000)
    # After 5 s: 5 * 20 jobs, and half of (60 - 20) * 5 more.
    assert workload.due_ms(200) == 5000
    assert Workload(rate=100).due_ms(50) == 500
    assert Workload().due_ms(50) == 0
