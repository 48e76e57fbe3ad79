from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from rich.console import Console

from reports.charts import latency_chart, rates, search_chart
from reports.check.summary import BrokenExample, CauseFound, CheckSummary
from reports.diff.summary import (
    DiffExample,
    DiffSummary,
    RollupLine,
    in_tree_order,
    look_closer,
)
from reports.index import write_index
from reports.load.backlog import BacklogSample
from reports.load.histograms import Histogram, merged
from reports.load.rate_search import RateSearch, RateTrial
from reports.load.result import LoadPhase, LoadResult, write_result
from reports.load.thresholds import Outcome
from reports.load.workload import Workload
from reports.rendering import write_load_reports
from reports.store_pages import print_diff, write_check_reports, write_diff_reports


def load_result() -> LoadResult:
    histogram = Histogram()
    for ms in range(1000):
        histogram.record(ms)
    counts = [{"wait": 100 - number, "active": 3, "completed": number * 5, "failed": 0} for number in range(40)]
    return LoadResult(
        kit="1",
        command="bullmq-conformance load --jobs 1234",
        workload=Workload(jobs=1234),
        producer="reference",
        workers=["1 x node, concurrency 100"],
        redis="redis://127.0.0.1:1/0",
        prefix="p",
        start_ms=0,
        produced=LoadPhase(jobs=1234, seconds=2),
        finished=LoadPhase(jobs=1200, seconds=10),
        late_ms=17,
        final={"completed": 1190, "failed": 10},
        latencies={"due-to-active": histogram.latency()},
        series=[BacklogSample(at_ms=n * 250, counts=found, added=n * 9) for n, found in enumerate(counts)],
    )


def diff_summary(total: int = 3) -> DiffSummary:
    example = DiffExample(
        class_="field",
        kind="wrong-value",
        severity="breaks-others",
        locator="job.data",
        queue="q",
        state="wait",
        key="q:17",
        field="data",
        expected='"<script>alert(1)</script>"',
        actual='"b"',
        look_closer="bullmq-conformance diff A B --queue q --job 17",
    )
    lines = [([], 3), (["q"], 3), (["q", "wait"], 3), (["q", "wait", "field"], 2), (["q", "wait", "missing"], 1)]
    return DiffSummary(
        expected="A",
        actual="B",
        jobs=(1000, 999),
        total=total,
        by_class={"missing": 1, "field": 2} if total else {},
        rollup=[RollupLine(path=path, count=count) for path, count in lines] if total else [],
        examples=[example, msgspec.structs.replace(example, class_="missing")] if total else [],
        trimmed=["q"],
        switched_off=[],
    )


def shown_by_chromium(path: Path) -> str:
    """The page as a browser has built it, on a screen as small as a phone's."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--window-size=360,740"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    command = [browser, *options, profile, "--dump-dom", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


class References(HTMLParser):
    """Everything that a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe"}:
            self.found.append(tag)
        self.found += [f"{name}={value}" for name, value in attrs if name in {"src", "srcset"}]


def is_self_contained(html: str) -> bool:
    parser = References()
    parser.feed(html)
    return not parser.found


