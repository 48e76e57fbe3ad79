"""Fast reads of Redis return all that is there, and rows that executors write are read again."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from conformance.cli.verbs import cli
from conformance.observe.keyspace import RawKey, decode_key, is_reserved
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import TABLES, Event, Snapshot
from conformance.problems import UsageProblem
from conformance.protocol.keys import SLOTS, slot_of
from conformance.protocol.states import QUEUE_KEYS
from conformance.servers import RedisInstance, open_server
from conformance.servers.connection import ServerFacts
from reports.snapshot import hashes, pace, reading, streams, table_cache
from reports.snapshot import plan as planning
from reports.snapshot import store as snapshot_store
from reports.snapshot.folders import Folder, folder_at
from reports.snapshot.format import (
    SnapshotManifest,
    bucket_of,
    buckets_of,
    claim_folder,
    drop_unclaimed,
    lots_for,
    open_snapshot_folder,
    read_bucket,
    read_digests,
    read_manifest,
    read_rows,
    versioned_folder,
    write_manifest,
)
from reports.snapshot.hashes import hashes_of
from reports.snapshot.plan import KeyspacePart, RedisSource, _next_share, plan_reading
from reports.snapshot.reading import read_part
from reports.snapshot.replies import NodeSocket, to_resp
from reports.snapshot.rows import as_text, batch_of, decoded, narrowed, rows_of, wide_rows
from reports.snapshot.source import only_table, typed_ddl
from reports.snapshot.store import PartWrite, SnapshotWrite, write_part
from reports.snapshot.streams import entries_of, event_batch
from tests.observe.snapshot_builders import ADDED, Zset, job, snapshot
from tests.reports.reports_builders import plain_store, write
from tests.reports.test_reports_failures import manifest

TRICKY = [
    b"",
    b"\r\n",
    b"\r",
    b"\n",
    b"a\r",
    b"\nb",
    b"*2",
    b"$3",
    b"*2\r\n$1\r\na\r\n$1\r\nb",
    b"$99999999999999",
    b"*" * 50,
]
VALUES = st.sampled_from(TRICKY) | st.binary(max_size=20)
NAMES = st.sampled_from([b"event", b"jobId"]) | VALUES
REPLIES = st.lists(st.none() | st.lists(st.tuples(VALUES, VALUES), max_size=4), max_size=6)
Reply = list[tuple[bytes, bytes]] | None


def written(replies: list[Reply]) -> memoryview:
    """As Redis writes them; None is a key of another type."""
    return memoryview(
        b"".join(
            to_resp([word for pair in reply for word in pair]) if reply is not None else WRONG for reply in replies
        )
    )


WRONG = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"


def read(replies: list[Reply]) -> tuple[list[int], list[bytes], list[bytes]]:
    sizes, names, values = hashes_of(written(replies), len(replies))
    return sizes.tolist(), *(column.view(pa.binary()).to_pylist() for column in (names, values))


@given(REPLIES)
@example([[(b"name", b"x"), (b"data", b"{}")], [], [(b"name", b"")]])
@example([[(b"a\r\nb", b"\r\n$1\r\nc")], None, [(b"n", b"*2")]])
def test_written_hashes_are_read(replies: list[Reply]) -> None:
    pairs = [pair for reply in replies for pair in reply or ()]
    sizes = [-1 if reply is None else len(reply) for reply in replies]
    assert read(replies) == (sizes, [name for name, _ in pairs], [value for _, value in pairs])


def test_only_what_cannot_be_cut_is_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("read slowly")

    monkeypatch.setattr(hashes, "_read_slowly", refuse)
    assert read([[(b"name", b"*2"), (b"", b"a\r"), (b"\nb", b"$3")], []])[0] == [3, 0]
    slow: list[list[Reply]] = [[[(b"name", b"a\r\nb")]], [[(b"name", b"a")], None]]
    for replies in slow:
        with pytest.raises(AssertionError, match="read slowly"):
            read(replies)


ENTRIES = st.lists(
    st.tuples(
        st.from_regex(rb"[0-9]{1,13}-[0-9]{1,3}", fullmatch=True), st.lists(st.tuples(NAMES, VALUES), max_size=4)
    ),
    max_size=6,
)
Entry = tuple[bytes, list[tuple[bytes, bytes]]]


def as_stream(entries: list[Entry]) -> memoryview:
    """As Redis answers XRANGE."""
    written = [b"*%d\r\n" % len(entries)]
    for entry, pairs in entries:
        written += [b"*2\r\n$%d\r\n%s\r\n" % (len(entry), entry), to_resp([word for pair in pairs for word in pair])]
    return memoryview(b"".join(written))


def as_events(entries: list[Entry]) -> list[Event]:
    """The entries as the gate would read them."""
    texts = [(as_text(entry), [(as_text(name), as_text(value)) for name, value in pairs]) for entry, pairs in entries]
    return [Event(queue="q", id=entry, fields=tuple(pairs)) for entry, pairs in texts]


@given(ENTRIES)
@example([(b"1-0", [(b"event", b"added"), (b"jobId", b"7")]), (b"1-1", [])])
@example([(b"1-0", [(b"event", b"*2"), (b"a\r\nb", b"*2\r\n$3\r\n1-1\r\n*0")])])
@example([(b"1-0", [(b"jobId", b"1"), (b"jobId", b"2"), (b"event", b"\xff")])])
def test_entries_of_a_stream_are_read(entries: list[Entry]) -> None:
    batch = event_batch("q", entries_of(as_stream(entries)))
    assert [narrowed(wide) for wide in rows_of(batch)] == as_events(entries)
    columns = [decoded(batch.column(name)) for name in ("name", "id")]
    assert columns == [[event.name for event in as_events(entries)], [event.job for event in as_events(entries)]]


def test_only_a_stream_that_cannot_be_cut_is_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("read slowly")

    monkeypatch.setattr(streams, "_read_slowly", refuse)
    assert entries_of(as_stream([(b"1-0", [(b"event", b"a\r"), (b"", b"$3")]), (b"2-0", [])])).sizes.tolist() == [2, 0]
    assert entries_of(as_stream([])).sizes.tolist() == []
    for value in (b"a\r\nb", b"*2"):
        with pytest.raises(AssertionError, match="read slowly"):
            entries_of(as_stream([(b"1-0", [(b"event", value)])]))


def test_a_key_that_is_not_a_stream_is_an_error() -> None:
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        entries_of(memoryview(WRONG))


@given(st.lists(st.none() | st.binary(max_size=80)), st.integers(0, 3), st.sampled_from([2, 16, 64]))
def test_the_bucket_of_an_id_is_the_same_one_by_one_and_at_once(
    ids: list[bytes | None], cut: int, buckets: int
) -> None:
    column = pa.array(ids, pa.binary())[cut:]
    assert buckets_of(column, buckets).tolist() == [bucket_of(job or b"", buckets) for job in ids[cut:]]


def read_all(source: RedisSource) -> dict[str, list[str]]:
    """All rows of all parts, by table, as sorted texts."""
    found: dict[str, list[str]] = {table: [] for table in TABLES}
    for part in plan_reading(source).parts:
        for batch in read_part(source, part):
            for wide in rows_of(batch):
                found[wide["table"]].append(repr(narrowed(wide)))
    return {table: sorted(rows) for table, rows in found.items()}


def as_texts(found: Snapshot) -> dict[str, list[str]]:
    return {table: sorted(repr(row) for row in getattr(found, table)) for table in TABLES}


def source_of(server: RedisInstance, prefix: str) -> RedisSource:
    return RedisSource(redis=server.url, prefix=prefix)


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


def test_keys_that_expire_are_read_by_one_part_only(server: RedisInstance, prefix: str) -> None:
    """The throttle of the stalled check and the rate limiter belong to the queue's part, the job to the scan."""
    write(server, prefix, plain_store(prefix))
    with server.connect() as client:
        for name in ("stalled-check", "limiter"):
            client.set(f"{prefix}:q:{name}", "1", px=900_000)
        client.pexpire(f"{prefix}:q:3", 900_000)
    found = read_all(source_of(server, prefix))
    assert [len(found[table]) for table in ("stalled_checks", "limiters", "expiries")] == [1, 1, 1]
    assert sum("id='3'" in row for row in found["jobs"]) == 1


