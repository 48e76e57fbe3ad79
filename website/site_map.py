"""Which page of the tree stands where on the site.

What README and docs say is not written a second time: the site has the same pages, and some sections of them as
pages of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from website.markdown import anchor_of

ROOT = Path(__file__).parents[1]
"""The tree."""

OUTSIDE_OF_DOCS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    # Beside it there is an index.html.
    "docs/sample-report/README.md": "sample-report/about.md",
    "docs/sample-rates/README.md": "sample-rates/about.md",
}
"""Where pages go, by their path in the tree, that do not stand in `docs/` as they do on the site."""

GENERATED = "docs/requirements.md"
"""Written anew for the site, with a page for every requirement."""

PROFILES_PAGE = "profiles.md"


@dataclass(frozen=True, kw_only=True)
class SectionPage:
    """A section that has a page of its own. `instead`: what its place says, with a link to it.

    Links are those of the tree, like all others on the page.
    """

    heading: str
    path: str
    instead: str

    @property
    def anchor(self) -> str:
        """Where the section is in the tree's page."""
        return anchor_of(self.heading)


README_SECTIONS = (
    SectionPage(
        heading="Verdicts",
        path="verdicts.md",
        instead="A client is judged by [profiles](docs/requirements.md#profiles): [verdicts](#verdicts).",
    ),
    SectionPage(
        heading="Known failures",
        path="known-failures.md",
        instead="A young client adopts the gate on its first day, with a [list of known failures](#known-failures).",
    ),
    SectionPage(
        heading="Choosing",
        path="options.md",
        instead="Which client, which scenarios, which Redis, how long: [options and tiers](#choosing).",
    ),
)


def page_path(path: str) -> str:
    """Where a Markdown file of the tree stands on the site."""
    return OUTSIDE_OF_DOCS.get(path) or path.removeprefix("docs/")


def section_path(path: str, anchor: str) -> str:
    """The page that a section of a page has for itself; empty if it has none."""
    if (path, anchor) == (GENERATED, "profiles"):
        return PROFILES_PAGE
    sections = README_SECTIONS if path == "README.md" else ()
    return next((section.path for section in sections if section.anchor == anchor), "")


def tree_pages(root: Path) -> list[str]:
    """Every Markdown file of the tree that becomes a page as it is."""
    in_docs = [path.relative_to(root).as_posix() for path in sorted((root / "docs").glob("*.md"))]
    of_versions = [path.relative_to(root).as_posix() for path in sorted((root / "docs" / "versions").glob("*.md"))]
    return [*OUTSIDE_OF_DOCS, *(path for path in in_docs if path != GENERATED), *of_versions]


def plain_files(root: Path) -> list[str]:
    """Every file of docs/ that is no page: pictures, and reports that stand for themselves."""
    found = (path for path in sorted((root / "docs").rglob("*")) if path.is_file() and path.suffix != ".md")
    return [path.relative_to(root).as_posix() for path in found]
