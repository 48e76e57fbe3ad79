"""The place of each page of the tree on the site. Pages of docs/ keep their path."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The tree."""

OUTSIDE_OF_DOCS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "docs/reference/requirements.md": "requirements.md",
}
"""Pages whose place on the site is not their path below docs/."""

SAMPLE_PAGES = {
    "tests/report/runs/full.jsonl": "sample-run/report.html",
    "website/samples/matrix.json": "sample-matrix/index.html",
    "website/samples/load.json": "sample-report/about.md",
    "website/samples/find-rate.json": "sample-rates/about.md",
}
"""The page that the site renders from the data of a sample: links to the data lead to it."""

GENERATED = "docs/reference/requirements.md"
"""Replaced on the site by `requirements.md` and one page per requirement."""

PROFILES_PAGE = "profiles.md"

VERSION_RECORDS = "docs/reference/versions"
"""Records of compared releases: the site has a page of each, and links to a record lead to it."""


def page_path(path: str) -> str:
    """The place of a Markdown file, or of a record that becomes a page, on the site."""
    if path.startswith(f"{VERSION_RECORDS}/"):
        path = path.replace(".json", ".md")
    return OUTSIDE_OF_DOCS.get(path) or path.removeprefix("docs/")


def section_path(path: str, anchor: str) -> str:
    """The separate page of a section; empty if it has none."""
    return PROFILES_PAGE if (path, anchor) == (GENERATED, "profiles") else ""


def tree_pages(root: Path) -> list[str]:
    """Every Markdown file of the tree that the site shows unchanged, apart from its links."""
    in_docs = (path.relative_to(root).as_posix() for path in sorted((root / "docs").rglob("*.md")))
    pages = [*(path for path in OUTSIDE_OF_DOCS if not path.startswith("docs/")), *in_docs]
    return [path for path in pages if path != GENERATED]


def version_records(root: Path) -> list[str]:
    """Every record of compared releases."""
    return [path.relative_to(root).as_posix() for path in sorted((root / VERSION_RECORDS).glob("*.json"))]


def plain_files(root: Path) -> list[str]:
    """Every file of docs/ that is not Markdown: pictures, records and finished reports."""
    found = (path for path in sorted((root / "docs").rglob("*")) if path.is_file() and path.suffix != ".md")
    return [path.relative_to(root).as_posix() for path in found]
