"""Links of the tree, as they are on the site: to pages, to sections with a page of their own, to copied files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from pathlib import Path

from conformance.problems import Problem
from website.markdown import map_prose, title_of
from website.site_map import GENERATED, SAMPLE_PAGES, page_path, section_path, tree_pages, version_records

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_NAMED = re.compile(r"(?<![\[`])`(?P<id>[a-z][a-z0-9.-]+)`(?![\]`])")
COPIES = "files"
"""The folder of the site for files of the tree outside of docs/."""


class BrokenLink(Problem):
    """A page of the tree links to what is not there: exit code 1."""

    exit_code = 1


class TreeLinks:
    """Rewrites the links of pages, and remembers which files they need.

    `requirements`: ids that link to their pages wherever they stand alone in code.
    """

    def __init__(self, root: Path, requirements: Collection[str] = ()) -> None:
        self._root = root
        self._requirements = frozenset(requirements)
        self._pages = {*tree_pages(root), *version_records(root), GENERATED}
        self.files: set[str] = set()
        """Paths of the tree's files outside of docs/ that were linked to; they belong into `COPIES`."""

    def rewrite(self, text: str, path: str, page: str) -> str:
        """Correct the links of a text that is at `path` in the tree, and on `page` of the site.

        Raises BrokenLink where the tree has no such file.
        """

        def on_site(found: re.Match[str]) -> str:
            return self._link(found, path, page)

        def named(found: re.Match[str]) -> str:
            return self._named(found, page)

        def line_on_site(line: str) -> str:
            line = _LINK.sub(on_site, line)
            return line if line.startswith("#") else _NAMED.sub(named, line)

        return map_prose(text, line_on_site)

    def _link(self, found: re.Match[str], path: str, page: str) -> str:
        target, _, anchor = found["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            return found[0]
        aimed = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        if not (self._root / aimed).exists():
            raise BrokenLink(
                f"{path}: the link to {found['target']} leads nowhere", hint="fix the link, or write the page"
            )
        own_page = section_path(aimed, anchor)
        address = _between(page, own_page or self._place(aimed)) + ("" if own_page or not anchor else f"#{anchor}")
        return f"{found['image']}[{self._words(found['text'], aimed)}]({address})"

    def _place(self, aimed: str) -> str:
        if aimed in self._pages:
            return page_path(aimed)
        if aimed in SAMPLE_PAGES:
            return SAMPLE_PAGES[aimed]
        if aimed.startswith("docs/"):
            return aimed.removeprefix("docs/")
        self.files.add(aimed)
        return f"{COPIES}/{aimed}"

    def _words(self, words: str, aimed: str) -> str:
        """The words of a link: where they are nothing but the path of a page, its title."""
        if aimed in self._pages and words.strip("`").endswith(".md") and posixpath.basename(aimed) in words:
            return title_of((self._root / aimed).read_text("utf-8"))
        return words

    def _named(self, found: re.Match[str], page: str) -> str:
        if found["id"] not in self._requirements:
            return found[0]
        return f"[{found[0]}]({_between(page, requirement_path(found['id']))})"


def requirement_path(requirement: str) -> str:
    """The page of a requirement on the site."""
    return f"requirements/{requirement}.md"


def _between(page: str, aimed: str) -> str:
    return posixpath.relpath(aimed, posixpath.dirname(page) or ".")
