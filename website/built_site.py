"""Looks over a built site: every link and anchor leads somewhere, and nothing is loaded from another host.

python -m website.built_site FOLDER

mkdocs checks the links of the Markdown; this module also checks those of themes, plugins and finished reports.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_TAG = re.compile(r"<(?P<name>[a-z][a-z0-9]*)\b(?P<attributes>[^<>]*)>")
_ATTRIBUTE = re.compile(r"\b(?P<name>href|src|id|name)=(?:\"(?P<quoted>[^\"]*)\"|(?P<bare>[^\s\"'>]+))")
_NO_MARKUP = re.compile(r"<!--.*?-->|<(script|style)\b(?P<attributes>[^>]*)>.*?</\1>", re.DOTALL)
BROKEN = 1


@dataclass(frozen=True)
class Reference:
    """Something that a page refers to. `is_loaded`: the browser fetches it to show the page."""

    address: str
    is_loaded: bool


@dataclass(frozen=True)
class BuiltPage:
    """The anchors of a page, and its references."""

    anchors: frozenset[str]
    references: tuple[Reference, ...]


def read_page(text: str) -> BuiltPage:
    """Collect anchors and references from the HTML of a page."""
    anchors, references = set(), []
    for tag in _TAG.finditer(_NO_MARKUP.sub(_opening_tag, text)):
        for name, value in _attributes(tag["attributes"]):
            if name in {"id", "name"}:
                anchors.add(value)
            else:
                references.append(Reference(value, is_loaded=name == "src" or tag["name"] == "link"))
    return BuiltPage(frozenset(anchors), tuple(references))


def _opening_tag(found: re.Match[str]) -> str:
    """Scripts and styles hold no markup, but their own attributes count."""
    return f"<{found[1]}{found['attributes']}>" if found[1] else ""


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    for match in _ATTRIBUTE.finditer(text):
        yield match["name"], html.unescape(match["quoted"] if match["quoted"] is not None else match["bare"])


def complaints(site: Path) -> Iterator[str]:
    """Say of each page what leads nowhere, or comes from elsewhere: `page: what`."""
    pages = {path: read_page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        # The server returns this page for missing files in any folder, so its links start with a slash.
        start = site if path == site / "404.html" else path.parent
        for reference in page.references:
            if problem := _problem(reference, path, start, site, pages):
                yield f"{path.relative_to(site)}: {problem}"


def _problem(reference: Reference, page: Path, start: Path, site: Path, pages: dict[Path, BuiltPage]) -> str:
    parts = urlsplit(reference.address)
    if parts.scheme in {"data", "mailto"}:
        return ""
    if parts.scheme or parts.netloc:
        return f"loads {reference.address} from another host" if reference.is_loaded else ""
    aimed = _file(start, unquote(parts.path), site) if parts.path else page
    if not aimed.is_file():
        return f"{reference.address} is not there"
    anchor = unquote(parts.fragment)
    if anchor and aimed in pages and anchor not in pages[aimed].anchors:
        return f"{reference.address} has no such anchor"
    return ""


def _file(start: Path, path: str, site: Path) -> Path:
    aimed = (site / path.lstrip("/") if path.startswith("/") else start / path).resolve()
    return aimed / "index.html" if aimed.is_dir() else aimed


def main() -> None:
    """Print every complaint about the site that the command line names; exit code 1 where there is one."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    site = Path(sys.argv[1]).resolve()
    if not (site / "index.html").is_file():
        sys.exit(f"{site}: no site is there; `make site` builds it")
    found = list(complaints(site))
    print("\n".join(found) or f"{site}: every link and anchor leads somewhere, and nothing comes from another host")
    sys.exit(BROKEN if found else 0)


if __name__ == "__main__":
    main()
