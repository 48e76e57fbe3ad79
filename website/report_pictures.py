"""Screenshots of the sample report for the page that explains it, taken by Chromium while the site is built.

python -m website.report_pictures PAGES

PAGES is the folder that `website.assembly` has written. A mark in the page is replaced. Without Chromium the page has
no pictures; with BULLMQ_SITE_PICTURES=required, as in CI, that is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from conformance.problems import Problem
from website.sample_report import SAMPLE_REPORT

PAGE = "how-to/read-a-report.md"
MARK = "<!-- pictures of the report: website/report_pictures.py -->"
CHROMIUM = "chromium"
REQUIRED = "BULLMQ_SITE_PICTURES"
TIMEOUT_S = 120.0
_PNG = b"\x89PNG\r\n\x1a\n"

Photographer = Callable[[Path, Path, "Picture"], None]
"""Takes a picture of a page; arguments: page, file of the picture, size and text."""


@dataclass(frozen=True)
class Picture:
    """A part of the report, from its top, on a screen of this size (px); `text` says what is to be seen."""

    name: str
    width: int
    height: int
    text: str


PICTURES = (
    Picture("report-wide.png", 1280, 1080, "The report at the width of a desk: the sentence and the first cause"),
    Picture("report-narrow.png", 500, 1080, "The same report at the width of a telephone"),
)


class NoPictures(Problem):
    """Chromium is required but missing, or it took no picture."""

    exit_code = 3


def with_chromium(page: Path, picture: Path, wanted: Picture) -> None:
    """Take a picture with Chromium. Raises NoPictures if there is no picture."""
    with tempfile.TemporaryDirectory(prefix="bullmq-conformance-") as profile:
        done = subprocess.run(
            [
                os.environ.get("CHROMIUM", CHROMIUM),
                "--headless",
                "--no-sandbox",  # Chromium refuses to run with it as root, as CI does; the page is our own
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={wanted.width},{wanted.height}",
                f"--screenshot={picture}",
                page.resolve().as_uri(),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    if not picture.is_file() or not picture.read_bytes().startswith(_PNG):
        raise NoPictures(f"{CHROMIUM} took no picture of {page}: {done.stderr.strip()}", hint="try it with --headless")


def illustrate(pages: Path, photographer: Photographer) -> None:
    """Take every picture, and put it on the page."""
    report = pages / SAMPLE_REPORT
    page = pages / PAGE
    before, mark, after = page.read_text("utf-8").partition(MARK)
    if not mark:
        raise NoPictures(f"{PAGE} has no place for pictures", hint=f"add the line {MARK}")
    for picture in PICTURES:
        photographer(report, pages / picture.name, picture)
    shown = "\n\n".join(f"![{picture.text}](../{picture.name})" for picture in PICTURES)
    page.write_text(f"{before}{shown}{after}", "utf-8")


def main() -> None:
    """Illustrate the pages in the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        if shutil.which(os.environ.get("CHROMIUM", CHROMIUM)):
            illustrate(Path(sys.argv[1]), with_chromium)
        elif os.environ.get(REQUIRED) == "required":
            raise NoPictures("there is no chromium, and it is required", hint="install it, or set CHROMIUM to its path")
        else:
            print(f"{PAGE} has no pictures: there is no chromium (CHROMIUM=/path/to/it)", file=sys.stderr)
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
