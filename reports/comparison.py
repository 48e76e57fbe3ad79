"""Comparison of loads: the mean of each measure over repetitions, its interval, and regressions. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from conformance.problems import UsageProblem
from reports.load.result import LoadResult, read_result

Change = Literal["baseline", "same", "better", "worse", "undecided"]
Grouping = Literal["client", "day", "run"]

TOLERANCE = 0.1
"""A mean may be worse than the baseline's by this share before it counts."""

SHOWN_PERCENTILES = ("50", "99")

_T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t for a two-sided interval of 95 %, by degrees of freedom from 1 on; the last one serves for all above."""


class ComparedMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """One measure of one group. `mean`; `half_width`: of its 95 % interval, None for a single run.

    `ratio`: to the baseline's mean. `change`: `worse` and `better` only where the means are further apart than the
    tolerance and the interval of their difference leaves out zero; `undecided` where they are further apart and the
    repetitions are too few, or too different, to decide.
    """

    measure: str
    unit: str
    mean: float
    half_width: float | None
    ratio: float
    change: Change


class ComparedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Repetitions of one load. `label`: what they have in common; `runs`: their folders."""

    label: str
    runs: list[str]
    measures: list[ComparedMeasure]
    spoilt: list[str] = []


class LoadComparison(msgspec.Struct, frozen=True, kw_only=True):
    """All groups, the baseline first."""

    by: Grouping
    tolerance: float
    groups: list[ComparedGroup]

    @property
    def worse(self) -> list[tuple[str, str]]:
        """Label and measure of everything that is worse than the baseline."""
        return [
            (group.label, each.measure) for group in self.groups for each in group.measures if each.change == "worse"
        ]

    @property
    def undecided(self) -> list[tuple[str, str]]:
        """Label and measure of every undecided comparison."""
        return [
            (group.label, each.measure)
            for group in self.groups
            for each in group.measures
            if each.change == "undecided"
        ]


def compare_runs(folders: Sequence[Path], *, by: Grouping = "client", tolerance: float = TOLERANCE) -> LoadComparison:
    """Compare the loads in these folders with that of the first one, and its repetitions.

    Raises UsageProblem for folders without a load, for a single group, and for loads that did not do the same work.
    """
    results = [(folder, read_result(folder)) for folder in folders]
    _insist_on_the_same_work(results)
    groups: dict[str, list[tuple[Path, LoadResult]]] = {}
    for folder, result in results:
        groups.setdefault(_LABELS[by](folder, result), []).append((folder, result))
    if len(groups) < 2:
        raise UsageProblem(
            f"all runs are repetitions of one load ({next(iter(groups), 'none')})",
            hint="give runs of another client, version or day, or compare each run with --by run",
        )
    baseline = next(iter(groups.values()))
    return LoadComparison(
        by=by,
        tolerance=tolerance,
        groups=[_group(label, runs, baseline, tolerance) for label, runs in groups.items()],
    )


def _label_of_clients(_: Path, result: LoadResult) -> str:
    return f"{result.producer} → {', '.join(result.workers) or 'no workers'}"


_LABELS: Mapping[Grouping, Callable[[Path, LoadResult], str]] = {
    "client": _label_of_clients,
    "day": lambda _, result: result.taken_at.partition("T")[0] or "unknown day",
    "run": lambda folder, _: folder.name,
}


def _insist_on_the_same_work(results: Sequence[tuple[Path, LoadResult]]) -> None:
    def work(result: LoadResult) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(result.workload, seed=0))

    first_folder, first = results[0]
    for folder, result in results[1:]:
        if work(result) != work(first):
            raise UsageProblem(
                f"{folder} and {first_folder} did not do the same work", hint="compare loads of the same workload"
            )


def _group(
    label: str,
    runs: Sequence[tuple[Path, LoadResult]],
    baseline: Sequence[tuple[Path, LoadResult]],
    tolerance: float,
) -> ComparedGroup:
    own, base = _values([result for _, result in runs]), _values([result for _, result in baseline])
    return ComparedGroup(
        label=label,
        runs=[str(folder) for folder, _ in runs],
        measures=[
            _measure(key, values, base[key], tolerance, is_baseline=runs is baseline)
            for key, values in own.items()
            if key in base
        ],
        spoilt=[str(folder) for folder, result in runs if result.spoilt_by_harness],
    )


MeasureKey = tuple[str, str, bool]
"""Name, unit, and whether more is better."""


def _values(results: Sequence[LoadResult]) -> dict[MeasureKey, list[float]]:
    """The values of each measure, of those runs that have it."""
    found: dict[MeasureKey, list[float]] = {}
    for result in results:
        for key, value in _measures(result):
            found.setdefault(key, []).append(value)
    return found


def _measures(result: LoadResult) -> Iterator[tuple[MeasureKey, float]]:
    yield ("added", "jobs/s", True), result.produced.per_second
    if result.workers:
        yield ("finished", "jobs/s", True), result.finished.per_second
    # Loads of earlier versions also have the time until the kit itself, which looked four times a second, saw the end.
    latencies = {name: found for name, found in result.latencies.items() if name != "finished-to-seen"}
    for name, latency in sorted(latencies.items()) if not result.spoilt_by_harness else ():
        for percentile in SHOWN_PERCENTILES:
            yield (f"{name} p{percentile}", "ms", False), latency.percentiles[percentile]


def _measure(
    key: MeasureKey, values: Sequence[float], base: Sequence[float], tolerance: float, *, is_baseline: bool
) -> ComparedMeasure:
    name, unit, more_is_better = key
    mean, base_mean = statistics.fmean(values), statistics.fmean(base)
    ratio = mean / base_mean if base_mean else 1.0 if mean == base_mean else math.inf
    change: Change = "baseline"
    if not is_baseline:
        change = _change(values, base, tolerance, more_is_better=more_is_better)
    return ComparedMeasure(
        measure=name, unit=unit, mean=mean, half_width=half_width(values), ratio=ratio, change=change
    )


def _change(values: Sequence[float], base: Sequence[float], tolerance: float, *, more_is_better: bool) -> Change:
    gap = statistics.fmean(values) - statistics.fmean(base)
    if abs(gap) <= tolerance * abs(statistics.fmean(base)):
        return "same"
    if min(len(values), len(base)) < 2 or abs(gap) <= _half_width_of_gap(values, base):
        return "undecided"
    return "better" if (gap > 0) == more_is_better else "worse"


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of the mean; None for a single value."""
    if len(values) < 2:
        return None
    return _t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def _half_width_of_gap(values: Sequence[float], base: Sequence[float]) -> float:
    """Half of the 95 % interval of the difference of two means whose variances may differ (Welch)."""
    parts = [(statistics.variance(side) / len(side), len(side) - 1) for side in (values, base)]
    total = sum(part for part, _ in parts)
    if not total:
        return 0.0
    freedom = total**2 / sum(part**2 / degrees for part, degrees in parts)
    return _t(max(1, int(freedom))) * math.sqrt(total)


def _t(degrees: int) -> float:
    return _T_975[min(degrees, len(_T_975)) - 1]