@pytest.mark.slow
def test_a_browser_shows_the_load(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    html, markdown, _, index = write_load_reports(folder, load_result())
    write_result(folder, load_result())
    assert msgspec.json.decode((folder / "load.json").read_bytes(), type=LoadResult) == load_result()
    shown = shown_by_chromium(html)
    for text in ("Load of 1,234 jobs", "jobs per second", "Latency percentiles in milliseconds", "p99.9", "1,190"):
        assert text in shown, text
    assert shown.count("<svg") == 3
    assert 'scope="row">due-to-active' in shown
    assert "`" not in shown, "Markdown in HTML"
    assert is_self_contained(html.read_text())
    assert "| due-to-active | 1,000 |" in markdown.read_text()
    assert index.name == "index.html"


def test_a_browser_shows_the_differences_and_runs_nothing_from_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    paths = {path.name: path for path in write_diff_reports(folder, diff_summary())}
    shown = shown_by_chromium(paths["diff.html"])
    assert "3 differences, by class: missing, field." in shown
    assert "--queue q --job 17" in shown
    assert '<td data-label="queue">all</td>' in shown
    # Numbers of differences are whole; text in the chart is drawn as text.
    assert not re.search(r">0\.\d+<", shown)
    assert "&lt;script&gt;alert(1)" in shown
    assert is_self_contained(paths["diff.html"].read_text())
    cases = ET.fromstring(paths["junit.xml"].read_text()).iter("testcase")  # noqa: S314 - our own file
    assert {case.get("name") for case in cases if case.find("failure") is not None} == {"missing", "field"}
    assert msgspec.json.decode(paths["diff.json"].read_bytes(), type=DiffSummary) == diff_summary()
    assert "run/diff.html" in paths["index.html"].read_text()
    assert "| field | 2 |" in paths["diff.md"].read_text()


def test_a_report_without_differences_says_so_and_has_no_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A module that cannot be imported: matplotlib takes longer than the comparison of a small store.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    folder = tmp_path / "run"
    folder.mkdir()
    html = write_diff_reports(folder, diff_summary(0))[0].read_text()
    assert "No differences: both stores hold the same." in html
    assert "<table" not in html


def test_differences_that_rules_hide_are_in_every_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    hidden = msgspec.structs.replace(diff_summary(0), hidden={"worker-clock": 1234})
    html, markdown = (path.read_text() for path in write_diff_reports(folder, hidden)[:2])
    assert '<th scope="row">worker-clock</th><td class="number">1,234</td>' in html
    assert "| worker-clock | 1,234 |" in markdown
    print_diff(hidden, Console(width=160))
    assert "worker-clock 1,234" in capsys.readouterr().out


def check_summary(total: int) -> CheckSummary:
    example = BrokenExample(
        check="locks",
        severity="breaks-others",
        key="q:<b>",
        locator="lock",
        message="a lock on no active job",
        cause="lock-of-another-state",
    )
    found = CauseFound(
        cause=example.cause,
        level="damage",
        count=total,
        what="a lock",
        why="kept",
        repair=["DEL b:q:1:lock"],
        since_ms=1,
        age_ms=7_200_000,
        examples=[example],
    )
    return CheckSummary(
        snapshot="A",
        jobs=7,
        total=total,
        damages=total,
        by_check={"locks": total} if total else {},
        examples=[example] if total else [],
        causes=[found] if total else [],
    )


@pytest.mark.parametrize(("total", "verdict"), [(0, "Sound: 7 jobs"), (2, "2 places break a check.")])
def test_a_check_has_a_page_that_the_index_lists(tmp_path: Path, total: int, verdict: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    paths = {path.name: path.read_text() for path in write_check_reports(folder, check_summary(total))}
    page = paths["check.html"]
    assert verdict in page
    for shown in ('<th scope="row">lock-of-another-state</th>', "<code>DEL b:q:1:lock</code>", ">2 h</td>"):
        assert (shown in page) == bool(total)
    assert ("q:&lt;b&gt;" in page) == bool(total)
    assert "run/check.html" in paths["index.html"]


def test_a_difference_comes_with_the_command_that_shows_more() -> None:
    command = "bullmq-conformance diff A 'B C' --queue q"
    assert look_closer("A", "B C", "q", "job.data", "q:17") == f"{command} --job 17"
    assert look_closer("A", "B C", "q", "membership.wait.order", "q:wait") == command


def test_the_terminal_shows_one_example_per_class(capsys: pytest.CaptureFixture[str]) -> None:
    print_diff(diff_summary(), Console(width=160))
    shown = capsys.readouterr().out
    assert "3 differences" in shown
    assert "job.data at q:17" in shown


def test_the_roll_up_is_a_tree_with_larger_branches_first() -> None:
    lines = [
        RollupLine(path=path, count=n)
        for path, n in ((["b"], 1), (["a", "x"], 2), ([], 4), (["a"], 3), (["a", "y"], 1))
    ]
    assert [line.path for line in in_tree_order(lines)] == [[], ["a"], ["a", "x"], ["a", "y"], ["b"]]


def test_histograms_add_up_without_losing_anything() -> None:
    whole, halves = Histogram(), [Histogram(), Histogram()]
    for ms in (*range(-2, 5000, 7), 10**9):
        whole.record(ms)
        halves[ms % 2].record(ms)
    added = merged(("x", half.encode(), half.early) for half in halves)["x"]
    assert added.latency() == whole.latency()
    assert whole.latency().early == 1


def test_throughput_is_growth_per_second() -> None:
    assert rates([0.0, 0.5, 1.5], [0, 100, 300]) == [200.0, 200.0]


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"produced": LoadPhase(jobs=1234, seconds=2)}, set()),
        ({"produced": LoadPhase(jobs=1000, seconds=2)}, {"all jobs added"}),
        ({"final": {"wait": 3, "completed": 1231}}, {"all jobs finished"}),
        ({"final": {"wait": 1234}, "workers": []}, set()),
    ],
)
def test_a_load_is_a_suite_that_fails_where_jobs_are_left(
    tmp_path: Path, changes: dict[str, Any], failing: set[str]
) -> None:
    result = msgspec.structs.replace(load_result(), **changes)
    write_load_reports(tmp_path, result)
    cases = ET.parse(tmp_path / "junit.xml").findall(".//testcase")  # noqa: S314 - our own file
    assert {case.get("name") for case in cases if case.find("failure") is not None} == failing
    assert len(cases) == (2 if result.workers else 1)


