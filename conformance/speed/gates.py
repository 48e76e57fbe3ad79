"""`--at-least` and `--at-most`: parsing, and judging by the whole interval instead of its middle. Pure.

A bound without a unit is one of the ratio to the oracle, a bound with a unit one of the client's own values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from conformance.problems import UsageProblem
from conformance.registry import unknown_name
from conformance.speed.ratios import RatioInterval, confidence, ratio_interval
from conformance.speed.records import GateOutcome, MeasuredRatio, SpeedGate

LEAST_CONFIDENCE = 0.75
"""The confidence of three rounds: one or two rounds decide nothing."""

MOST_STARVED = 0.25
"""Share of the time of a measurement in which kit or driver waited for a processor: above it, a slow value shows
nothing about the client."""

_BOUND = re.compile(r"(?P<measure>[^=]*)=(?P<number>[0-9.eE+-]+)(?P<unit>\D*)")
_UNITS: Mapping[str, tuple[str, float]] = {
    "ms": ("ms", 1.0),
    "s": ("ms", 1000.0),
    "/s": ("jobs/s", 1.0),
    "jobs/s": ("jobs/s", 1.0),
    "MB": ("MB", 1.0),
    "%": ("%", 1.0),
}
"""Unit of a measure, and the factor to it, by how it is written."""


@dataclass(frozen=True, kw_only=True)
class SpeedBound:
    """A bound of the command line. `unit`: empty for a ratio. `optional`: only for clients that declare the measure."""

    measure: str
    value: float
    unit: str = ""
    at_most: bool = False
    optional: bool = False

    @property
    def text(self) -> str:
        """The bound in words: `at most 10 ms`."""
        return f"at {'most' if self.at_most else 'least'} {self.value:g}{f' {self.unit}' if self.unit else ''}"


def parse_gates(at_least: Iterable[str], at_most: Iterable[str], units: Mapping[str, str]) -> list[SpeedBound]:
    """Parse the bounds. `units`: of each measure that can be bounded.

    Raises UsageProblem for an invalid bound, an unknown measure or another unit than that of the measure.
    """
    lower = [_parsed(text, units, at_most=False) for text in at_least]
    return lower + [_parsed(text, units, at_most=True) for text in at_most]


def specified_bounds(rows: Iterable[str], units: Mapping[str, str]) -> list[SpeedBound]:
    """The limits of the written specification. `rows`: the options of `bench` in rows of the ledger.

    `units`: of each measure that is taken; bounds of others are left out.
    """
    words = [word for row in rows for word in row.split()]
    options = list(zip(words[::2], words[1::2], strict=True))
    bounds = [
        _parsed(text, units, at_most=option == "--at-most")
        for option, text in options
        if text.partition("=")[0] in units
    ]
    return [replace(bound, optional=True) for bound in bounds]


def bounded_measures(options: str) -> set[str]:
    """The measures that options of `bench` bound."""
    return {word.partition("=")[0] for word in options.split()[1::2]}


def _parsed(text: str, units: Mapping[str, str], *, at_most: bool) -> SpeedBound:
    option = "--at-most" if at_most else "--at-least"
    hint = "example: --at-most pickup=10ms" if at_most else "example: --at-least worker=0.5, or worker=1000/s"
    measure = text.partition("=")[0]
    if measure not in units:
        raise unknown_name("measure", measure, tuple(units))
    found = _BOUND.fullmatch(text)
    value = _number(found["number"]) if found else math.nan
    written = found["unit"].strip() if found else ""
    if not (math.isfinite(value) and value > 0) or (written and written not in _UNITS):
        raise UsageProblem(f"invalid {'limit' if at_most or written else 'ratio'} {text!r} for {option}", hint=hint)
    if not written:
        if at_most:
            raise UsageProblem(f"{text!r} for {option} has no unit", hint=f"write {text}{units[measure]}")
        return SpeedBound(measure=measure, value=value)
    unit, factor = _UNITS[written]
    if unit != units[measure]:
        raise UsageProblem(f"{measure} is measured in {units[measure]}, not in {written}", hint=hint)
    return SpeedBound(measure=measure, value=value * factor, unit=unit, at_most=at_most)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def judged(bounds: Iterable[SpeedBound], ratios: Iterable[MeasuredRatio]) -> list[SpeedGate]:
    """The outcome of each bound, in the order of the command line; optional ones only if the client declares them."""
    found = {ratio.measure: ratio for ratio in ratios}
    return [
        _judged(found[bound.measure], bound)
        for bound in bounds
        if not (bound.optional and found[bound.measure].state == "not-declared")
    ]


def _judged(ratio: MeasuredRatio, bound: SpeedBound) -> SpeedGate:
    outcome, reason = _outcome(ratio, bound)
    return SpeedGate(
        measure=ratio.measure,
        at_least=None if bound.at_most else bound.value,
        at_most=bound.value if bound.at_most else None,
        unit=bound.unit,
        outcome=outcome,
        reason=reason,
    )


def _outcome(ratio: MeasuredRatio, bound: SpeedBound) -> tuple[GateOutcome, str]:
    values = ratio.clients if bound.unit else ratio.ratios
    if not values:
        return "undecided", f"{ratio.state.replace('-', ' ')}: {ratio.reason}"
    if confidence(len(values), 0) < LEAST_CONFIDENCE:
        return "undecided", f"{len(values)} rounds were measured, which are too few"
    interval = ratio_interval(values)
    seen = f"{_shown(interval, bound.unit)} is"
    # The worse end of the interval decides, so that noise alone can neither pass nor fail a gate.
    if _beyond(interval, bound) is False:
        return "holds", f"{seen} {bound.text}"
    if _beyond(interval, bound) is None:
        return "undecided", f"{seen} on both sides of {bound.value:g}: more rounds, or a quieter machine"
    excuse = _why_the_machine(ratio, bound) if bound.unit else ""
    if excuse:
        return "undecided", f"{seen} not {bound.text}, but this machine cannot decide it: {excuse}"
    return "fails", f"{seen} {'more' if bound.at_most else 'less'} than {bound.value:g}{_spaced(bound.unit)}"


def _beyond(interval: RatioInterval, bound: SpeedBound) -> bool | None:
    """Whether the whole interval violates the bound; None if a part of it does."""
    worse, better = (interval.high, interval.low) if bound.at_most else (-interval.low, -interval.high)
    limit = bound.value if bound.at_most else -bound.value
    return False if worse <= limit else True if better > limit else None


def _why_the_machine(ratio: MeasuredRatio, bound: SpeedBound) -> str:
    """Why a value beyond the bound may be that of the machine; empty if it is that of the client."""
    if ratio.starved > MOST_STARVED:
        return f"{ratio.starved:.0%} of the time, kit or driver waited for a processor"
    oracle = ratio_interval(ratio.oracles)
    # The oracle is the control: a machine on which it does not keep the limit cannot show who does.
    return "" if _beyond(oracle, bound) is False else f"the oracle itself has {_shown(oracle, bound.unit)}"


def _shown(interval: RatioInterval, unit: str) -> str:
    digits = ".3g" if unit else ".2f"
    if max(abs(interval.low), abs(interval.high)) >= 100:
        digits = ",.0f"
    low, median, high = (format(value, digits) for value in (interval.low, interval.median, interval.high))
    return f"{median} ({low} to {high}){_spaced(unit)}"


def _spaced(unit: str) -> str:
    return f" {unit}" if unit else ""
