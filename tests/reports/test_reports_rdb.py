"""RDB files hold what the live store holds, in every encoding; what is damaged or unknown is refused in one line."""

from __future__ import annotations

import os
import random
import time
from ast import literal_eval
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from conformance.cli.verbs import cli
from conformance.environment.prerequisites import CHECKS, REQUIRE_VARIABLE
from conformance.observe.reader import read_snapshot
from conformance.observe.tables import TABLES
from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers import RedisInstance, open_server
from reports.snapshot.folders import folder_at
from reports.snapshot.format import read_bucket, read_manifest
from reports.snapshot.plan import RedisSource
from reports.snapshot.rdb.library import open_rdb
from reports.snapshot.rdb.meaning import TICK_MS
from reports.snapshot.rdb.replication import fetch_rdb
from reports.snapshot.rdb.saving import RdbSource
from reports.snapshot.rows import rows_of
from reports.snapshot.store import stream_facts
from reports.store_address import StoreAddress, start_reading, store_addresses
from tests.observe.snapshot_builders import ADDED, event, job
from tests.reports.rdb_builders import (
    SETTINGS,
    file_of,
    fill,
    listpack,
    module_id,
    rows_in,
    rows_read,
    saved,
    shown,
    string,
)
from tests.reports.reports_builders import plain_store, write

SEEDS = range(6)
ENCODINGS = {
    "redis-6.2": {
        *("hash ziplist", "hash hashtable", "list quicklist", "set intset", "set hashtable", "zset ziplist"),
        *("zset skiplist", "stream stream", "string raw", "string int", "string embstr"),
    },
    "redis-here": {"hash hashtable", "set intset", "set hashtable", "zset skiplist", "stream stream"},
}
"""The encodings of Redis 6.2, which is bundled, and those that every newer one has as well."""

KINDS = {"bundled": "redis-6.2", "": "redis-here"}


@pytest.fixture(scope="module", autouse=True)
def _rust() -> None:
    """The parser is compiled: where that is impossible, nothing of this can be tried."""
    if missing := CHECKS["rust"](""):
        assert "rust" not in os.environ.get(REQUIRE_VARIABLE, "").split(","), missing
        pytest.skip(f"the parser of RDB files is built with cargo: {missing}")


@pytest.fixture(scope="module", params=["bundled", ""], ids=["redis-6.2", "redis-here"])
def redis_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def own_server(redis_kind: str) -> Iterator[RedisInstance]:
    """A Redis of these tests alone: what it saves is all that it holds."""
    with open_server(redis_kind or None, announce=lambda _: None) as opened:
        yield opened


@pytest.fixture
def client(own_server: RedisInstance) -> Iterator[Any]:
    with closing(own_server.connect()) as connected:
        untyped: Any = connected
        untyped.flushall()
        for name, values in {**SETTINGS, "repl-diskless-sync-delay": (0,)}.items():
            untyped.config_set(name, values[0])
        yield untyped


def test_the_rows_are_those_of_the_live_store(client: Any, redis_kind: str) -> None:
    met: set[str] = set()
    for seed in SEEDS:
        client.flushall()
        met |= fill(client, "p", seed)
        client.set("other:q:1", "not under the prefix")
        live = read_snapshot(client, "p")
        path = saved(client)
        for page_bytes in (1, 2000, 1 << 20):
            assert rows_in(path, "p", live.taken_ms, page_bytes) == rows_read(live), f"seed {seed}, {page_bytes} bytes"
    assert met >= ENCODINGS[KINDS[redis_kind]]


def test_a_key_ends_at_the_moment_that_it_had_in_redis(client: Any, tmp_path: Path) -> None:
    client.set("p:q:1:lock", "token", pxat=4_000_000_000_123)
    client.set("p:q:2:lock", "token", px=3_600_000)
    path = saved(client)
    take_of_files(tmp_path / "kept", path)
    taken_ms = read_manifest(folder_at(tmp_path / "kept")).taken_ms
    locks = {row["id"]: row for row in kept_rows(tmp_path / "kept") if row["table"] == "locks"}
    assert locks["1"]["expires_ms"] == 4_000_000_000_123
    assert locks["2"]["ttl_ms"] <= 3_600_000, "no longer than asked for, in whichever part of a second"
    assert all(lock["ttl_ms"] == lock["expires_ms"] - taken_ms - 999 - TICK_MS for lock in locks.values())
    assert taken_ms <= time.time() * 1000
    assert rows_in(path, "p", 4_000_000_000_123) == []
    assert len(rows_in(path, "p", 4_000_000_000_122)) == 1


