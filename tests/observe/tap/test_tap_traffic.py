"""The checks over recorded commands: good and bad calls written by hand, and everything that Node really sends."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest

from conformance.checkers.traffic import ALL_CHECKS, check_traffic
from conformance.observe.tap.recording import CommandRecord, Fate, ReplyRecord, TappedCommand
from conformance.observe.tap.tap import Tap
from conformance.problems import UsageProblem
from conformance.protocol.scripts import SCRIPT_SIGNATURES
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.upstream.manifest import load_manifest, script_names_by_sha1

from .conftest import Node, eventually

NAMES = script_names_by_sha1()
DIGESTS = {name: digest for digest, name in NAMES.items()}
NOW = "1700000000000"
BASE = "{b}:q:"
FETCH = {"token": "t", "lockDuration": 30000, "limiter": {"max": 3, "duration": 1000}, "name": None}
SLOTS: list[Any] = [BASE, "", "name", int(NOW), None, None, None, None, None]
ONE = hashlib.sha1(b"return 1", usedforsecurity=False).hexdigest()

Words = Sequence[str | bytes | int]


def pack(value: Any) -> bytes:
    return bytes(msgpack.packb(value))


def command(
    *words: str | bytes | int,
    sequence: int = 1,
    connection: int = 1,
    reply: bytes = b"+OK\r\n",
    fate: Fate = "answered",
    transaction: int | None = None,
) -> CommandRecord:
    """A command as the tap would have recorded it, answered at the time of its number."""
    args = tuple(word if isinstance(word, bytes) else str(word).encode() for word in words)
    command = TappedCommand(b"", args, connection, "127.0.0.1:1")
    command.sequence, command.arrived_s, command.transaction = sequence, float(sequence), transaction
    command.fate = fate
    if fate == "answered":
        command.answer = ReplyRecord(head=reply, size=len(reply), at_s=sequence + 0.5)
    return command.record(NAMES)


def call(script: str, keys: Words, argv: Words, **more: Any) -> CommandRecord:
    return command("EVALSHA", DIGESTS[script], len(keys), *keys, *argv, **more)


def keys(script: str, base: str = BASE, **replaced: str) -> list[str]:
    """Right keys of a script, but those given by position (`k3`)."""
    names = [name.split("|")[0].replace("<job>", "1").replace("<base>", "") for name in SCRIPT_SIGNATURES[script].keys]
    found = [f"{base}{name}" for name in names]
    for position, key in replaced.items():
        found[int(position[1:]) - 1] = key
    return found


def fetch(*, argv: Words | None = None, **replaced: str) -> CommandRecord:
    return call("moveToActive", keys("moveToActive", **replaced), argv or [BASE, NOW, pack(FETCH)])


def add(slots: Any = None, options: bytes | None = None) -> CommandRecord:
    packed = pack(SLOTS if slots is None else slots)
    return call("addStandardJob", keys("addStandardJob"), [packed, "{}", options or pack({"attempts": 3})])


GOOD: dict[str, list[CommandRecord]] = {
    "fetch": [fetch()],
    "add": [add()],
    "add with trailing nils left out": [add(SLOTS[:4])],
    "parents may be of another queue": [add([*SLOTS[:4], "{b}:other:1", "{b}:other:1:dependencies", None, None, None])],
    "finish": [
        call(
            "moveToFinished",
            keys("moveToFinished"),
            ["1", NOW, "returnvalue", "1", "completed", "1", BASE, pack({**FETCH, "keepJobs": {"count": -1}}), ""],
        )
    ],
    "finish as failed": [
        call(
            "moveToFinished",
            keys("moveToFinished", k11=f"{BASE}failed", k13=f"{BASE}metrics:failed"),
            ["1", NOW, "failedReason", "x", "failed", "0", BASE, pack(FETCH), pack(["failedReason", "x"])],
        )
    ],
    "pause": [call("pause", keys("pause", k2=f"{BASE}paused"), ["paused"])],
    "resume": [call("pause", keys("pause", k1=f"{BASE}paused"), ["resumed"])],
    "counts": [call("getCounts", [BASE], ["wait", "active", "delayed"])],
    "data of a job with colons in its id": [call("updateData", [f"{BASE}repeat:x:5"], ["{}"])],
    "lock": [call("extendLock", [f"{BASE}1:lock", f"{BASE}stalled"], ["t", "30000", "1"])],
    "any priority": [call("changePriority", keys("changePriority"), ["1.5", BASE, "1", "0"])],
    "promote all": [
        call("moveJobsToWait", keys("moveJobsToWait", k3=f"{BASE}delayed"), ["1000", "1.797e308", "delayed"])
    ],
    "a delay that the script computes": [
        call(
            "addJobScheduler",
            keys("addJobScheduler"),
            ["", pack({"every": 5}), "sid", "{}", pack({}), pack({"delay": float("nan")}), NOW, BASE, ""],
        )
    ],
    "scheduler update without a producer": [
        call("updateJobScheduler", keys("updateJobScheduler", k11=""), ["", "sid", "{}", pack({}), NOW, BASE, "1"])
    ],
    "blocking": [command("BZPOPMIN", f"{BASE}marker", "0.687"), command("XREAD", "BLOCK", 10000, "STREAMS", "e", "$")],
    "text once per connection": [
        command("EVAL", "return 1", 0, sequence=1),
        command("EVAL", "return 1", 0, sequence=2, connection=2),
        command("EVALSHA", ONE, 0, sequence=3),
    ],
    "text again after NOSCRIPT": [
        command("EVAL", "return 1", 0, sequence=1),
        command("EVALSHA", ONE, 0, sequence=2, reply=b"-NOSCRIPT No matching script.\r\n"),
        command("EVAL", "return 1", 0, sequence=3),
    ],
    "a text for each of two NOSCRIPTs": [
        *(command("EVALSHA", ONE, 0, sequence=number, reply=b"-NOSCRIPT No matching script.\r\n") for number in (1, 2)),
        *(command("EVAL", "return 1", 0, sequence=number) for number in (3, 4)),
    ],
    "text again where the first was lost": [
        command("EVAL", "return 1", 0, sequence=1, fate="lost"),
        command("EVAL", "return 1", 0, sequence=2),
    ],
    "an unknown script may have any keys": [command("EVAL", "return 2", 1, "x", "y")],
    "plain commands": [command("HGETALL", "x"), command("LRANGE", "{b}:q:wait", 0, -1), command("CLIENT", "LIST")],
    "changes that Node makes outside of scripts": [
        command("HMSET", f"{BASE}meta", "version", "bullmq:5.62.0"),
        command("HSET", f"{BASE}meta", "concurrency", 1),
        command("HDEL", f"{BASE}meta", "concurrency"),
        command("SET", f"{BASE}limiter", 9, "PX", 100),
        command("DEL", f"{BASE}limiter"),
        command("DEL", f"{BASE}de:once"),
        command("LTRIM", f"{BASE}1:logs", -2, -1),
        command("XTRIM", f"{BASE}events", "MAXLEN", "~", 10),
        command("BZPOPMIN", f"{BASE}marker", 5),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_right_commands_pass(name: str) -> None:
    assert [str(violation) for violation in check_traffic(GOOD[name], cluster=True)] == []


BAD: dict[str, tuple[str, str, list[CommandRecord]]] = {
    "a key too few": (
        "key-count",
        "10 keys instead of 11",
        [call("moveToActive", keys("moveToActive")[:10], [BASE, NOW, pack(FETCH)])],
    ),
    "more keys than words": ("key-count", "5 keys announced, 1 words follow", [command("EVAL", "return 1", 5, "a")]),
    "a negative number of keys": ("key-count", "-1 keys announced", [command("EVAL", "return 1", -1, "a")]),
    "keys swapped": (
        "key-names",
        "keys[3]",
        [fetch(k3=f"{BASE}delayed", k7=f"{BASE}prioritized")],
    ),
    "a key of another queue": ("key-names", "keys[11]", [fetch(k11="{b}:other:marker")]),
    "a job key without an id": ("key-names", "keys[1]", [call("updateData", ["q"], ["{}"])]),
    "a lock key that is none": (
        "key-names",
        "keys[1]",
        [call("extendLock", [f"{BASE}1", f"{BASE}stalled"], list("t11"))],
    ),
    "a wrong key if no other names the queue": (
        "key-names",
        "keys[2]",
        [call("extendLock", [f"{BASE}1:lock", f"{BASE}stalle"], ["t", "30000", "1"])],
    ),
    "another queue in the argument": (
        "undeclared-keys",
        "keys of {b}:other:",
        [fetch(argv=["{b}:other:", NOW, pack(FETCH)])],
    ),
    "a base without its colon": ("undeclared-keys", "keys of {b}:q,", [fetch(argv=["{b}:q", NOW, pack(FETCH)])]),
    "another queue in the packed argument": ("undeclared-keys", "argv[1][1]", [add(["{b}:other:", *SLOTS[1:]])]),
    "two slots": ("one-slot", "keys of 2 slots", [command("EXISTS", "a", "b")]),
    "a script in two slots": (
        "one-slot",
        "slots",
        [call("extendLock", ["b:q:1:lock", "b:q:stalled"], ["t", "30000", "1"])],
    ),
    "a transaction in two slots": (
        "one-slot",
        "another slot",
        [command("GET", "a", transaction=1), command("GET", "b", transaction=1, sequence=2)],
    ),
    "an argument too many": ("surplus-arguments", "4 arguments", [fetch(argv=[BASE, NOW, pack(FETCH), "x"])]),
    "an argument too few": ("argument-count", "2 arguments", [fetch(argv=[BASE, NOW])]),
    "seconds instead of ms": (
        "numeric-range",
        "not a time in Unix ms",
        [fetch(argv=[BASE, "1700000000", pack(FETCH)])],
    ),
    "no number": ("numeric-range", "not a finite number", [fetch(argv=[BASE, "None", pack(FETCH)])]),
    "a boolean of another language": (
        "numeric-range",
        "neither 1 nor 0",
        [call("drain", keys("drain"), [BASE, "False"])],
    ),
    "an infinite lock": (
        "numeric-range",
        "lockDuration",
        [fetch(argv=[BASE, NOW, pack({"lockDuration": float("inf")})])],
    ),
    "a lock for no time": (
        "numeric-range",
        "0 is too small",
        [call("extendLock", keys("extendLock"), ["t", "0", "1"])],
    ),
    "a fraction of a ms to live": (
        "numeric-range",
        "30000.5 is not a whole number",
        [call("extendLock", keys("extendLock"), ["t", "30000.5", "1"])],
    ),
    "an integer beyond a double": ("numeric-range", "18446744073709551615", [add([*SLOTS[:3], 2**64 - 1])]),
    "blocking for ever": ("numeric-range", "is not a time in s", [command("BZPOPMIN", "m", "-1")]),
    "blocking in the wrong unit": ("numeric-range", "is not a time in s", [command("BZPOPMIN", "m", "5000")]),
    "blocking in fractions": (
        "numeric-range",
        "is not a time in ms",
        [command("XREAD", "BLOCK", "0.5", "STREAMS", "e", "$")],
    ),
    "JSON instead of msgpack": ("packed-arguments", "not a msgpack", [fetch(argv=[BASE, NOW, '{"token":"t"}'])]),
    "an empty text for a parent": ("packed-arguments", "parent dependencies key", [add([*SLOTS[:5], "", *SLOTS[6:]])]),
    "too many slots": ("packed-arguments", "10 entries", [add([*SLOTS, None])]),
    "the text twice": (
        "eval-twice",
        "was sent by #1 already",
        [command("EVAL", "return 1", 0), command("EVAL", "return 1", 0, sequence=2)],
    ),
    "progress by hand": ("outside-script", f"HSET {BASE}1 ", [command("HSET", f"{BASE}1", "progress", "1")]),
    "an event by hand": ("outside-script", "XADD", [command("XADD", f"{BASE}events", "*", "event", "added")]),
    "a lock by hand": ("outside-script", "SET", [command("SET", f"{BASE}1:lock", "t", "PX", 30000)]),
    "a job moved by hand": ("outside-script", "LREM", [command("LREM", f"{BASE}active", 1, "1", transaction=1)]),
    "a deduplication key by hand": ("outside-script", "SET", [command("SET", f"{BASE}de:once", "1")]),
    "flushing": ("dangerous-commands", "FLUSHALL", [command("FLUSHALL")]),
    "configuring": ("dangerous-commands", "CONFIG SET", [command("CONFIG", "SET", "maxmemory", "1")]),
    "looking for keys": ("dangerous-commands", "KEYS", [command("keys", "*")]),
}


def test_a_mistake_in_every_call_is_one_finding_that_counts_them() -> None:
    texts = [command("EVAL", "return 1", 0, sequence=number) for number in range(1, 1001)]
    [finding] = check_traffic([*texts, command("GET", "q", sequence=2000)])
    assert (finding.kind, finding.times) == ("eval-twice", 999)
    others = [command("FLUSHALL"), command("KEYS", "*", sequence=2), command("KEYS", "*", sequence=3)]
    assert [(item.actual[:2], item.times) for item in check_traffic(others)] == [("#1", 1), ("#2", 2)]


@pytest.mark.parametrize("name", BAD)
def test_wrong_commands_are_found_by_their_check(name: str) -> None:
    check, text, commands = BAD[name]
    found = check_traffic(commands, cluster=True)
    assert check in {violation.kind for violation in found}, found
    assert not any(" " in violation.place for violation in found), "a message in the place of a place"
    assert any(text in f"{violation.place} {violation.message}" for violation in found if violation.kind == check), (
        list(map(str, found))
    )
    assert not [
        violation
        for violation in check_traffic(commands, cluster=True, switched_off={check: "shown"})
        if violation.kind == check
    ]


def test_every_check_is_shown_to_fail() -> None:
    assert {check for check, _, _ in BAD.values()} == {check.name for check in ALL_CHECKS}
    assert all(check.doc and check.source for check in ALL_CHECKS)


def test_slots_are_judged_in_a_cluster_only() -> None:
    assert check_traffic([command("EXISTS", "a", "b")]) == []


@pytest.mark.parametrize(("name", "reason"), [("no-such-check", "x"), ("one-slot", " ")])
def test_only_known_checks_are_switched_off_and_with_a_reason(name: str, reason: str) -> None:
    with pytest.raises(UsageProblem):
        check_traffic([], switched_off={name: reason})


def test_the_calls_of_all_official_scripts_are_described() -> None:
    pinned = {name: entry.keys for name, entry in load_manifest().scripts.items()}
    assert {name: len(described.keys) for name, described in SCRIPT_SIGNATURES.items()} == pinned


OPTIONAL = [
    (name, number)
    for name, layout in SCRIPT_SIGNATURES.items()
    for number in range(layout.needed + 1, len(layout.args) + 1)
]
TAKES_NIL = re.compile(r"""ARGV\[\d+\] == ["']1["']|updateJobFields\(\w+, ARGV\[\d+\]\)""")
"""Uses of an argument that are the same for nil as for an empty text."""


@pytest.mark.parametrize(("name", "number"), OPTIONAL)
def test_the_script_itself_does_without_what_may_be_left_out(name: str, number: int) -> None:
    text = re.sub(r"--\[\[.*?\]\]|--[^\n]*", "", official_scripts()[name].text, flags=re.DOTALL)
    argument = f"ARGV[{number}]"
    assert text.count(argument) == sum(1 for use in TAKES_NIL.findall(text) if argument in use)
    assert "updateJobFields" not in text or "if msgpackedFields and #msgpackedFields > 0" in text


@pytest.mark.parametrize(
    ("script", "argv", "severity"),
    [
        ("retryJob", [BASE, NOW, "LPUSH", "1", "t"], "cosmetic"),
        ("retryJob", [BASE, NOW, "LPUSH", "1"], "breaks-others"),
        ("drain", [BASE], "cosmetic"),
        ("addLog", ["1", "row"], "breaks-others"),
        ("obliterate", ["100"], "breaks-others"),
    ],
)
def test_a_missing_argument_that_the_script_can_do_without_is_cosmetic(
    script: str, argv: list[Any], severity: str
) -> None:
    found = check_traffic([call(script, keys(script), argv)])
    assert [finding.severity for finding in found if finding.kind == "argument-count"] == [severity]


def work_of_every_kind(node: Node) -> None:
    """As many scripts as the driver's operations reach."""
    node.open("q", "queue")
    node.open("m", "worker", processor="manual")
    node.open("f", "flow")
    node.open("e", "events")
    jobs: list[dict[str, Any]] = [
        {"name": "a"},
        {"name": "b", "opts": {"delay": 100_000}},
        {"name": "c", "opts": {"priority": 3}},
    ]
    for job in jobs:
        node.do("queue.add", **job)
    ids = node.do("queue.addBulk", jobs=[*jobs, {"name": "d", "opts": {"jobId": "x:y:z", "lifo": True}}])["ids"]
    node.do("queue.add", name="e", opts={"deduplication": {"id": "dd", "ttl": 5000}})
    node.do("queue.add", name="e", opts={"deduplication": {"id": "dd", "ttl": 5000}})
    node.do("flow.add", "f", flow={"name": "p", "queue": "q", "children": [{"name": "c", "queue": "other"}]})
    node.do("queue.upsertJobScheduler", id="every", repeat={"every": 60_000}, name="s")
    node.do("queue.upsertJobScheduler", id="pattern", repeat={"pattern": "0 0 * * *"}, name="s")
    node.do("queue.getJobScheduler", id="every")
    node.do("queue.getJobSchedulers")
    node.do("queue.removeJobScheduler", id="pattern")
    outcomes = ["complete", "fail", "delay", "wait"]
    for number, outcome in enumerate(outcomes):
        job = node.do("worker.getNextJob", "m", token=f"t{number}")["job"]["id"]
        finish(node, job, f"t{number}", outcome)
    delayed = ids[1]
    node.do("job.changeDelay", job=delayed, delay_ms=200_000)
    node.do("job.promote", job=delayed)
    node.do("job.changePriority", job=ids[2], priority=7)
    node.do("job.updateProgress", job=ids[0], value_raw="5")
    node.do("job.updateData", job=ids[0], data_raw='{"a":1}')
    node.do("job.log", job=ids[0], row="x")
    for reading in ("queue.getJobs", "queue.getJobCounts"):
        node.do(reading, types=["waiting", "active", "delayed", "completed", "failed", "prioritized"])
    node.do("queue.getCountsPerPriority", priorities=[0, 3])
    node.do("queue.getJobState", job=ids[0])
    node.do("queue.getMetrics", type="completed")
    node.do("queue.getRateLimitTtl")
    node.do("queue.isMaxed")
    node.do("queue.retryJobs", count=10)
    node.do("queue.promoteJobs", count=10)
    node.do("queue.pause")
    node.do("queue.resume")
    node.do("worker.checkStalled", "m")
    node.do("queue.remove", job=ids[2])
    node.do("queue.clean", grace_ms=0, limit=10, type="completed")
    node.open("w", "worker", processor="fail", processor_args={"message": "no", "times": 1}, options={"concurrency": 3})
    node.do("queue.add", name="retried", opts={"attempts": 2, "backoff": 10})
    node.wait("w", "completed")
    node.do("close", "w")
    node.do("queue.drain", delayed=True)
    node.do("queue.obliterate", force=True)


def finish(node: Node, job: str, token: str, outcome: str) -> None:
    node.do("worker.extendLock", "m", job=job, token=token, duration_ms=30_000)
    if outcome == "complete":
        node.do("worker.moveToCompleted", "m", job=job, token=token, value_raw="1")
    elif outcome == "fail":
        node.do("worker.moveToFailed", "m", job=job, token=token, message="no")
    elif outcome == "delay":
        node.do("worker.moveToDelayed", "m", job=job, token=token, timestamp=int(NOW))
    else:
        node.do("worker.moveToWait", "m", job=job, token=token)


def test_node_itself_breaks_no_rule(tap: Tap, node: Node) -> None:
    node.prefix = f"{{{node.prefix}}}"
    work_of_every_kind(node)
    commands = tap.recording.commands()
    called = {record.script for record in commands if record.script}
    assert len(called) >= 30, sorted(SCRIPT_SIGNATURES.keys() - called)
    assert [str(violation) for violation in check_traffic(commands, cluster=True)] == []
    assert not [str(record) for record in commands if record.digest and not record.script]


def test_node_after_a_script_flush_breaks_no_rule(tap: Tap, node: Node, redis: Any) -> None:
    node.open("q", "queue")
    node.do("queue.add", name="a")
    redis.script_flush()
    node.do("queue.add", name="b")
    calls = eventually(lambda: tap.recording.calls("addStandardJob")[2:], tap.recording.tail)
    assert [record.name for record in calls] == ["EVAL"]
    assert check_traffic(tap.recording.commands()) == []
