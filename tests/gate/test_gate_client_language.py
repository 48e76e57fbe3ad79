"""`reproduction.toml` is found next to a driver, and an invalid one is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.driver.authoring import write_skeleton
from conformance.gate.client_language import FILE, language_file, language_text
from conformance.gate.options import RunConfig
from conformance.problems import UsageProblem


@pytest.fixture
def skeleton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a driver, below the current folder."""
    monkeypatch.chdir(tmp_path)
    write_skeleton("python", tmp_path / "mine")
    return tmp_path / "mine"


def test_it_is_found_next_to_the_driver_or_above_its_build(skeleton: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = skeleton / "target" / "release" / "driver"
    program.parent.mkdir(parents=True)
    program.touch()
    expected = skeleton / FILE
    assert language_file(["python", "mine/driver.py", "--fast"]) == expected
    assert language_file([str(program)]) == expected
    assert language_file(["java", "-cp", "out", "Driver"]) is None
    assert language_file(["python", "-c", "pass;" * 1000, "mine/driver.py"]) == expected
    monkeypatch.chdir(skeleton)
    assert language_file(["java", "-cp", "out", "Driver"]) == expected


def test_a_run_takes_it_from_the_driver_or_from_the_option(skeleton: Path) -> None:
    text = (skeleton / FILE).read_text("utf-8")
    assert RunConfig(command=["python", "mine/driver.py"]).reproduction_text == text
    assert RunConfig(command=["elsewhere"]).reproduction_text == ""
    for path in (skeleton, skeleton / FILE):
        assert RunConfig(command=["elsewhere"], reproduction=str(path)).reproduction_text == text
    assert "queue.add" in RunConfig(client="python-official@2.15.0").reproduction_text
    assert RunConfig(client="reference").reproduction_text == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ('language = "cobol"', "Invalid enum value 'cobol'"),
        ("languages = 1", "unknown field `languages`"),
        ("language =", "Invalid value"),
    ],
)
def test_an_invalid_file_is_refused(skeleton: Path, change: str, problem: str) -> None:
    path = skeleton / FILE
    path.write_text(path.read_text("utf-8").replace('language = "python"', change), "utf-8")
    with pytest.raises(UsageProblem, match=problem) as refused:
        language_text(path)
    assert str(path) in str(refused.value)
    assert "driver new LANGUAGE" in (refused.value.hint or "")


def test_an_unknown_operation_and_a_missing_file_are_refused(skeleton: Path) -> None:
    path = skeleton / FILE
    path.write_text(path.read_text("utf-8") + '"queue.ad" = "x"\n', "utf-8")
    with pytest.raises(UsageProblem, match=r"`calls` has the unknown operation 'queue\.ad'"):
        language_text(path)
    with pytest.raises(UsageProblem, match="cannot read"):
        language_text(skeleton / "missing.toml")
