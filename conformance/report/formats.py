"""All reports by name, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.report import badge, html, json_summary, junit, markdown, terminal
from conformance.report.rows import Rows, examined_rows
from conformance.report.run_file import read_run
from conformance.report.summary import Summary, summarise


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of report: its name on the command line, the file it is written to, and how it is made."""

    name: str
    file_name: str
    render: Callable[[Summary], str]


FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format(name="terminal", file_name="report.txt", render=terminal.render),
        Format(name="junit", file_name="junit.xml", render=junit.render),
        Format(name="json", file_name="summary.json", render=json_summary.render),
        Format(name="markdown", file_name="summary.md", render=markdown.render),
        Format(name="html", file_name="report.html", render=html.render),
        Format(name="badge", file_name="badge.json", render=badge.render),
    )
}


def load_summary(run_path: Path, rows: Rows | None = None) -> Summary:
    """Read and summarise a run; without `rows`, statements and levels come from the ledger of this kit.

    Raises UsageProblem where the file is not a run.
    """
    return summarise(read_run(run_path), examined_rows() if rows is None else rows)


def write_reports(run_path: Path, out_dir: Path, formats: Sequence[str], *, rows: Rows | None = None) -> list[Path]:
    """Render a run in each of the formats into a folder, and return the files in that order.

    Raises UsageProblem for an unknown format or a file that is not a run, EnvironmentProblem for an unwritable folder.
    """
    chosen = [find_format(name) for name in formats]
    summary = load_summary(run_path, rows)
    return [_write(out_dir / one.file_name, one.render(summary)) for one in chosen]


def find_format(name: str) -> Format:
    """Look up a format. Raises UsageProblem, listing all, for an unknown name."""
    if name not in FORMATS:
        raise UsageProblem(f"unknown report format {name!r}", hint=f"choose from {', '.join(FORMATS)}")
    return FORMATS[name]


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Replacing in one step: a reader never sees half a report.
        unfinished = path.with_name(f"{path.name}.part")
        # Reports are valid UTF-8 whatever a client sent; newlines stay as rendered on every system.
        unfinished.write_bytes(text.encode("utf-8", "backslashreplace"))
        unfinished.replace(path)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write the report {path}: {error.strerror}", hint="choose a folder that you may write to"
        ) from error
    return path
