"""Data that was made older is what the same steps leave when a frozen clock moves on instead.

The reference takes generated steps twice. Once its clock moves by some duration in the middle; once the clock stays,
and the data becomes that much older. The second state must be the first, moved back. More examples:
`AGEING_EXAMPLES=2000 pytest -n 0 tests/gate/test_gate_ageing.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from conformance.driver.connection import DriverConnection
from conformance.driver.errors import OperationFailed
from conformance.driver.ops import job as job_ops
from conformance.driver.ops import lifecycle
from conformance.driver.ops import queue as queue_ops
from conformance.driver.ops import worker as worker_ops
from conformance.driver.transports import InProcess
from conformance.environment.drivers import TapPoint
from conformance.observe.keyspace import RawKey
from conformance.observe.reader import read_matching, read_raw
from conformance.participants import ageing
from conformance.participants.clock import FrozenClock, RunningClock
from conformance.participants.marks import scenario
from conformance.participants.names import Names
from conformance.participants.participant import Participant
from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.scenarios.support.steps import node
from conformance.servers import RedisInstance

from .miniature_drivers import BenchOf
from .small_scenarios import HARMLESS, MiniatureDrivers, tried

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
EVERY = 20_000
WHOLE_MINUTES = (MINUTE_MS, HOUR_MS, 24 * HOUR_MS)
"""Schedules and points of metrics start at full minutes: only these durations leave them where they are."""
TTL_TOLERANCE_MS = 20_000

Deed = Callable[["Steps", int], object]
Taken = list[tuple[str, int]]
"""Steps by the name of a deed, each with a number that chooses its arguments."""

ADDS: tuple[dict[str, Any], ...] = (
    {},
    {"delay": 1500},
    {"delay": 2 * HOUR_MS},
    {"priority": 3},
    {"removeOnComplete": {"age": 30}, "removeOnFail": {"age": 30}},
    {"attempts": 3, "backoff": {"type": "exponential", "delay": 5000}},
    {"deduplication": {"id": "brief", "ttl": 10 * MINUTE_MS}},
    {"deduplication": {"id": "owned"}},
    {"delay": 5000, "deduplication": {"id": "late", "ttl": 2 * HOUR_MS, "extend": True, "replace": True}},
    {"lifo": True, "timestamp": -5000},
)


class Steps:
    """One run of the steps, on a prefix of its own."""

    def __init__(self, driver: DriverConnection, server: RedisInstance, redis: Any, *, metrics: bool) -> None:
        prefix = server.fresh_prefix()
        point = TapPoint(server.for_drivers, None, "none is needed")
        self.client = Participant("client", driver, redis=redis, point=point, names=Names(prefix), clock=FrozenClock())
        self.queue, self.flow = self.client.queue(), self.client.flow()
        options: dict[str, Any] = {"metrics": {"maxDataPoints": 50}} if metrics else {}
        self.worker = self.client.worker(lockDuration=HOUR_MS, maxStalledCount=2, **options)
        self.redis, self.server, self.prefix = redis, server, prefix
        self.completions: list[tuple[str, str]] = []
        self._number = 0

    @property
    def now_ms(self) -> int:
        return self.client.clock.now_ms()

    def new_id(self) -> str:
        self._number += 1
        return f"j{self._number}"

    def one_of(self, container: str, number: int) -> str:
        view = self.queue.redis
        jobs = view.elements(container) if view.type(container) in ("list", "none") else view.members(container)
        return jobs[number % len(jobs)] if jobs else "none"

    def running(self, number: int) -> str:
        """An active job; one is claimed if there is none."""
        if not self.queue.redis.elements("active"):
            self.worker.claim()
        return self.one_of("active", number)

    def take(self, steps: Taken) -> None:
        for name, number in steps:
            code = "ok"
            try:
                DEEDS[name](self, number)
            except OperationFailed as failure:
                code = failure.error.code
            self.completions.append((name, code))

    def finish_scheduled(self) -> None:
        """A client knows an active job by its id, and with it the time in that."""
        for job in self.queue.redis.elements("active"):
            if job.startswith("repeat:"):
                with suppress(OperationFailed):
                    self.worker.complete(job)

    def shorten_lives(self, duration_ms: int) -> None:
        for raw in read_raw(self.redis, self.prefix)[1]:
            if 0 <= raw.ttl_ms <= duration_ms:
                self.redis.delete(raw.key)
            elif raw.ttl_ms > 0:
                self.redis.pexpire(raw.key, raw.ttl_ms - duration_ms)

    def state(self, shift: Callable[[Any], Any] = lambda value: value) -> dict[str, tuple[Any, int]]:
        """Every key with its value and time to live; `shift` is applied to keys and values."""
        found = {}
        for raw in read_raw(self.redis, self.prefix)[1]:
            value = raw.value
            if raw.type == "stream":
                value = [fields for _, fields in value]
            elif raw.type in ("hash", "zset"):
                value = sorted(value.items() if raw.type == "hash" else value)
            found[self._text(shift(raw.key))] = (self._text(repr(shift(value))), raw.ttl_ms)
        return found

    def _text(self, text: str) -> str:
        return text.replace(self.prefix, "P")

    def stamps(self) -> list[int]:
        return [stamp for stamp, _ in self.queue.redis.stamped_events()]

    def leave(self) -> None:
        self.client.driver.call(lifecycle.Reset(), deadline_ms=15_000)
        self.server.remove_prefix(self.prefix)


def _add(steps: Steps, number: int) -> None:
    opts = dict(ADDS[number])
    if "timestamp" in opts:
        opts["timestamp"] += steps.now_ms
    steps.queue.add("work", {}, jobId=steps.new_id(), **opts)


def _complete(steps: Steps, number: int) -> None:
    steps.worker.complete(steps.running(number), {"done": number}, fetch_next=number % 2 == 1)


def _fail(steps: Steps, number: int) -> None:
    steps.worker.fail(steps.running(number), unrecoverable=number % 3 == 1, fetch_next=number % 3 == 2)


def _schedule(steps: Steps, number: int) -> None:
    limits: tuple[dict[str, Any], ...] = (
        {},
        {"startDate": steps.now_ms + 5000},
        {"endDate": steps.now_ms + 2 * HOUR_MS},
        {"limit": 3, "startDate": steps.now_ms - MINUTE_MS},
    )
    rhythm: dict[str, Any] = {"pattern": "* * * * *"} if number > 7 else {"every": EVERY}
    opts: dict[str, Any] = ({}, {"deduplication": {"id": "its"}}, {"priority": 2})[number % 3]
    steps.queue.schedule("stu"[number % 3], {**rhythm, **limits[number % 4]}, **opts)


def _add_flow(steps: Steps, number: int) -> None:
    kinds: tuple[dict[str, Any], ...] = ({}, {"continueParentOnFailure": True}, {"failParentOnFailure": True})
    options = dict(kinds[number % 3])
    options |= {"delay": 3000} if number > 4 else {}
    below = [node(steps.new_id(), **options) for _ in range(1 + number % 2)]
    steps.flow.add(node(steps.new_id(), *below))


def _put_off(steps: Steps, number: int) -> None:
    until_ms = steps.now_ms + (number + 1) * 30_000
    steps.worker.call(worker_ops.MoveToDelayed(job=steps.running(number), token="token-1", timestamp=until_ms))


def _clean(steps: Steps, number: int) -> None:
    state = ("completed", "failed", "delayed", "wait")[number % 4]
    steps.queue.call(queue_ops.Clean(grace_ms=(0, 10_000, HOUR_MS)[number % 3], limit=2, type=state))  # type: ignore[arg-type]


def _add_child(steps: Steps, number: int) -> None:
    """A child of a job that is active, perhaps of a schedule."""
    parent = {"id": steps.running(number), "queue": f"{steps.prefix}:q"}
    steps.queue.add("child", {}, jobId=steps.new_id(), parent=parent)


DEEDS: dict[str, Deed] = {
    "add": _add,
    "schedule": _schedule,
    "unschedule": lambda steps, number: steps.queue.unschedule("stu"[number % 3]),
    "flow": _add_flow,
    "claim": lambda steps, _: steps.worker.claim(),
    "complete": _complete,
    "fail": _fail,
    "put-off": _put_off,
    "wait-for-children": lambda steps, number: steps.worker.wait_for_children(steps.running(number)),
    "add-child": _add_child,
    "extend": lambda steps, number: steps.worker.extend_lock(steps.running(number), 2 * HOUR_MS),
    "clean": _clean,
    "promote": lambda steps, number: steps.queue.promote(steps.one_of("delayed", number)),
    "change-delay": lambda steps, number: steps.queue.call(
        job_ops.ChangeDelay(job=steps.one_of("delayed", number), delay_ms=number * MINUTE_MS)
    ),
    "retry": lambda steps, number: steps.queue.retry(steps.one_of("failed", number)),
    "retry-all": lambda steps, _: steps.queue.call(queue_ops.RetryJobs(timestamp=steps.now_ms - 5000)),
    # Without its children: Redis returns the members of a set in any order.
    "remove": lambda steps, number: steps.queue.remove(steps.one_of("delayed", number), children=False),
    "pause": lambda steps, _: steps.queue.pause(),
    "resume": lambda steps, _: steps.queue.resume(),
    "limit": lambda steps, number: steps.queue.call(queue_ops.SetRateLimit(expire_ms=(number + 1) * MINUTE_MS)),
    "check-stalled": lambda steps, _: steps.worker.check_stalled(),
    "tick": lambda steps, number: steps.client.clock.pass_ms((1000, 31_000, 61_000)[number % 3]),
}
NOT_BY_MINUTES = [name for name in DEEDS if "schedule" not in name]

_TIME = re.compile(r"(?<!\d)1[67]\d{11}(?!\d)")


def shifted(value: Any, duration_ms: int) -> Any:
    """The value, in which every number that is a time of the frozen clock is moved back: it knows nothing of BullMQ."""
    if isinstance(value, str):
        return _TIME.sub(lambda found: str(int(found[0]) - duration_ms), value)
    if isinstance(value, float):
        for factor in (1, 0x1000):
            if 16e11 <= value / factor < 18e11:
                return value - duration_ms * factor
        return value
    if isinstance(value, dict):
        return {shifted(name, duration_ms): shifted(text, duration_ms) for name, text in value.items()}
    return type(value)(shifted(item, duration_ms) for item in value)


@st.composite
def sequences(draw: st.DrawFn) -> tuple[Taken, Taken, int]:
    """Steps before the middle, steps after it, and the duration that passes in between."""
    by_minutes = draw(st.booleans())
    often = ["add", "complete", "fail", "schedule" if by_minutes else "claim"]
    names = st.sampled_from([*(DEEDS if by_minutes else NOT_BY_MINUTES), *often * 3])
    some = st.lists(st.tuples(names, st.integers(0, len(ADDS) - 1)), min_size=1, max_size=12)
    durations = st.sampled_from(WHOLE_MINUTES) if by_minutes else st.integers(200, 48 * HOUR_MS)
    additions = st.tuples(st.sampled_from(["add", "flow", "schedule" if by_minutes else "add"]), st.integers(0, 9))
    return draw(st.lists(additions, min_size=2, max_size=5)) + draw(some), draw(some), draw(durations)


@pytest.fixture(scope="module")
def reference() -> Iterator[InProcess]:
    scripts = official_scripts()
    driver = InProcess.start(make_server(lambda: scripts), seed=1)
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def redis(server: RedisInstance) -> Iterator[Any]:
    with server.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def new_steps(reference: InProcess, server: RedisInstance, redis: Any) -> Callable[..., Steps]:
    return lambda **options: Steps(reference, server, redis, **options)


def compare(new_steps: Callable[..., Steps], before: Taken, after: Taken, duration_ms: int, *, metrics: bool) -> None:
    """Take the steps in both ways, and compare what they leave."""
    aged = new_steps(metrics=metrics)
    try:
        aged.take(before)
        aged.finish_scheduled()
        if not ageing.age(aged.redis, aged.client.places, duration_ms, lambda: None):
            reject()
        aged.take(after)
        state = aged.state()
    finally:
        aged.leave()
    waiting = new_steps(metrics=metrics)
    try:
        waiting.take(before)
        waiting.finish_scheduled()
        waiting.client.clock.pass_ms(duration_ms)
        waiting.shorten_lives(duration_ms)
        waiting.take(after)
        expected = waiting.state(lambda value: shifted(value, duration_ms))
    finally:
        waiting.leave()
    assert aged.completions == waiting.completions
    assert {key: value for key, (value, _) in state.items()} == {key: value for key, (value, _) in expected.items()}
    for key, (_, ttl_ms) in expected.items():
        assert abs(state[key][1] - ttl_ms) <= TTL_TOLERANCE_MS, (key, state[key][1], ttl_ms)


@settings(max_examples=int(os.environ.get("AGEING_EXAMPLES", "40")))
@given(steps=sequences())
def test_aged_data_is_that_of_a_clock_that_moved(
    new_steps: Callable[..., Steps], steps: tuple[Taken, Taken, int]
) -> None:
    compare(new_steps, *steps, metrics=steps[2] in WHOLE_MINUTES)


TELLING = [
    *(
        ("check-stalled", 0),
        ("add", 0),
        ("complete", 0),
        ("add", 0),
        ("fail", 1),
        ("flow", 2),
        ("fail", 1),
        ("fail", 1),
    ),
    *(("schedule", 0), ("claim", 0), ("add-child", 0), ("wait-for-children", 0), ("complete", 0)),
    *(("schedule", 2), ("schedule", 1), ("schedule", 9), ("flow", 0), ("add", 9), ("add", 1), ("add", 2)),
]
"""Steps that leave every kind of time."""

DEFECTS = [
    *(("TIMED_KINDS", kind) for kind in sorted(ageing.TIMED_KINDS)),
    *(("TIMES", name) for name in sorted(ageing.TIMES)),
    *(("USER_FIELDS", name) for name in ("nrjid", "parent", "parentKey", "opts")),
    ("USER_KINDS", "wait"),
]
"""A table of the module, and an entry that is wrongly missing in it, or wrongly there."""


def test_every_kind_of_time_is_moved(new_steps: Callable[..., Steps]) -> None:
    compare(new_steps, TELLING, [], EVERY, metrics=True)


@pytest.mark.parametrize(("table", "entry"), DEFECTS)
def test_a_time_that_stays_is_noticed(
    new_steps: Callable[..., Steps], monkeypatch: pytest.MonkeyPatch, table: str, entry: str
) -> None:
    monkeypatch.setattr(ageing, table, getattr(ageing, table) ^ {entry})
    with pytest.raises(AssertionError):
        compare(new_steps, TELLING, [], EVERY, metrics=True)


@pytest.mark.parametrize("fixed_prefix", [None, "bull"])
def test_lives_become_shorter(redis: Any, server: RedisInstance, fixed_prefix: str | None) -> None:
    names = Names(server.fresh_prefix(), fixed_prefix=fixed_prefix)
    base = names.client_base("q")
    for name, ttl_ms in {"1:lock": 60_000, "de:brief": 30_000, "limiter": 90_000}.items():
        redis.set(base + name, 1, px=ttl_ms)
    redis.set(f"{base}id", 7)
    redis.zadd(f"{base}completed", {"1": 17e11})
    assert ageing.age(redis, [names], 30_000, lambda: None)
    lives = {raw.key.removeprefix(base): raw.ttl_ms for raw in read_matching(redis, names.pattern)[1]}
    assert lives.pop("1:lock") in range(20_000, 30_001)
    assert lives.pop("limiter") in range(50_000, 60_001)
    assert lives == {"id": -1, "completed": -1}
    assert redis.zscore(f"{base}completed", "1") == 17e11 - 30_000
    redis.delete(*redis.keys(f"{base}*"))


@pytest.mark.parametrize(
    ("name", "kind", "value", "expected"),
    [
        ("delayed", "zset", [("1", 1_700_000_000_000 * 4096.0 + 5)], [("1", 1_699_999_999_000 * 4096.0 + 5)]),
        ("delayed", "zset", [("in ms", 1_700_000_000_000.0)], [("in ms", 1_699_999_999_000.0)]),
        ("completed", "zset", [("in seconds", 1_700_000_000.0)], [("in seconds", 1_700_000_000.0)]),
        ("prioritized", "zset", [("urgent", 400 * 2.0**32 + 1)], [("urgent", 400 * 2.0**32 + 1)]),
        ("marker", "zset", [("0", 0.0), ("1", 17e11)], [("0", 0.0), ("1", 17e11 - 1000)]),
        ("1", "hash", {"timestamp": "1700000000"}, {"timestamp": "1700000000"}),
        ("1", "hash", {"data": "repeat:s:1700000000000"}, {"data": "repeat:s:1700000000000"}),
        (
            "1",
            "hash",
            {"timestamp": "1", "opts": '{ "prevMillis" : 1,"timestamp": 1700000000000,"count":1700000000000}\udcff'},
            {"timestamp": "1", "opts": '{ "prevMillis" : 1,"timestamp": 1699999999000,"count":1700000000000}\udcff'},
        ),
        ("1:logs", "list", ["repeat:s:1700000000000"], ["repeat:s:1700000000000"]),
        ("de:x", "string", "repeat:a:b:1700000000000", "repeat:a:b:1699999999000"),
        (
            "events",
            "stream",
            [("1-0", {"event": "delayed", "jobId": "1", "delay": "1700000000000"})],
            [("1-0", {"event": "delayed", "jobId": "1", "delay": "1699999999000"})],
        ),
    ],
)
def test_only_times_in_ms_move(name: str, kind: str, value: Any, expected: Any) -> None:
    moved = ageing.older("p", RawKey(key=f"p:q:{name}", type=kind, value=value), 1000)
    assert moved == RawKey(key=f"p:q:{name}", type=kind, value=expected)


class Waited(Exception):
    """The clock was asked to wait."""


def _may_not_wait(_seconds: float) -> None:
    raise Waited


@pytest.fixture
def steps(new_steps: Callable[..., Steps]) -> Iterator[Steps]:
    """Steps on a clock that runs, and that must not be waited for."""
    made = new_steps(metrics=False)
    made.client.clock = RunningClock(_may_not_wait, ages_data=True)
    yield made
    made.leave()


def test_all_places_of_a_participant_age(steps: Steps) -> None:
    elsewhere = steps.client.untagged()
    elsewhere.names = Names(f"{steps.prefix}x")
    steps.client.places[-1] = elsewhere.names
    queues = (steps.queue, elsewhere.queue())
    for queue in queues:
        queue.add("late", {}, jobId="late", delay=HOUR_MS)
    before, stamps = [queue.redis.zset("delayed")[0][1] for queue in queues], steps.stamps()
    steps.client.pass_time(HOUR_MS)
    assert steps.stamps() == stamps
    after = [queue.redis.zset("delayed")[0][1] for queue in queues]
    steps.server.remove_prefix(elsewhere.prefix)
    assert [was - now for was, now in zip(before, after, strict=True)] == [HOUR_MS * 4096] * 2


def _open_a_loop(steps: Steps) -> None:
    steps.client.worker("noop")


def _hold_a_scheduled_job(steps: Steps) -> None:
    steps.queue.schedule("s", {"every": HOUR_MS})
    steps.worker.claim_one()


def _call_meanwhile(steps: Steps) -> None:
    steps.client.meanwhile(lambda: steps.client.cancellation.sleep(60))


def _want_real_time(steps: Steps) -> None:
    steps.client.clock = RunningClock(_may_not_wait)


@pytest.mark.parametrize("prepare", [_open_a_loop, _hold_a_scheduled_job, _call_meanwhile, _want_real_time])
def test_a_time_in_memory_is_waited_for(steps: Steps, prepare: Callable[[Steps], None]) -> None:
    prepare(steps)
    steps.queue.add("waits", {}, jobId="waits")
    before = steps.queue.redis.field("waits", "timestamp")
    with pytest.raises(Waited):
        steps.client.pass_time(HOUR_MS)
    assert steps.queue.redis.field("waits", "timestamp") == before
    steps.client.cancellation.cancel("the test is over")


def test_only_a_short_time_and_an_open_loop_wait(steps: Steps) -> None:
    with pytest.raises(Waited):
        steps.client.pass_time(199)
    steps.client.worker("noop").close()
    steps.client.pass_time(200)


@pytest.mark.parametrize("clock", ["frozen", "real"])
def test_a_scenario_with_a_real_clock_waits(bench_of: BenchOf, mini: MiniatureDrivers, clock: Any) -> None:
    seen: set[bool] = set()

    @scenario(HARMLESS, clock=clock)
    def test_looks(client: Participant) -> None:
        """It only reads its clock."""
        seen.add(client.clock.ages_data)

    tried(vars(test_looks)["scenario"], bench_of(mini(), mini(capabilities=())))
    assert seen == {clock == "frozen"}


def test_a_loop_that_emulates_a_manual_worker_holds_no_time(steps: Steps) -> None:
    steps.client.uses_loop_workers = True
    worker = steps.client.worker()
    steps.queue.add("work", {}, jobId="work")
    worker.claim_one()
    steps.client.pass_time(1000)
    worker.complete("work")
    assert steps.queue.redis.state("work") == ["completed"]
