"""The page about reports shows pictures of one, which a browser takes while the site is built."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Missing
from website import report_pictures
from website.report_pictures import (
    CHROMIUM,
    MARK,
    PAGE,
    PICTURES,
    REQUIRED,
    TIMEOUT_S,
    NoPictures,
    Picture,
    illustrate,
    with_chromium,
)
from website.sample_report import SAMPLE_REPORT, write_report
from website.site_map import ROOT


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """The page and the report, where the site has them."""
    (tmp_path / PAGE).parent.mkdir()
    shutil.copy(ROOT / "docs" / PAGE, tmp_path / PAGE)
    write_report(tmp_path)
    return tmp_path


def test_the_page_shows_every_picture_where_its_mark_was(pages: Path) -> None:
    taken: list[tuple[Path, Picture]] = []

    def take(page: Path, picture: Path, wanted: Picture) -> None:
        assert page.is_file()
        picture.touch()
        taken.append((picture, wanted))

    illustrate(pages, take)
    text = (pages / PAGE).read_text("utf-8")
    assert [wanted for _, wanted in taken] == list(PICTURES)
    assert all(f"![{wanted.text}](../{picture.name})" in text for picture, wanted in taken)
    assert MARK not in text


def test_a_page_without_a_mark_is_reported(pages: Path) -> None:
    (pages / PAGE).write_text("# Reading a report\n", "utf-8")
    with pytest.raises(NoPictures, match="no place for pictures"):
        illustrate(pages, lambda _page, _picture, _wanted: None)


def test_a_browser_takes_a_picture_of_the_size_that_was_asked_for(pages: Path, missing: Missing) -> None:
    if not shutil.which(CHROMIUM):
        missing(CHROMIUM, f"there is no {CHROMIUM}")
    for picture in PICTURES:
        with_chromium(pages / SAMPLE_REPORT, pages / picture.name, picture)
        header = (pages / picture.name).read_bytes()[16:24]
        assert (int.from_bytes(header[:4]), int.from_bytes(header[4:])) == (picture.width, picture.height)


SCREENS = 2
WIDTH, HEIGHT = 390, 844
"""A telephone, in px."""
FRAME = """<iframe id="page" width="{width}" height="{height}" srcdoc="{page}"></iframe><p id="top"></p><script>
const page = document.getElementById("page");
page.onload = () => {{
  const first = page.contentDocument.querySelector("details.finding > summary");
  document.getElementById("top").textContent = `first cause at ${{Math.round(first.getBoundingClientRect().top)}} px`;
}};
</script>"""


def test_on_a_telephone_the_first_cause_is_on_the_first_two_screens(tmp_path: Path, missing: Missing) -> None:
    if not shutil.which(CHROMIUM):
        missing(CHROMIUM, f"there is no {CHROMIUM}")
    # A frame, because a window of Chromium is never narrower than 500 px.
    page = html.escape(write_report(tmp_path).read_text("utf-8"))
    framed = tmp_path / "framed.html"
    framed.write_text(FRAME.format(width=WIDTH, height=HEIGHT, page=page), "utf-8")
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    words += ["--virtual-time-budget=10000", "--dump-dom", framed.as_uri()]
    dom = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_S).stdout
    seen = re.search(r"first cause at (\d+) px", dom)
    assert seen is not None, dom[-500:]
    assert int(seen[1]) < SCREENS * HEIGHT


def test_a_browser_that_takes_none_is_reported(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "true")
    with pytest.raises(NoPictures, match="took no picture"):
        with_chromium(pages / PAGE, pages / "none.png", PICTURES[0])


@pytest.mark.parametrize(("required", "code"), [("", None), ("required", 3)])
def test_without_a_browser_the_page_has_none_unless_it_is_required(
    pages: Path, monkeypatch: pytest.MonkeyPatch, required: str, code: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHROMIUM", "no-such-browser")
    monkeypatch.setenv(REQUIRED, required)
    monkeypatch.setattr("sys.argv", ["report_pictures", str(pages)])
    if code is None:
        report_pictures.main()
    else:
        with pytest.raises(SystemExit) as ended:
            report_pictures.main()
        assert ended.value.code == code
    assert "chromium" in capsys.readouterr().err
    assert MARK in (pages / PAGE).read_text("utf-8")
