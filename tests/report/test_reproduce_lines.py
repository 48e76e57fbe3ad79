"""Every reproduce line of the recorded reports is a call that the program accepts."""

from __future__ import annotations

import re
import shlex
from html import unescape
from pathlib import Path

import click
import pytest

from tests.cli.parsing import parse_call
from tests.report.recorded import HERE

PROGRAM = "bullmq-conformance"

FILES = sorted(path for folder in ("runs", "golden") for path in (HERE / folder).rglob("*") if path.is_file())

_LINE = re.compile(rf"{PROGRAM} run [^\n]*? -- python driver\.py")
"""Every sample runs the same driver, so its command ends the line in each format."""


def calls_in(path: Path) -> list[str]:
    """Every call of the program in a run file or report, without the escapes of its format."""
    text = path.read_text("utf-8")
    return _LINE.findall(text if path.suffix in {".txt", ".jsonl", ".json"} else unescape(text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HERE)))
def test_the_program_accepts_every_reproduce_line(path: Path) -> None:
    for line in calls_in(path):
        parse_call(shlex.split(line)[1:])


def test_no_call_of_the_program_is_overlooked() -> None:
    overlooked = [
        path.name for path in FILES if path.read_text("utf-8").count(f"{PROGRAM} run ") != len(calls_in(path))
    ]
    assert overlooked == []
    assert {path.suffix for path in FILES if calls_in(path)} == {".jsonl", ".xml", ".md", ".txt"}


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(click.UsageError):
        parse_call(["run", "--only", "add.plain", "--", "python", "driver.py"])
