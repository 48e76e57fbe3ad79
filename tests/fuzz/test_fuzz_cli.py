"""The verbs `fuzz` and `replay`, as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.cli.fuzz import fuzz, replay
from conformance.problems import EnvironmentProblem, Problem, UsageProblem

from .hunting import REPLAYS

FIFO = REPLAYS / "fifo-broken-at-third.jsonl"
SICK = [sys.executable, "-m", "tests.fuzz.sick_driver", "fifo-broken-at-third"]
ROOT = Path(__file__).parents[2]


def _call(*words: str | Path) -> tuple[int, str]:
    """In a process of its own, as the driver of a client would be started from a shell."""
    command = [sys.executable, "-m", "conformance", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--budget", "soon"], "is no time"),
        (["--client", "nobody", "--budget", "1s"], "unknown client 'nobody'"),
        (["--client", "node", "--budget", "1s", "--", "./driver"], "give one of them"),
        (["--redis", "cluster:3", "--budget", "1s", "--client", "node"], "fuzz needs a single Redis"),
    ],
)
def test_mistakes_are_problems_with_a_hint(words: list[str], says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(fuzz, ["--out", str(tmp_path / "out"), *words], standalone_mode=False)
    assert isinstance(result.exception, Problem)
    assert says in str(result.exception)
    assert result.exception.exit_code == 2


def test_a_file_that_is_none_is_a_usage_problem(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("{}\n", "utf-8")
    result = CliRunner().invoke(replay, [str(path)], standalone_mode=False)
    assert isinstance(result.exception, UsageProblem)
    assert str(path) in str(result.exception)


def test_a_client_without_the_operation_cannot_play_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rare.jsonl"
    lines = FIFO.read_text("utf-8").splitlines()
    step = {"call": "job.waitUntilFinished", "on": "queue-1", "args": {"job": "1", "events": "none"}}
    path.write_text("\n".join([lines[0], json.dumps(step)]) + "\n", "utf-8")
    driver = [sys.executable, "-m", "tests.fuzz.sick_driver", "healthy", "job.waitUntilFinished"]
    result = CliRunner().invoke(replay, [str(path), "--", *driver], standalone_mode=False)
    assert isinstance(result.exception, EnvironmentProblem)
    assert "says nothing about this client" in str(result.exception)


def test_a_file_still_fails_on_the_sick_client_and_is_fixed_on_the_healthy_one() -> None:
    code, text = _call("replay", FIFO, "--", *SICK)
    assert code == 1, text
    assert "wrong-order membership.wait.order" in text
    assert "it still differs as the file says" in text
    code, text = _call("replay", FIFO, "--client", "reference")
    assert code == 0, text
    assert "no difference" in text


def test_a_run_ends_with_findings_and_goes_on_from_there(tmp_path: Path) -> None:
    words: list[str | Path] = ["fuzz", "--budget", "8s", "--seed", "3", "--out", tmp_path, "--", *SICK]
    code, text = _call(*words)
    assert code == 1, text
    assert "membership.wait.order" in text
    files = sorted((tmp_path / "findings").iterdir())
    assert files
    code, text = _call(*words)
    assert code == 1, text
    assert f"still shows  {files[0]}" in text.replace("\n", "")
    record = json.loads((tmp_path / "coverage.json").read_text("utf-8"))
    assert record["steps"] > 0
    assert record["tried"]


def test_a_run_without_findings_ends_with_zero(tmp_path: Path) -> None:
    code, text = _call("fuzz", "--client", "node", "--budget", "4s", "--out", tmp_path)
    assert code == 0, text
    assert "never tried:" in text
