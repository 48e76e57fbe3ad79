"""The keys of BullMQ's relay (6.4 and newer) are read and kept, and are neither jobs nor foreign keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from conformance.checkers.snapshot_checks import check_snapshot
from conformance.observe.canonical import DEFAULT_RULES
from conformance.observe.diff import compare
from conformance.observe.reader import read_snapshot
from conformance.observe.relay import relay_place
from conformance.observe.tables import Snapshot
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_bullmq

VERSION = "6.7.0"
PREFIX = "b"


def _relay(redis: Redis, text: str = "on") -> Snapshot:
    """The snapshot after Node has made a relay, whose keys it leaves."""
    node = find_node(None)
    root = ensure_bullmq(node, VERSION, announce=lambda _: None).root
    program = Path(__file__).with_name("make_relay.mjs")
    port = redis.connection_pool.connection_kwargs["port"]
    words = [str(node.path), str(program), str(root), str(port), PREFIX, text]
    subprocess.run(words, check=True, timeout=60, capture_output=True)
    return read_snapshot(redis, PREFIX)


def test_its_keys_are_kept_but_not_read_as_jobs(redis: Redis) -> None:
    snapshot = _relay(redis)
    places = {relay_place(PREFIX, row.key) for row in snapshot.unknown}
    assert places >= {"namespaces", "layout", "nodes", "subs", "retained", "one:node", "queues.mail.paused:ret"}
    assert len(snapshot.unknown) == len(list(redis.scan_iter(f"{PREFIX}::relay:*")))
    assert (snapshot.jobs, snapshot.expiries, snapshot.memberships) == ((), (), ())
    assert check_snapshot(snapshot, version=VERSION) == []


def test_two_relays_with_the_same_messages_are_alike(redis: Redis) -> None:
    before = _relay(redis)
    redis.flushall()
    assert compare(before, _relay(redis), DEFAULT_RULES) == []


def test_another_retained_message_is_a_difference(redis: Redis) -> None:
    before = _relay(redis)
    redis.flushall()
    found = compare(before, _relay(redis, "off"), DEFAULT_RULES)
    assert [(each.where, each.kind) for each in found] == [("unknown.relay.retained", "wrong-value")]


def test_a_lost_subscription_is_a_difference(redis: Redis) -> None:
    before = _relay(redis)
    redis.delete(f"{PREFIX}::relay:{{default}}:subs")
    found = compare(before, read_snapshot(redis, PREFIX), DEFAULT_RULES)
    assert [(each.where, each.kind) for each in found] == [("unknown.relay.patterns", "missing-key")]


@pytest.mark.parametrize("key", ["b::other:x", "b:relay:{default}:nodes", "b::relayed:x"])
def test_other_keys_are_not_taken_for_a_relay(key: str, redis: Redis) -> None:
    redis.set(key, "x")
    snapshot = read_snapshot(redis, PREFIX)
    assert relay_place(PREFIX, key) is None
    assert [violation.where for violation in check_snapshot(snapshot, version=VERSION)] == ["invariant.no-unknown-keys"]


@pytest.mark.slow
def test_the_verbs_read_a_store_with_a_relay(redis: Redis, tmp_path: Path) -> None:
    _relay(redis)
    store = f"redis://127.0.0.1:{redis.connection_pool.connection_kwargs['port']}#{PREFIX}"
    folders = [str(tmp_path / name) for name in ("before", "after")]
    for folder in folders:
        _run("snapshot", "--redis", store.partition("#")[0], "--prefix", PREFIX, "--out", folder)
        redis.zadd(f"{PREFIX}::relay:{{default}}:nodes", {"one": 1})
    _run("check", store)
    # The lease of a process is its own.
    _run("diff", *folders)


def _run(*words: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "conformance", *words], check=False, timeout=600, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
