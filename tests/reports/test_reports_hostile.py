"""Foreign text in the outcomes of `diff`, `check` and `history` reaches neither terminal nor reports unescaped."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from reports.check.summary import BrokenExample, CauseFound, CheckSummary
from reports.diff.summary import DiffExample, DiffSummary
from reports.history import HistoryResult, JobFinding
from reports.store_pages import (
    print_checks,
    print_diff,
    print_history,
    write_check_reports,
    write_diff_reports,
    write_history_reports,
)
from tests.hostile_texts import HOSTILE, harm_in_html, harm_in_terminal, insist_on_xml

Shown = Callable[[str, Console], None]
Written = Callable[[str, Path], list[Path]]


def diff(text: str) -> DiffSummary:
    example = DiffExample(
        class_="field",
        kind="wrong-value",
        severity="breaks-others",
        locator=text,
        queue=text,
        state="wait",
        key=text,
        field=text,
        expected=text,
        actual=text,
        look_closer=text,
    )
    return DiffSummary(
        expected="A",
        actual="B",
        jobs=(1, 1),
        total=1,
        by_class={"field": 1},
        rollup=[],
        examples=[example],
        trimmed=[text],
        switched_off=[],
    )


def checks(text: str) -> CheckSummary:
    example = BrokenExample(check="locks", severity="breaks-others", key=text, locator=text, message=text, cause="lock")
    found = CauseFound(cause="lock", level="damage", count=1, examples=[example], what=text, why=text, repair=[text])
    return CheckSummary(
        snapshot=text, jobs=1, total=1, damages=1, by_check={"locks": 1}, examples=[example], causes=[found]
    )


def history(text: str) -> HistoryResult:
    finding = JobFinding(check="order", job=text, message=text, evidence=text)
    return HistoryResult(history="h", snapshot="", by_check={"order": 1}, examples=[finding])


PRINTED: dict[str, Shown] = {
    "diff": lambda text, console: print_diff(diff(text), console),
    "check": lambda text, console: print_checks(checks(text), console),
    "history": lambda text, console: print_history(history(text), console),
}
WRITTEN: dict[str, Written] = {
    "diff": lambda text, folder: write_diff_reports(folder, diff(text)),
    "check": lambda text, folder: write_check_reports(folder, checks(text)),
    "history": lambda text, folder: write_history_reports(folder, history(text)),
}


@pytest.mark.parametrize("verb", PRINTED)
@pytest.mark.parametrize("name", HOSTILE)
def test_the_terminal_shows_foreign_text_literally(verb: str, name: str) -> None:
    printed = io.StringIO()
    PRINTED[verb](HOSTILE[name], Console(file=printed, width=20_000))
    assert not harm_in_terminal(printed.getvalue())
    for kept in ("id[/x]", "[abc]kept[bold]"):
        assert (kept in printed.getvalue()) == (kept == HOSTILE[name])


@pytest.mark.parametrize("verb", WRITTEN)
@pytest.mark.parametrize("name", HOSTILE)
def test_reports_escape_foreign_text(verb: str, name: str, tmp_path: Path) -> None:
    # Rows of a snapshot are UTF-8, so that a surrogate cannot get into them.
    text = HOSTILE[name].encode("utf-8", "replace").decode()
    reports = tmp_path / "reports"
    reports.mkdir()
    for path in WRITTEN[verb](text, reports):
        content = path.read_text("utf-8")
        if path.suffix == ".html":
            assert "Content-Security-Policy" in content
            assert not harm_in_html(content)
        elif path.suffix == ".xml":
            insist_on_xml(content)
        elif path.suffix == ".md":
            assert not harm_in_terminal(content)
