"""Intervals of ratios, and gates on them: decided by the whole interval, and never by too few rounds."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import msgspec
import pytest

from conformance.problems import UsageProblem
from conformance.speed.gates import MOST_STARVED, SpeedBound, judged, parse_gates
from conformance.speed.ratios import confidence, ratio_interval
from conformance.speed.records import GateOutcome, MeasuredRatio, SpeedReport

UNITS = {"worker": "jobs/s", "log": "ms", "overhead": "%"}


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
def test_the_true_median_is_inside_as_often_as_stated(rounds: int) -> None:
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
    (gate,) = judged([SpeedBound(measure="worker", value=0.5)], [ratio_of(*ratios)])
    assert gate.outcome == outcome
    assert report(gates=[gate]).exit_code == code


def test_an_unmeasured_ratio_is_undecided_and_has_a_reason() -> None:
    nothing = MeasuredRatio(measure="log", meaning="", unit="ms", state="not-declared", reason="job.log is unsupported")
    (gate,) = judged([SpeedBound(measure="log", value=0.5)], [nothing])
    assert (gate.outcome, gate.reason) == ("undecided", "not declared: job.log is unsupported")


def test_one_that_fails_outweighs_one_that_is_undecided() -> None:
    gates = judged(
        [SpeedBound(measure="worker", value=1), SpeedBound(measure="log", value=1)],
        [ratio_of(0.1, 2, 2), ratio_of(0.1, 0.1, 0.1, measure="log")],
    )
    assert [gate.outcome for gate in gates] == ["undecided", "fails"]
    assert report(gates=gates).exit_code == 1


def test_bounds_are_read() -> None:
    assert parse_gates(["worker=0.5", "worker=1000/s"], ["log=10ms", "log=0.5s", "overhead=105%"], UNITS) == [
        SpeedBound(measure="worker", value=0.5),
        SpeedBound(measure="worker", value=1000, unit="jobs/s"),
        SpeedBound(measure="log", value=10, unit="ms", at_most=True),
        SpeedBound(measure="log", value=500, unit="ms", at_most=True),
        SpeedBound(measure="overhead", value=105, unit="%", at_most=True),
    ]


@pytest.mark.parametrize("text", ["worker", "worker=", "worker=fast", "worker=0", "worker=-1", "worker=nan"])
def test_an_invalid_bound_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"invalid (ratio|limit) .* for --at-least — example: --at-least worker=0.5"):
        parse_gates([text], [], UNITS)


def test_a_measure_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageProblem, match=r"unknown measure 'speed' — use one of worker, log"):
        parse_gates(["speed=1"], [], UNITS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log=10", r"'log=10' for --at-most has no unit — write log=10ms"),
        ("log=10/s", r"log is measured in ms, not in /s"),
        ("log=soon", r"invalid limit 'log=soon' for --at-most — example: --at-most pickup=10ms"),
        ("log=10parsecs", r"invalid limit 'log=10parsecs'"),
        ("log=-1ms", r"invalid limit 'log=-1ms'"),
    ],
)
def test_an_invalid_limit_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageProblem, match=message):
        parse_gates([], [text], UNITS)


def taken(clients: Sequence[float], oracles: Sequence[float], *, starved: float = 0.0) -> MeasuredRatio:
    ratio = ratio_of(*(oracle / client for client, oracle in zip(clients, oracles, strict=True)), measure="log")
    return msgspec.structs.replace(ratio, unit="ms", clients=[*clients], oracles=[*oracles], starved=starved)


SLOW, FAST, BOTH = (21.0, 25.0, 22.0), (1.0, 2.0, 1.5), (5.0, 25.0, 8.0)


@pytest.mark.parametrize(
    ("clients", "oracles", "starved", "outcome", "reason"),
    [
        (FAST, FAST, 0.0, "holds", "1.5 (1 to 2) ms is at most 10 ms"),
        (FAST, SLOW, 0.9, "holds", "at most 10 ms"),
        (SLOW, FAST, 0.0, "fails", "22 (21 to 25) ms is more than 10 ms"),
        (BOTH, FAST, 0.0, "undecided", "on both sides of 10"),
        (SLOW, SLOW, 0.0, "undecided", "cannot decide it: the oracle itself has 22 (21 to 25) ms"),
        (SLOW, BOTH, 0.0, "undecided", "cannot decide it: the oracle itself has"),
        (SLOW, FAST, MOST_STARVED + 0.3, "undecided", "cannot decide it: 55% of the time, kit or driver waited"),
    ],
)
def test_a_limit_is_judged_by_the_clients_own_values_and_the_machine(
    clients: Sequence[float], oracles: Sequence[float], starved: float, outcome: GateOutcome, reason: str
) -> None:
    bound = SpeedBound(measure="log", value=10, unit="ms", at_most=True)
    (gate,) = judged([bound], [taken(clients, oracles, starved=starved)])
    assert (gate.outcome, gate.text) == (outcome, "log at most 10 ms")
    assert reason in gate.reason


def test_a_rate_is_judged_from_the_other_side() -> None:
    bound = SpeedBound(measure="log", value=1000, unit="jobs/s")
    outcomes = [judged([bound], [taken(rates, (5000.0,) * 3)])[0].outcome for rates in ((1200.0,) * 3, (900.0,) * 3)]
    assert outcomes == ["holds", "fails"]


def report(**more: object) -> SpeedReport:
    facts = {"kit": "1", "client": "c", "oracle": "o", "redis": "r", "rounds": 5, "jobs": 10, "load": (0.0, 0.0)}
    return SpeedReport(**{"ratios": [], **facts, **more})  # type: ignore[arg-type]
