"""The verbs themselves: two real versions that differ in one thing, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.cli import versions as verbs
from conformance.cli.versions import versions
from conformance.problems import UsageProblem

PUBLISHED = ["5.62.0", "6.7.0"]


@pytest.fixture(autouse=True)
def _npm_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "published_versions", lambda _node: PUBLISHED)


def _invoked(*words: str) -> tuple[int, str]:
    """The exit code, and what was printed on stdout."""
    result = CliRunner().invoke(versions, words, standalone_mode=False, catch_exceptions=False)
    assert isinstance(result.return_value, int), result.output
    return result.return_value, result.stdout


@pytest.mark.slow
def test_a_version_is_like_itself(tmp_path: Path) -> None:
    selected = ("--select", "pause.delayed-promoted", "--jobs", "1", "--out", str(tmp_path))
    code, said = _invoked("diff", "5.62.0", "5.62.0", *selected, "--format", "json")
    found = json.loads(said)
    assert (code, found["changes"], found["scripts"], found["undecided"]) == (0, [], [], {})
    assert found["scenarios"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5.62.0-5.62.0.json", "5.62.0-5.62.0.md", "runs"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("diff", "five", "6.7.0"), "invalid version 'five' of bullmq"),
        (("diff", "5.62.0", "5.62.1", "--releases"), r"npm has no bullmq 5\.62\.1"),
        (("diff", "6.7.0", "5.62.0", "--releases"), r"5\.62\.0 is not newer than 6\.7\.0"),
        (("bisect", "no.such.row"), "unknown requirement 'no.such.row'"),
    ],
)
def test_mistakes_are_reported_before_anything_is_run(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageProblem, match=why):
        _invoked(*words)
