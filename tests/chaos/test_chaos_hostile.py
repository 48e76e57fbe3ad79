"""Foreign text in every field of a result, in every report of `chaos`, harms neither a reader nor a CI system."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos.report import render_all
from chaos.results import FILE, FindingRow, InvariantCell, ResultRow, ResultsFile, ResultsHeader
from chaos.run_errors import RunError
from chaos.terminal import print_result
from tests.hostile_texts import HOSTILE, cells_of_rows, harm_in_html, harm_in_terminal, insist_on_xml


def result(text: str) -> ResultRow:
    """A run that failed, with the text wherever a driver, a job or Redis may put one."""
    finding = FindingRow(message=text, job=text, lines=[text], explained="", row="")
    broken = InvariantCell(verdict="fail", examined=1, findings=[finding], reasons=[text])
    unsure = InvariantCell(verdict="unknown", examined=0, reasons=[text])
    return ResultRow(
        name="redis.oom",
        kind="faults",
        client=text,
        version=text,
        reproduce=text,
        cells={"order": broken, "rate": unsure},
        tested=["rate"],
        errors={"worker-1": [text]},
        growth={"worker-1": text},
        why=text,
        reached=False,
        troubles=[RunError(during="the calm", message=text, culprit="client")],
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_the_terminal_shows_foreign_text_literally(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(HOSTILE[name]))
    printed = capsys.readouterr().out
    assert not harm_in_terminal(printed)
    assert len(printed) < 50_000
    for kept in ("id[/x]", "[abc]kept[bold]"):
        assert (kept in printed) == (kept == HOSTILE[name])


@pytest.mark.parametrize("name", HOSTILE)
def test_reports_escape_foreign_text(name: str, tmp_path: Path) -> None:
    text = HOSTILE[name]
    # Results are UTF-8, so that a surrogate cannot get into them.
    row = result(text.encode("utf-8", "replace").decode())
    file = ResultsFile(tmp_path / FILE, ResultsHeader(command=row.client, environment={"client": row.client}))
    file.put(row)
    file.finish()
    render_all(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Content-Security-Policy" in page
    assert not harm_in_html(page)
    insist_on_xml((tmp_path / "junit.xml").read_text())
    markdown = (tmp_path / "summary.md").read_text()
    assert not harm_in_terminal(markdown)
    assert len(cells_of_rows(markdown)) == 1
    assert not harm_in_html(re.sub(r"`[^`\n]*`", "", markdown))
