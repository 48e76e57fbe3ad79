"""Every report of every hand-written run, byte for byte.

After a wanted change: `UPDATE_GOLDEN=1 pytest tests/report/test_golden.py`, then read the difference before
committing it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.report.formats import FORMATS
from conformance.report.summary import Summary

GOLDEN = Path(__file__).parent / "golden"
RUNS = ("full", "hostile", "incomplete", "empty", "conformant")


def check_golden(rendered: str, golden: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_bytes(rendered.encode())
    assert golden.is_file(), f"{golden} is missing: run with UPDATE_GOLDEN=1"
    assert rendered == golden.read_bytes().decode()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("run", RUNS)
def test_report_is_as_recorded(run: str, name: str, summary_of: Callable[[str], Summary]) -> None:
    chosen = FORMATS[name]
    check_golden(chosen.render(summary_of(run)), GOLDEN / run / chosen.file_name)


def test_another_report_is_noticed(
    summary_of: Callable[[str], Summary], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    golden = tmp_path / "badge.json"
    golden.write_text(FORMATS["badge"].render(summary_of("conformant")))
    with pytest.raises(AssertionError):
        check_golden(FORMATS["badge"].render(summary_of("full")), golden)


def test_rendering_twice_gives_the_same(summary_of: Callable[[str], Summary]) -> None:
    for chosen in FORMATS.values():
        assert chosen.render(summary_of("full")) == chosen.render(summary_of("full"))
