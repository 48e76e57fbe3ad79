"""The report for CI systems: JUnit XML, one suite per area, one test case per scenario.

Failures stay failures, `error` and `inconclusive` are errors, `unsupported`, `unchecked`, `changed` and `expected-fail`
are skipped, a warning passes with its findings as output. CI systems show only test cases, so the suite `run` has
a case for each problem of the whole run: an incomplete run, stale known failures, problems in the footer, a failing
exit code.
"""

from __future__ import annotations

from collections.abc import Iterator

from junitparser import Error, Failure, Skipped

from conformance.gate.records import ScenarioRecord
from conformance.pages.junit import JunitCase, JunitProblem, JunitResult, JunitSuite, junit_document
from conformance.pages.text import clip, visible
from conformance.report.summary import (
    LabelledValue,
    ScenarioSummary,
    Summary,
    finding_facts,
    open_facts,
    reason_of,
    run_facts,
    scenario_facts,
    verdict_facts,
)

LONGEST_MESSAGE = 300
"""Characters of the message of a test case."""
LONGEST_TITLE = 120
"""Characters of the title of a cause that is described in another test case."""
LOG_LINES = 10

_RESULTS: dict[str, JunitResult] = {
    "fail": Failure,
    "error": Error,
    "inconclusive": Error,
    "unsupported": Skipped,
    "unchecked": Skipped,
    "changed": Skipped,
    "expected-fail": Skipped,
}


def render_junit(summary: Summary) -> str:
    """Render the document."""
    return junit_document(_suites(summary))


def _suites(summary: Summary) -> Iterator[JunitSuite]:
    yield JunitSuite(name="run", cases=list(_run_cases(summary)), properties=list(_run_properties(summary)))
    by_area: dict[str, list[ScenarioSummary]] = {}
    for scenario in summary.scenarios:
        by_area.setdefault(scenario.record.area, []).append(scenario)
    for area, scenarios in sorted(by_area.items()):
        yield JunitSuite(name=area, cases=[_case(scenario, summary) for scenario in scenarios])


def _run_properties(summary: Summary) -> Iterator[LabelledValue]:
    share = summary.conclusion.share
    yield from run_facts(summary.run)
    yield "conclusion", summary.conclusion.sentence
    yield from (
        ("decided", str(share.decided)),
        ("requirements", str(share.requirements)),
        ("share", f"{share.percent}"),
    )
    yield from ((f"profiles.{name}", remark) for name, remark in verdict_facts(summary.conclusion))
    yield from ((f"not-decided.{name}", names) for name, names in open_facts(summary.conclusion, limit=1000))
    yield from ((f"cause {cause.number}", f"{cause.verdict}: {cause.line}") for cause in summary.causes)
    yield "complete", "yes" if summary.completeness.complete else "no"


def _run_cases(summary: Summary) -> Iterator[JunitCase]:
    """One test case for each problem of the run as a whole."""
    if not summary.completeness.complete:
        yield _run_case("run is complete", Error, summary.completeness.sentence, "incomplete")
    for requirement in summary.requirements:
        if requirement.reported == "stale":
            reason = "; ".join(requirement.known)
            message = f"listed in known.toml ({reason}), but passes now: remove it from the list"
            yield _run_case(f"known failure {requirement.id}", Failure, message, "stale")
    for number, problem in enumerate(summary.problems, start=1):
        yield _run_case(f"run-wide problem {number}", Failure, problem, "problem")
    conclusion = summary.conclusion
    message = f"{conclusion.sentence} (exit code {conclusion.exit_code})"
    if conclusion.state == "not-conformant":
        yield _run_case("verdict", Failure, message, "not-conformant")
    if conclusion.state == "undecided":
        yield _run_case("verdict", Error, message, "undecided")


def _run_case(name: str, result: JunitResult, message: str, kind: str) -> JunitCase:
    return JunitCase(name=name, problem=JunitProblem(result=result, message=message, kind=kind))


def _case(scenario: ScenarioSummary, summary: Summary) -> JunitCase:
    record = scenario.record
    problem = _problem(scenario, summary)
    return JunitCase(
        name=record.id,
        class_name=f"conformance.{record.area}",
        seconds=round(record.timings_ms.get("total", 0.0) / 1000, 3),
        properties=list(_properties(scenario, summary)),
        problem=problem,
        # A warning passes, so its findings are the output of a test that succeeded.
        output=_details(record, summary) if record.findings and problem is None else "",
        log="\n".join(record.log[-LOG_LINES:]) if _is_example(record, summary) else "",
    )


def _properties(scenario: ScenarioSummary, summary: Summary) -> Iterator[LabelledValue]:
    record = scenario.record
    yield from (("title", record.title), ("tier", record.tier), ("verdict", record.verdict))
    yield "shown", scenario.reported
    levels = {requirement.id: requirement.level for requirement in summary.requirements if requirement.level}
    for requirement, verdict in record.requirements.items():
        yield f"requirement:{requirement}", f"{verdict} {levels.get(requirement, '')}"
    if record.reproduce:
        yield "reproduce", record.reproduce


def _problem(scenario: ScenarioSummary, summary: Summary) -> JunitProblem | None:
    reported = scenario.reported
    if reported not in _RESULTS:
        return None
    result = _RESULTS[reported]
    details = "" if result is Skipped else _details(scenario.record, summary)
    message = clip(_message(scenario), LONGEST_MESSAGE)
    return JunitProblem(result=result, message=message, kind=reported, details=details)


def _message(scenario: ScenarioSummary) -> str:
    """Return the reason why the scenario is not a pass, on one line."""
    record = scenario.record
    if scenario.reported == "expected-fail":
        return f"expected failure: {'; '.join(record.known.values())}"
    if scenario.reported == "unsupported":
        return f"unsupported: {record.reason or 'the client does not declare what this needs'}"
    first = record.findings[0] if record.findings else None
    return reason_of(record) or (f"{first.requirement}: {first.message}" if first else record.title)


def _is_example(record: ScenarioRecord, summary: Summary) -> bool:
    """Whether the scenario is the only one that shows its details: of a cause, or without any."""
    return not record.findings or any(cause.example.id == record.id for cause in summary.causes)


def _details(record: ScenarioRecord, summary: Summary) -> str:
    """Write the findings of a scenario and how to reproduce it, one labelled value per line.

    Each cause is written in full in one scenario; the others that show it refer to that one, because a client that
    fails everything has the same few causes in a thousand scenarios.
    """
    blocks: list[list[LabelledValue]] = []
    for cause in summary.causes_of(record):
        if cause.example.id == record.id:
            blocks.append([("requirement", cause.finding.requirement), *finding_facts(cause.finding)])
        else:
            blocks.append([(f"cause {cause.number}", f"{clip(cause.title, LONGEST_TITLE)} (see {cause.example.id})")])
    # Both are properties as well; a thousand test cases need not repeat them.
    own = [*scenario_facts(record), ("reproduce", record.reproduce)] if _is_example(record, summary) else []
    blocks += [own] if own else []
    return "\n\n".join("\n".join(f"{label}: {visible(value)}" for label, value in facts if value) for facts in blocks)
