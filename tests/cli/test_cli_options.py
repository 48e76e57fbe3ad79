"""What verbs share on the command line: one grammar for durations, and options of a run that are declared once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any, cast, get_origin

import msgspec
import pytest

from conformance.cli.options import Duration
from conformance.cli.run import run
from conformance.gate.options import RunConfig, RunOption, recorded, run_options, words_of
from conformance.problems import UsageProblem

from .cli_program import Program


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("30s", 30_000),
        ("1.5m", 90_000),
        ("200ms", 200),
        ("1h", 3_600_000),
        ("90", 90_000),
        ("0.5", 500),
        ("0s", 0),
        (" 5m ", 300_000),
    ],
)
def test_a_duration(text: str, duration_ms: float) -> None:
    assert Duration().convert(text, None, None) == duration_ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "5 m", "soon", "1e3"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageProblem, match="is no time"):
        Duration().convert(text, None, None)


def test_a_duration_that_must_not_be_zero() -> None:
    with pytest.raises(UsageProblem, match="is no time"):
        Duration(positive=True).convert("0s", None, None)


@pytest.mark.parametrize(
    ("words", "option"),
    [(("fuzz", "--budget", "soon"), "--budget"), (("chaos", "--duration", "1d"), "--duration")],
)
def test_both_verbs_refuse_it_in_the_same_words(call: Program, words: tuple[str, ...], option: str) -> None:
    done = call(*words)
    assert (done.code, f"{option} {words[-1]!r} is no time" in done.err) == (2, True)


def another_value(option: RunOption) -> Any:
    """Not the default."""
    if option.repeatable:
        return ["a", "b"]
    if option.kind is not str:
        return option.kind(option.default + 1)
    return next((choice for choice in option.choices if choice != option.default), "other")


def test_every_declared_option_is_on_both_command_lines_and_in_the_run_file() -> None:
    declared = {field.name for field in msgspec.structs.fields(RunConfig) if get_origin(field.type) is Annotated}
    assert {option.name for option in run_options()} == declared
    assert declared <= {parameter.name for parameter in run.params}
    other = RunConfig(**{option.name: another_value(option) for option in run_options()})
    assert set(recorded(other)) == declared
    words = words_of(other)
    assert {option.flag for option in run_options()} <= set(words)
    assert words.count("--select") == 2
    assert words_of(RunConfig()) == []


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [(bool, True, ["--some-thing"]), (bool, False, []), (float, 0.5, ["--some-thing", "0.5"]), (int, 0, [])],
)
def test_an_option_as_words(kind: type, value: object, words: list[str]) -> None:
    option = RunOption("some_thing", "--some-thing", "", kind(), (), repeatable=False, kind=kind, reproduce=False)
    assert list(option.words(cast("RunConfig", SimpleNamespace(some_thing=value)))) == words


def test_the_line_that_repeats_a_failure_has_the_options_that_it_may_depend_on() -> None:
    assert {option.name for option in run_options() if option.reproduce} == {
        "packages",
        "oracle",
        "partner",
        "redis",
        "node",
        "seed",
        "no_rule",
    }


def test_a_password_is_not_written_down() -> None:
    assert recorded(RunConfig(redis="redis://:secret@127.0.0.1:1")) == {"redis": "redis://:***@127.0.0.1:1"}
