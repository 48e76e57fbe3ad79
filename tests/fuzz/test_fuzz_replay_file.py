"""Replay files: written, read, and refused in words that help."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.fuzz.findings import DifferenceClass, StepDifference
from conformance.fuzz.replay_file import Header, Replay, file_name, read_replay, write_replay
from conformance.problems import UsageProblem

from .test_fuzz_steps import STEPS

HEADER = Header(
    title="something is different",
    requirement="add.plain.waits",
    kit="0.1.0",
    bullmq="5.62.0",
    mode="interop",
    clock="running",
    seed=7,
    client="somebody",
    version="1.2",
    beside=[DifferenceClass("open", "meta", "missing-key")],
)
DIFFERENCE = StepDifference("fault.disconnect", "job.delay", "wrong-value", "q:1", '"0"', '"NaN"', "breaks-others")


def test_a_file_holds_everything(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "one.jsonl"
    replay = Replay(HEADER, tuple(STEPS), (DIFFERENCE,))
    write_replay(replay, path)
    assert read_replay(path) == replay
    assert read_replay(path).groups == {DIFFERENCE.group}


def test_the_difference_stands_beside_its_step(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    write_replay(Replay(HEADER, tuple(STEPS), (DIFFERENCE,)), path)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(lines) == 1 + len(STEPS)
    assert [number for number, line in enumerate(lines) if "differs" in line] == [len(STEPS)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("nonsense\n", "line 1: it is no header"),
        ('{"replay":1}\n', "line 1: it is no header"),
        ('{"replay":1,"surprise":2}\n', "line 1: it is no header"),
        ("HEADER\n{\n", "line 2:"),
        ('HEADER\n{"clock_ms":1}\n[]\n', "line 3: a line is one JSON object"),
        ('HEADER\n{"call":"queue.fly"}\n', "line 2: it is no call"),
        ('HEADER\n{"clock_ms":1,"differs":[{"where":5,"kind":"x"}]}\n', "line 2:"),
        ('HEADER\n{"clock_ms":1,"differs":7}\n', "line 2:"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.jsonl"
    write_replay(Replay(HEADER, ()), path)
    path.write_text(text.replace("HEADER\n", path.read_text("utf-8")), "utf-8")
    with pytest.raises(UsageProblem) as refused:
        read_replay(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    write_replay(Replay(HEADER, ()), path)
    path.write_text(path.read_text("utf-8").replace('"replay":1', '"replay":2'), "utf-8")
    with pytest.raises(UsageProblem, match="format 2"):
        read_replay(path)


def test_a_missing_file_and_an_unwritable_folder_are_usage_problems(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot read"):
        read_replay(tmp_path / "none.jsonl")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(UsageProblem, match="cannot write"):
        write_replay(Replay(HEADER, ()), tmp_path / "file" / "one.jsonl")


def test_the_name_of_a_file_is_harmless() -> None:
    assert file_name(DifferenceClass("queue.add", "answer.x", "outcome ok, not other/../..")) == (
        "queue.add-answer.x-outcome-ok-not-other-..-...jsonl"
    )