KEYS_THAT_END = {"q:1:lock": "locks", "q:limiter": "limiters", "q:de:x": "deduplications", "q:mine": "unknown"}


def test_the_moment_at_which_a_key_ends_is_read_however_long_ago_reading_started(
    server: RedisInstance, prefix: str
) -> None:
    write(server, prefix, {"q:1": job(), "q:active": ["1"], "q:meta": {"version": "bullmq:5.62.0"}})
    with server.connect() as client:
        ends_ms = client.time()[0] * 1000 + 900_000
        for name in KEYS_THAT_END:
            client.set(f"{prefix}:{name}", "1", pxat=ends_ms)
        client.pexpireat(f"{prefix}:q:1", ends_ms)
    source = source_of(server, prefix)
    parts = [replace(part, taken_ms=part.taken_ms - 32_000) for part in plan_reading(source).parts]
    rows = [row for part in parts for batch in read_part(source, part) for row in rows_of(batch)]
    found = {row["table"]: row["expires_ms"] for row in rows if row["expires_ms"] is not None}
    assert found.keys() == {*KEYS_THAT_END.values(), "expiries"}
    assert all(abs(moment_ms - ends_ms) < 100 for moment_ms in found.values()), (ends_ms, found)


def test_a_key_that_ends_while_it_is_read_is_not_there(server: RedisInstance, prefix: str) -> None:
    with server.connect() as client:
        gone = RawKey(key=f"{prefix}:q:de:x", type="string", value="1", ttl_ms=5)
        assert reading.with_moments([gone], client) == []


