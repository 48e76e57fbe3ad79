"""The checks that a store breaks by itself are found, and no others, although digests take jobs out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.checkers.base import SnapshotView, ViolationDetail
from conformance.checkers.table import CHECKS
from conformance.observe.keyspace import RawKey
from conformance.observe.tables import Snapshot
from conformance.servers import RedisInstance
from reports.check import store_check, suspicions
from reports.check.nearby import Asking, QueueNearby
from reports.check.store_check import check_snapshot
from reports.check.suspicions import Suspicion, SuspicionTally
from reports.diff.checks import JOB_CHECKS, broken_jobs, broken_queue, judged
from reports.diff.equality import JobDigests
from reports.diff.values import DiffSide, readable
from reports.snapshot.folders import folder_at
from reports.snapshot.format import open_snapshot_folder
from reports.snapshot.plan import RedisSource
from reports.snapshot.store import save
from tests.observe.snapshot_builders import ADDED, Stream, Zset, event, job, snapshot
from tests.reports.reports_builders import (
    digests_by_table,
    finished_job,
    plain_store,
    planted,
    rows_of_jobs,
    tables_of,
    write,
)

TEN_YEARS_MS = 10 * 365 * 24 * 3_600_000


def found_in(store: Snapshot) -> set[tuple[str, str, str]]:
    """Defects of the jobs that digests leave to the checks."""
    facts = DiffSide(prefix=store.prefix, taken_ms=store.taken_ms)
    tables = tables_of(store)
    digests = JobDigests(digests_by_table(store, tables), facts)
    rows = rows_of_jobs(tables, digests.keys[~digests.is_sound])
    return {(found.kind, found.key, found.place) for found in broken_jobs(rows, facts)}


def good_store(**changes: Any) -> dict[str, Any]:
    return {
        "q:1": finished_job(ats="1"),
        "q:completed": Zset({"1": float(finished_job()["finishedOn"])}),
        "q:2": job(),
        "q:wait": ["2"],
        "q:3": job(delay="5", opts='{"delay":5}'),
        "q:delayed": Zset({"3": (ADDED + 5.0) * 4096 + 7}),
        "q:4": job(priority="3", opts='{"priority":3}'),
        "q:prioritized": Zset({"4": 3.0 * 2**32 + 1}),
        "q:events": Stream([event("added", jobId="1", name="n"), event("added", jobId="2", name="n")]),
        **changes,
    }


def test_a_good_store_breaks_nothing_and_its_jobs_are_not_checked_one_by_one() -> None:
    store = snapshot(good_store())
    digests = JobDigests(
        digests_by_table(store, tables_of(store)), DiffSide(prefix=store.prefix, taken_ms=store.taken_ms)
    )
    assert len(digests.keys) == 4
    assert digests.is_sound.all()
    assert found_in(store) == set()


@pytest.mark.parametrize(
    ("changes", "check", "key"),
    [
        ({"q:completed": Zset({"1": 17.0})}, "finish-scores", "q:1"),
        ({"q:delayed": Zset({"3": (ADDED - 10_000.0) * 4096})}, "due-scores", "q:3"),
        ({"q:prioritized": Zset({"4": 4.0 * 2**32 + 1})}, "priority-scores", "q:4"),
        ({"q:2": job(timestamp=str(ADDED + TEN_YEARS_MS))}, "added-in-time", "q:2"),
        ({"q:2": job(timestamp=str(ADDED - 70_000))}, "added-in-time", "q:2"),
        ({"q:2": job(timestamp="soon")}, "times", "q:2"),
        ({"q:wait": ["2", "5"]}, "no-ghosts", "q:5"),
        ({"q:wait": []}, "one-state", "q:2"),
        ({"q:active": ["2"]}, "one-state", "q:2"),
        ({"q:wait": ["2", "2"]}, "no-duplicates", "q:2"),
        ({"q:6:logs": ["a line"]}, "owned-keys", "q:6"),
        ({"q:waiting-children": Zset({"5": float(ADDED)}), "q:5": job()}, "waits-for-something", "q:5"),
        ({"q:1": finished_job(returnvalue="no json", ats="1")}, "json-texts", "q:1"),
        ({"q:1": finished_job(opts="[]", ats="1")}, "json-texts", "q:1"),
        ({"q:1": finished_job(atm="2", ats="1")}, "attempts", "q:1"),
        ({"q:1": finished_job(delay="soon", ats="1")}, "numbers", "q:1"),
        ({"q:1": finished_job(processedOn=str(ADDED - 9000))}, "times-in-order", "q:1"),
    ],
)
def test_a_broken_job_is_found(changes: dict[str, Any], check: str, key: str) -> None:
    store = {name: value for name, value in good_store(**changes).items() if value != []}
    assert (check, key) in {found[:2] for found in found_in(snapshot(store))}


@pytest.mark.parametrize("store", [plain_store("p"), planted(plain_store("p"))[0], good_store()])
def test_jobs_taken_out_first_would_have_broken_nothing(store: dict[str, Any]) -> None:
    whole = snapshot(store)
    everything = {(found.kind, found.key, found.place) for found in judged(whole, JOB_CHECKS)}
    assert found_in(whole) == everything


@pytest.mark.parametrize(("doubt", "found"), [({}, 0), ({"stc": "^[0-9]{4,}$"}, 1)])
def test_a_check_sees_all_values_that_it_doubts(
    doubt: dict[str, str], found: int, monkeypatch: pytest.MonkeyPatch, server: RedisInstance, tmp_path: Path
) -> None:
    def often(view: SnapshotView) -> Iterator[ViolationDetail]:
        for (queue, name), stalled in view.jobs.items():
            if len(stalled.fields["stc"]) > 3:
                yield ViolationDetail(where="job.stc", key=f"{queue}:{name}", message="it stalls often")

    check = replace(CHECKS["attempts"], name="stalls", predicate=often, doubt=doubt)
    monkeypatch.setattr(store_check, "JOB_CHECKS", [*JOB_CHECKS, check])
    prefix = server.fresh_prefix()
    write(server, prefix, {"q:1": job(stc="999"), "q:2": job(stc="1000"), "q:wait": ["1", "2"], "q:id": "2"})
    save(RedisSource(redis=server.url, prefix=prefix), folder_at(tmp_path))
    server.remove_prefix(prefix)
    assert check_snapshot(open_snapshot_folder(folder_at(tmp_path))).tally.by_check["stalls"] == found


def in_queue(store: dict[str, Any], *tables: str) -> set[tuple[str, str]]:
    whole = snapshot(store)
    rows = [(table, row) for table in tables for row in getattr(whole, table)]
    facts = DiffSide(prefix=whole.prefix, taken_ms=whole.taken_ms)
    return {(found.kind, found.key) for found in broken_queue(rows, facts)}


OWNER = {
    "q:1": job(),
    "q:kept": job(opts='{"de":{"id":"x","ttl":86400000}}', deid="x"),
    "q:id": "1",
    "q:de:x": "kept",
    "q:marker": Zset({"0": 0.0}),
}


def kinds_in_groups(store: dict[str, Any], ttls: dict[str, int], server: RedisInstance, folder: Path) -> set[str]:
    """Findings of the checks in a store whose deduplication keys and their owners are in a group of their own."""
    prefix = server.fresh_prefix()
    write(server, prefix, store)
    with server.connect() as client:
        for name, ttl_ms in ttls.items():
            client.pexpire(f"{prefix}:{name}", ttl_ms)
        for name in ("q:1", "q:kept"):
            client.hset(f"{prefix}:{name}", "timestamp", str(int(time.time() * 1000)))
    save(RedisSource(redis=server.url, prefix=prefix), folder_at(folder))
    server.remove_prefix(prefix)
    return set(check_snapshot(open_snapshot_folder(folder_at(folder))).tally.by_check)


@pytest.mark.parametrize("waiting", [{"q:wait": ["1", "kept"]}, {"q:paused": ["1", "kept"], "q:meta": {"paused": "1"}}])
def test_the_owner_of_a_deduplication_key_is_not_judged_without_the_settings_of_its_queue(
    waiting: dict[str, Any], server: RedisInstance, tmp_path: Path
) -> None:
    store = {**OWNER, **waiting}
    assert kinds_in_groups(store, {"q:de:x": 86_390_000 + 9_000}, server, tmp_path / "long") == set()
    assert kinds_in_groups(store, {"q:de:x": 100_000}, server, tmp_path / "short") == {"deduplication-ttl"}


def test_a_marker_that_is_gone_is_found_where_jobs_wait() -> None:
    tables = ("jobs", "memberships", "markers", "metas")
    waiting = {"q:1": job(), "q:wait": ["1"], "q:meta": {"version": "bullmq:5.62.0"}}
    assert ("base-marker", "q:marker") in in_queue(waiting, *tables)
    assert ("base-marker", "q:marker") not in in_queue({**waiting, "q:marker": Zset({"0": 0.0})}, *tables)
    assert ("base-marker", "q:marker") not in in_queue({**waiting, "q:2": job(), "q:active": ["2"]}, *tables)


def test_a_counter_that_would_give_an_id_twice_is_found() -> None:
    tables = ("jobs", "memberships", "counters")
    assert ("id-counter", "q:id") in in_queue({"q:7": job(), "q:wait": ["7"], "q:id": "6"}, *tables)
    assert ("id-counter", "q:id") not in in_queue({"q:7": job(), "q:wait": ["7"], "q:id": "7"}, *tables)


PAUSED = {"q:1": job(), "q:2": job(), "q:id": "2"}


@pytest.mark.parametrize(
    ("version", "waiting", "parked", "broken"),
    [
        ("bullmq:5.62.0", [], ["1", "2"], set()),
        ("bullmq:5.62.0", ["1"], ["2"], {("paused-list", "q:wait")}),
        ("", ["1"], ["2"], {("paused-list", "q:wait")}),
        ("bullmq:6.7.0", ["1", "2"], [], set()),
        ("bullmq:6.7.0", ["1"], ["2"], {("nothing-parked", "q:paused")}),
    ],
)
def test_the_place_of_parked_jobs_is_judged_by_the_version_that_wrote_them(
    version: str, waiting: list[str], parked: list[str], broken: set[tuple[str, str]]
) -> None:
    meta = {"paused": "1"} | ({"version": version} if version else {})
    lists = {name: ids for name, ids in (("q:wait", waiting), ("q:paused", parked)) if ids}
    assert in_queue({**PAUSED, **lists, "q:meta": meta}, "jobs", "memberships", "metas", "counters") == broken


def test_bytes_that_are_not_utf_8_are_readable_in_differences() -> None:
    assert readable("a\udcffb") == "a\\xffb"
    assert readable("é") == "é"


def test_the_suspicions_that_are_kept_are_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy queue has thousands of suspicions about jobs that have just moved: they must not push out a damage."""
    monkeypatch.setattr(suspicions, "MOST_KEPT", 2)

    def suspicion(key: str, last_ms: int) -> Suspicion:
        return Suspicion(
            key=key,
            not_before_ms=last_ms,
            cause="in-no-container",
            check="one-state",
            place="",
            severity="",
            message="",
        )

    parts = []
    for start in range(0, 6, 2):
        tally = SuspicionTally()
        tally.add([suspicion(f"q:{start + n}", ADDED + 1000 - start) for n in range(2)])
        parts.append(tally)
    parts[1].add([suspicion("q:9", ADDED)])
    whole = SuspicionTally()
    for tally in parts:
        whole.merge(tally)
    assert [found.key for found in whole.all_kept] == ["q:9", "q:4"]
    assert whole.total == 7


def test_the_beginning_of_an_unknown_hash_is_read_again(server: RedisInstance, prefix: str) -> None:
    key = f"{prefix}:q:unknown"
    with server.connect() as client, closing(Asking(RedisSource(redis=server.url, prefix=prefix))) as asking:
        client.hset(key, "a", "b")
        nearby = QueueNearby(asking, "q")
        nearby.read_key(key)
    assert nearby.raw == [RawKey(key=key, type="hash", value={"a": "b"})]
