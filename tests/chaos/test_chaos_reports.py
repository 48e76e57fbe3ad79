"""The readable reports of a campaign: lanes of processes, labels that do not overlap, findings in Markdown."""

from __future__ import annotations

from pathlib import Path

from chaos.process_lanes import LABEL_WIDTH_PX, label_rows, lanes_of
from chaos.report import render_all
from chaos.results import (
    FILE,
    FindingRow,
    InvariantCell,
    ResultRow,
    ResultsFile,
    ResultsHeader,
    any_failed,
    timeline_of,
)
from chaos.run_errors import RunError
from conformance.checkers.histories.history import (
    Fail,
    FaultEnded,
    FaultStarted,
    History,
    HistoryHeader,
    HistoryLine,
    Info,
    Invoke,
    Ok,
    RunEnded,
    RunStarted,
    in_order,
)
from conformance.problems import printable

RUN = {"process": "worker-1", "queue": "q", "name": "j", "token": "t"}
LINES: list[HistoryLine] = [
    Invoke(at_ms=100, process="producer-1", call=1, op="queue.add"),
    Ok(at_ms=300, process="producer-1", call=1),
    Invoke(at_ms=400, process="producer-1", call=2, op="queue.add"),
    Fail(at_ms=500, process="producer-1", call=2),
    Invoke(at_ms=600, process="producer-1", call=3, op="queue.add"),
    Info(at_ms=700, process="producer-1", call=3),
    Invoke(at_ms=800, process="producer-1", call=4, op="queue.add"),
    RunStarted(at_ms=350, job="1", **RUN),
    RunEnded(at_ms=450, job="1", outcome="complete", **RUN),
    RunStarted(at_ms=460, job="2", **RUN),
    FaultStarted(at_ms=380, number=1, fault="network.partition-worker", target="worker-1"),
    FaultStarted(at_ms=390, number=2, fault="redis.oom"),
    FaultEnded(at_ms=600, number=1, fault="network.partition-worker"),
    FaultEnded(at_ms=1000, number=2, fault="redis.oom"),
]


def history(lines: list[HistoryLine]) -> History:
    return History(HistoryHeader(), in_order(lines))


def test_each_process_has_a_lane_of_its_calls_and_one_of_its_runs() -> None:
    calls, runs = lanes_of(history(LINES))
    assert (calls.process, calls.kind, runs.process, runs.kind) == ("producer-1", "calls", "worker-1", "runs")
    assert [(span.began_ms, span.ended_ms, span.ending) for span in calls.spans] == [
        (100, 300, "ok"),
        (400, 500, "fail"),
        (600, 700, "info"),
        (800, 1000, "open"),
    ]
    assert [span.ending for span in runs.spans] == ["complete", "open"]


def test_indistinguishable_marks_are_drawn_as_one() -> None:
    lines: list[HistoryLine] = [FaultStarted(at_ms=100_000, number=1, fault="redis.oom")]
    for number in range(100):
        lines += [
            Invoke(at_ms=number * 10, process="p", call=number, op="queue.add"),
            Ok(at_ms=number * 10 + 2, process="p", call=number),
        ]
    (lane,) = lanes_of(history(lines))
    assert [(span.began_ms, span.ended_ms, span.count) for span in lane.spans] == [(0, 992, 100)]


def test_labels_never_cover_each_other() -> None:
    labels = [(0.0, "a" * 10), (5.0, "b" * 10), (6.0, "c"), (200.0, "d")]
    rows = label_rows(labels)
    assert rows == [0, 1, 2, 0]
    for number, (start, text) in enumerate(labels):
        for other in range(number):
            if rows[other] == rows[number]:
                assert labels[other][0] + len(labels[other][1]) * LABEL_WIDTH_PX < start, (text, labels[other])


def test_the_page_draws_processes_and_markdown_has_the_findings(tmp_path: Path) -> None:
    bad = InvariantCell(verdict="fail", examined=3, findings=[FindingRow(message="gone <i>\n::error::`x`", job="q:1")])
    trouble = RunError(during="worker.kill", culprit="client", message="it did not answer close", stack=["File <b>"])
    rows = [
        ResultRow(
            name="worker.kill",
            kind="faults",
            client="mine",
            jobs=321,
            cells={"durability": bad},
            reproduce="again",
            timeline=timeline_of(history(LINES)),
            troubles=[trouble],
        ),
        ResultRow(
            name="pause mid-reply cut", kind="crash", client="mine", cells={}, reached=False, why="it called no script"
        ),
        ResultRow(
            name="drain mid-reply cut", kind="crash", client="mine", cells={}, reached=False, lacks="queue.drain"
        ),
    ]
    file = ResultsFile(tmp_path / FILE, ResultsHeader())
    for row in rows:
        file.put(row)
    file.finish()
    render_all(tmp_path)
    page, summary = (tmp_path / "report.html").read_text(), (tmp_path / "summary.md").read_text()
    assert '<svg class="lanes"' in page
    assert "producer-1 calls" in page
    assert "1 calls, info, 600 to 700 ms" in page
    assert "File &lt;b&gt;" in page
    assert "it called no script" in page
    assert "| mine | worker.kill | single | 321 |" in summary
    assert "- **durability**: `q:1 gone <i>" in summary
    assert "- calls: `during worker.kill: it did not answer close`" in summary
    assert "- never reached: `it called no script`" in summary
    assert "| mine | drain | cut | · | · | · |" in summary
    assert "drain mid-reply" not in summary
    assert "the client has no queue.drain" in page
    assert '<skipped message="the client has no queue.drain"' in (tmp_path / "junit.xml").read_text()
    assert any_failed(rows[1:2])
    assert not any_failed(rows[2:])
    assert "\n::" not in summary


def test_printed_texts_of_others_give_no_orders() -> None:
    assert printable("::error::x\n  ::warning::y") == "\\::error::x\n  \\::warning::y"
    assert printable("\x1b[31mred") == "\\x1b[31mred"
    assert printable("##[group]x") == "#\\#[group]x"
    assert printable("a: b::c\ttab\n") == "a: b::c\ttab\n"
