"""Comparisons of loads: thresholds, the highest rate that keeps them, and what has become worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.cli.verbs import cli
from conformance.problems import UsageProblem
from reports.comparison import compare_runs, half_width
from reports.load.histograms import Histogram
from reports.load.rate_search import RateTrial, search_rate, search_sentence
from reports.load.result import LoadPhase, LoadResult, read_result, write_result
from reports.load.thresholds import judge_threshold, parse_threshold
from reports.rendering import write_load_reports, write_search_reports
from tests.reports.test_reports_pages import is_self_contained, load_result


def result_with(ms: int, rate: float = 100.0, **changes: Any) -> LoadResult:
    histogram = Histogram()
    histogram.record_all([ms] * 1000)
    latencies = {"scheduled-to-finished": histogram.latency(), "scheduled-to-added": histogram.latency()}
    phase = LoadPhase(jobs=1000, seconds=1000 / rate)
    return msgspec.structs.replace(load_result(), latencies=latencies, produced=phase, finished=phase, **changes)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("p99<50ms", "passed"),
        ("p(99)<=0.04s", "passed"),
        ("p99<40ms", "failed"),
        ("scheduled-to-added : p50 > 39ms", "passed"),
        ("rate>=100", "passed"),
        ("rate>100", "failed"),
        ("finished-rate>1000", "failed"),
        ("delayed-late:p99<1s", "undecided"),
    ],
)
def test_a_threshold_is_kept_or_missed(text: str, outcome: str) -> None:
    assert judge_threshold(parse_threshold(text), result_with(40)).outcome == outcome


@pytest.mark.parametrize("text", ["p99", "p99<50", "rate>5ms", "p98<50ms", "latency<5ms", "added:rate>5", ""])
def test_a_threshold_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="threshold"):
        parse_threshold(text)


def test_a_harness_that_was_late_leaves_latencies_undecided() -> None:
    late = Histogram()
    late.record(35)
    spoilt = result_with(40, harness=late.latency())
    assert judge_threshold(parse_threshold("p99<50ms"), spoilt).outcome == "undecided"
    assert judge_threshold(parse_threshold("rate>=100"), spoilt).outcome == "passed"


def a_system_that_keeps_up_to(capacity: float, harness: float = 1e9) -> Any:
    def try_rate(rate: float) -> RateTrial:
        outcome: Any = "undecided" if rate > harness else "passed" if rate <= capacity else "failed"
        return RateTrial(rate=rate, achieved=min(rate, capacity), outcome=outcome, measured={"p99<50ms": rate})

    return try_rate


@pytest.mark.parametrize("capacity", [37.0, 100.0, 999.0, 12_345.0])
def test_the_highest_rate_is_found_to_a_tenth(capacity: float) -> None:
    search = search_rate(a_system_that_keeps_up_to(capacity), 100.0)
    assert search.missed is not None
    assert search.kept <= capacity < search.missed <= search.kept * 1.1
    assert "does not" in search_sentence(search)


def test_a_system_that_keeps_no_rate_is_reported() -> None:
    search = search_rate(a_system_that_keeps_up_to(0.0), 64.0)
    assert (search.kept, len(search.trials)) == (0.0, 7)
    assert search_sentence(search) == "no rate that was tried keeps the thresholds"


def test_a_harness_at_its_end_is_not_the_system_s() -> None:
    search = search_rate(a_system_that_keeps_up_to(10_000.0, harness=500.0), 100.0)
    assert search.kept <= 500 < (search.missed or 0)
    assert search.limited_by_harness
    assert "the harness itself is late" in search_sentence(search)


def runs(folder: Path, **values: list[tuple[int, float]]) -> list[Path]:
    """Folders of runs: latency (ms) and rate of each repetition, by producer."""
    found: list[Path] = []
    for producer, repetitions in values.items():
        for number, (ms, rate) in enumerate(repetitions):
            found.append(folder / f"{producer}-{number}")
            found[-1].mkdir()
            write_result(found[-1], result_with(ms, rate, producer=producer))
    return found


def test_a_regression_is_reported_with_its_interval(tmp_path: Path) -> None:
    folders = runs(tmp_path, old=[(40, 1000), (41, 1010), (39, 990)], new=[(80, 1000), (82, 1005), (79, 1020)])
    comparison = compare_runs(folders)
    assert {measure for _, measure in comparison.worse} >= {"scheduled-to-finished p99", "scheduled-to-added p50"}
    assert not any(measure == "added" for _, measure in comparison.worse)
    measures = {each.measure: each for each in comparison.groups[1].measures}
    assert measures["scheduled-to-finished p99"].ratio == pytest.approx(241 / 120, rel=0.01)
    assert measures["scheduled-to-finished p99"].half_width == pytest.approx(3.8, rel=0.01)
    assert compare_runs(folders, tolerance=1.5).worse == []


def test_the_kit_s_own_polling_in_older_loads_is_not_compared(tmp_path: Path) -> None:
    folders = runs(tmp_path, old=[(40, 1000)], new=[(40, 1000)])
    for folder in folders:
        found = read_result(folder)
        latencies = {**found.latencies, "finished-to-seen": found.latencies["scheduled-to-added"]}
        write_result(folder, msgspec.structs.replace(found, latencies=latencies))
    measures = {each.measure for group in compare_runs(folders).groups for each in group.measures}
    assert "scheduled-to-added p99" in measures
    assert not any(measure.startswith("finished-to-seen") for measure in measures)


def test_an_improvement_is_not_a_regression(tmp_path: Path) -> None:
    folders = runs(tmp_path, old=[(80, 900), (81, 910)], new=[(40, 2000), (41, 2010)])
    changes = {each.measure: each.change for each in compare_runs(folders).groups[1].measures}
    assert changes["added"] == "better"
    assert changes["scheduled-to-finished p99"] == "better"


def test_one_run_of_each_decides_nothing_that_is_far_apart(tmp_path: Path) -> None:
    comparison = compare_runs(runs(tmp_path, old=[(40, 1000)], new=[(80, 1001)]))
    assert comparison.worse == []
    assert {measure for _, measure in comparison.undecided} >= {"scheduled-to-finished p99"}
    assert "added" not in {measure for _, measure in comparison.undecided}


def test_repetitions_that_scatter_decide_nothing(tmp_path: Path) -> None:
    comparison = compare_runs(runs(tmp_path, old=[(40, 1000), (400, 1000)], new=[(80, 1000), (900, 1000)]))
    assert (comparison.worse, len(comparison.undecided) > 0) == ([], True)


def test_loads_of_other_work_are_not_compared(tmp_path: Path) -> None:
    folders = runs(tmp_path, old=[(40, 1000)], new=[(80, 1000)])
    other = msgspec.structs.replace(result_with(1), workload=msgspec.structs.replace(load_result().workload, jobs=7))
    write_result(folders[1], other)
    with pytest.raises(UsageProblem, match="did not do the same work"):
        compare_runs(folders)


def test_repetitions_alone_cannot_be_compared(tmp_path: Path) -> None:
    folders = runs(tmp_path, old=[(40, 1000), (41, 1000)])
    with pytest.raises(UsageProblem, match="all runs are repetitions of one load"):
        compare_runs(folders)
    assert len(compare_runs(folders, by="run").groups) == 2


def test_an_interval_is_student_s() -> None:
    # 2, 4, 6: deviation 2, of three values; t for two degrees of freedom is 4.303.
    assert half_width([2.0, 4.0, 6.0]) == pytest.approx(4.303 * 2 / 3**0.5)
    assert half_width([2.0]) is None


@pytest.mark.slow
def test_a_regression_is_the_exit_code_of_report_compare(tmp_path: Path) -> None:
    good = [(40, 1000.0), (41, 1010.0), (39, 990.0)]
    folders = runs(tmp_path, old=good, same=good, slow=[(80, 500.0), (82, 505.0), (79, 510.0)], once=[(400, 100.0)])
    by_name = {name: [str(folder) for folder in folders if folder.name.startswith(name)] for name in ("old", "slow")}
    same, once = (str(tmp_path / f"{name}-0") for name in ("same", "once"))
    out = tmp_path / "out"
    assert cli.main(["report", "compare", *by_name["old"], same], standalone_mode=False) == 0
    assert cli.main(["report", "compare", *by_name["old"], once], standalone_mode=False) == 4
    words = ["report", "compare", *by_name["old"], *by_name["slow"], "--out", str(out)]
    assert cli.main(words, standalone_mode=False) == 1
    page = (out / "compare.html").read_text("utf-8")
    assert "Worse than the first: added of slow" in page
    assert is_self_contained(page)
    assert "<failure" in (out / "junit.xml").read_text("utf-8")


@pytest.mark.slow
def test_the_index_shows_what_has_become_of_loads(tmp_path: Path) -> None:
    for day in (1, 2):
        folder = tmp_path / f"day-{day}"
        folder.mkdir()
        found = result_with(40 * day, taken_at=f"2026-01-0{day}T00:00:00+00:00")
        write_result(folder, found)
        index = write_load_reports(folder, found)[-1].read_text("utf-8")
        assert index.count("<svg") == (0 if day == 1 else 2)
    assert "p99 of scheduled-to-finished" in index


def test_the_page_of_a_search_has_every_trial(tmp_path: Path) -> None:
    search = search_rate(a_system_that_keeps_up_to(150.0), 100.0)
    page = write_search_reports(tmp_path, search, "node → node", "load --find-rate")[0].read_text("utf-8")
    assert page.count('<tr><th scope="row">') == len(search.trials)
    assert "keeps the thresholds" in page
    assert is_self_contained(page)
