"""Annotations: one workflow command for each cause, and never one that a client wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conformance.report import workflow_commands
from conformance.report.summary import Summary
from conformance.report.workflow_commands import annotation, render_annotations

COMMAND = re.compile(r"\s*::(?P<name>[^ :]+)(?: (?P<properties>.*?))?::(?P<data>.*)")
TEXTS = st.text(alphabet=st.one_of(st.sampled_from("%\r\n:,;#[]=0AD25 "), st.characters()))


@dataclass(frozen=True)
class Understood:
    """The command that the GitHub runner reads from a line."""

    name: str
    properties: dict[str, str]
    data: str


def understood(text: str) -> list[Understood]:
    """Read what a step printed as the runner does: by lines, and decoded in the order that is documented."""
    found = (COMMAND.fullmatch(line) for line in re.split(r"\r\n|\r|\n", text))
    return [
        Understood(
            name=command["name"],
            properties={
                name: decoded(value, {"%3A": ":", "%2C": ",", "%0A": "\n", "%0D": "\r", "%25": "%"})
                for name, _, value in (part.partition("=") for part in (command["properties"] or "").split(","))
            },
            data=decoded(command["data"], {"%0A": "\n", "%0D": "\r", "%25": "%"}),
        )
        for command in found
        if command
    ]


def decoded(text: str, meaning: dict[str, str]) -> str:
    return re.sub("|".join(meaning), lambda found: meaning[found[0]], text)


@given(TEXTS, TEXTS)
@example("a::b,file=x", "%0A::error::owned\r\n::set-output name=x::y\n##[error]z")
@example("100%25", "%250A")
def test_any_text_becomes_one_command_with_one_property(title: str, message: str) -> None:
    line = annotation("warning", title, message)
    [command] = understood(line)
    assert (command.name, list(command.properties)) == ("warning", ["title"])
    assert "##[" not in line
    # Invisible characters were already escaped; everything else arrives unchanged.
    if title.isprintable():
        assert command.properties["title"] == title
    if message.isprintable() and "##[" not in message and not re.match(r"\s*::", message):
        assert command.data == message


def test_annotations_printed_by_the_runner_give_no_orders() -> None:
    [command] = understood(annotation("error", "t", "first\n::add-mask::secret\n  ::stop-commands::x"))
    assert understood(command.data) == []


@pytest.mark.parametrize("careless", ["_data", "_property"])
def test_a_text_that_is_not_encoded_is_noticed(careless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_commands, careless, lambda text: text)
    commands = understood(annotation("error", "a,file=secrets", "b\nc"))
    assert commands != [Understood("error", {"title": "a,file=secrets"}, "b\nc")]


def test_every_cause_names_its_requirement(summary_of: Callable[[str], Summary]) -> None:
    summary = summary_of("full")
    commands = understood(render_annotations(summary))
    for cause in summary.causes:
        titled = [
            command for command in commands if command.properties["title"].startswith(f"{cause.finding.requirement} (")
        ]
        assert any(command.data.startswith(cause.line) for command in titled), cause.line
    assert [command.name for command in commands].count("error") == 10
    assert "passes now" in next(
        command.data for command in commands if command.properties["title"] == "retry.fixed-backoff"
    )


def test_a_hostile_driver_adds_no_command(summary_of: Callable[[str], Summary]) -> None:
    summary = summary_of("hostile")
    open_questions = [
        scenario for scenario in summary.scenarios if not scenario.record.findings and scenario.reported == "error"
    ]
    expected = 1 + len(summary.problems) + len(summary.causes) + len(open_questions)
    text = render_annotations(summary)
    assert len(understood(text)) == expected == text.count("\n")


def test_a_run_that_holds_is_a_notice(summary_of: Callable[[str], Summary]) -> None:
    [verdict] = understood(render_annotations(summary_of("conformant")))
    assert (verdict.name, verdict.data.startswith("CONFORMANT as producer")) == ("notice", True)


def test_a_run_that_was_cut_is_an_error(summary_of: Callable[[str], Summary]) -> None:
    [verdict] = understood(render_annotations(summary_of("incomplete")))
    assert (verdict.name, verdict.data.startswith("INCOMPLETE RUN")) == ("error", True)
