"""The content of every report, compared byte for byte with recorded ones; and how reports are written to a folder."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Callable
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from rich.console import Console

from conformance.gate.record_bounds import RecordedEvidence, compact, readable
from conformance.gate.records import ScenarioRecord, encode
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.report import json_summary, junit, markup, output, terminal
from conformance.report.causes import MOST_CAUSES, WHY
from conformance.report.output import FORMATS, write_reports
from conformance.report.run_file import Run, read_run
from conformance.report.summary import RequirementRows, Summary, summarise
from tests.report import recorded, sample_runs
from tests.report.sample_runs import SAMPLE_PROFILES, SAMPLE_ROWS, sample_run_files

# The development environment has no type stubs for it.
jsonschema: Any = import_module("jsonschema")


@pytest.mark.parametrize("name", FORMATS)
def test_every_report_says_that_a_run_is_incomplete(name: str, summary_of: Callable[[str], Summary]) -> None:
    said = '"complete": false' if name == "json" else "incomplete run"
    assert said in FORMATS[name].render(summary_of("incomplete")).lower()
    assert said not in FORMATS[name].render(summary_of("conformant")).lower()


@pytest.mark.parametrize("name", [name for name in recorded.OF_THE_RUN if name != "badge"])
def test_every_report_shows_the_failure_and_how_to_reproduce_it(
    name: str, summary_of: Callable[[str], Summary]
) -> None:
    text = FORMATS[name].render(summary_of("full"))
    for expected in (
        "lock.stale-token-refused",
        "error lock-mismatch",
        "--select lock.stale",
        "NOT CONFORMANT",
    ):
        assert expected in text, expected
    if name != "annotations":  # only about failures of the client
        assert "unsupported" in text
    if name != "junit":
        assert "removeLock.lua" in text


def junit_outcomes(summary: Summary) -> dict[str, str]:
    root = ET.fromstring(junit.render_junit(summary))  # noqa: S314 - the kit's own output is what is being checked
    outcomes = {}
    for case in root.iter("testcase"):
        results = [child for child in case if child.tag in ("failure", "error", "skipped")]
        outcomes[case.get("name", "")] = results[0].tag if results else "passed"
    return outcomes


def test_junit_maps_every_word(summary_of: Callable[[str], Summary]) -> None:
    assert junit_outcomes(summary_of("full")) == {
        "known failure retry.fixed-backoff": "failure",
        "run-wide problem 1": "failure",
        "verdict": "failure",
        "add.plain": "passed",
        "add.options": "failure",
        "add.many": "failure",
        "lock.stale": "failure",
        "lock.renewed": "error",
        "events.waiting": "passed",
        "events.metrics": "passed",
        "flow.children": "skipped",
        "flow.known": "skipped",
        "retry.fixed": "passed",
        "retry.oracle": "error",
        "worker.setup": "error",
    }


def test_junit_gives_the_finding_of_a_failure_and_not_why_the_rest_stayed_open() -> None:
    failing = sample_runs.scenario("add.a", "fail", "add.plain.waits", reason="a call hung before")
    failing = msgspec.structs.replace(failing, findings=[sample_runs.finding("add.plain.waits", "job.opts", "1", "2")])
    run = Run(header=sample_runs.header(planned=1), scenarios=(failing,), footer=sample_runs.footer(exit_code=1))
    root = ET.fromstring(junit.render_junit(summarise(run, SAMPLE_ROWS, SAMPLE_PROFILES)))  # noqa: S314 - the kit's own output
    messages = [case.get("message", "") for case in root.iter("failure")]
    assert [message for message in messages if message.startswith("add.plain.waits: ")]
    assert "a call hung before" not in messages


def test_junit_of_a_cut_run_is_not_green(summary_of: Callable[[str], Summary]) -> None:
    assert junit_outcomes(summary_of("incomplete"))["run is complete"] == "error"
    assert set(junit_outcomes(summary_of("conformant")).values()) == {"passed"}


def test_junit_of_a_run_that_ended_badly_without_saying_why(summary_of: Callable[[str], Summary]) -> None:
    assert junit_outcomes(summary_of("empty")) == {"verdict": "error"}


@pytest.mark.parametrize("run", recorded.RUNS)
def test_json_keeps_its_published_schema(run: str, summary_of: Callable[[str], Summary]) -> None:
    document = json.loads(json_summary.render_json(summary_of(run)))
    validator = jsonschema.Draft202012Validator(published_schema())
    assert [error.message for error in validator.iter_errors(document)] == []
    del document["conclusion"]["conformant"]
    assert list(validator.iter_errors(document))


def test_the_published_schema_is_the_schema_of_the_code() -> None:
    assert published_schema() == json_summary.schema(), (
        "the document changed: write json_summary.schema() to conformance/report/schema/summary.schema.json, and raise "
        "json_summary.SUMMARY_FORMAT unless fields were only added"
    )


def published_schema() -> object:
    return json.loads(files("conformance.report").joinpath("schema", "summary.schema.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("run", "message", "color"),
    [
        ("full", "not conformant as producer, worker · 69 %", "red"),
        ("incomplete", "incomplete run", "lightgrey"),
        ("empty", "undecided · 0 %", "lightgrey"),
        ("conformant", "producer · 38 %", "green"),
    ],
)
def test_badge(run: str, message: str, color: str, summary_of: Callable[[str], Summary]) -> None:
    shown = json.loads(json_summary.render_badge(summary_of(run)))
    assert (shown["schemaVersion"], shown["message"], shown["color"]) == (1, message, color)


def badge_of(*scenarios: ScenarioRecord, **header: Any) -> dict[str, Any]:
    client = sample_runs.party(ops=["queue.add", "worker.open", "events.open", "flow.add"])
    first = sample_runs.header(planned=len(scenarios), client=client, **header)
    run = Run(header=first, scenarios=scenarios, footer=sample_runs.footer())
    shown: dict[str, Any] = json.loads(json_summary.render_badge(summarise(run, SAMPLE_ROWS, SAMPLE_PROFILES)))
    return shown


def passing(*without: str) -> ScenarioRecord:
    return sample_runs.scenario("all", "pass", *(row for row in SAMPLE_ROWS if row not in without))


def test_only_a_client_of_all_profiles_gets_a_badge_in_bright_green_and_without_a_name() -> None:
    assert (badge_of(passing())["message"], badge_of(passing())["color"]) == ("conformant · 100 %", "brightgreen")


def test_a_badge_says_what_is_lacking_where_that_is_shorter() -> None:
    badge = badge_of(passing("flow.parent-waits"))
    assert (badge["message"], badge["color"]) == ("all but flows · 92 %", "green")


def test_a_known_failure_is_never_green() -> None:
    known = sample_runs.scenario("a", "fail", "rate.limit", known={"rate.limit": "later"})
    assert badge_of(passing("rate.limit"), known) == {
        "schemaVersion": 1,
        "label": "BullMQ 5.62.0",
        "message": "producer, worker, events, flows · 100 %",
        "color": "yellow",
        "isError": False,
    }


def test_a_selection_gets_no_verdict_on_its_badge() -> None:
    badge = badge_of(passing(), options={"select": ["add.*"]})
    assert (badge["message"], badge["color"], badge["isError"]) == ("no verdict · 100 %", "lightgrey", False)


@pytest.mark.parametrize("name", FORMATS)
def test_every_report_says_how_much_was_decided(name: str, summary_of: Callable[[str], Summary]) -> None:
    text = html.unescape(FORMATS[name].render(summary_of("conformant"))).replace("%25", "%")
    assert ("· 38 %" if name == "badge" else "5 of 13 requirements decided (38 %)") in text


@pytest.mark.parametrize(
    ("name", "next_part"), [("terminal", "\narea "), ("markdown", "| area |"), ("html", 'id="matrix-title"')]
)
def test_undecided_requirements_are_listed_under_the_verdict(
    name: str, next_part: str, summary_of: Callable[[str], Summary]
) -> None:
    text = FORMATS[name].render(summary_of("conformant"))
    assert "in tier full" in text
    assert text.index("CONFORMANT as producer") < text.index("rate.limit") < text.index(next_part)


def test_junit_properties_have_the_verdict_of_each_profile(summary_of: Callable[[str], Summary]) -> None:
    root = ET.fromstring(junit.render_junit(summary_of("conformant")))  # noqa: S314 - the kit's own output
    properties = {element.get("name"): element.get("value") for element in root.iter("property")}
    assert {name: properties[name] for name in ("decided", "requirements", "share", "profiles.producer")} == {
        "decided": "5",
        "requirements": "13",
        "share": "38",
        "profiles.producer": "conformant",
    }
    assert properties["profiles.flows"] == "not declared"


def test_the_terminal_report_fits_80_columns(summary_of: Callable[[str], Summary]) -> None:
    lines = terminal.render_terminal(summary_of("full")).splitlines()
    # Commands and closing sentences run over on purpose: what is wrapped cannot be copied or searched for.
    running_over = [line for line in lines if len(line) > 80]
    assert all(
        line.startswith(("   reproduce", "   report", "✗", "▲", "NOT CONFORMANT", "  - known entry"))
        for line in running_over
    )
    (head,) = [line for line in lines if line.startswith("area ")]
    assert head.split() == ["area", "fail", "error", "stale", "open", "warn", "info", "known", "pass", "unsup.", "all"]


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_obeyed(environment: dict[str, str], coloured: bool, summary_of: Callable[[str], Summary]) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", _environ={"TERM": "xterm", **environment}
    )
    terminal.print_summary(summary_of("full"), console)
    assert isinstance(console.file, io.StringIO)
    assert ("\x1b[1;31m" in console.file.getvalue()) == coloured


def test_a_huge_run_stays_below_the_limit_of_a_step_summary(run_path: Callable[[str], Path]) -> None:
    run = read_run(run_path("full"))
    lock = next(scenario for scenario in run.scenarios if scenario.id == "lock.stale")
    (example,) = lock.findings
    broken = []
    for number in range(400):
        finding = msgspec.structs.replace(
            example, requirement=f"lock.r{number}", expected="x" * 9000, actual="y" * 9000
        )
        wheres = [msgspec.structs.replace(finding, where=f"job.f{number}-{place}") for place in range(10)]
        requirements = {f"lock.r{number}": "fail"}
        broken.append(msgspec.structs.replace(lock, id=f"s{number}", requirements=requirements, findings=wheres))
    text = markup.render_markdown(summarise(Run(header=run.header, scenarios=tuple(broken), footer=run.footer)))
    assert len(text.encode()) < 1024 * 1024
    assert text.count("<details>") < 100, "the causes are counted by family"


def test_reports_are_written_under_their_names(
    run_path: Callable[[str], Path], rows: RequirementRows, tmp_path: Path
) -> None:
    written = write_reports(run_path("full"), tmp_path / "out", list(FORMATS), rows=rows)
    assert [path.name for path in written] == [report_format.file_name for report_format in FORMATS.values()]
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(["causes", *(path.name for path in written)])


def test_the_ledger_of_the_kit_is_the_default(
    run_path: Callable[[str], Path], rows: RequirementRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "examined_rows", lambda _version="": rows)
    monkeypatch.setattr(output, "load_profiles", lambda: SAMPLE_PROFILES)
    (written,) = write_reports(run_path("conformant"), tmp_path, ["json"])
    assert json.loads(written.read_text())["requirements"][0]["statement"] == "Ids count up from 1."


def test_an_unknown_format_is_refused_before_anything_is_written(
    run_path: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(UsageProblem, match=r"unknown report format 'pdf'.*choose from terminal, junit"):
        write_reports(run_path("full"), tmp_path / "out", ["html", "pdf"])
    assert not (tmp_path / "out").exists()


def test_an_unwritable_folder_is_a_problem(
    run_path: Callable[[str], Path], rows: RequirementRows, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot write the report"):
        write_reports(run_path("full"), tmp_path / "file", ["badge"], rows=rows)


@pytest.mark.parametrize("run", recorded.RUNS)
def test_run_is_as_recorded(run: str) -> None:
    assert sample_run_files()[run] == recorded.run_path(run).read_bytes()


@pytest.mark.parametrize(("run", "name"), recorded.REPORTS)
def test_report_is_as_recorded(run: str, name: str) -> None:
    assert FORMATS[name].render(recorded.summary_of(run)) == recorded.report_path(run, name).read_bytes().decode()


def test_everything_recorded_is_of_a_sample() -> None:
    expected = {recorded.run_path(run) for run in recorded.RUNS}
    expected |= {recorded.report_path(run, name) for run, name in recorded.REPORTS}
    found = {path for folder in ("runs", "golden") for path in (recorded.HERE / folder).rglob("*") if path.is_file()}
    assert found == expected


def test_the_written_reports_are_those_that_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.relative_to(recorded.HERE): path.read_bytes() for path in (recorded.HERE / "golden").rglob("*.*")}
    monkeypatch.setattr(recorded, "HERE", tmp_path)
    recorded.write()
    assert {path.relative_to(tmp_path): path.read_bytes() for path in (tmp_path / "golden").rglob("*.*")} == before


def test_rendering_twice_gives_the_same(summary_of: Callable[[str], Summary]) -> None:
    for chosen in FORMATS.values():
        assert chosen.render(summary_of("full")) == chosen.render(summary_of("full"))


def test_the_page_starts_with_causes_and_folds_profiles_that_are_not_declared(run_path: Callable[[str], Path]) -> None:
    run = read_run(run_path("full"))
    poor = msgspec.structs.replace(run.header.client, ops=[], capabilities=[])
    header = msgspec.structs.replace(run.header, client=poor)
    # Of flows and of workers, nothing is decided.
    scenarios = tuple(record for record in run.scenarios if record.area == "add")
    summary = summarise(Run(header=header, scenarios=scenarios, footer=run.footer), SAMPLE_ROWS, SAMPLE_PROFILES)
    page = markup.render_html(summary)
    undeclared = [status for status in summary.conclusion.profiles if status.state == "not-declared"]
    assert undeclared
    listed = ", ".join(f"{status.name} ({status.requirements})" for status in undeclared)
    assert f"Not declared by the driver: {listed}." in page
    assert '<tr class="not-declared">' not in page
    parts = [
        page.index(text) for text in ('id="causes-title"', 'class="finding', 'id="profiles-title"', 'id="matrix-title"')
    ]
    assert parts == sorted(parts)
    assert all(meaning in html.unescape(page) for meaning in WHY.values())


LIMIT_OF_PAGE = 2_000_000
"""Bytes that a page may have, however much is wrong with a client."""
LIMIT_OF_RUN = 6_000_000
"""The same for its run file: a thousand records of a few kB, and examples with steps."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_every_report_of_the_worst_client_can_still_be_opened(name: str, run_path: Callable[[str], Path]) -> None:
    """1,100 scenarios fail, in 88 places; records are as the gate writes them."""
    run = read_run(run_path("full"))
    options = next(scenario for scenario in run.scenarios if scenario.id == "add.options")
    example, *_ = options.findings
    evidence, records = RecordedEvidence(), []
    for number in range(1100):
        requirement = f"area{number % 30}.requirement-{number % 330}"
        finding = msgspec.structs.replace(example, requirement=requirement, expected="x" * 9000, actual="y" * 9000)
        broken = msgspec.structs.replace(
            options,
            id=f"area{number % 30}/a_scenario_with_quite_a_long_name[{number}]",
            requirements={requirement: "fail"},
            findings=[msgspec.structs.replace(finding, where=f"job.field-{number % 44}-{place}") for place in range(2)],
            reason="the driver broke: " + "z" * 5000,
            log=["a line of a log " * 20] * 200,
            steps=options.steps * 25,
        )
        records.append(evidence.thinned(compact(readable(broken))))
    assert sum(len(encode(record)) for record in records) < LIMIT_OF_RUN
    text = FORMATS[name].render(summarise(Run(header=run.header, scenarios=tuple(records), footer=run.footer)))
    assert len(text.encode()) < LIMIT_OF_PAGE