def take_of_files(out: Path, *files: Path, prefix: str = "p") -> str:
    """The output of the verb that keeps a snapshot of files."""
    named = [word for file in files for word in ("--rdb", str(file))]
    result = CliRunner().invoke(cli, ["snapshot", *named, "--prefix", prefix, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return result.output


def fill_stream(client: Any, jobs: int) -> None:
    """A queue whose jobs were added one second after the other, with their events."""
    client.hset("p:q:meta", mapping={"opts.maxLenEvents": "10000", "version": "bullmq:5.62.0"})
    client.set("p:q:id", jobs)
    client.zadd("p:q:marker", {"0": 0})
    for number in range(1, jobs + 1):
        at_ms = ADDED + number * 1000
        client.hset(f"p:q:{number}", mapping=job(timestamp=str(at_ms)))
        client.rpush("p:q:wait", number)
        client.xadd("p:q:events", event("added", jobId=str(number), name="n"), id=f"{at_ms}-0")
        client.xadd("p:q:events", event("waiting", jobId=str(number)), id=f"{at_ms}-1")


@pytest.mark.parametrize("kept", [10, 0])
def test_a_trimmed_stream_is_a_note_and_not_a_flood_of_differences(client: Any, tmp_path: Path, kept: int) -> None:
    """Redis 6.2 does not count entries: there the jobs are older than the first entry that is left."""
    fill_stream(client, 20)
    take_of_files(tmp_path / "whole", saved(client))
    source = RedisSource(redis=f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}", prefix="p")
    assert stream_facts(source, ["q"])["q"].is_trimmed is not True
    client.xtrim("p:q:events", maxlen=kept, approximate=False)
    take_of_files(tmp_path / "trimmed", saved(client))
    counts_entries = "entries-added" in client.xinfo_stream("p:q:events")
    assert stream_facts(source, ["q"])["q"].is_trimmed is (True if counts_entries else None)
    facts = {name: read_manifest(folder_at(tmp_path / name)).queues["q"] for name in ("whole", "trimmed")}
    if not kept and not counts_entries:
        pytest.skip("an empty stream of Redis 6.2 could as well be lost")
    assert [facts[name].events_complete for name in ("whole", "trimmed")] == [True, False]
    result = CliRunner().invoke(cli, ["diff", str(tmp_path / "whole"), str(tmp_path / "trimmed")])
    assert result.exit_code == 0, result.output
    assert "Events trimmed in q" in result.output


def test_a_lost_event_is_not_taken_for_trimming(client: Any, tmp_path: Path) -> None:
    fill_stream(client, 20)
    take_of_files(tmp_path / "whole", saved(client))
    client.xdel("p:q:events", f"{ADDED + 7000}-1")
    take_of_files(tmp_path / "damaged", saved(client))
    assert read_manifest(folder_at(tmp_path / "damaged")).queues["q"].events_complete
    result = CliRunner().invoke(cli, ["diff", str(tmp_path / "whole"), str(tmp_path / "damaged")])
    assert "transition-without-event" in result.output


def complaint(out: Path, *words: str) -> Problem:
    """The problem that the verb reports; it has written nothing."""
    result = CliRunner().invoke(cli, ["snapshot", *words, "--out", str(out)])
    assert isinstance(result.exception, Problem), result.output
    assert not any(out.rglob("*"))
    return result.exception


def kept_rows(folder: Path) -> list[dict[str, Any]]:
    found = []
    for table in TABLES:
        rows = read_bucket(folder_at(folder), table, 0, 1)
        named = rows.add_column(0, "table", pa.array([table] * len(rows), pa.string()))
        found += [wide for batch in named.to_batches() for wide in rows_of(batch)]
    return found


def test_the_verb_keeps_the_files_of_all_nodes(client: Any, tmp_path: Path) -> None:
    files, expected = [], []
    for seed in (1, 2):
        client.flushall()
        fill(client, f"p:{seed}" if seed == 2 else "p", seed)
        expected += rows_read(read_snapshot(client, "p"))
        files.append(saved(client).rename(tmp_path / f"{seed}.rdb"))
    said = take_of_files(tmp_path / "kept", *files)
    assert sorted(shown(row) for row in kept_rows(tmp_path / "kept")) == sorted(expected)
    assert f"{len(expected)} rows in" in said


def test_a_server_hands_out_its_file_with_and_without_a_disk(
    own_server: RedisInstance, client: Any, tmp_path: Path
) -> None:
    write(own_server, "p", plain_store())
    expected = rows_read(read_snapshot(client, "p"))
    for number, diskless in enumerate(("yes", "no")):
        client.config_set("repl-diskless-sync", diskless)
        out = tmp_path / str(number)
        words = ["snapshot", "--redis", own_server.url, "--replicate", "--prefix", "p", "--out", str(out)]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        assert sorted(shown(row) for row in kept_rows(out)) == expected
        assert read_manifest(folder_at(out)).source == own_server.text


def test_missing_permission_to_replicate_is_reported(own_server: RedisInstance, client: Any, tmp_path: Path) -> None:
    client.execute_command("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+@all", "-sync", "-psync")
    address = own_server.url.replace("redis://", "redis://reader:x@")
    problem = complaint(tmp_path / "kept", "--redis", address, "--replicate")
    assert problem.exit_code == 3
    assert "SYNC was refused: NOPERM" in str(problem)


def test_files_of_newer_versions_are_read(tmp_path: Path) -> None:
    """Redis 7.2 packs sets, and keeps long elements of a list alone; some items are in few files only."""
    block = listpack(1, 0, 2, b"event", b"jobId", 0, 2, 0, 0, b"added", b"1", 4)
    no_groups = bytes([1, 7, 0, 7, 0, 0, 0, 1, 0])
    group = b"\x01" + string(b"g") + bytes([7, 0, 1]) + b"\x01" + bytes(24) + b"\x01"
    consumer = b"\x01" + string(b"c") + bytes(16) + b"\x01" + bytes(16)
    stream = b"\x01" + string((7).to_bytes(8, "big") + bytes(8)) + string(block)
    of_module = (
        b"\x05" + b"\x02\x01" + b"\x02\x07" + b"\x03" + bytes(4) + b"\x04" + bytes(8) + b"\x05" + string(b"x") + b"\x00"
    )
    path = file_of(
        tmp_path / "newer.rdb",
        b"\xfa" + string(b"redis-ver") + string(b"7.2.4"),
        b"\xf7" + of_module + b"\xf5" + string(b"a function"),
        b"\xfe\x00" + b"\xfb\x07\x00" + b"\xf4\x01\x01\x00",
        b"\xf8\x05" + b"\x14" + string(b"p:q:stalled") + string(listpack(b"a", 7)),
        b"\xf9\x05" + b"\x12" + string(b"p:q:wait") + b"\x01\x01" + string(b"a long element"),
        b"\x15" + string(b"p:q:events") + stream + no_groups,
        b"\x15" + string(b"p:r:events") + stream + no_groups[:-1] + group + consumer,
        b"\x07" + string(b"p:q:json") + b"\x81" + module_id("ReJSON-RL") + of_module[5:],
        b"\xfd\xff\xff\xff\x7f" + b"\x00" + string(b"p:q:id") + b"\xc0\x07",
        b"\xfe\x01" + b"\x00" + string(b"p:q:pc") + string(b"of another database"),
    )
    rows = rows_in(path, "p", 0)
    found = [
        (row["table"], row["queue"], row["id"], row["name"], row["key"], row["value"])
        for row in map(literal_eval, rows)
    ]
    assert sorted(found, key=repr) == [
        ("counters", "q", None, "id", None, "7"),
        ("events", "q", "1", "added", "7-0", None),
        ("events", "r", "1", "added", "7-0", None),
        ("expiries", None, None, "id", "p:q:id", None),
        ("memberships", "q", "7", "stalled", None, None),
        ("memberships", "q", "a long element", "wait", None, None),
        ("memberships", "q", "a", "stalled", None, None),
        ("unknown", None, None, "ReJSON-RL", "p:q:json", '"1"'),
    ]


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with values of every type."""
    with open_server("bundled", announce=lambda _: None) as server, closing(server.connect()) as client:
        fill(client, "p", seed=3)
        return Path(saved(client)).rename(tmp_path_factory.mktemp("rdb") / "sound.rdb")


def refusal(path: Path) -> str:
    with open_rdb(path, b"p:", 0) as reader, pytest.raises(UsageProblem) as caught:
        for _ in reader.pages():
            pass
    return str(caught.value)


def test_a_file_that_is_cut_off_anywhere_is_refused(sound_file: Path, tmp_path: Path) -> None:
    whole = sound_file.read_bytes()
    cut = tmp_path / "cut.rdb"
    for length in (*range(1, 40), *range(40, len(whole), len(whole) // 100), len(whole) - 1):
        cut.write_bytes(whole[:length])
        assert refusal(cut).startswith(f"{cut} cannot be read: it "), length


def test_a_file_with_another_byte_anywhere_is_refused(sound_file: Path, tmp_path: Path) -> None:
    """With its checksum, and without one at least nothing worse happens than a refusal."""
    whole, chance = sound_file.read_bytes(), random.Random(5)
    damaged = tmp_path / "damaged.rdb"
    for _ in range(200):
        changed = bytearray(whole)
        changed[chance.randrange(9, len(whole))] ^= chance.randrange(1, 256)
        damaged.write_bytes(changed)
        assert "(at byte " in refusal(damaged)
        damaged.write_bytes(changed[:-8] + bytes(8))
        with open_rdb(damaged, b"p:", 0) as reader, suppress(UsageProblem):
            assert all(len(page.keys) == len(page.records) for page in reader.pages(1000))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04 an archive", "it does not begin as an RDB file does"),
        (b"REDIS0099\xff" + bytes(8), "it has version 99 of the format REDIS; 9 to 12 are read"),
        (b"REDIS0006\xff" + bytes(8), "it has version 6 of the format REDIS; 9 to 12 are read"),
        (b"VALKEY081\xff" + bytes(8), "it has version 81 of the format VALKEY; 80 to 80 are read"),
        (b"REDIS0011\x19" + string(b"p:q:1"), "type 25, a hash with times to live of single fields, is not read"),
        (b"REDIS0011\x63" + string(b"p:q:1"), "type 99 is not known"),
        (b"REDIS0011\x00" + string(b"p:q:1") + b"\xc7", "string encoding 7 is not known"),
        (b"REDIS0011\xff" + b"\x01" * 8, "its checksum is not that of what stands in it"),
        (b"REDIS0011\xff" + bytes(8) + b"*1\r\n$4\r\nPING", "something stands behind its end, as in an append-only"),
    ],
)
def test_an_unreadable_file_is_reported_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "given.rdb"
    path.write_bytes(content)
    problem = complaint(tmp_path / "kept", "--rdb", str(path))
    assert (problem.exit_code, len(str(problem).splitlines())) == (2, 1)
    assert f"{path} cannot be read: {said}" in str(problem)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "specify exactly one of --redis or --rdb"),
        (["--rdb", "a.rdb", "--redis", "redis://127.0.0.1:1"], "specify exactly one of --redis or --rdb"),
        (["--rdb", "a.rdb", "--replicate"], "--replicate does not apply to --rdb"),
        (["--redis", "redis://127.0.0.1:1", "--database", "2"], "--database applies only to --rdb"),
        (["--rdb", "missing.rdb"], "missing.rdb cannot be read: No such file or directory"),
    ],
)
def test_a_snapshot_is_of_one_store(words: list[str], said: str, tmp_path: Path) -> None:
    problem = complaint(tmp_path / "kept", *words)
    assert problem.exit_code == 2
    assert said in str(problem)


def test_a_side_of_a_diff_may_be_a_file(sound_file: Path, tmp_path: Path) -> None:
    named = StoreAddress(text=f"{sound_file}#p", queue="q")
    assert named.source == RdbSource(files=[sound_file], prefix="p", queue="q")
    assert StoreAddress(text=str(sound_file)).source == RdbSource(files=[sound_file], prefix="bull")
    assert StoreAddress(text=str(tmp_path)).source is None
    with pytest.raises(UsageProblem, match="give the folder of a snapshot, an RDB file, or redis://"):
        StoreAddress(text=str(tmp_path / "missing.rdb")).prove()


def test_sides_that_run_are_read_by_replication_at_the_same_time(
    own_server: RedisInstance, client: Any, sound_file: Path, tmp_path: Path
) -> None:
    write(own_server, "p", plain_store())
    expected = rows_read(read_snapshot(client, "p"))
    client.config_set("repl-diskless-sync", "yes")
    client.config_set("repl-diskless-sync-delay", 1)
    before = client.info("stats")["sync_full"]
    stores = store_addresses(*[f"{own_server.url}#p"] * 2, str(sound_file), replicate=True)
    readings = []
    for number, store in enumerate(stores):
        scratch = tmp_path / f"scratch-{number}"
        scratch.mkdir()
        readings.append(start_reading(store, folder_at(tmp_path / str(number)), scratch))
    for number, reading in enumerate(readings):
        assert reading.result(timeout=60) == folder_at(tmp_path / str(number))
    for number in (0, 1):
        assert sorted(shown(row) for row in kept_rows(tmp_path / str(number))) == expected
    assert client.info("stats")["sync_full"] == before + 2


def test_an_error_in_the_background_is_raised_by_the_result(tmp_path: Path) -> None:
    file = tmp_path / "torn.rdb"
    file.write_bytes(b"REDIS0009")
    reading = start_reading(StoreAddress(text=str(file)), folder_at(tmp_path / "kept"), tmp_path)
    with pytest.raises(UsageProblem, match="cannot be read"):
        reading.result(timeout=60)


def test_nothing_is_replicated_from_what_does_not_run(sound_file: Path) -> None:
    with pytest.raises(UsageProblem, match="--replicate needs a live Redis"):
        store_addresses(str(sound_file), str(sound_file), replicate=True)
    assert store_addresses("redis://127.0.0.1:1", str(sound_file), replicate=True)


def test_a_server_that_goes_away_is_reported(tmp_path: Path) -> None:
    with open_server("bundled", announce=lambda _: None) as server:
        address = server
    with pytest.raises(EnvironmentProblem, match="cannot be reached"):
        fetch_rdb(address, tmp_path)
