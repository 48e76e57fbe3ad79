"""Calls whose connection breaks: what counts as a difference afterwards, and what a real client makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from conformance.driver.ops import queue, worker
from conformance.environment.clients import Launch
from conformance.fuzz.answers import Answer
from conformance.fuzz.comparing import Sight
from conformance.fuzz.cutting import CUTTABLE, may_be_cut
from conformance.fuzz.dump import Eyes
from conformance.fuzz.play import Play
from conformance.fuzz.stage import Stage
from conformance.fuzz.steps import CallStep, ClockStep, FaultStep, Step, opening
from conformance.observe.handmade import job, snapshot
from conformance.observe.tap.rules import PHASES, Phase
from conformance.participants.clock import FrozenClock
from conformance.servers import Server

from .hunting import stage_for
from .sick_driver import HEALTHY
from .test_fuzz_comparing import Seen

ADD = CallStep("queue-1", queue.Add(name="n"))
UNDECIDED = Answer("info", code="connection-lost")
ADDED = Answer("ok", {"id": "1"})


@dataclass
class Counter:
    """A side that adds `times` jobs for each call, and says what it is told to."""

    prefix: str
    answer: Answer = ADDED
    times: int = 1
    jobs: int = 0
    calls: list[CallStep] = field(default_factory=list)

    def perform(self, step: CallStep, now_ms: int | None) -> Answer:  # noqa: ARG002 - the interface has it
        self.calls.append(step)
        self.jobs += self.times
        return self.answer

    def endure(self, step: ClockStep | FaultStep) -> None:
        """Nothing."""

    def sight(self) -> Seen:
        ids = [str(number) for number in range(1, self.jobs + 1)]
        keys: dict[str, Any] = {f"q:{one}": job() for one in ids} | ({"q:wait": ids[::-1]} if ids else {})
        return Seen(snapshot(keys, prefix=self.prefix), essence=" ".join(ids))


class Scissors:
    """Cuts, or does not get to it."""

    def __init__(self, *, cuts: bool = True) -> None:
        self.cuts = cuts

    @contextmanager
    def at_script(self, phase: Phase) -> Iterator[Callable[[], bool]]:  # noqa: ARG002 - the interface has it
        yield lambda: self.cuts


@pytest.fixture
def play() -> Iterator[Play]:
    expected, actual = Counter("p"), Counter("o")

    def look() -> tuple[Sight, Sight]:
        return expected.sight(), actual.sight()

    with ThreadPoolExecutor(1) as pool:
        eyes = cast("Eyes", None)
        yield Play(expected, actual, look, eyes, FrozenClock(), pool, (), lambda: None, cutter=Scissors())


def _cut(phase: Phase) -> CallStep:
    return CallStep(ADD.handle, ADD.op, cut=phase)


def _sides(play: Play) -> tuple[Counter, Counter]:
    return cast("Counter", play.expected), cast("Counter", play.actual)


def _client(play: Play, answer: Answer, times: int) -> None:
    play.actual = Counter("o", answer, times)
    theirs, ours = _sides(play)

    def look() -> tuple[Sight, Sight]:
        return theirs.sight(), ours.sight()

    play.look = look


@pytest.mark.parametrize(("phase", "times"), [("before-send", 0), ("after-execute", 1), ("mid-reply", 1)], ids=str)
def test_an_undecided_call_that_happened_as_often_as_it_could_is_no_difference(
    play: Play, phase: Phase, times: int
) -> None:
    _client(play, UNDECIDED, times)
    assert play.perform(_cut(phase)) == []
    assert play.live
    assert _sides(play)[0].jobs == times, "the oracle makes the call where the client's call has happened"
    assert not _sides(play)[1].calls[0].cut, "the client is asked for the plain call"


def test_an_undecided_call_that_happened_after_all_ends_the_sequence_without_a_difference(play: Play) -> None:
    _client(play, UNDECIDED, 1)
    assert play.perform(_cut("before-send")) == []
    assert not play.live


@pytest.mark.parametrize("phase", PHASES)
def test_an_undecided_call_that_happened_twice_is_a_difference(play: Play, phase: Phase) -> None:
    _client(play, UNDECIDED, 2)
    assert "job" in {one.where for one in play.perform(_cut(phase))}
    assert not play.live


@pytest.mark.parametrize("phase", ["after-execute", "mid-reply"])
def test_an_undecided_call_that_redis_has_executed_must_have_happened(play: Play, phase: Phase) -> None:
    _client(play, UNDECIDED, 0)
    assert [one.kind for one in play.perform(_cut(phase))] == ["missing-job"]


def test_a_call_that_was_made_again_before_redis_saw_it_is_compared_as_ever(play: Play) -> None:
    _client(play, Answer("ok", {"id": "7"}), 1)
    assert [one.where for one in play.perform(_cut("before-send"))] == ["answer.queue.add.id"]
    assert not play.live


@pytest.mark.parametrize("times", [1, 2])
def test_a_call_that_was_sent_again_may_have_happened_twice_as_with_node(play: Play, times: int) -> None:
    _client(play, ADDED, times)
    assert play.perform(_cut("after-execute")) == []
    assert "sent again" in play.why_over


def test_a_driver_that_breaks_at_the_cut_is_a_difference(play: Play) -> None:
    _client(play, Answer("broken", message="gone"), 1)
    assert [one.kind for one in play.perform(_cut("after-execute"))] == ["outcome ok, not broken"]


def test_a_call_without_a_script_is_not_cut(play: Play) -> None:
    play.cutter = Scissors(cuts=False)
    _client(play, UNDECIDED, 1)
    assert [one.kind for one in play.perform(_cut("after-execute"))] == ["outcome ok, not info"]


def test_without_a_tap_nothing_is_said_about_the_client(play: Play) -> None:
    play.cutter = None
    assert play.perform(_cut("after-execute")) == []
    assert "could cut" in play.why_over


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
    mode: Any, phase: Phase, jobs: int, server: Server, oracle: Launch
) -> None:
    completing = CallStep("worker-1", worker.MoveToCompleted(job="1", token="t"), cut=phase)
    with stage_for(HEALTHY, server, oracle, mode) as stage:
        play = stage.begin()
        try:
            for step in (*SEQUENCE, _cut(phase), completing, ADD):
                assert play.perform(step) == [], step
            assert play.live, play.why_over
            assert play.seen is not None
            assert [len(one.snapshot.members("q", "wait")) for one in play.seen] == [jobs + 1] * 2
            assert [len(one.snapshot.members("q", "completed")) for one in play.seen] == [jobs] * 2
        finally:
            stage.end(play)


def test_the_tap_really_cuts(server: Server, oracle: Launch) -> None:
    with stage_for(HEALTHY, server, oracle) as stage:
        assert stage.cuts
        play = stage.begin()
        answers = _watched(play)
        try:
            for step in (SEQUENCE[0], _cut("after-execute"), ADD):
                play.perform(step)
        finally:
            stage.end(play)
    assert [one.status for one in answers] == ["ok", "info", "ok"]


def _watched(play: Play) -> list[Answer]:
    """What the client answers from now on."""
    answers: list[Answer] = []
    perform = play.actual.perform

    def watched(step: CallStep, now_ms: int | None) -> Answer:
        answers.append(perform(step, now_ms))
        return answers[-1]

    play.actual.perform = watched  # type: ignore[method-assign]
    return answers


def test_in_mode_model_there_is_nobody_to_cut(server: Server, oracle: Launch) -> None:
    with stage_for(HEALTHY, server, oracle, "model") as stage:
        assert isinstance(stage, Stage)
        assert not stage.cuts


def test_the_first_call_after_a_kill_may_be_undecided(play: Play) -> None:
    _, actual = _sides(play)
    play.perform(FaultStep("disconnect"))
    actual.answer, actual.times = UNDECIDED, 0
    assert play.perform(ADD) == []
    assert not play.live
    assert "killed just before" in play.why_over


def test_a_call_that_is_undecided_later_is_a_difference(play: Play) -> None:
    _, actual = _sides(play)
    play.perform(FaultStep("disconnect"))
    assert play.perform(ADD) == []
    actual.answer, actual.times = UNDECIDED, 0
    assert play.perform(ADD)
