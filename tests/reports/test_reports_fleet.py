from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from conformance.environment.clients import find_toolchain
from conformance.problems import EnvironmentProblem
from conformance.servers import RedisInstance
from reports.load import run as load_run
from reports.load.backlog import BacklogSeries, counts_of
from reports.load.production import add_partition
from reports.load.redis_clock import RedisClock
from reports.load.run import WorkerGroup, load_workers, wait_for_end
from reports.load.target import LoadTarget
from reports.load.workload import Workload
from tests.observe.snapshot_builders import Zset
from tests.reports.reports_builders import write


@pytest.fixture(autouse=True)
def _quick_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_run, "WAIT_SAMPLE_EVERY_S", 0.01)


def samples(*counts: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
    yield from counts
    while True:
        yield counts[-1]


def test_the_end_is_when_two_samples_in_a_row_find_nothing_to_do() -> None:
    seen: list[Mapping[str, int]] = []
    found = samples({"wait": 3}, {"wait": 0}, {"active": 1}, {"completed": 4})
    wait_for_end(lambda: next(found), [], patience_s=30, on_progress=seen.append)
    assert seen == [{"wait": 3}, {"wait": 0}, {"active": 1}, {"completed": 4}, {"completed": 4}]


def test_workers_that_do_nothing_end_the_load() -> None:
    with pytest.raises(EnvironmentProblem, match=r"have done nothing for 0\.05 s; left: wait 3"):
        wait_for_end(lambda: {"wait": 3, "active": 0}, [], patience_s=0.05, on_progress=lambda _: None)


def workers_of(name: str) -> WorkerGroup:
    return WorkerGroup(client=find_toolchain("", print).launch(name), concurrency=3)


def test_workers_of_a_load_work_and_are_closed(server: RedisInstance, prefix: str) -> None:
    target = LoadTarget(address=server, prefix=prefix, workload=Workload(queues=2))
    with load_workers(target, [workers_of("node")]) as drivers, server.connect() as client:
        deadline = time.monotonic() + 30
        while len(_names(client)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(_names(client)) >= 2
    assert not drivers[0].alive


def test_workers_of_two_clients_share_one_queue(server: RedisInstance, prefix: str) -> None:
    """Node and the reference, one job at a time each: both get some of those that take a moment."""
    target = LoadTarget(address=server, prefix=prefix, workload=Workload(jobs=60))
    groups = [replace(workers_of(name), concurrency=1) for name in ("node", "reference")]
    took_part: set[str] = set()
    with load_workers(target, groups) as drivers, server.connect() as client:
        add_partition(iter([pa.RecordBatch.from_pylist(slow_jobs(60))]), target, 0)

        def sample() -> Mapping[str, int]:
            untyped: Any = client
            took_part.update(_holders(untyped, prefix))
            return counts_of(client, target)[0]

        wait_for_end(sample, drivers, patience_s=60, on_progress=lambda _: None)
        assert counts_of(client, target)[0]["completed"] == 60
    assert len(took_part) == 2, took_part


def slow_jobs(count: int) -> list[dict[str, Any]]:
    data = json.dumps({"steps": [{"do": "sleep", "ms": 20}]})
    common = {"queue": "load-0", "name": "load", "data": data, "scheduled_ms": 0, "children": 0}
    return [{"index": n, "id": f"j{n}", "opts": json.dumps({"jobId": f"j{n}"}), **common} for n in range(count)]


def _holders(client: Any, prefix: str) -> Iterator[str]:
    """Who holds a lock now: a token starts with its worker's own id."""
    for key in client.keys(f"{prefix}:load-0:*:lock"):
        token = client.get(key)
        if token:
            yield token.decode().rpartition(":")[0]


def _names(client: Any) -> list[str]:
    return [row["name"] for row in client.client_list() if ":bG9hZC0" in row["name"] or "load-" in row["name"]]


def test_a_sample_counts_all_queues(server: RedisInstance, prefix: str) -> None:
    write(server, prefix, {"load-0:wait": ["1", "2"], "load-1:completed": Zset({"3": 1.0}), "load-0:id": "2"})
    target = LoadTarget(address=server, prefix=prefix, workload=Workload(queues=2))
    with server.connect() as client:
        counts, added = counts_of(client, target)
        series = BacklogSeries(target, RedisClock(ahead_s=0.0))
        for _ in range(900):
            series.samples.append(series.samples[-1]) if series.samples else series.sample(client)
    assert (counts["wait"], counts["completed"], counts["failed"], added) == (2, 1, 0, 2)
    assert 300 <= len(series.since(0)) <= 400
