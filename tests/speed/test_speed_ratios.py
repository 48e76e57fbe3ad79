"""Intervals of ratios, and gates on them: decided by the whole interval, and never by too few rounds."""

from __future__ import annotations

import random
import statistics

import pytest

from conformance.problems import UsageProblem
from conformance.speed.gates import judged, parse_gates
from conformance.speed.ratios import confidence, ratio_interval
from conformance.speed.records import GateOutcome, MeasuredRatio, SpeedReport

MEASURES = ("worker", "log")


def test_an_interval_leaves_out_as_many_as_its_confidence_allows() -> None:
    five, eight = ratio_interval([3, 1, 2, 5, 4]), ratio_interval([1, 2, 3, 4, 5, 6, 7, 8])
    assert (five.median, five.low, five.high, five.confidence) == (3, 1, 5, 0.9375)
    assert (eight.low, eight.high) == (2, 7)
    assert eight.confidence == pytest.approx(0.9297, abs=1e-4)


def test_few_rounds_give_all_of_the_range_and_say_how_little_that_is() -> None:
    assert ratio_interval([2, 1]).confidence == 0.5
    assert (ratio_interval([2, 1]).low, ratio_interval([2, 1]).high) == (1, 2)
    assert ratio_interval([7]).confidence == 0.0
    with pytest.raises(ValueError, match="no round"):
        ratio_interval([])


@pytest.mark.parametrize("rounds", [3, 5, 8, 15])
def test_the_true_median_is_inside_as_often_as_is_said(rounds: int) -> None:
    rng = random.Random(rounds)
    intervals = [ratio_interval([rng.lognormvariate(0, 1) for _ in range(rounds)]) for _ in range(4000)]
    inside = statistics.fmean(interval.low <= 1 <= interval.high for interval in intervals)
    assert inside == pytest.approx(intervals[0].confidence, abs=0.02)


def test_a_smaller_interval_is_less_sure() -> None:
    assert confidence(9, 0) > confidence(9, 1) > confidence(9, 2)


def ratio_of(*ratios: float, measure: str = "worker") -> MeasuredRatio:
    interval = ratio_interval(ratios)
    return MeasuredRatio(
        measure=measure,
        meaning="",
        unit="jobs/s",
        state="measured",
        ratios=list(ratios),
        median=interval.median,
        low=interval.low,
        high=interval.high,
        confidence=interval.confidence,
    )


@pytest.mark.parametrize(
    ("ratios", "outcome", "code"),
    [
        ((0.6, 0.5, 0.7, 0.8, 0.9), "holds", 0),
        ((0.1, 0.2, 0.3, 0.4, 0.49), "fails", 1),
        ((0.1, 0.9, 0.9, 0.9, 0.9), "undecided", 4),
        ((0.1, 0.1), "undecided", 4),
        ((9.0,), "undecided", 4),
    ],
)
def test_a_gate_is_decided_by_the_whole_interval(ratios: tuple[float, ...], outcome: GateOutcome, code: int) -> None:
    (gate,) = judged({"worker": 0.5}, [ratio_of(*ratios)])
    assert gate.outcome == outcome
    assert report(gates=[gate]).exit_code == code


def test_what_was_not_measured_is_undecided_and_says_why() -> None:
    nothing = MeasuredRatio(measure="log", meaning="", unit="ms", state="not-declared", reason="job.log is unsupported")
    (gate,) = judged({"log": 0.5}, [nothing])
    assert (gate.outcome, gate.reason) == ("undecided", "not declared: job.log is unsupported")


def test_one_that_fails_outweighs_one_that_is_undecided() -> None:
    gates = judged({"worker": 1, "log": 1}, [ratio_of(0.1, 2, 2), ratio_of(0.1, 0.1, 0.1, measure="log")])
    assert [gate.outcome for gate in gates] == ["undecided", "fails"]
    assert report(gates=gates).exit_code == 1


def test_bounds_are_read() -> None:
    assert parse_gates(["worker=0.5", "log=2"], MEASURES) == {"worker": 0.5, "log": 2.0}


@pytest.mark.parametrize("text", ["worker", "worker=", "worker=fast", "worker=0", "worker=-1", "worker=nan"])
def test_what_is_not_a_bound_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"invalid ratio .* for --at-least — example: --at-least worker=0.5"):
        parse_gates([text], MEASURES)


def test_a_measure_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageProblem, match=r"unknown measure 'speed' — use one of worker, log"):
        parse_gates(["speed=1"], MEASURES)


def report(**more: object) -> SpeedReport:
    facts = {"kit": "1", "client": "c", "oracle": "o", "redis": "r", "rounds": 5, "jobs": 10, "load": (0.0, 0.0)}
    return SpeedReport(**{"ratios": [], **facts, **more})  # type: ignore[arg-type]
