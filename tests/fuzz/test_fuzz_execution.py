"""Running steps: calls whose connection breaks, what counts as a difference then, and a real client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from conformance.driver.ops import queue, worker
from conformance.environment.clients import Launch
from conformance.fuzz.comparison import Completion
from conformance.fuzz.execution import ObservedPair, SequenceRunner
from conformance.fuzz.keyspace import RedisKeyspace
from conformance.fuzz.strategies.disturbances import CUTTABLE, may_be_cut
from conformance.fuzz.target import FuzzTarget
from conformance.observe.tap.rules import PHASES, TriggerPhase
from conformance.participants.clock import FrozenClock
from conformance.servers import RedisInstance
from conformance.steps.shapes import CallStep, FaultStep, OutsideStep, Step, opening
from tests.observe.snapshot_builders import job, snapshot

from .hunting import target_for
from .planted import HEALTHY
from .test_fuzz_comparison import HandmadeObservation

ADD = CallStep("queue-1", queue.Add(name="n"))
UNDECIDED = Completion("info", code="connection-lost")
ADDED = Completion("ok", {"id": "1"})


@dataclass
class CountingSystem:
    """A system that adds `times` jobs for each call, and completes it as it is asked to."""

    prefix: str
    completion: Completion = ADDED
    times: int = 1
    jobs: int = 0
    calls: list[CallStep] = field(default_factory=list)

    def perform(self, step: CallStep, now_ms: int | None) -> Completion:  # noqa: ARG002 - the interface has it
        self.calls.append(step)
        self.jobs += self.times
        return self.completion

    def endure(self, step: OutsideStep) -> None:
        """Nothing."""

    def observe(self) -> HandmadeObservation:
        ids = [str(number) for number in range(1, self.jobs + 1)]
        keys: dict[str, Any] = {f"q:{job_id}": job() for job_id in ids} | ({"q:wait": ids[::-1]} if ids else {})
        return HandmadeObservation(snapshot(keys, prefix=self.prefix), fingerprint=" ".join(ids))


class ScriptedCutter:
    """Cuts, or does not get to it."""

    def __init__(self, *, cuts: bool = True) -> None:
        self.cuts = cuts

    @contextmanager
    def at_script(self, phase: TriggerPhase) -> Iterator[Callable[[], bool]]:  # noqa: ARG002 - the interface has it
        yield lambda: self.cuts


@pytest.fixture
def runner() -> Iterator[SequenceRunner]:
    expected, actual = CountingSystem("p"), CountingSystem("o")

    def observe() -> ObservedPair:
        return expected.observe(), actual.observe()

    with ThreadPoolExecutor(1) as pool:
        keyspace = cast("RedisKeyspace", None)
        yield SequenceRunner(
            expected, actual, observe, keyspace, FrozenClock(), pool, (), lambda: None, cutter=ScriptedCutter()
        )


def _cut(phase: TriggerPhase) -> CallStep:
    return CallStep(ADD.handle, ADD.op, cut=phase)


def _systems(runner: SequenceRunner) -> tuple[CountingSystem, CountingSystem]:
    return cast("CountingSystem", runner.expected), cast("CountingSystem", runner.actual)


def _client(runner: SequenceRunner, completion: Completion, times: int) -> None:
    runner.actual = CountingSystem("o", completion, times)
    expected, actual = _systems(runner)

    def observe() -> ObservedPair:
        return expected.observe(), actual.observe()

    runner.observe = observe


@pytest.mark.parametrize(("version", "broken"), [("5.62.0", True), ("6.7.0", False)])
def test_a_sequence_is_held_against_the_invariants_of_its_oracle(
    runner: SequenceRunner, version: str, broken: bool
) -> None:
    states = [
        HandmadeObservation(
            snapshot({"q:1": job(), "q:meta": {"paused": "1"}, f"q:{name}": ["1"]}, prefix=prefix), name
        )
        for name, prefix in (("paused", "p"), ("wait", "o"))
    ]
    runner.oracle_version = version
    runner.observe = lambda: (states[0], states[1])
    found = runner.perform(ADD)
    assert ("invariant.paused-list" in {difference.where for difference in found}) == broken


@pytest.mark.parametrize(("phase", "times"), [("before-send", 0), ("after-execute", 1), ("mid-reply", 1)], ids=str)
def test_an_undecided_call_that_happened_as_often_as_it_could_is_not_a_difference(
    runner: SequenceRunner, phase: TriggerPhase, times: int
) -> None:
    _client(runner, UNDECIDED, times)
    assert runner.perform(_cut(phase)) == []
    assert runner.live
    assert _systems(runner)[0].jobs == times, "the oracle makes the call where the client's call has happened"
    assert not _systems(runner)[1].calls[0].cut, "the client is asked for the plain call"


def test_an_undecided_call_that_happened_after_all_ends_the_sequence_without_a_difference(
    runner: SequenceRunner,
) -> None:
    _client(runner, UNDECIDED, 1)
    assert runner.perform(_cut("before-send")) == []
    assert not runner.live


@pytest.mark.parametrize("phase", PHASES)
def test_an_undecided_call_that_happened_twice_is_a_difference(runner: SequenceRunner, phase: TriggerPhase) -> None:
    _client(runner, UNDECIDED, 2)
    assert "job" in {difference.where for difference in runner.perform(_cut(phase))}
    assert not runner.live


@pytest.mark.parametrize("phase", ["after-execute", "mid-reply"])
def test_an_undecided_call_that_redis_has_executed_must_have_happened(
    runner: SequenceRunner, phase: TriggerPhase
) -> None:
    _client(runner, UNDECIDED, 0)
    assert [difference.kind for difference in runner.perform(_cut(phase))] == ["missing-job"]


def test_a_call_that_was_repeated_before_redis_saw_it_is_compared_as_usual(runner: SequenceRunner) -> None:
    _client(runner, Completion("ok", {"id": "7"}), 1)
    assert [difference.where for difference in runner.perform(_cut("before-send"))] == ["answer.queue.add.id"]
    assert not runner.live


@pytest.mark.parametrize("times", [1, 2])
def test_a_call_that_was_sent_again_may_have_happened_twice_as_with_node(runner: SequenceRunner, times: int) -> None:
    _client(runner, ADDED, times)
    assert runner.perform(_cut("after-execute")) == []
    assert "sent again" in runner.why_over


def test_a_driver_that_breaks_at_the_cut_is_a_difference(runner: SequenceRunner) -> None:
    _client(runner, Completion("broken", message="gone"), 1)
    assert [difference.kind for difference in runner.perform(_cut("after-execute"))] == ["outcome ok, not broken"]


def test_a_call_without_a_script_is_not_cut(runner: SequenceRunner) -> None:
    runner.cutter = ScriptedCutter(cuts=False)
    _client(runner, UNDECIDED, 1)
    assert [difference.kind for difference in runner.perform(_cut("after-execute"))] == ["outcome ok, not info"]


def test_without_a_tap_the_client_has_no_findings(runner: SequenceRunner) -> None:
    runner.cutter = None
    assert runner.perform(_cut("after-execute")) == []
    assert "could cut" in runner.why_over


def test_only_calls_are_cut_of_which_it_is_known_what_may_come() -> None:
    assert may_be_cut(ADD)
    assert not may_be_cut(CallStep("queue-1", queue.Add(name="n"), by="oracle"))
    assert not may_be_cut(CallStep("worker-1", worker.GetNextJob(token="t")))
    assert not may_be_cut(CallStep("worker-1", worker.MoveToCompleted(job="1", token="t", fetch_next=True)))
    assert "worker.moveToCompleted" in CUTTABLE


SEQUENCE: tuple[Step, ...] = (
    opening("queue-1", "queue", "q"),
    opening("worker-1", "worker", "q"),
    ADD,
    CallStep("worker-1", worker.GetNextJob(token="t")),
)


@pytest.mark.parametrize("mode", ["differential", "interop"])
@pytest.mark.parametrize(("phase", "jobs"), [("before-send", 0), ("after-execute", 1), ("mid-reply", 1)])
def test_a_healthy_client_survives_a_cut_at_the_tap(
    mode: Any, phase: TriggerPhase, jobs: int, server: RedisInstance, oracle: Launch
) -> None:
    completing = CallStep("worker-1", worker.MoveToCompleted(job="1", token="t"), cut=phase)
    with target_for(HEALTHY, server, oracle, mode) as target:
        runner = target.start()
        try:
            for step in (*SEQUENCE, _cut(phase), completing, ADD):
                assert runner.perform(step) == [], step
            assert runner.live, runner.why_over
            assert runner.observed is not None
            assert [len(observation.snapshot.members("q", "wait")) for observation in runner.observed] == [jobs + 1] * 2
            assert [len(observation.snapshot.members("q", "completed")) for observation in runner.observed] == [
                jobs
            ] * 2
        finally:
            target.end(runner)


def test_the_tap_really_cuts(server: RedisInstance, oracle: Launch) -> None:
    with target_for(HEALTHY, server, oracle) as target:
        assert target.drivers.cuts
        runner = target.start()
        completions = _watched(runner)
        try:
            for step in (SEQUENCE[0], _cut("after-execute"), ADD):
                runner.perform(step)
        finally:
            target.end(runner)
    assert [completion.status for completion in completions] == ["ok", "info", "ok"]


def _watched(runner: SequenceRunner) -> list[Completion]:
    """The completions of the client from now on."""
    completions: list[Completion] = []
    perform = runner.actual.perform

    def watched(step: CallStep, now_ms: int | None) -> Completion:
        completions.append(perform(step, now_ms))
        return completions[-1]

    runner.actual.perform = watched  # type: ignore[method-assign]
    return completions


def test_mode_model_has_no_connection_to_cut(server: RedisInstance, oracle: Launch) -> None:
    with target_for(HEALTHY, server, oracle, "model") as target:
        assert isinstance(target, FuzzTarget)
        assert not target.drivers.cuts


def test_the_first_call_after_a_kill_may_be_undecided(runner: SequenceRunner) -> None:
    _, actual = _systems(runner)
    runner.perform(FaultStep("disconnect"))
    actual.completion, actual.times = UNDECIDED, 0
    assert runner.perform(ADD) == []
    assert not runner.live
    assert "killed just before" in runner.why_over


def test_a_call_that_is_undecided_later_is_a_difference(runner: SequenceRunner) -> None:
    _, actual = _systems(runner)
    runner.perform(FaultStep("disconnect"))
    assert runner.perform(ADD) == []
    actual.completion, actual.times = UNDECIDED, 0
    assert runner.perform(ADD)
