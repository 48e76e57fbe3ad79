"""Eighty damages of all kinds in a mixed store: each is found, or counted under a rule, however the store is read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

import pytest
from pyspark.sql import SparkSession
from redis import Redis

from benchmarks.sessions import slow_proxy
from benchmarks.stores import copy_store
from conformance.servers import RedisInstance, open_server
from reports.diff.comparison import compare_snapshots
from reports.diff.snapshot_comparison import SnapshotComparison
from reports.distribution import Distribution, InProcesses
from reports.session import OnSpark
from reports.snapshot.folders import Folder, folder_at
from reports.snapshot.format import SnapshotFolder, open_snapshot_folder
from reports.store_address import StoreAddress
from tests.reports.reports_builders import rows_in

Act: TypeAlias = Callable[[Any, str], object]
ROUND_TRIP_S = 1.5
LONGEST_DIFFERENCE_S = 30.0
"""As long as a lock lasts: so much later, a countdown would be another one under any rule."""

ADDED = 1_700_000_000_000
DAY_MS = 86_400_000
NOON = ADDED + 43_200_000


@dataclass(frozen=True)
class Damage:
    """A change in queue `q`. `key`: that of the difference which must be found; else `rule`: which rule counts it."""

    what: str
    touched: tuple[str, ...]
    act: Act
    key: str = ""
    rule: str = ""


def many_more(client: Any, base: str) -> None:
    """A hundred thousand finished jobs, later than all others, with all their events."""
    pipe = client.pipeline(transaction=False)
    pipe.hset(f"{base}meta", "opts.maxLenEvents", 1_000_000)
    for number in range(1_001, 101_001):
        usual = {"name": "n", "data": "{}", "opts": "{}", "delay": 0, "priority": 0, "ats": 1, "atm": 1}
        times = {"timestamp": ADDED + number, "processedOn": NOON, "finishedOn": NOON + number}
        pipe.hset(f"{base}{number}", mapping={**usual, **times, "returnvalue": "null"})
        pipe.zadd(f"{base}completed", {str(number): NOON + number})
        pipe.xadd(f"{base}events", {"event": "added", "jobId": number, "name": "n"}, id=f"{ADDED + number}-0")
        if not number % 1_000:
            pipe.execute()


def mixed_store(client: Any, base: str) -> None:
    """Jobs in every state, a flow, schedulers, locks, deduplication keys, settings, logs, counters and events."""
    pipe = client.pipeline(transaction=False)
    for number in range(1, 201):
        fields = {"name": "n", "data": json.dumps({"n": number, "large": 9007199254740993}), "opts": '{"attempts":3}'}
        fields |= {"timestamp": str(ADDED + number), "delay": "0", "priority": "0", "ats": "1", "atm": "1", "stc": "0"}
        name = f"{base}{number}"
        pipe.xadd(f"{base}events", {"event": "added", "jobId": number, "name": "n"}, id=f"{ADDED + number}-0")
        if number <= 120:
            fields |= {"processedOn": str(NOON), "finishedOn": str(NOON + number), "returnvalue": '"ok"'}
            pipe.zadd(f"{base}completed", {str(number): NOON + number})
        elif number <= 130:
            fields |= {"processedOn": str(NOON), "finishedOn": str(NOON + number), "failedReason": "no"}
            pipe.hset(name, "stacktrace", '["Error: no"]')
            pipe.zadd(f"{base}failed", {str(number): NOON + number})
        elif number <= 150:
            pipe.rpush(f"{base}wait", number)
        elif number <= 160:
            pipe.rpush(f"{base}active", number)
            pipe.set(f"{base}{number}:lock", f"token-{number % 3}", px=DAY_MS)
        elif number <= 170:
            fields |= {"delay": "60000", "opts": '{"delay":60000}'}
            pipe.zadd(f"{base}delayed", {str(number): (ADDED + number + 60_000) * 4096})
        elif number <= 180:
            fields |= {"priority": "3", "opts": '{"priority":3}'}
            pipe.zadd(f"{base}prioritized", {str(number): 3 * 2**32 + number})
        elif number <= 190:
            fields |= {"parentKey": f"{base}mother", "parent": json.dumps({"id": "mother", "queueKey": base[:-1]})}
            pipe.sadd(f"{base}mother:dependencies", f"{base}{number}")
            pipe.rpush(f"{base}wait", number)
        else:
            fields |= {"opts": json.dumps({"de": {"id": f"d{number}", "ttl": 2 * DAY_MS}}), "deid": f"d{number}"}
            pipe.set(f"{base}de:d{number}", number, px=2 * DAY_MS)
            pipe.rpush(f"{base}wait", number)
        pipe.hset(name, mapping=fields)
    mother = {"name": "m", "data": "{}", "opts": "{}", "timestamp": str(ADDED), "delay": "0", "priority": "0"}
    pipe.hset(f"{base}mother", mapping=mother)
    pipe.zadd(f"{base}waiting-children", {"mother": ADDED})
    for name in ("hourly", "daily"):
        pipe.zadd(f"{base}repeat", {name: ADDED + DAY_MS})
        pipe.hset(f"{base}repeat:{name}", mapping={"name": name, "every": "60000", "ic": "1"})
    pipe.rpush(f"{base}1:logs", "one", "two")
    pipe.hset(f"{base}meta", mapping={"opts.maxLenEvents": "10000", "version": "bullmq:5.62.0", "concurrency": "9"})
    pipe.mset({f"{base}id": "200", f"{base}pc": "200", f"{base}mine": "foreign"})
    pipe.set(f"{base}limiter", "3", px=DAY_MS)
    pipe.zadd(f"{base}marker", {"0": 0})
    pipe.hset(f"{base}metrics:completed", mapping={"count": "120", "prevTS": "0", "prevCount": "0"})
    pipe.execute()


def _set(job: int, **fields: Any) -> Act:
    return lambda client, base: client.hset(f"{base}{job}", mapping=fields)


def _unset(job: int, field: str) -> Act:
    return lambda client, base: client.hdel(f"{base}{job}", field)


def _do(*words: Any) -> Act:
    """A command; the first word after it is the end of a key."""
    return lambda client, base: client.execute_command(words[0], f"{base}{words[1]}", *words[2:])


def _retyped(name: str, *words: Any) -> Act:
    def act(client: Any, base: str) -> None:
        client.delete(f"{base}{name}")
        client.execute_command(words[0], f"{base}{name}", *words[1:])

    return act


def _moved(job: int, source: str, target: str) -> Act:
    def act(client: Any, base: str) -> None:
        client.zrem(f"{base}{source}", job)
        client.zadd(f"{base}{target}", {str(job): NOON + job})

    return act


def _swapped(name: str) -> Act:
    def act(client: Any, base: str) -> None:
        first, second = client.lrange(f"{base}{name}", 5, 6)
        client.lset(f"{base}{name}", 5, second)
        client.lset(f"{base}{name}", 6, first)

    return act


def _job(job: int, act: Act, *touched: str) -> tuple[tuple[str, ...], Act, str]:
    return (str(job), *touched), act, f"q:{job}"


def _fields() -> list[tuple[str, Act]]:
    """Values of the hashes of FIELD_JOBS: normalisation, large integers, fields too many or too few, types, times."""
    large = {"n": 2, "large": 9007199254740992}
    return [
        ("a large integer that a double rounds", _set(2, data=json.dumps(large))),
        ("a large integer as a float", _set(3, data='{"n": 3, "large": 9007199254740993.0}')),
        ("data spaced differently", _set(4, data='{"n":4,"large":9007199254740993}')),
        ("an accent in two code points", _set(5, name="e\u0301")),
        ("an accent in one code point", _set(6, name="\u00e9")),
        ("bytes that are not UTF-8", _set(7, data=b'"\xff\xfe"')),
        ("a NUL at the end", _set(8, name="n\x00")),
        ("an empty name", _set(9, name="")),
        ("another return value", _set(10, returnvalue='"no"')),
        ("a return value that is not JSON", _set(11, returnvalue="ok")),
        ("no return value", _unset(12, "returnvalue")),
        ("no data", _unset(13, "data")),
        ("no options", _unset(14, "opts")),
        ("options with one attempt more", _set(15, opts='{"attempts":4}')),
        ("options with a name twice", _set(16, opts='{"attempts":3,"attempts":4}')),
        ("options as a list", _set(17, opts="[]")),
        ("one attempt more", _set(18, ats="2")),
        ("attempts made before they started", _set(19, atm="7")),
        ("a stalled counter", _set(20, stc="1")),
        ("a priority that is a word", _set(21, priority="high")),
        ("a delay that is negative", _set(22, delay="-1")),
        ("a timestamp in seconds", _set(23, timestamp="1700000000")),
        ("a timestamp that is a word", _set(24, timestamp="soon")),
        ("active before it was added", _set(25, processedOn=str(ADDED - DAY_MS))),
        ("finished in the far future", _set(26, finishedOn=str(ADDED * 2))),
        ("no finish", _unset(27, "finishedOn")),
        ("a field too many", _set(28, mine="x")),
        ("a parent that it never had", _set(29, parentKey="other:q:1")),
        ("a scheduler that it never had", _set(30, rjk="hourly")),
        ("a deduplication id that it never had", _set(31, deid="x")),
        ("a reason to fail", _set(32, failedReason="no")),
        ("progress", _set(33, progress="50")),
        ("a stack trace where nothing failed", _set(34, stacktrace='["Error"]')),
        ("two stack traces for one", _set(121, stacktrace='["Error: no","Error: no"]')),
        ("another reason to fail", _set(122, failedReason="yes")),
        ("another parent", _set(181, parentKey="other:q:mother")),
        ("a parent in another form", _set(182, parent='{"id":"other"}')),
        ("no parent", _unset(183, "parentKey")),
    ]


FIELD_JOBS = (*range(2, 35), 121, 122, 181, 182, 183)


def damages() -> list[Damage]:
    """All of them; each changes another job or key."""
    found = [Damage(what, (str(job),), act, f"q:{job}") for job, (what, act) in zip(FIELD_JOBS, _fields(), strict=True)]
    jobs = {
        "gone, its id is not": _job(40, _do("DEL", "40")),
        "an id twice in a list": _job(131, _do("RPUSH", "wait", 131), "wait"),
        "in two states": _job(42, _do("ZADD", "failed", NOON, 42), "failed"),
        "waits and is finished": _job(43, _do("RPUSH", "wait", 43), "wait"),
        "in no state": _job(44, _do("ZREM", "completed", 44), "completed"),
        "failed instead": _job(45, _moved(45, "completed", "failed"), "completed", "failed"),
        "a score that is another time": _job(46, _do("ZADD", "completed", NOON + 999, 46), "completed"),
        "a text in its place": _job(47, _retyped("47", "SET", "x")),
        "a list in its place": _job(48, _retyped("48", "RPUSH", "x")),
        "a lock where nothing runs": _job(50, _do("SET", "50:lock", "t"), "50:lock"),
        "logs that it never wrote": _job(51, _do("RPUSH", "51:logs", "x"), "51:logs"),
        "a log line less": _job(1, _do("RPOP", "1:logs"), "1:logs"),
        "children that it never had": _job(52, _do("SADD", "52:dependencies", "other:q:1"), "52:dependencies"),
        "a priority's score of another priority": _job(171, _do("ZADD", "prioritized", 4 * 2**32, 171), "prioritized"),
        "due a year later": _job(161, _do("ZADD", "delayed", (ADDED + 400 * 365 * DAY_MS) * 4096, 161), "delayed"),
        "in the list of stalled jobs": _job(151, _do("SADD", "stalled", 151), "stalled"),
        "no lock while it runs": _job(152, _do("DEL", "152:lock"), "152:lock"),
        "a lock of another worker": _job(156, _do("SET", "156:lock", "token-9", "KEEPTTL"), "156:lock"),
        "a lock that ends in an hour": _job(154, _do("PEXPIRE", "154:lock", 3_600_000), "154:lock"),
        "a lock that never ends": _job(155, _do("PERSIST", "155:lock"), "155:lock"),
        "an event too many": _job(53, _do("XADD", "events", "*", "event", "completed", "jobId", 53), "events"),
        "an event too few": _job(54, _do("XDEL", "events", f"{ADDED + 54}-0"), "events"),
    }
    found += [Damage(what, *values) for what, values in jobs.items()]
    found += [
        Damage("a lock without a job", ("g1:lock",), _do("SET", "g1:lock", "t"), "q:g1"),
        Damage("logs without a job", ("g2:logs",), _do("RPUSH", "g2:logs", "x"), "q:g2"),
        Damage("a member without a job", ("wait",), _do("RPUSH", "wait", "g3"), "q:g3"),
        Damage("another order", ("wait",), _swapped("wait"), "q:wait"),
        Damage("a child less", ("mother:dependencies",), _do("SPOP", "mother:dependencies"), "q:mother"),
        Damage("a deduplication of another job", ("de:d191",), _do("SET", "de:d191", "192", "KEEPTTL"), "q:de:d191"),
        Damage("a deduplication that never ends", ("de:d193",), _do("PERSIST", "de:d193"), "q:de:d193"),
        Damage("a deduplication less", ("de:d194",), _do("DEL", "de:d194"), "q:de:d194"),
        Damage("half a deduplication", ("de:d195",), _do("PEXPIRE", "de:d195", DAY_MS + 60_000), rule="dedup-ttl"),
        Damage("half a limiter", ("limiter",), _do("PEXPIRE", "limiter", DAY_MS // 2), rule="limiter-ttl"),
        Damage(
            "a scheduler's interval", ("repeat:daily",), _do("HSET", "repeat:daily", "every", "1"), "q:repeat:daily"
        ),
        Damage("a scheduler's next time", ("repeat",), _do("ZADD", "repeat", ADDED, "hourly"), "q:repeat:hourly"),
        Damage("a foreign key", ("mine",), _do("SET", "mine", "other"), "q:mine"),
        Damage("a setting", ("meta",), _do("HSET", "meta", "concurrency", "8"), "q:meta"),
        Damage("a key that no queue has", ("limiter:x",), _do("SET", "limiter:x", "1"), "q:limiter:x"),
        Damage("a job that ends one day", ("49",), _do("PEXPIRE", "49", DAY_MS), "<prefix>:q:49"),
        Damage("a token of one lock", ("153:lock",), _do("SET", "153:lock", "token-8", "KEEPTTL"), rule="lock-token"),
        Damage(
            "a metric", ("metrics:completed",), _do("HSET", "metrics:completed", "count", "1"), "q:metrics:completed"
        ),
        Damage("another spelling of options", ("60",), _set(60, opts='{ "attempts":3 }'), rule="opts-parsed-json"),
        Damage("another stack trace", ("123",), _set(123, stacktrace='["at"]'), rule="stack-trace-text"),
        Damage("active 5 ms later", ("61",), _set(61, processedOn=str(NOON + 5)), rule="worker-clock"),
    ]
    return found


@contextmanager
def damaged(client: Any, base: str, all_damages: list[Damage]) -> Iterator[None]:
    """All damages for the duration of the block."""
    names = sorted({name for damage in all_damages for name in damage.touched} | {"events", "completed", "wait"})
    before = {}
    for name in names:
        content, (seconds, micros), left = client.pipeline().dump(base + name).time().pttl(base + name).execute()
        before[name] = content, seconds * 1000 + micros // 1000 + left if left > 0 else 0
    try:
        for damage in all_damages:
            damage.act(client, base)
        yield
    finally:
        for name, (content, ends_ms) in before.items():
            client.delete(base + name)
            if content is not None:
                client.restore(base + name, ends_ms, content, absttl=ends_ms > 0)


@contextmanager
def two_servers(*writers: Callable[[Any, str], None]) -> Iterator[tuple[RedisInstance, RedisInstance]]:
    """Two servers with the same store."""
    with open_server(None, announce=lambda _: None) as first, open_server(None, announce=lambda _: None) as second:
        with first.connect() as client:
            for write in writers:
                write(client, "bull:q:")
        copy_store(first, second)
        yield first, second


def kept(url: str, folder: Path, *, replicate: bool) -> SnapshotFolder:
    """A snapshot of a live store, or of the RDB file that it sends."""
    folder.mkdir(parents=True)
    with Redis.from_url(url) as client:
        client.config_set("repl-diskless-sync-delay", 0)
    address = StoreAddress(text=f"{url}#bull", replicate=replicate)
    return open_snapshot_folder(address.read(folder_at(folder / "kept"), folder))


Outcome: TypeAlias = "tuple[list[tuple[str, ...]], Counter[str]]"


def outcome(sides: list[SnapshotFolder], out: Folder, place: Distribution | None = None) -> Outcome:
    wanted = SnapshotComparison(expected=sides[0], actual=sides[1], folder=out)
    tally = compare_snapshots(wanted, place)
    return sorted(tuple(row.values()) for row in rows_in(out)), tally.hidden


def read_both(pair: tuple[RedisInstance, RedisInstance], folder: Path, *, replicate: bool) -> list[SnapshotFolder]:
    return [kept(server.url, folder / str(number), replicate=replicate) for number, server in enumerate(pair)]


def test_there_are_eighty_damages_of_different_names() -> None:
    names = [damage.what for damage in damages()]
    assert len(names) == len(set(names)) >= 80


def _timeless(row: tuple[str, ...]) -> tuple[str, ...]:
    """Texts of times to live say how long they were when they were read."""
    return row[:7] if row[0] == "ttl" else row[:8]


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize(
    "writers",
    [
        pytest.param([mixed_store], id="small"),
        pytest.param([mixed_store, many_more], id="among-100000", marks=pytest.mark.slow),
    ],
)
def test_every_damage_is_found_or_counted_however_the_store_is_read(
    writers: list[Callable[[Any, str], None]], spark: SparkSession, tmp_path: Path
) -> None:
    everything = damages()
    with two_servers(*writers) as pair:
        with pair[1].connect() as client, damaged(client, "bull:q:", everything):
            live, replica = (read_both(pair, tmp_path / str(way), replicate=way) for way in (False, True))
        undone = {way: read_both(pair, tmp_path / f"undone-{way}", replicate=way) for way in (False, True)}
    found = outcome(live, folder_at(tmp_path / "live"))
    _demand(everything, found)
    assert set(map(_timeless, outcome(replica, folder_at(tmp_path / "replica"))[0])) == set(map(_timeless, found[0]))
    assert outcome(live, folder_at(tmp_path / "processes"), InProcesses()) == found
    assert outcome(live, folder_at(tmp_path / "spark"), OnSpark(spark)) == found
    for way, sides in undone.items():
        assert outcome(sides, folder_at(tmp_path / f"same-{way}"))[0] == []


@pytest.mark.slow
def test_a_store_that_takes_half_a_minute_to_read_gives_the_same_result(tmp_path: Path) -> None:
    """Times to live run down meanwhile; compared are the moments at which they end."""
    everything = damages()
    with two_servers(mixed_store) as pair, ExitStack() as stack:
        host, _, port = pair[1].nodes[0].rpartition(":")
        slow = f"redis://{host}:{stack.enter_context(slow_proxy(host, int(port), ROUND_TRIP_S))}"
        started = monotonic()
        same = [kept(url, tmp_path / f"same-{side}", replicate=False) for side, url in enumerate((pair[0].url, slow))]
        assert monotonic() - started > LONGEST_DIFFERENCE_S, "read too fast to show anything"
        with pair[1].connect() as client, damaged(client, "bull:q:", everything):
            found = outcome([same[0], kept(slow, tmp_path / "damaged", replicate=False)], folder_at(tmp_path / "found"))
    assert outcome(same, folder_at(tmp_path / "none"))[0] == []
    _demand(everything, found)


def _demand(everything: Sequence[Damage], found: Outcome) -> None:
    """Every damage is found or counted, and nothing else is found."""
    keys = {row[6] for row in found[0]}
    assert [damage.what for damage in everything if damage.key and damage.key not in keys] == []
    assert [damage.what for damage in everything if damage.rule and not found[1][damage.rule]] == []
    assert keys - {damage.key for damage in everything} <= {"q:marker", "q:completed", "q:events"}, "nothing else"