def test_a_long_stream_that_expires_is_found(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALLEST_TO_SLICE", 2)
    monkeypatch.setattr(planning, "SLICE", 2)
    write(server, prefix, {"q:meta": {"version": "bullmq:5.62.0"}, "q:wait": ["1", "2", "3"]})
    with server.connect() as client:
        for number in range(6):
            client.xadd(f"{prefix}:q:events", {"event": "drained"}, id=f"{ADDED + number}-0")
        client.pexpire(f"{prefix}:q:events", 900_000)
        client.pexpire(f"{prefix}:q:wait", 900_000)
    found = read_all(source_of(server, prefix))
    assert [("kind='events'" in row, "kind='wait'" in row) for row in found["expiries"]] == [
        (True, False),
        (False, True),
    ]


def frozen(found: Snapshot) -> Snapshot:
    """Lists as they come back from JSON: pairs become lists."""
    return replace(found, unknown=tuple(replace(row) for row in found.unknown))


def test_shares_and_slices_read_every_key_once(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALLEST_TO_SHARE", 100)
    monkeypatch.setattr(planning, "SMALLEST_TO_SLICE", 50)
    monkeypatch.setattr(planning, "SLICE", 70)
    monkeypatch.setattr(pace, "FAST", replace(pace.FAST, members=30))
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
    parts = plan_reading(source_of(server, prefix)).parts
    assert {part.kind for part in parts} == {"scan", "queue", "slice"}
    assert sum(part.kind == "scan" for part in parts) == planning.FEWEST_SHARES
    assert read_all(source_of(server, prefix)) == expected


GENTLE = pace.PageSizes(keys=7, batch=20, hashes=3, others=2, members=4, events=5)


def test_a_store_is_read_in_small_lots_as_at_once(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no lot has more commands than it may: Redis serves no other client meanwhile."""
    monkeypatch.setattr(planning, "SMALLEST_TO_SHARE", 100)
    monkeypatch.setattr(planning, "SMALLEST_TO_SLICE", 10)
    monkeypatch.setattr(planning, "SLICE", 20)
    monkeypatch.setattr(pace, "GENTLE", GENTLE)
    numbers = [str(number) for number in range(200)]
    write(
        server,
        prefix,
        {
            **{f"q:{number}": job() for number in numbers},
            **{f"q:{number}:lock": "token" for number in numbers[:20]},
            "q:wait": numbers[:55],
            "q:completed": Zset({number: float(number) for number in numbers[55:]}),
            "q:meta": {"a": "b"},
        },
    )
    with server.connect() as client:
        for number in range(43):
            client.xadd(f"{prefix}:q:events", {"event": "waiting", "jobId": number})
        client.set(f"{prefix}-other", 1, ex=1000)  # then the time to live of every key has to be asked for
        expected = as_texts(read_snapshot(client, prefix))
    source = replace(source_of(server, prefix), keys_per_s=None)
    written = recorded_writes(monkeypatch)
    assert read_all(source) == expected
    lots = [data.count(b"HGETALL") + data.count(b"PTTL") for data in written]
    assert sum(lots) >= 2 * len(numbers)
    assert max(lots) == GENTLE.hashes


@pytest.mark.parametrize("name", ["events", "wait", "completed"])
def test_reading_ends_though_clients_add_faster(
    name: str, server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALLEST_TO_SLICE", 10)
    monkeypatch.setattr(pace, "GENTLE", GENTLE)
    key, numbers = f"{prefix}:q:{name}", iter(range(1000))
    with server.connect() as client:

        def add() -> None:
            for number in islice(numbers, 20):
                if name == "events":
                    client.xadd(key, {"event": "waiting", "jobId": number})
                elif name == "wait":
                    client.rpush(key, number)
                else:
                    client.zadd(key, {str(number): number})

        add()
        client.hset(f"{prefix}:q:meta", "a", "b")
        source = replace(source_of(server, prefix), keys_per_s=None)
        (part,) = [part for part in plan_reading(source).parts if part.name == name]
        rows = 0
        for batch in read_part(source, part):
            rows += batch.num_rows
            assert rows <= 40, "it follows the clients"
            add()
        assert rows >= 20


def recorded_writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect the bytes that every `NodeSocket` sends from now on."""
    written: list[bytes] = []

    class RecordingSocket:
        def __init__(self, real: Any) -> None:
            self.recv_into, self.recv, self._sendall = real.recv_into, real.recv, real.sendall

        def sendall(self, data: bytes) -> None:
            written.append(data)
            self._sendall(data)

    opened = NodeSocket.__init__

    def open_recorded(self: NodeSocket, *args: Any) -> None:
        opened(self, *args)
        monkeypatch.setattr(self, "_socket", RecordingSocket(self._socket))

    monkeypatch.setattr(NodeSocket, "__init__", open_recorded)
    return written


@pytest.mark.slow
def test_the_nodes_of_a_cluster_are_cut_into_shares_that_read_every_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By cursors where the server on PATH is older than 7.4, by slots where it is not."""
    monkeypatch.setattr(planning, "SMALLEST_TO_SHARE", 100)
    monkeypatch.setattr(pace, "FAST", replace(pace.FAST, keys=40))
    with open_server("cluster:3", announce=lambda _: None) as cluster:
        for queue in (f"{{q-{number}}}" for number in range(25)):
            jobs = {f"{queue}:{number}": job() for number in range(60)}
            write(cluster, "p", {**jobs, f"{queue}:meta": {"a": "b"}, f"{queue}:wait": ["1", "2"]})
        tagged = cluster.fresh_prefix()
        write(cluster, tagged, {f"q:{number}": job() for number in range(300)})
        for prefix in ("p", tagged):
            source = source_of(cluster, prefix)
            scans = [part for part in plan_reading(source).parts if part.kind == "scan"]
            assert Counter(part.node for part in scans) == dict.fromkeys(cluster.nodes, planning.FEWEST_SHARES)
            with cluster.connect() as client:
                assert read_all(source) == as_texts(read_snapshot(client, prefix))


class SlottedNode:
    """Scans as a node does that has a dictionary for each slot: one after the other, until it has enough keys."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._slots: dict[int, list[bytes]] = {}
        for key in keys:
            self._slots.setdefault(slot_of(key), []).append(key)

    def exchange(self, commands: Sequence[Sequence[bytes]]) -> list[tuple[bytes, list[bytes]]]:
        (_, cursor, *_, count), found = commands[0], list[bytes]()
        inner, slot = divmod(int(cursor), SLOTS)
        for number in sorted(each for each in self._slots if each >= slot):
            start = inner if number == slot else 0
            taken = self._slots[number][start : start + int(count) - len(found)]
            found += taken
            if start + len(taken) < len(self._slots[number]):
                return [(b"%d" % ((start + len(taken)) * SLOTS + number), found)]
            after = [each for each in self._slots if each > number]
            if len(found) == int(count) and after:
                return [(b"%d" % min(after), found)]
        return [(b"0", found)]


@given(st.sets(st.sampled_from([b"{%d}:%d" % (tag, key) for tag in range(40) for key in range(5)])), st.integers(1, 9))
def test_ranges_of_slots_read_every_key_once(keys: set[bytes], shares: int) -> None:
    # Ranges start at slots that hold keys, and right behind them, so that others end with them.
    owned = sorted({slot_of(key) + more for key in keys for more in (0, 1)})
    node: Any = SlottedNode(keys)
    ranges = list(planning.slot_edges(owned, shares))
    parts = [KeyspacePart(kind="scan", taken_ms=0, first_slot=first, last_slot=last) for first, last in ranges]
    read = [key for part in parts for page in reading._pages_of_slots(node, (), part, 3) for key in page]
    assert sorted(read) == sorted(keys)
    assert [slot for first, last in ranges for slot in range(first, last + 1)] == list(range(SLOTS))


@pytest.mark.parametrize(
    ("version", "product", "slotted"),
    [
        ("7.2.5", "Redis", False),
        ("7.4.0", "Redis", True),
        ("8.2.3", "Redis", True),
        ("7.2.4", "valkey 7.2.9", False),
        ("7.2.4", "valkey 8.1.1", True),
        ("7.4.0", "dragonfly 1.30", None),
        ("unknown", "Redis", None),
    ],
)
def test_a_server_says_by_its_version_how_it_keeps_its_slots(version: str, product: str, slotted: bool | None) -> None:
    facts = ServerFacts(version=version, product=product, mode="cluster", primary="", settings={})
    assert planning.is_slotted(facts) is slotted


def test_shares_grow_with_what_is_written_together() -> None:
    """So that a file of one of many buckets has as many rows as one of few."""
    assert [planning.shares_for(keys) for keys in (100, 10**6, 10**8)] == [1, 8, 256]
    assert planning.shares_for(10**8, lots_for(512)) == 128


def test_a_long_event_stream_is_cut_by_time_and_stays_in_order(
    server: RedisInstance, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SMALLEST_TO_SLICE", 10)
    monkeypatch.setattr(planning, "SLICE", 10)
    monkeypatch.setattr(pace, "FAST", replace(pace.FAST, events=4))
    with server.connect() as client:
        client.hset(f"{prefix}:q:meta", mapping={"version": "x"})
        for number in range(55):
            client.xadd(
                f"{prefix}:q:events", {"event": "waiting", "jobId": number}, id=f"{ADDED + number // 2}-{number % 2}"
            )
        expected = as_texts(read_snapshot(client, prefix))
    assert sum(part.name == "events" for part in plan_reading(source_of(server, prefix)).parts) >= 5
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
def test_a_key_that_takes_the_fast_way_is_a_job_for_the_gate_too(rest: str) -> None:
    fast = rest.isdigit() or (":" not in rest and rest not in QUEUE_KEYS and not is_reserved(rest))
    if fast:
        assert decode_key("p", f"p:q:{rest}", "hash", ["name"]).kind == "job"


def test_every_row_survives_the_way_through_arrow() -> None:
    found = snapshot({**plain_store(), "q:strange": "x", "q:de:x": "1", "odd": ["a"]}, ttls={"q:de:x": 50})
    assert [narrowed(wide) for wide in rows_of(batch_of(wide_rows(found)))] == list(found.rows())


def test_a_table_has_its_own_columns() -> None:
    batch = only_table(batch_of(wide_rows(snapshot(plain_store()))), "locks")
    assert batch.to_pylist() == [
        {"queue": "q", "job": "5", "token": "token-a", "ttl_ms": -1, "expires_ms": None},
        {"queue": "q", "job": "6", "token": "token-b", "ttl_ms": -1, "expires_ms": None},
    ]
    assert typed_ddl("locks") == "queue string, job string, token string, ttl_ms bigint, expires_ms bigint"


def test_a_share_ends_at_the_start_of_the_next_one() -> None:
    part = KeyspacePart(kind="scan", taken_ms=0, index=1, shares=2)
    assert planning.in_share(3, part)
    assert not planning.in_share(2, part)
    assert planning.is_end_of_share(0, part)


UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def keep(server: RedisInstance, prefix: str, folder: Path, buckets: int) -> list[snapshot_store.WrittenPart]:
    source = RedisSource(redis=server.url, prefix=prefix)
    task = SnapshotWrite(source=source, folder=folder_at(folder), buckets=buckets)
    parts = enumerate(plan_reading(source).parts)
    return [write_part(PartWrite(write=task, part=part, number=number)) for number, part in parts]


def kept(folder: Path, buckets: int) -> dict[str, list[str]]:
    """All rows of all buckets, by table, as sorted texts."""
    found: dict[str, list[str]] = {table: [] for table in TABLES}
    for table in TABLES:
        for bucket in range(buckets):
            rows = read_bucket(folder_at(folder), table, bucket, buckets)
            named = rows.add_column(0, "table", pa.array([table] * len(rows), pa.string()))
            found[table] += [repr(narrowed(wide)) for batch in named.to_batches() for wide in rows_of(batch)]
    return {table: sorted(rows) for table, rows in found.items()}


def store(prefix: str) -> dict[str, Any]:
    numbers = [str(number) for number in range(100, 400)]
    return {
        **plain_store(prefix),
        **{f"many:{number}": job() for number in numbers},
        "many:completed": Zset({number: float(number) for number in numbers}),
        f"many:{UUID}": job(),
        "many:meta": {"opts.maxLenEvents": "77"},
    }


def test_stored_rows_equal_the_read_ones_in_as_many_buckets_or_fewer(
    server: RedisInstance, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_store, "ROWS_AT_A_TIME", 50)
    write(server, prefix, store(prefix))
    with server.connect() as client:
        client.hset(f"{prefix}:many:bytes", mapping={"name": b"\xff\xfe", "data": "{}"})
    written = keep(server, prefix, tmp_path, 8)
    read = read_all(RedisSource(redis=server.url, prefix=prefix))
    assert kept(tmp_path, 8) == kept(tmp_path, 2) == read
    counted: Counter[str] = Counter()
    for count in (count for part in written for count in part.counts):
        counted[count.table] += count.rows
    assert dict(counted) == {table: len(rows) for table, rows in read.items() if rows}
    assert {count.queue for part in written for count in part.counts if count.generated} == {"many"}
    assert {count.event_limit for part in written for count in part.counts if count.queue == "many"} == {None, 77.0}
    firsts = {(count.table, count.first_ms) for part in written for count in part.counts if count.queue == "q"}
    assert {("jobs", ADDED), ("events", ADDED)} <= firsts


@pytest.mark.parametrize("room", [True, False])
def test_tables_are_the_same_from_memory_and_from_their_files(
    server: RedisInstance, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    monkeypatch.setattr(snapshot_store, "ROWS_AT_A_TIME", 50)
    monkeypatch.setattr(table_cache, "MOST_BYTES", 2**20 if room else 0)
    write(server, prefix, store(prefix))
    with table_cache.table_cache():
        keep(server, prefix, tmp_path, 4)
        with monkeypatch.context() as without_files:
            if room:
                without_files.setattr(Folder, "opened", None)  # a file that is read would be an error
            from_memory = all_tables(tmp_path)
    from_files = all_tables(tmp_path)
    assert all(from_files.values()), "there are rows and digests"
    assert from_memory == from_files


def all_tables(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The rows of each file of a snapshot, by kind and name, as texts."""
    readers = {"rows": read_rows, "digests": read_digests}
    return {
        kind: {
            f"{below.name}/{file.name}": as_values(read(folder_at(folder), below.name.partition("=")[2], file.name))
            for below in (folder / kind).iterdir()
            for file in below.iterdir()
        }
        for kind, read in readers.items()
    }


def as_values(table: pa.Table) -> list[str]:
    return [repr(row) for batch in table.to_batches() for row in batch.to_pylist()]


def test_more_buckets_do_not_make_smaller_files(
    server: RedisInstance, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_store, "ROWS_AT_A_TIME", 50)
    monkeypatch.setattr(pace, "FAST", replace(pace.FAST, keys=20))
    monkeypatch.setattr("reports.snapshot.format.BUCKETS_OF_A_LOT", 2)
    write(server, prefix, store(prefix))
    rows_of_a_file = []
    for buckets in (2, 16):
        folder = tmp_path / str(buckets)
        keep(server, prefix, folder, buckets)
        assert kept(folder, buckets) == read_all(source_of(server, prefix))
        files = list((folder / "rows" / "table=jobs").iterdir())
        rows_of_a_file.append(sum(pq.read_metadata(file).num_rows for file in files) / len(files))
    assert rows_of_a_file[1] >= rows_of_a_file[0] * 0.7, "the last lot is never full"


def test_names_of_files_are_asked_for_once_while_a_snapshot_is_the_same(
    server: RedisInstance, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    listing = Folder.names

    def counted(folder: Folder) -> list[str]:
        asked[folder.name] += 1
        return listing(folder)

    def ids(of: SnapshotManifest) -> set[str]:
        folder = versioned_folder(folder_at(tmp_path), of)
        return {job for bucket in range(4) for job in read_bucket(folder, "jobs", bucket, 4)["id"].to_pylist()}

    monkeypatch.setattr(Folder, "names", counted)
    for number in (1, 2):
        write(server, prefix, {f"q:of-{number}": job()})
        claim_folder(folder_at(tmp_path))
        keep(server, prefix, tmp_path, 4)
        write_manifest(folder_at(tmp_path), msgspec.structs.replace(manifest(), taken_ms=number))
        asked.clear()
        assert ids(read_manifest(folder_at(tmp_path))) == {f"of-{each}" for each in range(1, number + 1)}
        assert asked == {"table=jobs": 1}


def test_a_job_and_all_that_belongs_to_it_lie_in_one_bucket(server: RedisInstance, prefix: str, tmp_path: Path) -> None:
    write(server, prefix, plain_store(prefix))
    keep(server, prefix, tmp_path, 8)
    for bucket in range(8):
        ids = [
            set(read_bucket(folder_at(tmp_path), table, bucket, 8).column("id").to_pylist())
            for table in ("jobs", "locks")
        ]
        assert ids[1] <= ids[0]


def test_files_of_an_attempt_that_failed_are_removed(server: RedisInstance, prefix: str, tmp_path: Path) -> None:
    write(server, prefix, plain_store(prefix))
    written = keep(server, prefix, tmp_path, 2)
    before = kept(tmp_path, 2)
    left_over = next((tmp_path / "rows" / "table=jobs").glob("b*"))
    (left_over.parent / left_over.name.replace("-a0-", "-a1-")).write_bytes(left_over.read_bytes())
    assert kept(tmp_path, 2) != before
    drop_unclaimed(folder_at(tmp_path), [name for part in written for name in part.files])
    assert kept(tmp_path, 2) == before


def whole_snapshot(server: RedisInstance, prefix: str, folder: Path) -> SnapshotManifest:
    write(server, prefix, plain_store(prefix))
    written = keep(server, prefix, folder, 2)
    files, kind = snapshot_store.files_in(written), snapshot_store.digests_in(written)
    whole = msgspec.structs.replace(manifest(), files=files, digests=kind)
    write_manifest(folder_at(folder), whole)
    return whole


def test_a_snapshot_without_one_of_its_files_is_refused_by_name(
    server: RedisInstance, prefix: str, tmp_path: Path
) -> None:
    whole = whole_snapshot(server, prefix, tmp_path)
    assert open_snapshot_folder(folder_at(tmp_path)).manifest == whole
    assert {path.split("/")[0] for path in whole.files} == {"rows", "digests"}
    tables = {path.rpartition("/")[0]: path for path in whole.files}
    for path in tables.values():
        content = (tmp_path / path).read_bytes()
        for damaged, problem in ((None, "is missing"), (content[:-1], "bytes instead of"), (b"", "has 0 bytes")):
            (tmp_path / path).unlink(missing_ok=True)
            if damaged is not None:
                (tmp_path / path).write_bytes(damaged)
            with pytest.raises(UsageProblem, match=problem) as caught:
                open_snapshot_folder(folder_at(tmp_path))
            assert path in str(caught.value)
        (tmp_path / path).write_bytes(content)
    foreign = tmp_path / "rows" / "table=logs" / "b000-p00009-a0-000.parquet"
    foreign.write_bytes(content)
    with pytest.raises(UsageProblem, match=f"{foreign.name} is not in its manifest"):
        open_snapshot_folder(folder_at(tmp_path))


@pytest.mark.parametrize("gone", ["rows/table=events", "digests"])
def test_an_incomplete_snapshot_ends_a_verb_with_2(
    server: RedisInstance, prefix: str, tmp_path: Path, gone: str
) -> None:
    whole_snapshot(server, prefix, tmp_path)
    shutil.rmtree(tmp_path / gone)
    for verb in (("diff", str(tmp_path), str(tmp_path)), ("check", str(tmp_path))):
        result = CliRunner().invoke(cli, verb)
        assert isinstance(result.exception, UsageProblem)
        assert result.exception.exit_code == 2
        assert f"{gone}/" in str(result.exception)
