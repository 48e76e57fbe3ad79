"""Thresholds of a load, written as in k6: `p99<50ms`, `scheduled-to-added:p99.9<1s`, `rate>=1000`. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from conformance.problems import UsageProblem
from reports.load.histograms import PERCENTILES
from reports.load.result import LoadResult

Outcome = Literal["passed", "failed", "undecided"]

_WRITTEN = re.compile(
    r"\s*(?:(?P<latency>[a-z-]+)\s*:\s*)?(?P<measure>p\(?(?P<percentile>\d+(?:\.\d+)?)\)?|rate|finished-rate)\s*"
    r"(?P<sign><=|>=|<|>)\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s)?\s*"
)
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_HINT = "as in 'p99<50ms', 'scheduled-to-added:p99.9<1s' or 'rate>=1000'"


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A bound on a percentile of a latency (ms), or on jobs per second.

    `latency` empty: of the whole way of a job, as far as the load shows it. `percentile` empty: it is about a rate,
    that of jobs added (`rate`) or finished (`finished-rate`).
    """

    text: str
    measure: str
    latency: str
    percentile: str
    sign: str
    bound: float


@dataclass(frozen=True, kw_only=True)
class JudgedThreshold:
    """A threshold, what was measured (ms or jobs/s; None where nothing was), and what follows."""

    threshold: Threshold
    measured: float | None
    outcome: Outcome
    reason: str = ""


def parse_threshold(text: str) -> Threshold:
    """Read a threshold. Raises UsageProblem."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise UsageProblem(f"the threshold {text!r} is not understood", hint=_HINT)
    percentile = found["percentile"] or ""
    known = [f"{each:g}" for each in PERCENTILES]
    if percentile and f"{float(percentile):g}" not in known:
        raise UsageProblem(f"the threshold {text!r}: p{percentile} is not kept", hint=f"kept are {', '.join(known)}")
    if bool(percentile) != (found["unit"] is not None) or (found["latency"] and not percentile):
        raise UsageProblem(f"the threshold {text!r}: a latency has a unit (ms or s), a rate has none", hint=_HINT)
    return Threshold(
        text=text,
        measure="percentile" if percentile else found["measure"],
        latency=found["latency"] or "",
        percentile=f"{float(percentile):g}" if percentile else "",
        sign=found["sign"],
        bound=float(found["number"]) * (1000.0 if found["unit"] == "s" else 1.0),
    )


def judge_threshold(threshold: Threshold, result: LoadResult) -> JudgedThreshold:
    """Whether the load keeps it. Undecided where nothing was measured, or where the harness has spoilt the latencies.

    Raises UsageProblem for a latency that no load has.
    """
    measured = _measured(threshold, result)
    if measured is None:
        return JudgedThreshold(threshold=threshold, measured=None, outcome="undecided", reason="nothing was measured")
    if threshold.percentile and result.spoilt_by_harness:
        return JudgedThreshold(
            threshold=threshold, measured=measured, outcome="undecided", reason=result.spoilt_by_harness
        )
    keeps = _SIGNS[threshold.sign](measured, threshold.bound)
    return JudgedThreshold(threshold=threshold, measured=measured, outcome="passed" if keeps else "failed")


def _measured(threshold: Threshold, result: LoadResult) -> float | None:
    if threshold.measure == "rate":
        return result.produced.per_second or None
    if threshold.measure == "finished-rate":
        return result.finished.per_second or None
    name = threshold.latency or whole_way(result)
    if name not in result.latencies:
        return None
    return result.latencies[name].percentiles.get(threshold.percentile)


def whole_way(result: LoadResult) -> str:
    """The latency that covers most of a job's way in this load."""
    names = ("scheduled-to-finished", "scheduled-to-added", "active-to-finished", "add-service")
    return next((name for name in names if name in result.latencies), names[0])


def threshold_sentence(judged: JudgedThreshold) -> str:
    """The outcome in one line."""
    unit = " ms" if judged.threshold.percentile else " jobs/s"
    measured = "nothing" if judged.measured is None else f"{judged.measured:,.1f}{unit}"
    reason = f": {judged.reason}" if judged.reason else ""
    return f"{judged.outcome}: {judged.threshold.text} (measured {measured}){reason}"
