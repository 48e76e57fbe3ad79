from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.observe.keyspace import QUEUE_KEYS, decode_key, is_reserved
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import TABLES, Snapshot
from conformance.servers import RedisInstance
from reports.snapshot import plan as planning
from reports.snapshot import reading
from reports.snapshot.plan import Part, Source, _next_share, plan
from reports.snapshot.reading import read_part
from reports.snapshot.rows import batch_of, narrowed, rows_of, wide_rows
from reports.snapshot.source import only_table, typed_ddl
from tests.observe.snapshot_builders import ADDED, Zset, job, snapshot
from tests.reports.reports_builders import plain_store, write


def read_all(source: Source) -> dict[str, list[str]]:
    """All rows of all parts, by table, as sorted texts."""
    found: dict[str, list[str]] = {table: [] for table in TABLES}
    for part in plan(source).parts:
        for batch in read_part(source, part):
            for wide in rows_of(batch):
                found[wide["table"]].append(repr(narrowed(wide)))
    return {table: sorted(rows) for table, rows in found.items()}


def as_texts(found: Snapshot) -> dict[str, list[str]]:
    return {table: sorted(repr(row) for row in getattr(found, table)) for table in TABLES}


def source_of(server: RedisInstance, prefix: str) -> Source:
    return Source(redis=server.url, prefix=prefix)


def rich_store(prefix: str) -> dict[str, Any]:
    return {
        **plain_store(prefix),
        "q:repeat": Zset({"daily": float(ADDED)}),
        "q:repeat:daily": {"name": "d", "every": "1000"},
        "q:repeat:orphan": {"name": "o", "every": "1000"},
        f"q:repeat:daily:{ADDED}": job(rjk="daily"),
        "q:metrics:completed": {"count": "3"},
        "q:metrics:completed:data": ["1", "2"],
        "q:strange": "a string where jobs have hashes",
        "second:1": job(name="of a queue without meta"),
        "second:wait": ["1"],
        "q:stalled": {"5"},
        "q:pc": "4",
    }


def test_all_parts_together_hold_what_the_gate_reads(server: RedisInstance, prefix: str) -> None:
    write(server, prefix, rich_store(prefix))
    with server.connect() as client:
        client.hset(f"{prefix}:q:bytes", mapping={"name": b"\xff\xfe", "data": "{}"})
        client.pexpire(f"{prefix}:q:3", 900_000)
        expected = as_texts(frozen(read_snapshot(client, prefix)))
    found = read_all(source_of(server, prefix))
    assert {table: rows for table, rows in found.items() if table != "expiries"} == {
        table: rows for table, rows in expected.items() if table != "expiries"
    }
    assert len(found["expiries"]) == len(expected["expiries"]) == 1


def test_keys_that_expire_are_read_once_whoever_reads_them(server: RedisInstance, prefix: str) -> None:
    """The throttle of the stalled check and the rate limiter belong to the queue's part, the job to the scan."""
    write(server, prefix, plain_store(prefix))
    with server.connect() as client:
        for name in ("stalled-check", "limiter"):
            client.set(f"{prefix}:q:{name}", "1", px=900_000)
        client.pexpire(f"{prefix}:q:3", 900_000)
    found = read_all(source_of(server, prefix))
    assert [len(found[table]) for table in ("stalled_checks", "limiters", "expiries")] == [1, 1, 1]
    assert sum("id='3'" in row for row in found["jobs"]) == 1


def frozen(found: Snapshot) -> Snapshot:
    """Lists as they come back from JSON: pairs become lists."""
    return replace(found, unknown=tuple(replace(row) for row in found.unknown))


def test_shares_and_slices_read_every_key_once(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALLEST_TO_SHARE", 100)
    monkeypatch.setattr(planning, "SMALLEST_TO_SLICE", 50)
    monkeypatch.setattr(planning, "SLICE", 70)
    monkeypatch.setattr(reading, "_MEMBERS_PAGE", 30)
    numbers = [str(number) for number in range(3000)]
    store: dict[str, Any] = {f"q:{number}": job() for number in numbers}
    half = len(numbers) // 2
    store |= {
        "q:wait": numbers[:half],
        "q:completed": Zset({n: float(n) for n in numbers[half:]}),
        "q:meta": {"a": "b"},
    }
    write(server, prefix, store)
    with server.connect() as client:
        expected = as_texts(read_snapshot(client, prefix))
    parts = plan(source_of(server, prefix)).parts
    assert {part.kind for part in parts} == {"scan", "queue", "slice"}
    assert sum(part.kind == "scan" for part in parts) == planning.FEWEST_SHARES
    assert read_all(source_of(server, prefix)) == expected


def test_a_long_event_stream_is_cut_by_time_and_stays_in_order(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALLEST_TO_SLICE", 10)
    monkeypatch.setattr(planning, "SLICE", 10)
    with server.connect() as client:
        client.hset(f"{prefix}:q:meta", mapping={"version": "x"})
        for number in range(55):
            client.xadd(
                f"{prefix}:q:events", {"event": "waiting", "jobId": number}, id=f"{ADDED + number // 2}-{number % 2}"
            )
        expected = as_texts(read_snapshot(client, prefix))
    assert sum(part.name == "events" for part in plan(source_of(server, prefix)).parts) >= 5
    assert read_all(source_of(server, prefix))["events"] == expected["events"]


@given(st.integers(1, 6))
def test_shares_follow_each_other_as_cursors_do(bits: int) -> None:
    shares = 2**bits
    visited, index = [], 0
    for _ in range(shares):
        visited.append(index)
        index = _next_share(index, shares)
    assert index == 0
    assert visited == sorted(range(shares), key=lambda number: f"{number:0{bits}b}"[::-1])


@given(st.text(min_size=1, max_size=12))
def test_what_takes_the_fast_way_is_a_job_for_the_gate_too(rest: str) -> None:
    fast = rest.isdigit() or (":" not in rest and rest not in QUEUE_KEYS and not is_reserved(rest))
    if fast:
        assert decode_key("p", f"p:q:{rest}", "hash", ["name"]).kind == "job"


def test_every_row_survives_the_way_through_arrow() -> None:
    found = snapshot({**plain_store(), "q:strange": "x", "q:de:x": "1", "odd": ["a"]}, ttls={"q:de:x": 50})
    assert [narrowed(wide) for wide in rows_of(batch_of(wide_rows(found)))] == list(found.rows())


def test_a_table_has_its_own_columns() -> None:
    batch = only_table(batch_of(wide_rows(snapshot(plain_store()))), "locks")
    assert batch.to_pylist() == [
        {"queue": "q", "job": "5", "token": "token-a", "ttl_ms": -1},
        {"queue": "q", "job": "6", "token": "token-b", "ttl_ms": -1},
    ]
    assert typed_ddl("locks") == "queue string, job string, token string, ttl_ms bigint"


def test_a_share_ends_where_the_next_one_begins() -> None:
    part = Part(kind="scan", taken_ms=0, index=1, shares=2)
    assert planning.in_share(3, part)
    assert not planning.in_share(2, part)
    assert planning.is_end_of_share(0, part)
