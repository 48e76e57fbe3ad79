"""Put the texts for bug trackers next to the sample report of docs/how-to/read-a-report.md.

python -m website.sample_report SITE

The report links to them. They are Markdown, which mkdocs would turn into pages, and so come in when the site is built.
"""

from __future__ import annotations

import sys
from pathlib import Path

from conformance.report.bug_report import FOLDER, bug_reports
from tests.report.recorded import report_path, summary_of
from website.links import COPIES
from website.site_map import ROOT

SAMPLE = "full"


def write_causes(site: Path) -> None:
    """Write every cause of the sample into its folder on a built site."""
    sample = site / COPIES / report_path(SAMPLE, "html").parent.relative_to(ROOT)
    (sample / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, text in bug_reports(summary_of(SAMPLE)).items():
        (sample / FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_causes(Path(sys.argv[1]))
