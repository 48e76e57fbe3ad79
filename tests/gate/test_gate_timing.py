"""Evidence is timed where a time that took part is short, or where independent processes decide; otherwise certain."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from conformance.findings import Timing
from conformance.gate.judge import Judge
from conformance.gate.timing import depends_on_speed, is_certain, runs_by_itself, shortest_ms, timing_of
from conformance.ledger.loader import load_ledger
from conformance.participants.marks import Scenario
from conformance.participants.transcript import KitAct, RecordedCall

from .gate_builders import finding
from .miniature_drivers import BenchOf, answers, fails
from .small_scenarios import (
    ASKS,
    COUNTS,
    COUNTS_DELAYED,
    COUNTS_IN_TIME,
    PAUSES,
    REFUSES,
    SHARES,
    WAITS,
    MiniatureDrivers,
    tried,
)


def _call(op: str = "queue.add", **args: Any) -> RecordedCall:
    return RecordedCall(op, "ok", None, args)


def _opened(**options: Any) -> RecordedCall:
    return _call("open", role="worker", processor="manual", options=options)


@pytest.mark.parametrize(
    ("steps", "frozen_ms", "running_ms"),
    [
        ([], None, None),
        ([_call(opts={"attempts": 3, "delay": 0})], None, None),
        ([_call(opts={"delay": 200}), _call(opts={"delay": 5000})], None, 200),
        ([_call(opts={"backoff": {"type": "fixed", "delay": 70}})], None, 70),
        ([_call("queue.addBulk", jobs=[{"opts": {"backoff": 70}}])], None, 70),
        ([_call(repeat={"pattern": "0 * * * *"})], None, 1000),
        ([_call(opts={"removeOnComplete": {"age": 2}})], None, 2000),
        # These pass on the server, or by a timer, on every clock.
        ([_call(opts={"deduplication": {"id": "a", "ttl": 300}})], 300, 300),
        ([_opened(lockDuration=500, drainDelay=2)], 500, 500),
        ([_opened(limiter={"max": 1, "duration": 800})], 800, 800),
        ([_call("worker.extendLock", duration_ms=90_000)], 90_000, 90_000),
        ([KitAct(("SET", "b:q:1:lock", "token", "PX", "60000"))], 60_000, 60_000),
        ([KitAct(("network", "cut BZPOPMIN"))], 5000, 5000),
        ([KitAct(("clock", "20")), KitAct(("DEL", "b:q:1:lock"))], None, None),
    ],
)
def test_the_shortest_time_that_took_part(
    steps: list[RecordedCall | KitAct], frozen_ms: float | None, running_ms: float | None
) -> None:
    assert shortest_ms(steps, frozen=True) == frozen_ms
    assert shortest_ms(steps, frozen=False) == running_ms


def test_a_longer_time_needs_more_starvation() -> None:
    assert timing_of(10, both_sides=False) == Timing(within_ms=1000, slack_ms=400)
    assert timing_of(30_000, both_sides=True) == Timing(within_ms=30_000, slack_ms=12_000, both_sides=True)


@pytest.mark.parametrize(
    ("where", "opts", "expected"),
    [
        ("job.data", {"delay": 5}, True),
        ("job.opts.attempts", {"delay": 5}, True),
        ("job.timestamp", {"delay": 5}, True),
        ("job.priority", {"delay": 5}, True),
        ("job.rjk", {"delay": 5}, True),
        ("meta.version", {"delay": 5}, True),
        ("meta.opts.maxLenEvents", {"delay": 5}, True),
        ("event.waiting.prev", {"delay": 5}, True),
        ("unknown.string", {"delay": 5}, True),
        ("answer.queue.add.id", {"delay": 5}, True),
        ("answer.queue.getJobCounts.wait", {"delay": 5}, False),
        ("event.waiting", {"delay": 5}, False),
        ("event.delayed.delay", {"delay": 5}, False),
        ("job", {"delay": 5}, False),
        ("job.delay", {"delay": 5}, False),
        ("job.atm", {"delay": 5}, False),
        ("lock", {"delay": 5}, False),
        ("lock.left", {"delay": 5}, False),
        ("membership.state", {"delay": 5}, False),
        ("", {"delay": 5}, False),
        # A time decides which job is added.
        ("job.data", {"deduplication": {"ttl": 300}}, False),
    ],
)
def test_evidence_is_certain_unless_a_late_process_can_change_it(
    where: str, opts: dict[str, Any], expected: bool
) -> None:
    assert is_certain(where, [_call(opts=opts)]) is expected


def test_the_order_of_a_loop_and_the_steps_depends_on_their_speed() -> None:
    assert not runs_by_itself([_opened()])
    assert runs_by_itself([_call("open", role="worker", processor="noop")])
    assert depends_on_speed(finding(where="event.drained"))
    assert depends_on_speed(finding(where="membership.wait.order"))
    assert not depends_on_speed(finding(where="membership.state"))


MEASURED = Timing(within_ms=2000, slack_ms=800, both_sides=True)


@pytest.mark.parametrize(
    ("capabilities", "place", "timing"),
    [
        ((), ("job.delay", '"<about 480 ms>"'), MEASURED),
        (("clock",), ("job.delay", '"<about 480 ms>"'), None),
        ((), ("job.delay", '"480"'), None),
        # A score follows from fields of the same job, which are written with it.
        ((), ("membership.delayed.score", "7355241477599232"), None),
    ],
)
def test_a_delay_may_be_approximate_on_a_running_clock(
    capabilities: tuple[str, ...],
    place: tuple[str, str],
    timing: Timing | None,
    bench_of: BenchOf,
    mini: MiniatureDrivers,
) -> None:
    where, actual = place
    bench = bench_of(mini(), mini(capabilities=capabilities))
    client = bench.participant("client", bench.names("client"), bench.clock(frozen=bool(capabilities)))
    judge = Judge(PAUSES, load_ledger(), client)
    difference = msgspec.structs.replace(finding(where=where), expected='"0"', actual=actual)
    assert judge.with_timing(difference, compared=True).timing == timing


# In a trial.


CLOCKLESS: dict[str, Any] = {"capabilities": ()}
ADDS = {"queue.add": answers(id="1")}


@pytest.mark.parametrize(
    ("tried_scenario", "client", "timing"),
    [
        pytest.param(PAUSES, {"paused_value": "2"}, None, id="a snapshot"),
        pytest.param(PAUSES, {"paused_value": "2", **CLOCKLESS}, None, id="a snapshot on a running clock"),
        pytest.param(ASKS, {"count": 2}, None, id="an answer"),
        pytest.param(ASKS, {"count": 2, **CLOCKLESS}, None, id="an answer on a running clock"),
        pytest.param(COUNTS, {"count": 2, **CLOCKLESS}, None, id="a statement"),
        pytest.param(SHARES, {"count": 2}, None, id="on a shared queue"),
        pytest.param(COUNTS_DELAYED, {"count": 2, "ops": ADDS}, None, id="a delay on a frozen clock"),
        pytest.param(
            COUNTS_DELAYED, {"count": 2, "ops": ADDS, **CLOCKLESS}, Timing(within_ms=1000, slack_ms=400), id="a delay"
        ),
        pytest.param(COUNTS_IN_TIME, {"count": 2}, Timing(within_ms=1000, slack_ms=400), id="about time"),
        pytest.param(REFUSES, {"ops": ADDS, **CLOCKLESS}, None, id="an acceptance"),
        pytest.param(COUNTS, {"ops": {"queue.count": fails("wrong-state")}}, None, id="a refused call"),
        pytest.param(
            COUNTS, {"ops": {"queue.count": fails("timeout")}}, Timing(within_ms=1000, slack_ms=400), id="a timeout"
        ),
    ],
)
def test_evidence_is_timed_only_where_time_takes_part(
    tried_scenario: Scenario, client: dict[str, Any], timing: Timing | None, bench_of: BenchOf, mini: MiniatureDrivers
) -> None:
    oracle: dict[str, Any] = {"ops": ADDS}
    if tried_scenario is REFUSES:
        oracle = {"ops": {**ADDS, "queue.count": fails("invalid-argument")}}
    evidence = tried(tried_scenario, bench_of(mini(**oracle), mini(**client)))
    assert [found.timing for found in evidence.findings] == [timing], (evidence.findings, evidence.error)


def test_a_wait_that_ran_out_is_timed(bench_of: BenchOf, mini: MiniatureDrivers) -> None:
    (ran_out,) = tried(WAITS, bench_of(mini(), mini(count=2))).findings
    assert ran_out.timing is not None
    assert ran_out.timing.within_ms == 500
    assert ran_out.evidence == "timed"
