"""A workload is the same wherever it is computed, and its jobs are added on schedule, and once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from conformance.environment.clients import Launch, find_toolchain
from conformance.observe.canonical import ALL_RULES, canonicalise
from conformance.observe.diff import diff
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import Snapshot
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.servers import RedisInstance
from reports.load import production
from reports.load.producers import PlannedJob, producer_for, runs_of
from reports.load.production import add_partition, on_schedule
from reports.load.redis_clock import RedisClock
from reports.load.target import LoadTarget, forget_progress, missing_of, require_unused_queues
from reports.load.workload import Workload, checked_workload, read_workload
from reports.verbs.load_plan import worker_group

GOOD = """
jobs: 500
seed: 7
queues: 2
rate: 100
arrival: jittered
payload: {distribution: exponential, least: 10, most: 900}
priority: {share: 0.1, levels: 3}
failures: {once: 0.1, always: 0.01}
flows: {share: 0.05, children: 2}
retention: {completed: 100}
"""


def test_a_description_is_read(tmp_path: Path) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(GOOD)
    found = read_workload(path)
    assert (found.jobs, found.payload.most, found.flows.children) == (500, 900, 2)
    assert found.queue_names == ["load-0", "load-1"]
    assert found.digest != Workload(jobs=500).digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jbos: 5", "jbos"),
        ("jobs: many", "jobs"),
        ("jobs: 0", "jobs is 0"),
        ("lifo: 2", "lifo is 2"),
        ("failures: {once: 0.7, always: 0.7}", "more than 1 together"),
        ("attempts: 1\nfailures: {once: 0.1}", "second attempt"),
        ("payload: {least: 5, most: 1}", "payload goes from 5 to 1"),
        ("name: 'a:b'", "cannot be part of a queue's name"),
        ("jobs: [", "workload.yaml"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "workload.yaml"
    path.write_text(text)
    with pytest.raises(UsageProblem) as caught:
        read_workload(path)
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot be read"):
        read_workload(tmp_path / "none.yaml")


def test_the_default_is_valid() -> None:
    assert checked_workload(Workload()) == Workload()


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


def batches(of: Sequence[PlannedJob]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([dict(row) for row in of])


def target_on(server: RedisInstance, prefix: str, **changes: Any) -> LoadTarget:
    return LoadTarget(address=server, prefix=prefix, workload=Workload(queues=2), **changes)


def launch(name: str) -> Launch:
    return find_toolchain("", lambda _: None).launch(name)


def state(server: RedisInstance, prefix: str) -> Snapshot:
    with server.connect() as client:
        return canonicalise(read_snapshot(client, prefix), ALL_RULES)


def test_the_reference_and_node_leave_the_same(server: RedisInstance, prefix: str) -> None:
    other = server.fresh_prefix()
    try:
        add_partition(batches(rows(60)), target_on(server, prefix), 0)
        node = launch("node")
        counts = add_partition(batches(rows(60)), target_on(server, other, producer=node), 0)
        assert counts.added == 60
        assert len(state(server, prefix).jobs) == 60 + 6 * 2
        assert diff(state(server, prefix), state(server, other)) == []
    finally:
        server.remove_prefix(other)


class Flaky:
    """Adds half of a batch, then loses the connection; only once."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.failures = 1

    def connect(self) -> None:
        """Nothing is lost here."""

    def add(self, added: Sequence[PlannedJob]) -> None:
        if self.failures:
            self.failures -= 1
            self.inner.add(added[: len(added) // 2])
            raise RedisConnectionError("gone")
        self.inner.add(added)


def test_after_a_lost_connection_nothing_is_added_twice(server: RedisInstance, prefix: str) -> None:
    target, wanted = target_on(server, prefix), rows(20)
    with server.connect() as client, producer_for(target) as producer:
        production._add_batch(Flaky(producer), client, target, wanted, doubtful=False)
        assert missing_of(client, target, wanted) == []
        names = [fields[b"event"] for queue in "01" for _, fields in client.xrange(f"{prefix}:load-{queue}:events")]
    assert b"duplicated" not in names
    assert names.count(b"added") == 20 + 2 * 2


def test_a_load_goes_on_where_it_broke_off(server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "BATCH", 10)
    wanted = rows(40)
    first = target_on(server, prefix)
    add_partition(batches(wanted[:25]), first, 0)
    with server.connect() as client:
        client.set(first.progress_key(0), 20)  # as if it had broken off within the third batch
        counts = add_partition(batches(wanted), target_on(server, prefix, resume=True), 0)
        assert missing_of(client, first, wanted) == []
        names = [fields[b"event"] for queue in "01" for _, fields in client.xrange(f"{prefix}:load-{queue}:events")]
        assert client.get(first.progress_key(0)) == b"40"
    assert counts.added == 20
    assert b"duplicated" not in names
    forget_progress(first)


def test_a_redis_that_stays_away_ends_the_load_with_a_hint(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(production, "PAUSE_S", 0.0)
    target = target_on(server, prefix)

    class Dead:
        def connect(self) -> None:
            """Nothing is lost here."""

        def add(self, _: Sequence[PlannedJob]) -> None:
            raise RedisConnectionError("gone")

    with server.connect() as client, pytest.raises(EnvironmentProblem, match="gave up after 5 attempts") as caught:
        production._add_batch(Dead(), client, target, rows(3), doubtful=False)
    assert "--resume" in caught.value.hint


def test_a_queue_in_use_is_refused(server: RedisInstance, prefix: str) -> None:
    target = target_on(server, prefix)
    require_unused_queues(target)
    add_partition(batches(rows(3)), target, 0)
    with pytest.raises(UsageProblem, match="already in use"):
        require_unused_queues(target)
    require_unused_queues(target_on(server, prefix, resume=True))
    forget_progress(target)
    with pytest.raises(UsageProblem, match="was not filled by this workload"):
        require_unused_queues(target_on(server, prefix, resume=True))


def test_rows_of_each_queue_keep_their_order() -> None:
    runs = list(runs_of(rows(25)))
    assert {queue for queue, _, _ in runs} == {"load-0", "load-1"}
    for queue in ("load-0", "load-1"):
        order = [row["index"] for name, _, run in runs if name == queue for row in run]
        assert order == sorted(order)


def test_a_batch_waits_for_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(RedisClock, "sleep_until", lambda _, unix_ms: waited.append(unix_ms))
    wanted = [{**row, "scheduled_ms": row["index"] * 1000} for row in rows(3)]
    batches_of = on_schedule(iter(wanted), Workload(rate=1), 10**15, RedisClock(ahead_s=0.0))
    assert [len(batch) for batch in batches_of] == [1, 1, 1]
    assert waited == [10**15, 10**15 + 1000, 10**15 + 2000]


def test_workers_are_written_as_client_and_number_of_processes() -> None:
    group = worker_group("node:2", 7, launch)
    assert (group.client.name, group.processes, group.concurrency) == ("node", 2, 7)
    for text in ("nobody", "node:0", ""):
        with pytest.raises(UsageProblem):
            worker_group(text, 7, launch)