def test_a_search_shows_plain_numbers_and_its_bound() -> None:
    """Not powers of ten, as matplotlib writes them on such an axis: readers expect milliseconds."""
    tried: list[tuple[float, float, Outcome]] = [(200.0, 4.0, "passed"), (1600.0, 69.0, "failed")]
    trials = [
        RateTrial(rate=rate, achieved=rate, outcome=outcome, measured={"p99<50ms": ms}) for rate, ms, outcome in tried
    ]
    chart = search_chart(RateSearch(trials=trials, kept=200.0, missed=1600.0), "p99<50ms")
    texts = set(re.findall(r"<text[^>]*>([^<]*)</text>", chart))
    assert {"200", "500", "1,000", "5", "10", "50", "p99 (ms)", "offered rate (jobs/s)"} <= texts
    assert "p99&lt;50ms" in texts, "the bound is named at its line"
    assert "mathdefault" not in chart


def test_the_axis_of_percentiles_names_percentiles() -> None:
    texts = set(re.findall(r"<text[^>]*>([^<]*)</text>", latency_chart(load_result().latencies)))
    assert {"p0", "p50", "p90", "p99", "p99.9"} <= texts
    assert {"1", "10", "100"} <= texts, "milliseconds are still plain numbers"


def test_a_trend_shows_one_kind_of_value_for_each_axis(tmp_path: Path) -> None:
    latency = load_result().latencies["due-to-active"]
    kinds: dict[str, dict[str, Any]] = {
        "whole": {"latencies": {"scheduled-to-finished": latency}},
        "adding": {"latencies": {"scheduled-to-added": latency}, "workers": []},
    }
    for kind, changes in kinds.items():
        for day in ("01", "02"):
            folder = tmp_path / f"{kind}-{day}"
            folder.mkdir()
            write_result(folder, msgspec.structs.replace(load_result(), taken_at=f"2026-01-{day}T00:00:00", **changes))
    titles = re.findall(r"<title>([^<]*)</title>", write_index(tmp_path).read_text("utf-8").partition("<svg")[2])
    assert titles == [
        "p99 of scheduled-to-added",
        "p99 of scheduled-to-finished",
        "Jobs added per second",
        "Jobs finished per second",
    ]
