"""Problems of a built site are reported with their page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from website import built_site
from website.built_site import complaints


def site_of(folder: Path, body: str) -> Path:
    """A site of two pages and a picture; the body is that of the first."""
    (folder / "deep").mkdir()
    (folder / "index.html").write_text(f"<html><body id=top>{body}</body></html>")
    (folder / "deep" / "index.html").write_text('<h1 id="here there">deep</h1> <a href="..#top">up</a>')
    (folder / "picture.svg").write_text("<svg/>")
    return folder


@pytest.mark.parametrize(
    "body",
    [
        '<a href="deep/">page</a>',
        '<a href="deep/index.html#here%20there">anchor</a>',
        '<a href="#top">here</a>',
        '<a href="/deep">from the root</a>',
        '<img alt="" src=picture.svg> <img alt="" src="data:image/png;base64,AA">',
        '<a href="https://bullmq.io/#gone">elsewhere</a> <a href="mailto:a@b.example">write</a>',
        '<pre>&lt;a href="gone.html"&gt;</pre> href="gone.html"',
        '<!-- <a href="gone.html">old</a> --> <script>var text = \'<a href="gone.html">\'</script>',
    ],
)
def test_a_link_with_a_target_is_not_reported(tmp_path: Path, body: str) -> None:
    assert list(complaints(site_of(tmp_path, body))) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a class="x" href="gone/">page</a>', "gone/ is not there"),
        ('<a href="deep/#gone">anchor</a>', "deep/#gone has no such anchor"),
        ('<a href="#gone">anchor</a>', "#gone has no such anchor"),
        ('<img alt="" src="gone.png">', "gone.png is not there"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js from another host"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', "loads //fonts.example/a.css from another host"),
    ],
)
def test_broken_links_and_foreign_resources_are_reported(tmp_path: Path, body: str, said: str) -> None:
    assert list(complaints(site_of(tmp_path, body))) == [f"index.html: {said}"]


@pytest.mark.parametrize(("body", "code"), [('<a href="deep/">page</a>', 0), ('<a href="gone/">page</a>', 1)])
def test_a_complaint_fails_the_build(tmp_path: Path, body: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["built_site", str(site_of(tmp_path, body))])
    with pytest.raises(SystemExit) as ended:
        built_site.main()
    assert ended.value.code == code


def test_a_folder_without_a_site_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["built_site", str(tmp_path)])
    with pytest.raises(SystemExit, match="no site is there; `make site` builds it"):
        built_site.main()
