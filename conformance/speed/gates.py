"""`--at-least MEASURE=RATIO`: parsing, and judging by the whole interval instead of its middle. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from conformance.problems import UsageProblem
from conformance.registry import unknown_name
from conformance.speed.records import GateOutcome, MeasuredRatio, SpeedGate

LEAST_CONFIDENCE = 0.75
"""The confidence of three rounds: one or two rounds decide nothing."""


def parse_gates(texts: Iterable[str], measures: Collection[str]) -> dict[str, float]:
    """Bounds by measure. Raises UsageProblem for an invalid bound or an unknown measure."""
    return dict(_parsed(text, measures) for text in texts)


def _parsed(text: str, measures: Collection[str]) -> tuple[str, float]:
    measure, equals, number = text.partition("=")
    if measure not in measures:
        raise unknown_name("measure", measure, measures)
    try:
        bound = float(number) if equals else math.nan
    except ValueError:
        bound = math.nan
    if not (math.isfinite(bound) and bound > 0):
        raise UsageProblem(f"invalid ratio {text!r} for --at-least", hint="example: --at-least worker=0.5")
    return measure, bound


def judged(bounds: Mapping[str, float], ratios: Iterable[MeasuredRatio]) -> list[SpeedGate]:
    """The outcome of each bound, in the order of the command line."""
    found = {ratio.measure: ratio for ratio in ratios}
    return [_judged(found[measure], bound) for measure, bound in bounds.items()]


def _judged(ratio: MeasuredRatio, bound: float) -> SpeedGate:
    outcome, reason = _outcome(ratio, bound)
    return SpeedGate(measure=ratio.measure, at_least=bound, outcome=outcome, reason=reason)


def _outcome(ratio: MeasuredRatio, bound: float) -> tuple[GateOutcome, str]:
    if ratio.median is None or ratio.low is None or ratio.high is None:
        return "undecided", f"{ratio.state.replace('-', ' ')}: {ratio.reason}"
    if (ratio.confidence or 0) < LEAST_CONFIDENCE:
        return "undecided", f"{len(ratio.ratios)} rounds were measured, which are too few"
    seen = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
    # The worse end of the interval decides, so that noise alone can neither pass nor fail a gate.
    if ratio.low >= bound:
        return "holds", f"{seen} is at least {bound:g}"
    if ratio.high < bound:
        return "fails", f"{seen} is less than {bound:g}"
    return "undecided", f"{seen} is on both sides of {bound:g}: more rounds, or a quieter machine"
