"""`bullmq-conformance report`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conformance.cli.report import report
from conformance.problems import Problem, UsageProblem
from conformance.report import output
from conformance.report.output import FORMATS
from conformance.report.summary import RequirementRows


@pytest.fixture(autouse=True)
def _small_ledger(rows: RequirementRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "examined_rows", lambda _version="": rows)


def run(*arguments: str | Path) -> Result:
    """Run the command as the main program does: problems come out as they were raised."""
    return CliRunner().invoke(report, [str(argument) for argument in arguments], catch_exceptions=True)


def problem_of(result: Result) -> Problem:
    assert isinstance(result.exception, Problem), result.output
    return result.exception


def test_a_run_is_printed(run_path: Callable[[str], Path]) -> None:
    result = run(run_path("full"))
    assert result.exit_code == 0, "rendering went well; whether the client is conformant is another question"
    assert "NOT CONFORMANT" in result.output
    assert "--select lock.stale" in result.output


def test_one_format_can_be_piped(run_path: Callable[[str], Path]) -> None:
    assert json.loads(run(run_path("full"), "--format", "json").stdout)["kind"] == "bullmq-conformance-summary"


def test_a_folder_is_enough_and_all_formats_are_written(run_path: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copy(run_path("full"), tmp_path / "run.jsonl")
    result = run(tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["causes", *(report_format.file_name for report_format in FORMATS.values())]
    )
    assert str(tmp_path / "out" / "report.html") in result.output


@pytest.mark.parametrize("given", [["-f", "html", "-f", "badge,html"], ["-f", "html, badge"]])
def test_formats_may_be_repeated_or_listed(given: list[str], run_path: Callable[[str], Path], tmp_path: Path) -> None:
    assert run(run_path("full"), *given, "-o", tmp_path).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["badge.json", "causes", "report.html"]


def test_all_means_all(run_path: Callable[[str], Path], tmp_path: Path) -> None:
    assert run(run_path("full"), "-f", "all", "-o", tmp_path).exit_code == 0
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == len(FORMATS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-f", "html,junit"], "only one report can be printed"),
        (["-f", "pdf"], "unknown report format 'pdf'"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str, run_path: Callable[[str], Path]) -> None:
    problem = problem_of(run(run_path("full"), *arguments))
    assert isinstance(problem, UsageProblem)
    assert message in problem.what
    assert problem.hint


def test_a_missing_run_is_explained(tmp_path: Path) -> None:
    assert "cannot read the run file" in problem_of(run(tmp_path / "no.jsonl")).what
    assert "there is no run file" in problem_of(run(tmp_path)).what
