"""The reports of `bench`: the same numbers in each, and no orders to a terminal or a page from a client's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.problems import UsageProblem
from conformance.report.speed import (
    number,
    render_json_speed,
    render_markdown_speed,
    render_terminal_speed,
    speed_formats,
    write_speed,
)
from conformance.speed.records import MeasuredRatio, SpeedGate
from tests.speed.test_speed_ratios import ratio_of, report

NOTHING = MeasuredRatio(measure="finish", meaning="", unit="ms", state="not-declared", reason="no worker.getNextJob")
GATE = SpeedGate(measure="worker", at_least=0.5, outcome="fails", reason="0.30 (0.20 to 0.40) is less than 0.5")
REPORT = report(ratios=[ratio_of(0.3, 0.2, 0.4), NOTHING], gates=[GATE], client="\x1b[2J|<b>")


def test_every_report_has_the_ratio_the_gate_and_what_was_not_declared() -> None:
    for text in (render_terminal_speed(REPORT), render_markdown_speed(REPORT)):
        assert "0.30" in text
        assert "0.20 to 0.40" in text
        assert "not declared" in text
        assert "no worker.getNextJob" in text
        assert "worker at least 0.5: 0.30" in text
        assert "\x1b" not in text
        assert "<b>" not in render_markdown_speed(REPORT)


def test_the_document_has_all_numbers_and_the_exit_code() -> None:
    document = json.loads(render_json_speed(REPORT))
    assert document["ratios"][0]["ratios"] == [0.3, 0.2, 0.4]
    assert (document["format"], document["exit_code"], document["gates"][0]["outcome"]) == (1, 1, "fails")


def test_formats_are_chosen(tmp_path: Path) -> None:
    written = list(write_speed(REPORT, tmp_path, speed_formats(["json"])))
    assert [path.name for path in written] == ["bench.json"]
    assert speed_formats([]) == ["terminal", "markdown", "json"]
    with pytest.raises(UsageProblem, match=r"unknown report format 'xml' — choose from terminal, markdown, json"):
        speed_formats(["xml"])


@pytest.mark.parametrize(("value", "text"), [(12_500.4, "12,500"), (34.56, "34.6"), (0.1234, "0.123"), (None, "")])
def test_three_digits_matter(value: float | None, text: str) -> None:
    assert number(value) == text
