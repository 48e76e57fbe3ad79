"""The sample report of docs/how-to/read-a-report.md, and the texts for bug trackers next to it.

python -m website.sample_report SITE

The report links to them. They are Markdown, which mkdocs would turn into pages, and so come in when the site is built.
"""

from __future__ import annotations

import sys
from pathlib import Path

from conformance.report.bug_report import FOLDER, bug_reports
from conformance.report.markup import render_html
from tests.report.recorded import run_path, summary_of
from website.site_map import ROOT, SAMPLE_PAGES

SAMPLE = "full"
SAMPLE_REPORT = SAMPLE_PAGES[run_path(SAMPLE).relative_to(ROOT).as_posix()]


def write_report(pages: Path) -> Path:
    """Write the report into the folder of the pages, and return its path."""
    report = pages / SAMPLE_REPORT
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(render_html(summary_of(SAMPLE)), "utf-8")
    return report


def write_causes(site: Path) -> None:
    """Write every cause of the sample into its folder on a built site."""
    sample = (site / SAMPLE_REPORT).parent
    (sample / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, text in bug_reports(summary_of(SAMPLE)).items():
        (sample / FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_causes(Path(sys.argv[1]))
