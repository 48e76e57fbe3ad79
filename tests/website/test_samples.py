"""The sample reports are rendered from their data with the renderers of today, and docs/ shows a picture of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.report.matrix import MatrixParts
from website.built_site import complaints
from website.samples import (
    LOAD,
    MATRIX,
    PICTURES,
    RATES,
    LoadSample,
    RatesSample,
    pictures,
    read_sample,
    write_pages,
    write_sample,
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib", reason="charts need the extra `spark`")
    folder = tmp_path_factory.mktemp("pages")
    write_pages(folder)
    return folder


@pytest.mark.slow
def test_every_sample_has_its_page(pages: Path) -> None:
    matrix = (pages / "sample-matrix" / "index.html").read_text("utf-8")
    sample = read_sample(MATRIX, MatrixParts)
    assert len(sample.cells) == len(sample.clients) ** 2
    assert all(f'id="{cell.folder}"' in matrix for cell in sample.cells)
    loads = (pages / "sample-report" / "about.md").read_text("utf-8")
    assert "| added by reference, worked off by node | 1,000,000 in 143.2 s | 1,000,000 in 199.0 s | 286 s |" in loads
    rates = (pages / "sample-rates" / "about.md").read_text("utf-8")
    assert "| [node](node/find-rate.html) | 1,467 jobs/s keeps the thresholds" in rates


def test_no_link_of_a_sample_is_broken(pages: Path) -> None:
    assert list(complaints(pages)) == []


def test_no_report_in_markdown_becomes_a_page(pages: Path) -> None:
    assert {path.name for path in pages.rglob("*.md")} == {"about.md"}


@pytest.mark.parametrize(("name", "kind"), [(MATRIX, MatrixParts), (LOAD, LoadSample), (RATES, RatesSample)])
def test_the_data_is_written_as_it_is_kept(
    name: str, kind: type[MatrixParts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, before = read_sample(name, kind), (PICTURES.parents[1] / "website" / "samples" / name).read_text("utf-8")
    monkeypatch.setattr("website.samples.SAMPLES", tmp_path)
    assert write_sample(name, sample).read_text("utf-8") == before


@pytest.mark.slow
def test_docs_have_the_picture_of_each_sample() -> None:
    pytest.importorskip("matplotlib", reason="charts need the extra `spark`")
    drawn = pictures()
    assert set(drawn) == {path.name for path in PICTURES.iterdir()}
    for name, svg in drawn.items():
        shown = (PICTURES / name).read_text("utf-8")
        # Ids and places of glyphs depend on the version of matplotlib; the words do not.
        assert re.findall(r"<text[^>]*>([^<]*)", shown) == re.findall(r"<text[^>]*>([^<]*)", svg), name
