from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.environment.clients import Toolchain, find_toolchain
from conformance.observe.canonical import ALL_RULES, canonicalise
from conformance.observe.diff import diff
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import Snapshot
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers import RedisInstance
from reports.load import produce
from reports.load.produce import add_partition
from reports.load.producers import Row, producer_for, runs_of
from reports.load.target import Target, forget_progress, insist_on_room, missing_of
from reports.loading import crew_of, launched
from reports.workload.description import Workload


def rows(count: int) -> list[dict[str, Any]]:
    """Jobs as the workload makes them; every tenth is a flow, every seventh is delayed."""
    return [
        {
            "index": number,
            "queue": f"load-{number % 2}",
            "id": f"j{number}",
            "name": "load",
            "data": json.dumps({"i": number, "steps": [], "pad": "é"}, separators=(",", ":"), ensure_ascii=False),
            "opts": json.dumps({"jobId": f"j{number}", "attempts": 2, **({"delay": 9000} if number % 7 == 1 else {})}),
            "scheduled_ms": 0,
            "children": 2 if number % 10 == 9 else 0,
        }
        for number in range(count)
    ]


def batches(of: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([dict(row) for row in of])


def target_on(server: RedisInstance, prefix: str, **changes: Any) -> Target:
    return Target(address=server, prefix=prefix, workload=Workload(queues=2), **changes)


def toolbox() -> Toolchain:
    return find_toolchain("", lambda _: None)


def state(server: RedisInstance, prefix: str) -> Snapshot:
    with server.connect() as client:
        return canonicalise(read_snapshot(client, prefix), ALL_RULES)


def test_the_reference_and_node_leave_the_same(server: RedisInstance, prefix: str) -> None:
    other = server.fresh_prefix()
    try:
        add_partition(batches(rows(60)), target_on(server, prefix), 0)
        node = launched("node", toolbox())
        counts = add_partition(batches(rows(60)), target_on(server, other, producer=node), 0)
        assert counts["added"] == 60
        assert len(state(server, prefix).jobs) == 60 + 6 * 2
        assert diff(state(server, prefix), state(server, other)) == []
    finally:
        server.remove_prefix(other)


class Flaky:
    """Adds half of a batch, then loses the connection; only once."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.failures = 1

    def add(self, added: Sequence[Row]) -> None:
        if self.failures:
            self.failures -= 1
            self.inner.add(added[: len(added) // 2])
            raise RedisConnectionError("gone")
        self.inner.add(added)


def test_after_a_lost_connection_nothing_is_added_twice(server: RedisInstance, prefix: str) -> None:
    target, wanted = target_on(server, prefix), rows(20)
    with server.connect() as client, producer_for(target) as producer:
        produce._add_batch(Flaky(producer), client, target, wanted, doubtful=False)
        assert missing_of(client, target, wanted) == []
        names = [fields[b"event"] for queue in "01" for _, fields in client.xrange(f"{prefix}:load-{queue}:events")]
    assert b"duplicated" not in names
    assert names.count(b"added") == 20 + 2 * 2


def test_a_load_goes_on_where_it_broke_off(server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "BATCH", 10)
    wanted = rows(40)
    first = target_on(server, prefix)
    add_partition(batches(wanted[:25]), first, 0)
    with server.connect() as client:
        client.set(first.progress_key(0), 20)  # as if it had broken off within the third batch
        counts = add_partition(batches(wanted), target_on(server, prefix, resume=True), 0)
        assert missing_of(client, first, wanted) == []
        names = [fields[b"event"] for queue in "01" for _, fields in client.xrange(f"{prefix}:load-{queue}:events")]
        assert client.get(first.progress_key(0)) == b"40"
    assert counts["added"] == 20
    assert b"duplicated" not in names
    forget_progress(first)


def test_a_redis_that_stays_away_ends_the_load_with_a_hint(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "PAUSE_S", 0.0)
    target = target_on(server, prefix)

    class Dead:
        def add(self, _: Sequence[Row]) -> None:
            raise RedisConnectionError("gone")

    with server.connect() as client, pytest.raises(EnvironmentProblem, match="gave up after 5 attempts") as caught:
        produce._add_batch(Dead(), client, target, rows(3), doubtful=False)
    assert "--resume" in caught.value.hint


def test_a_queue_in_use_is_refused(server: RedisInstance, prefix: str) -> None:
    target = target_on(server, prefix)
    insist_on_room(target)
    add_partition(batches(rows(3)), target, 0)
    with pytest.raises(UsageProblem, match="already in use"):
        insist_on_room(target)
    insist_on_room(target_on(server, prefix, resume=True))
    forget_progress(target)
    with pytest.raises(UsageProblem, match="was not filled by this workload"):
        insist_on_room(target_on(server, prefix, resume=True))


def test_rows_of_each_queue_keep_their_order() -> None:
    runs = list(runs_of(rows(25)))
    assert {queue for queue, _, _ in runs} == {"load-0", "load-1"}
    for queue in ("load-0", "load-1"):
        order = [row["index"] for name, _, run in runs if name == queue for row in run]
        assert order == sorted(order)


def test_a_batch_waits_for_its_schedule(monkeypatch: pytest.MonkeyPatch, server: RedisInstance, prefix: str) -> None:
    waited: list[int] = []
    monkeypatch.setattr(produce, "_wait_until", waited.append)
    wanted = [{**row, "scheduled_ms": row["index"] * 1000} for row in rows(3)]
    target = Target(address=server, prefix=prefix, workload=Workload(rate=1), start_ms=10**15)
    assert [len(batch) for batch in produce._on_schedule(iter(wanted), target)] == [1, 1, 1]
    assert waited == [10**15, 10**15 + 1000, 10**15 + 2000]


def test_workers_are_written_as_client_and_number_of_processes() -> None:
    crew = crew_of("node:2", 7, toolbox())
    assert (crew.client.name, crew.processes, crew.concurrency) == ("node", 2, 7)
    for text in ("nobody", "node:0", ""):
        with pytest.raises(UsageProblem):
            crew_of(text, 7, toolbox())