def test_the_worst_page_can_still_be_opened(run_path: Callable[[str], Path]) -> None:
    run = read_run(run_path("full"))
    options = next(scenario for scenario in run.scenarios if scenario.id == "add.options")
    example, *_ = options.findings
    broken = []
    for number in range(700):
        name = f"area{number % 30}.requirement-{number % 330}"
        finding = msgspec.structs.replace(example, requirement=name, expected="x" * 9000, actual="y" * 9000)
        wheres = [msgspec.structs.replace(finding, where=f"job.field-{number}-{place}") for place in range(5)]
        broken.append(
            msgspec.structs.replace(
                options,
                id=f"area{number % 30}/a_scenario_with_quite_a_long_name_that_says_what_it_is_about[{number}]",
                requirements={name: "fail"},
                findings=wheres,
                reason="the driver broke: " + "z" * 5000,
                log=["a line of a log " * 20] * 200,
                steps=options.steps * 25,
            )
        )
    page = markup.render_html(summarise(Run(header=run.header, scenarios=tuple(broken), footer=run.footer)))
    assert len(page.encode()) < LIMIT_OF_PAGE
    assert page.count('id="cause-') <= MOST_CAUSES


def test_a_requirement_of_many_scenarios_shows_first_those_that_did_not_pass(run_path: Callable[[str], Path]) -> None:
    run = read_run(run_path("full"))
    failed = next(scenario for scenario in run.scenarios if "fail" in scenario.requirements.values())
    name = next(name for name, verdict in failed.requirements.items() if verdict == "fail")
    passed = [
        msgspec.structs.replace(failed, id=f"many/pass[{number}]", requirements={name: "pass"}, findings=[])
        for number in range(200)
    ]
    page = markup.render_html(summarise(Run(header=run.header, scenarios=(*passed, failed), footer=run.footer)))
    details = page[page.index('id="details-title"') :]
    assert details.index(failed.id) < details.index("many/pass[0]")
    assert f"… and {201 - markup.SCENARIOS_OF_REQUIREMENT} more: see summary.json." in details
