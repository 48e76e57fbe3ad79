"""What CI draws from everything, and how the parts are run and reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.parts import RUN_S, SLOWEST, WHOLE_RUNS, Part, drawn, everything, not_run_and_closing, run

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
COMMITS = [f"{number:040x}" for number in range(100)]


def test_every_part_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[0].split())
    for part in [*everything(), *drawn(COMMITS[0], RUN_S)]:
        assert part.target in targets or part.target.startswith("oracle-"), part


def test_everything_includes_what_ci_draws_from() -> None:
    assert {part.target for part in drawn(COMMITS[0], RUN_S)} <= {part.target for part in everything()}
    assert set(WHOLE_RUNS) <= {part.target for part in everything()}


def test_a_commit_draws_the_same_on_every_machine_that_has_time_for_it() -> None:
    assert drawn(COMMITS[0], RUN_S / 2) == drawn(COMMITS[0], RUN_S * SLOWEST)
    assert drawn(COMMITS[0], RUN_S) != drawn(COMMITS[1], RUN_S)


def test_commits_take_every_whole_run() -> None:
    assert {part.target for commit in COMMITS for part in drawn(commit, RUN_S)} >= set(WHOLE_RUNS)


def test_a_slower_machine_draws_less() -> None:
    [slow] = [part for part in drawn(COMMITS[0], RUN_S * SLOWEST * 2) if part.target == "test-slow"]
    [usual] = [part for part in drawn(COMMITS[0], RUN_S) if part.target == "test-slow"]
    share = re.compile(r"--slow-share ([\d.]+)")
    assert float(share.search(str(slow))[1]) == pytest.approx(float(share.search(str(usual))[1]) / 2, rel=0.01)  # type: ignore[index]


@pytest.fixture
def makefile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Makefile").write_text(
        "good:\n\t@echo fine\nbad:\n\t@echo broken; exit 1\nshy:\n\t@test -e tried || { touch tried; exit 1; }\n"
        "test-slow:\n\t@printf '=== not run ===\\ntests/x.py: a, b\\n1 passed in 1s\\n'\n"
    )


@pytest.mark.usefixtures("makefile")
def test_the_last_lines_say_what_passed_the_second_time_and_what_was_not_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([Part("good", 0), Part("shy", 1, again=()), Part("test-slow", 2)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "passed only the second time: 1 ['shy']",
        "=== not run ===",
        "tests/x.py: a, b",
        "1 passed in 1s",
    ]


def test_tests_that_were_not_run_are_listed_once_after_a_second_try() -> None:
    listed = ["== not run ==", "tests/x.py: a, b"]
    first = [*listed, "== short test summary info ==", "FAILED tests/x.py::c", "1 failed in 2s"]
    assert not_run_and_closing([*first, *listed, "1 passed in 1s"]) == [*listed, "1 passed in 1s"]
    assert not_run_and_closing(["1 passed in 1s"]) == ["1 passed in 1s"]


@pytest.mark.usefixtures("makefile")
def test_a_failure_is_shown_and_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([Part("bad", 0), Part("good", 0), Part("bad", 1, again=())]) == 1
    shown = capsys.readouterr().out
    assert "== failed: bad\nbroken" in shown
    assert "good: fine" in shown
    assert "passed only the second time: 0 []" in shown
