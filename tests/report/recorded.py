"""The files recorded for the report tests: the sample runs, and reports of each of them.

python -m tests.report.recorded --write     # after a wanted change; read the difference before committing it
"""

from __future__ import annotations

import sys
from pathlib import Path

from conformance.report.output import FORMATS
from conformance.report.run_file import read_run
from conformance.report.summary import Summary, summarise
from tests.report.sample_runs import SAMPLE_PROFILES, SAMPLE_ROWS, sample_run_files

HERE = Path(__file__).parent
RUNS = tuple(sample_run_files())
OF_THE_RUN = tuple(name for name in FORMATS if not name.startswith("specification"))
"""Formats that say nothing about the ledger of the kit, which the sample runs do not use."""
RECORDED = {
    "full": tuple(name for name in OF_THE_RUN if name not in ("html", "json")),
    "hostile": ("terminal", "markdown", "annotations"),
    "empty": ("terminal", "junit", "badge"),
    "conformant": ("terminal", "markdown", "badge"),
    "incomplete": ("terminal", "annotations", "badge"),
}
"""Recorded formats by run; HTML has `test_page.py`, JSON its schema, and hostile texts the tests of escapers."""
REPORTS = [(run, report) for run, reports in RECORDED.items() for report in reports]


def run_path(run: str) -> Path:
    return HERE / "runs" / f"{run}.jsonl"


def report_path(run: str, report: str) -> Path:
    """Return the recorded report of a sample in one format."""
    return HERE / "golden" / run / FORMATS[report].file_name


def summary_of(run: str) -> Summary:
    return summarise(read_run(run_path(run)), SAMPLE_ROWS, SAMPLE_PROFILES)


def write() -> None:
    """Record all sample runs, and then all their reports."""
    for run, content in sample_run_files().items():
        _record(run_path(run), content)
    for run, report in REPORTS:
        _record(report_path(run, report), FORMATS[report].render(summary_of(run)).encode())


def _record(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    write()
