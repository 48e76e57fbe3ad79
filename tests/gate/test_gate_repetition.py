"""Questions that starvation left open are repeated after all other scenarios; certain findings count anyway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from conformance.driver import run_queue
from conformance.environment.drivers import RestartableDriver
from conformance.environment.starvation import CLOCK, KIT, ORACLE, Starvation, StarvationRecord, StarvationWatch
from conformance.findings import Finding, Timing
from conformance.gate.bench import Bench
from conformance.gate.records import ScenarioRecord, StepRecord, Verdict
from conformance.gate.repetition import CONFIRMED_ENOUGH, MOST_REPEATS, AttemptResult, Repeater, explains

from .gate_builders import finding, record
from .miniature_drivers import BenchOf, ChildDriver
from .small_scenarios import COUNTED, COUNTS, MiniatureDrivers, tried

CLIENT = "the client's driver"


def starved(party: str = CLIENT, *bursts_ms: float) -> StarvationRecord:
    """A party was starved for that long, one burst every ten seconds."""
    return StarvationRecord({party: tuple((10.0 * number, burst_ms) for number, burst_ms in enumerate(bursts_ms))})


CALM = StarvationRecord({})
STARVED = starved(CLIENT, 600.0, 100.0)
TIMED = finding(timing=Timing(within_ms=1000, slack_ms=400))
CERTAIN = finding("b.must", where="job.delay", message="the delay differs")
FAILS = record({"a.must": "fail", "a.may": "pass"}, TIMED, verdict="fail")
SEEN = "the name differs (expected one, actual another)"
PASSES = record({"a.must": "pass", "a.may": "pass"})
LOST = "queue.count may or may not have happened (connection-lost)"


class Machine:
    """Replaces the watch; `seen` is the starvation of each attempt, in order."""

    def __init__(self, *seen: StarvationRecord) -> None:
        self._seen = iter(seen)
        self.started = 0

    def start(self) -> None:
        self.started += 1

    def seen(self) -> StarvationRecord:
        return next(self._seen)


class Repetition:
    """A scenario that ends so, attempt by attempt, on a machine that lets it run so."""

    def __init__(
        self, *attempts: tuple[ScenarioRecord, StarvationRecord], frozen: bool = False, doubt: str = ""
    ) -> None:
        self.machine = Machine(*(seen for _, seen in attempts))
        self.repeater = Repeater(cast("StarvationWatch", self.machine))
        self._records = iter([ended for ended, _ in attempts])
        self._frozen, self._doubt = frozen, doubt

    def attempt(self) -> AttemptResult:
        return AttemptResult(record=next(self._records), frozen=self._frozen, doubt=self._doubt)

    def __call__(self, *, may_repeat: bool = True) -> ScenarioRecord:
        return self.repeater.settle(self.repeater.first(self.attempt), self.attempt, lambda: may_repeat)


def test_a_passing_scenario_is_run_once() -> None:
    repetition = Repetition((PASSES, STARVED))
    assert repetition() == PASSES
    assert repetition.machine.started == 1


def test_a_failure_on_a_calm_machine_counts_at_once() -> None:
    assert Repetition((FAILS, CALM))() == FAILS


@pytest.mark.parametrize("verdict", ["fail", "error", "inconclusive"])
def test_a_pass_alone_counts_and_the_record_says_why(verdict: Verdict) -> None:
    first = msgspec.structs.replace(FAILS, verdict=verdict)
    outcome = Repetition((first, STARVED), (PASSES, CALM))()
    assert (outcome.verdict, outcome.findings) == ("pass", [])
    assert outcome.repeated == [f"{STARVED.worst}: {verdict}, {SEEN}"]


def test_a_second_failure_on_a_calm_machine_counts() -> None:
    outcome = Repetition((FAILS, STARVED), (FAILS, CALM))()
    assert (outcome.verdict, outcome.findings, len(outcome.repeated)) == ("fail", FAILS.findings, 1)


def test_a_machine_that_starves_three_times_decides_nothing() -> None:
    fails = msgspec.structs.replace(FAILS, steps=[StepRecord(by="both", do="queue.add")])
    outcome = Repetition(*[(fails, STARVED)] * 3)()
    assert outcome.verdict == "inconclusive"
    assert outcome.requirements == {"a.must": "inconclusive", "a.may": "pass"}
    assert (outcome.findings, outcome.steps, len(outcome.repeated)) == ([], [], 3)
    assert outcome.reason == f"the machine was too busy to judge: {STARVED.worst}; seen: fail, {SEEN}"
    assert all(SEEN in attempt for attempt in outcome.repeated), "expected and actual of each attempt are kept"


def test_a_lost_connection_counts_if_reported_every_time() -> None:
    calm = (FAILS, CALM)
    outcome = Repetition(*[calm] * (MOST_REPEATS + 1), doubt=LOST)()
    assert (outcome.verdict, outcome.findings) == ("fail", FAILS.findings)
    assert outcome.repeated == [f"no starvation: fail, {SEEN}"] * MOST_REPEATS


def test_a_lost_connection_reported_only_once_does_not_count() -> None:
    outcome = Repetition((FAILS, CALM), (PASSES, CALM), doubt=LOST)()
    assert (outcome.verdict, len(outcome.repeated)) == ("pass", 1)


def test_a_lost_connection_on_a_starving_machine_decides_nothing() -> None:
    assert Repetition(*[(FAILS, STARVED)] * 3, doubt=LOST)().verdict == "inconclusive"


def test_a_loss_that_three_scenarios_confirmed_is_believed_at_once() -> None:
    calm = (FAILS, CALM)
    repetition = Repetition(*[calm] * (3 * CONFIRMED_ENOUGH + 1), doubt=LOST)
    repeats = [len(repetition().repeated) for _ in range(CONFIRMED_ENOUGH + 1)]
    assert repeats == [MOST_REPEATS] * CONFIRMED_ENOUGH + [0]


@pytest.mark.parametrize(("measured", "doubt", "reason"), [(STARVED, "", "too busy"), (CALM, LOST, LOST)])
def test_without_time_for_a_repetition_it_is_inconclusive(measured: StarvationRecord, doubt: str, reason: str) -> None:
    outcome = Repetition((FAILS, measured), doubt=doubt)(may_repeat=False)
    assert (outcome.verdict, outcome.findings, len(outcome.repeated)) == ("inconclusive", [], 1)
    assert reason in outcome.reason
    assert SEEN in outcome.reason


def test_the_same_certain_result_twice_is_enough() -> None:
    repetition = Repetition(*[(_with(CERTAIN, TIMED), STARVED)] * 2)
    assert (repetition().verdict, repetition.machine.started) == ("fail", 2)


def test_a_warning_is_not_repeated() -> None:
    warns = record({"a.must": "warn", "a.may": "pass"}, TIMED, verdict="warn")
    repetition = Repetition((warns, STARVED))
    assert repetition() == warns
    assert repetition.machine.started == 1


def _with(*findings: Finding) -> ScenarioRecord:
    return record(
        {"a.must": "unchecked", "a.may": "pass", **{item.requirement: "fail" for item in findings}},
        *findings,
        verdict="fail",
    )


def test_a_certain_finding_counts_on_any_machine() -> None:
    repetition = Repetition((_with(CERTAIN), STARVED))
    assert repetition() == _with(CERTAIN)
    assert repetition.machine.started == 1


def test_only_the_open_part_is_left_out() -> None:
    outcome = Repetition(*[(_with(CERTAIN, TIMED), STARVED)] * 2)()
    assert (outcome.verdict, outcome.findings) == ("fail", [CERTAIN])
    assert outcome.requirements == {"a.must": "inconclusive", "a.may": "pass", "b.must": "fail"}
    assert outcome.reason == "", "the machine is not the reason of the failure"


def test_a_certain_finding_that_does_not_appear_again_is_true() -> None:
    outcome = Repetition((_with(CERTAIN, TIMED), STARVED), (PASSES, CALM))()
    assert (outcome.verdict, outcome.findings, len(outcome.repeated)) == ("fail", [CERTAIN], 1)


def test_a_known_failure_is_not_repeated() -> None:
    known = msgspec.structs.replace(FAILS, known={"a.must": "it is old"}, verdict="pass")
    assert Repetition((known, STARVED))() == known


@pytest.mark.parametrize(
    ("timing", "measured", "is_open"),
    [
        # 1.5 s do not excuse a client that never does it within 5 s; half of the time does.
        (Timing.of_wait(5000), starved(CLIENT, 1500.0), False),
        (Timing.of_wait(5000), starved(CLIENT, 2500.0), True),
        (Timing.of_wait(5000), starved(KIT, 2500.0), True),
        (Timing.of_wait(5000), starved(CLOCK, 2500.0), True),
        # Bursts ten seconds apart did not hurt the same wait.
        (Timing.of_wait(5000), starved(CLIENT, 1300.0, 1300.0), False),
        (Timing.of_wait(15_000), starved(CLIENT, 4000.0, 4000.0), True),
        # The oracle's process only matters where its acts do.
        (Timing.of_wait(5000), starved(ORACLE, 2500.0), False),
        (Timing(within_ms=5000, slack_ms=2500, both_sides=True), starved(ORACLE, 2500.0), True),
    ],
)
def test_only_the_party_concerned_and_only_its_starvation_excuses(
    timing: Timing, measured: StarvationRecord, is_open: bool
) -> None:
    fails = record({"a.must": "fail"}, finding(timing=timing), verdict="fail")
    outcome = Repetition(*[(fails, measured)] * 3)()
    assert outcome.verdict == ("inconclusive" if is_open else "fail")


def test_half_a_second_breaks_nothing_off_where_time_stands_still() -> None:
    broken_off = record({"a.must": "error"}, verdict="error")
    assert Repetition((broken_off, STARVED), frozen=True)() == broken_off
    long = starved(KIT, 1500.0, 1500.0)
    assert Repetition((broken_off, long), (PASSES, CALM), frozen=True)().verdict == "pass"


@pytest.mark.parametrize(
    ("total_ms", "worst_second_ms", "frozen", "explained"),
    [
        (399, 399, False, False),
        (400, 400, False, True),
        (9000, 100, False, False),
        (1999, 1000, True, False),
        (2000, 100, True, True),
    ],
)
def test_starvation_explains_a_broken_off_scenario(
    total_ms: float, worst_second_ms: float, frozen: bool, explained: bool
) -> None:
    assert explains(Starvation("the kit", total_ms, worst_second_ms), frozen=frozen) is explained


STANDS_STILL_ONCE = """
    if op == "queue.count":
        if not os.path.exists({mark!r}):
            open({mark!r}, "w").close()
            if os.fork() == 0:
                time.sleep(0.8)
                os.kill(os.getppid(), signal.SIGCONT)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGSTOP)
            return {{"count": 2}}
        return {{"count": {then}}}
