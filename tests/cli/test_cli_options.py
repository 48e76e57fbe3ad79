"""The options of all verbs are declared once, and reach the command line, the reproduce lines and the run file."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast, get_origin

import msgspec
import pytest

from chaos.config import ChaosConfig
from chaos.faults.base import select_faults
from chaos.options import ChaosOptions
from conformance.cli.bench import BenchConfig
from conformance.cli.options import Duration
from conformance.cli.verbs import loaded_verbs
from conformance.environment.clients import Launch
from conformance.fuzz.options import FuzzConfig, ReplayConfig
from conformance.gate.options import RunConfig, add_options, recorded, words_of
from conformance.matrix.runner import MatrixConfig
from conformance.mutants.generated.command import MutantConfig
from conformance.options import DeclaredOption, DurationMs, duration_ms, duration_text, option_words, options_of
from conformance.problems import UsageProblem
from reports.options import CheckConfig, DiffConfig, HistoryConfig, LoadConfig, SnapshotConfig
from tests.cli.parsing import parse_call

from .cli_program import ROOT, Program, run_command


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
def test_an_invalid_duration(text: str) -> None:
    with pytest.raises(UsageProblem, match="invalid duration"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize("duration", [0, 1, 999, 1000, 1500, 60_000, 90_000, 3_600_000, 5_400_000])
def test_a_duration_as_text_is_read_as_the_same_duration(duration: float) -> None:
    assert duration_ms(duration_text(duration), "--x", positive=False) == duration


def test_a_duration_that_must_not_be_zero() -> None:
    with pytest.raises(UsageProblem, match="invalid duration"):
        Duration(positive=True).convert("0s", None, None)


@pytest.mark.parametrize(
    ("words", "option"),
    [(("fuzz", "--budget", "soon"), "--budget"), (("chaos", "--duration", "1d"), "--duration")],
)
def test_both_verbs_refuse_it_in_the_same_words(call: Program, words: tuple[str, ...], option: str) -> None:
    done = call(*words)
    assert (done.code, f"invalid duration {words[-1]!r} for {option}" in done.err) == (2, True)


CONFIGS: dict[str, type[msgspec.Struct]] = {
    "run": RunConfig,
    "chaos": ChaosConfig,
    "fuzz": FuzzConfig,
    "replay": ReplayConfig,
    "load": LoadConfig,
    "snapshot": SnapshotConfig,
    "diff": DiffConfig,
    "check": CheckConfig,
    "history": HistoryConfig,
    "bench": BenchConfig,
    "matrix": MatrixConfig,
    "mutants": MutantConfig,
}
REQUIRED = {"out": "out", "clients": "node"}


def another_value(option: DeclaredOption) -> Any:
    """A valid value that is not the default."""
    if option.kind in {int, float, DurationMs}:
        default = option.default[0] if option.repeatable else option.default
        value = option.kind((default or option.declared.at_least or 0) + 1)
    elif option.kind is bool:
        value = True
    else:
        value = next((choice for choice in option.choices if choice not in (option.default or ())), "other=1")
    return (value, value) if option.repeatable else value


@pytest.mark.parametrize("verb", CONFIGS)
def test_every_declared_option_is_on_the_command_line_and_in_the_words(verb: str) -> None:
    config = CONFIGS[verb]
    declared = {field.name for field in msgspec.structs.fields(config) if get_origin(field.type) is Annotated}
    assert {option.name for option in options_of(config)} == declared
    command = next(command for command in loaded_verbs() if command.name == verb)
    assert declared <= {parameter.name for parameter in command.params}
    required = {option.name: REQUIRED[option.name] for option in options_of(config) if option.required}
    words = option_words(config(**{option.name: another_value(option) for option in options_of(config)}))
    assert {option.flag for option in options_of(config)} <= set(words)
    assert len(option_words(config(**required))) == 2 * len(required)


@pytest.mark.parametrize("verb", [verb for verb in CONFIGS if verb not in {"diff", "check", "history", "replay"}])
def test_the_words_of_a_config_are_parsed_into_the_same_values(verb: str) -> None:
    values = {
        option.name: another_value(option)
        for option in options_of(CONFIGS[verb])
        if not option.declared.existing_file and option.kind is not Path
    }
    command = next(command for command in loaded_verbs() if command.name == verb)
    given = {"out": Path("out")} if verb == "matrix" else {}
    context = command.make_context(verb, option_words(CONFIGS[verb](**values, **given)))
    assert {name: context.params[name] for name in values} == values


def test_every_option_of_a_run_is_in_the_run_file() -> None:
    other = RunConfig(**{option.name: another_value(option) for option in options_of(RunConfig)})
    assert set(recorded(other)) == {option.name for option in options_of(RunConfig)}
    assert words_of(other).count("--select") == 2
    assert words_of(RunConfig()) == []


def test_the_reproduce_line_has_the_options_that_a_failure_may_depend_on() -> None:
    assert {option.name for option in options_of(RunConfig) if option.reproduce} == {
        "packages",
        "library",
        "oracle",
        "partner",
        "redis",
        "node",
        "seed",
        "no_rule",
    }


def test_a_load_is_reproduced_by_its_own_command_line() -> None:
    config = LoadConfig(thresholds=["p99<50ms"], redis="redis://:secret@h:1", out="x", command=["./driver", "-v"])
    assert config.reproduce == (
        "bullmq-conformance load --redis 'redis://:***@h:1' --threshold 'p99<50ms' --out x -- ./driver -v"
    )
    parse_call(shlex.split(config.reproduce)[1:])


@pytest.mark.parametrize(
    "options",
    [
        {"faults": select_faults("worker.kill"), "hold_ms": 1500, "seed": 3, "topology": "replica"},
        {"faults": select_faults("worker.*"), "together": True, "at_once": 2, "duration_ms": 60_000},
        {"faults": [], "partner": Launch("p", ["p", "-x"]), "redis": "container", "oracle": "6.7.0"},
    ],
)
@pytest.mark.parametrize("client", [Launch("node", [], named=True, packages=["redis==7.4.1"]), Launch("d", ["./d"])])
def test_the_program_accepts_the_reproduce_lines_of_chaos(client: Launch, options: dict[str, Any]) -> None:
    chosen = ChaosOptions(client=client, **options)
    for line in (chosen.reproduce, chosen.reproduce_crash_points):
        parse_call(shlex.split(line)[1:])


def with_percent_signs(config: type[msgspec.Struct]) -> list[DeclaredOption]:
    """The options, each described with percent signs of every kind."""
    return [
        dataclasses.replace(option, declared=dataclasses.replace(option.declared, help="30%. 100 % %s %(prog)s %%"))
        for option in options_of(config)
    ]


@pytest.mark.parametrize("options", [options_of, with_percent_signs])
def test_pytest_prints_every_help_text_of_the_plugin_as_it_is_declared(
    options: Callable[[type[msgspec.Struct]], Sequence[DeclaredOption]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.gate.options.options_of", options)
    formatter = functools.partial(argparse.HelpFormatter, width=1000)
    parser = argparse.ArgumentParser(formatter_class=formatter)
    group = SimpleNamespace(addoption=parser.add_argument)
    add_options(cast("pytest.Parser", SimpleNamespace(getgroup=lambda *_names: group)))
    printed = parser.format_help()
    for option in options(RunConfig):
        assert f" {option.help}\n" in printed


@pytest.mark.slow
@pytest.mark.parametrize("words", [["conformance/", "--help"], ["--help"]])
def test_the_help_of_pytest_in_the_checkout(words: list[str]) -> None:
    done = run_command([sys.executable, "-m", "pytest", *words], cwd=ROOT)
    assert done.code == 0, done
    assert "that must be decided, such as 30%." in " ".join(done.out.split())


def test_a_password_is_not_written_down() -> None:
    assert recorded(RunConfig(redis="redis://:secret@127.0.0.1:1")) == {"redis": "redis://:***@127.0.0.1:1"}
