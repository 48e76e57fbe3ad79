"""Each escaping of foreign text is needed: without it, a hostile text does harm in a report."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree as ET

import click
import pytest
from rich.console import Console
from rich.text import Text

from chaos.report import markdown
from chaos.terminal import print_result
from conformance.cli.verbs import loaded_verbs
from conformance.pages.junit import JunitSuite, junit_check, junit_document
from conformance.report.speed import print_speed, render_markdown_speed
from conformance.report.workflow_commands import annotation
from conformance.speed.records import MeasuredRatio, SpeedReport
from reports.store_pages import print_checks, print_diff, print_history, write_diff_reports
from tests.chaos.test_chaos_hostile import result
from tests.cli.verb_outputs import OF_THE_KIT, OF_VERBS
from tests.hostile_texts import HOSTILE, cells_of_rows, harm_in_html, harm_in_terminal, insist_on_xml
from tests.reports.test_reports_hostile import checks, diff, history

Probe = Callable[[str], list[str]]
"""The harm that a text does to a reader of an output."""


def on_console(show: Callable[[Any, Console], None], value: Callable[[str], Any]) -> Probe:
    def probe(text: str) -> list[str]:
        printed = io.StringIO()
        show(value(text), Console(file=printed, width=20_000))
        shown = printed.getvalue()
        hidden = [part for part in ("id[/x]", "[abc]kept[bold]") if part == text and part not in shown]
        return [*harm_in_terminal(shown), *hidden]

    return probe


def on_stdout(text: str) -> list[str]:
    """`chaos` makes its own console."""
    with redirect_stdout(io.StringIO()) as printed:
        print_result(result(text))
    return harm_in_terminal(printed.getvalue())


def in_junit(text: str) -> list[str]:
    try:
        insist_on_xml(junit_document([JunitSuite(name=text, cases=[junit_check(text, failure=text, details=text)])]))
    except (ET.ParseError, ValueError) as error:
        return [str(error)]
    return []


def in_markdown(document: str, columns: int) -> list[str]:
    wrong = [] if len(cells_of_rows(document)) <= columns else ["other columns"]
    return [*harm_in_terminal(document), *harm_in_html(re.sub(r"`[^`\n]*`", "", document)), *wrong]


def in_markdown_of_chaos(text: str) -> list[str]:
    return in_markdown(markdown([result(text)], complete=True), 1)


def speed(text: str) -> SpeedReport:
    ratio = MeasuredRatio(measure="claim", meaning="m", unit="jobs/s", state="not-measured", reason=text)
    return SpeedReport(kit="1", client=text, oracle=text, redis=text, rounds=1, jobs=1, load=(0.0, 0.0), ratios=[ratio])


def in_annotation(text: str) -> list[str]:
    written = annotation("error", text, text)
    title, _, message = written.removeprefix("::error title=").partition("::")
    extra = [part for part in (":", ",") if part in title]
    return [*extra, *written.splitlines()[1:], *harm_in_terminal(message.replace("%0A", "\n"))]


def in_page_of_diff(text: str) -> list[str]:
    with TemporaryDirectory() as folder:
        room = Path(folder) / "run"
        room.mkdir()
        write_diff_reports(room, diff(text.encode("utf-8", "replace").decode()))
        return harm_in_html((room / "diff.html").read_text())


PROBES: dict[str, Probe] = {
    "diff": on_console(print_diff, diff),
    "check": on_console(print_checks, checks),
    "history": on_console(print_history, history),
    "chaos": on_stdout,
    "chaos in Markdown": in_markdown_of_chaos,
    "bench": on_console(print_speed, speed),
    "bench in Markdown": lambda text: in_markdown(render_markdown_speed(speed(text)), 1),
    "JUnit": in_junit,
    "annotations": in_annotation,
    "a page": in_page_of_diff,
    **OF_VERBS,
}


def as_it_is(text: str, *_: Any, **__: Any) -> str:
    return text


def as_markup(text: str, style: str = "") -> Text:
    return Text.from_markup(text, style=style)


def parts_as_markup(*parts: str | tuple[str, str]) -> Text:
    return Text.from_markup("".join(part if isinstance(part, str) else part[0] for part in parts))


def unescaped(package: str) -> Any:
    from conformance.pages import page

    return page.page_environment.__wrapped__(package).overlay(autoescape=False)


REMOVED: list[tuple[str, str, Any]] = [
    ("diff", "conformance.pages.terminal.visible", as_it_is),
    ("diff", "conformance.pages.terminal.printable", as_it_is),
    ("diff", "reports.store_pages.terminal_text", as_markup),
    ("check", "reports.store_pages.terminal_text", as_markup),
    ("history", "reports.store_pages.terminal_text", as_markup),
    ("bench", "conformance.report.speed.terminal_text", as_markup),
    ("chaos", "conformance.pages.terminal.visible", as_it_is),
    ("chaos", "conformance.pages.terminal.printable", as_it_is),
    ("chaos in Markdown", "chaos.report.terminal_line", as_it_is),
    ("chaos in Markdown", "chaos.report._quoted", as_it_is),
    ("chaos in Markdown", "chaos.report._cell", as_it_is),
    ("bench in Markdown", "conformance.report.speed._escaped", as_it_is),
    ("JUnit", "conformance.pages.junit.visible", as_it_is),
    ("JUnit", "conformance.pages.junit._attribute", as_it_is),
    ("annotations", "conformance.report.workflow_commands.visible", as_it_is),
    ("annotations", "conformance.report.workflow_commands.printable", as_it_is),
    ("annotations", "conformance.report.workflow_commands._data", as_it_is),
    ("annotations", "conformance.report.workflow_commands._property", as_it_is),
    ("a page", "conformance.pages.page.page_environment", unescaped),
    ("explain", "conformance.cli.requirements.terminal_text", as_markup),
    ("explain --prove", "conformance.cli.requirements.terminal_block", as_markup),
    ("driver check", "conformance.cli.driver.terminal_parts", parts_as_markup),
    ("driver check", "conformance.cli.driver.terminal_text", as_markup),
    ("fuzz", "conformance.fuzz.session.terminal_parts", parts_as_markup),
    ("fuzz", "conformance.fuzz.session.terminal_text", as_markup),
    ("replay", "conformance.cli.fuzz.terminal_text", as_markup),
    ("bugs prove", "conformance.cli.bugs.terminal_text", as_markup),
    ("mutants", "conformance.cli.mutants.terminal_text", as_markup),
    ("matrix", "conformance.pages.page.page_environment", unescaped),
    ("versions diff", "conformance.report.versions.printable", as_it_is),
    ("versions diff in Markdown", "conformance.report.versions.markdown_words", as_it_is),
    ("versions diff in Markdown", "conformance.report.versions.markdown_code", as_it_is),
    ("versions bisect", "conformance.report.versions.printable", as_it_is),
    ("versions mixed", "conformance.report.mixed.printable", as_it_is),
    ("versions mixed in Markdown", "conformance.report.mixed.markdown_words", as_it_is),
    ("versions mixed in Markdown", "conformance.pages.markdown.visible", as_it_is),
    ("versions mixed in Markdown", "conformance.pages.markdown.printable", as_it_is),
    ("versions adopt", "conformance.report.adoption.markdown_words", as_it_is),
    ("versions adopt in Markdown", "conformance.report.adoption.markdown_words", as_it_is),
    ("versions adopt in Markdown", "conformance.report.adoption.markdown_code", as_it_is),
    ("load", "conformance.environment.prepare.terminal_text", as_markup),
    ("load in Markdown", "conformance.pages.page.only_escaped", as_it_is),
    ("load in a page", "conformance.pages.page.page_environment", unescaped),
    ("report compare", "reports.rendering.terminal_block", as_markup),
    ("report compare", "reports.rendering.terminal_text", as_markup),
    ("snapshot", "conformance.environment.prepare.terminal_text", as_markup),
]
"""An output, an escaper, and what is there without it."""


def harm(probe: Probe) -> list[str]:
    found = []
    for name, text in HOSTILE.items():
        try:
            found += [f"{name}: {part}" for part in probe(text)]
        except Exception as error:  # noqa: BLE001 - a report that cannot be written is a harm as well
            found.append(f"{name}: {error!r}")
    return found


def paths_of(command: click.Command, *before: str) -> Iterator[str]:
    """The words of a verb, or of each verb of a group."""
    words = (*before, command.name or "")
    if not isinstance(command, click.Group):
        yield " ".join(words)
        return
    for inner in command.commands.values():
        yield from paths_of(inner, *words)


def test_every_verb_is_tried_or_has_a_reason() -> None:
    verbs = {path for verb in loaded_verbs() for path in paths_of(verb)}
    tried = {path for path in verbs for output in PROBES if output == path or output.startswith(f"{path} ")}
    assert tried | OF_THE_KIT.keys() == verbs
    assert not tried & OF_THE_KIT.keys()
    broken = {output for output, *_ in REMOVED}
    assert broken == PROBES.keys(), "each output has an escaper that is needed"


@pytest.mark.parametrize("output", PROBES)
def test_hostile_texts_do_no_harm(output: str) -> None:
    assert harm(PROBES[output]) == []


@pytest.mark.parametrize(("output", "escaper", "instead"), REMOVED, ids=[f"{row[0]}-{row[1]}" for row in REMOVED])
def test_every_escaper_is_needed(output: str, escaper: str, instead: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escaper, instead)
    assert harm(PROBES[output])
