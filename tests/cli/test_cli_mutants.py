"""The parts of the verb `mutants` that run no scenario."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from conformance.cli.verbs import cli
from conformance.problems import NothingSelected, UsageProblem


def _run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["mutants", *words])


def test_mutants_are_listed_with_the_text_of_the_change() -> None:
    result = _run("--list", "--sample", "1", "--file", "queue.py")
    assert result.exception is None, result.output
    place, before, after = result.output.splitlines()[:3]
    assert place.split()[0].startswith("queue.py:")
    assert before.startswith("  - ")
    assert after.startswith("  + ")
    [line] = {*place.split()[1:]}
    assert line.startswith("python/queue.py/")


@pytest.mark.slow
def test_one_mutant_is_found_by_its_key() -> None:
    listed = _run("--list", "--sample", "1", "--file", "pause").output
    key = listed.splitlines()[0].split()[1]
    assert _run("--list", "--mutant", key).output == listed


@pytest.mark.parametrize(
    ("words", "problem", "what"),
    [
        (["--area", "nowhere"], UsageProblem, "unknown area 'nowhere' for --area"),
        (["--file", "nothing.py"], UsageProblem, "--file nothing.py: there is no such script or module"),
        (["--mutant", "*", "--mutant", "lua/nothing"], NothingSelected, "no mutant matches 'lua/nothing' of --mutant"),
    ],
)
def test_an_unknown_name_is_reported_in_one_line(words: list[str], problem: type[Exception], what: str) -> None:
    result = _run("--list", *words)
    assert isinstance(result.exception, problem)
    assert what in str(result.exception)
