"""The report for CI systems: JUnit XML, one suite per area, one test case per scenario.

Failures stay failures, `error` and `inconclusive` are errors, `unsupported`, `unchecked`, `changed` and `expected-fail`
are skipped, a warning passes with its findings as output. An incomplete run, and what only the run as a whole shows
(stale known failures, problems in the footer, a failing exit code), get test cases of their own, because CI systems
show nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from junitparser import Element, Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from conformance.gate.records import ScenarioRecord
from conformance.report.summary import (
    LabelledValue,
    ScenarioSummary,
    Summary,
    finding_facts,
    open_facts,
    run_facts,
    scenario_facts,
    verdict_facts,
)
from conformance.report.text import visible

CAUSES = 100
"""Causes that are properties of the run."""

JUnitResult = Failure | Error | Skipped

# junitparser leaves these without annotations, which `mypy --strict` refuses to call directly.
_new_document: Any = JUnitXml
_new_properties: Any = Properties


def render_junit(summary: Summary) -> str:
    """Render the document."""
    document = _new_document("bullmq-conformance")
    _attach(document, _suites(summary))
    document.update_statistics()
    written = io.BytesIO()
    document.write(written, pretty=True)
    return written.getvalue().decode("utf-8")


def _attach(parent: Any, children: Iterable[Element]) -> None:
    """Append without the statistics that `add_testcase` works out again for every single case."""
    parent.extend(children)


def _suites(summary: Summary) -> Iterator[TestSuite]:
    yield _run_suite(summary)
    by_area: dict[str, list[ScenarioSummary]] = {}
    for scenario in summary.scenarios:
        by_area.setdefault(scenario.record.area, []).append(scenario)
    for area, scenarios in sorted(by_area.items()):
        suite = TestSuite(visible(area, keep_newlines=False))
        _attach(suite, [_case(scenario, summary) for scenario in scenarios])
        yield suite


def _run_suite(summary: Summary) -> TestSuite:
    """Describe the run, with a test case for each thing that is wrong with it as a whole."""
    suite = TestSuite("run")
    share = summary.conclusion.share
    facts = [*run_facts(summary.run), ("conclusion", summary.conclusion.sentence)]
    facts += [("decided", str(share.decided)), ("requirements", str(share.requirements)), ("share", f"{share.percent}")]
    facts += [(f"profiles.{name}", remark) for name, remark in verdict_facts(summary.conclusion)]
    facts += [(f"not-decided.{name}", names) for name, names in open_facts(summary.conclusion, limit=1000)]
    facts += [(f"cause {cause.number}", f"{cause.verdict}: {cause.line}") for cause in summary.causes[:CAUSES]]
    facts.append(("complete", "yes" if summary.completeness.complete else "no"))
    for name, value in facts:
        suite.add_property(name, visible(value, keep_newlines=False))
    _attach(suite, [_run_case(name, outcome) for name, outcome in _run_outcomes(summary)])
    return suite


def _run_outcomes(summary: Summary) -> Iterator[tuple[str, JUnitResult]]:
    if not summary.completeness.complete:
        yield "run is complete", Error(summary.completeness.sentence, "incomplete")
    for requirement in summary.requirements:
        if requirement.reported == "stale":
            reason = "; ".join(requirement.known)
            message = f"listed in known.toml ({reason}), but it passes now: take it off the list"
            yield f"known failure {requirement.id}", Failure(_attribute(message), "stale")
    for number, problem in enumerate(summary.problems, start=1):
        yield f"run-wide problem {number}", Failure(_attribute(problem), "problem")
    conclusion = summary.conclusion
    message = _attribute(f"{conclusion.sentence} (exit code {conclusion.exit_code})")
    if conclusion.state == "not-conformant":
        yield "verdict", Failure(message, "not-conformant")
    if conclusion.state == "undecided":
        yield "verdict", Error(message, "undecided")


def _run_case(name: str, outcome: JUnitResult) -> TestCase:
    case = TestCase(_attribute(name), "run", 0)
    case.result = [outcome]
    return case


def _case(scenario: ScenarioSummary, summary: Summary) -> TestCase:
    record = scenario.record
    seconds = record.timings_ms.get("total", 0.0) / 1000
    case = TestCase(_attribute(record.id), _attribute(f"conformance.{record.area}"), round(seconds, 3))
    _attach(case, [_properties(scenario, summary)])
    outcome = _outcome(scenario)
    if outcome is not None:
        case.result = [outcome]
    elif record.findings:
        case.system_out = _details(record)
    if record.log:
        case.system_err = visible("\n".join(record.log))
    return case


def _properties(scenario: ScenarioSummary, summary: Summary) -> Properties:
    record = scenario.record
    facts: list[LabelledValue] = [("title", record.title), ("tier", record.tier), ("verdict", record.verdict)]
    facts.append(("shown", scenario.reported))
    levels = {requirement.id: requirement.level for requirement in summary.requirements if requirement.level}
    facts += [
        (f"requirement:{requirement}", f"{verdict} {levels.get(requirement, '')}")
        for requirement, verdict in record.requirements.items()
    ]
    if record.reproduce:
        facts.append(("reproduce", record.reproduce))
    properties: Properties = _new_properties()
    for name, value in facts:
        properties.add_property(Property(_attribute(name), _attribute(value).strip()))
    return properties


def _outcome(scenario: ScenarioSummary) -> JUnitResult | None:
    record, reported = scenario.record, scenario.reported
    message = _attribute(_message(scenario))
    if reported == "fail":
        return _with_text(Failure(message, "fail"), _details(record))
    if reported in ("error", "inconclusive"):
        return _with_text(Error(message, reported), _details(record))
    if reported in ("unsupported", "unchecked", "changed", "expected-fail"):
        return Skipped(message, reported)
    return None


def _message(scenario: ScenarioSummary) -> str:
    """Say in one line why the scenario is not a pass."""
    record = scenario.record
    if scenario.reported == "expected-fail":
        return f"expected failure: {'; '.join(record.known.values())}"
    if scenario.reported == "unsupported":
        return f"unsupported: {record.reason or 'the client does not declare what this needs'}"
    first = record.findings[0] if record.findings else None
    return record.reason or (f"{first.requirement}: {first.message}" if first else record.title)


def _with_text(outcome: Failure | Error, text: str) -> JUnitResult:
    outcome.text = text
    return outcome


def _details(record: ScenarioRecord) -> str:
    """Write out all findings of a scenario and how to see them again, one labelled value per line."""
    blocks = [[("requirement", finding.requirement), *finding_facts(finding)] for finding in record.findings]
    blocks.append([*scenario_facts(record), ("reproduce", record.reproduce)])
    return "\n\n".join("\n".join(f"{label}: {visible(value)}" for label, value in facts if value) for facts in blocks)


def _attribute(text: str) -> str:
    """XML readers turn newlines in attributes into spaces, so they are written out."""
    return visible(text, keep_newlines=False)