"""
"""The driver is stopped for 0.8 s while it counts for the first time, and counts wrong; afterwards it counts `then`."""


class WatchOfTheClient(StarvationWatch):
    """Sees only the client's driver: the machine that runs these tests may be busy, too."""

    def _lose(self, party: str, lost_ms: float) -> None:
        if party == "the client's driver":
            super()._lose(party, lost_ms)


BenchWith = Callable[[RestartableDriver], Bench]


@pytest.fixture
def bench_with(bench_of: BenchOf, mini: MiniatureDrivers, monkeypatch: pytest.MonkeyPatch) -> BenchWith:
    """A bench with a right oracle, on a machine that lets everybody run who is not stopped."""
    monkeypatch.setattr(run_queue, "thread_waits_s", lambda _pid: {})
    return lambda client: bench_of(mini(), client)


@pytest.mark.parametrize(("then", "verdict"), [(1, "pass"), (2, "fail")])
def test_only_what_the_stop_explains_is_excused(
    then: int,
    verdict: Verdict,
    bench_with: BenchWith,
    child: ChildDriver,
    tmp_path: Path,
) -> None:
    """A client that counts wrong only while it stood still is right; one that always counts wrong stays wrong."""
    stopped_once = child(STANDS_STILL_ONCE.format(mark=str(tmp_path / "stood-still"), then=then).lstrip())
    bench = bench_with(stopped_once)

    def attempt() -> AttemptResult:
        result = tried(COUNTS, bench)
        ended: Verdict = "fail" if result.findings else "pass"
        # The count is certain evidence; here it represents a state that depends on a short time.
        timed = [msgspec.structs.replace(found, timing=TIMED.timing) for found in result.findings]
        return AttemptResult(record=record({COUNTED: ended}, *timed, verdict=ended), frozen=result.frozen)

    with WatchOfTheClient(bench.processes, lambda: None) as watch:
        repeater = Repeater(watch)
        outcome = repeater.settle(repeater.first(attempt), attempt, lambda: True)
    assert (outcome.verdict, len(outcome.repeated)) == (verdict, 1)
    assert "the client's driver was starved of CPU" in outcome.repeated[0]
