"""Reports in markup: the HTML page for a browser, and the Markdown for a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from conformance.gate.conclusion import Conclusion, ConclusionState
from conformance.gate.outcomes import REPORTED_VERDICTS
from conformance.gate.records import ScenarioRecord
from conformance.pages.page import asset, html_page, script_hash
from conformance.pages.text import clip, count, split_difference, visible
from conformance.report.bug_report import FOLDER, file_name
from conformance.report.causes import WHY, Cause
from conformance.report.steps import step_lines
from conformance.report.summary import (
    LabelledValue,
    RequirementSummary,
    ScenarioSummary,
    Summary,
    cause_facts,
    finding_facts,
    open_facts,
    requirement_facts,
    run_facts,
    scenario_facts,
)
from conformance.report.verdicts import MEANING, SYMBOLS

_SAFE_ANCHOR = re.compile(r"[A-Za-z0-9._-]+")


def render_html(summary: Summary) -> str:
    """Render the page for a browser."""
    script = asset("conformance.report", "report.js")
    return html_page(
        "conformance.report",
        "report.html",
        summary=summary,
        facts=run_facts(summary.run),
        anchors=anchors_of(summary.requirements),
        script=script,
        script_hash=script_hash(script),
        reported_words=[word for word in REPORTED_VERDICTS if word in summary.counts],
        symbols=SYMBOLS,
        meaning=MEANING,
        most_causes=CAUSES_OF_REQUIREMENT,
        most_requirements=REQUIREMENTS_OF_CAUSE,
        most_scenarios=SCENARIOS_OF_REQUIREMENT,
        troubled_first=_troubled_first,
        severities=WHY,
        steps_of=_steps_of,
        bug_report_of=lambda cause: f"{FOLDER}/{file_name(cause)}",
        split_of=lambda finding: split_difference(finding.expected, finding.actual),
        short_name=_short_name,
    )


CAUSES_OF_REQUIREMENT = 10
REQUIREMENTS_OF_CAUSE = 12
SCENARIOS_OF_REQUIREMENT = 60
STEPS_ON_PAGE = 30
"""The page stays below 2 MB for a client that fails everything: causes, steps and rows of scenarios are bounded."""


def _steps_of(cause: Cause) -> str:
    """Return the last steps of the example, which lead to the finding."""
    lines = step_lines(cause.example)
    cut = ["…"] if len(lines) > STEPS_ON_PAGE else []
    return "\n".join([*cut, *lines[-STEPS_ON_PAGE:]])


def _troubled_first(requirement: RequirementSummary) -> list[ScenarioRecord]:
    """Return its scenarios, those that did not pass before the others."""
    return sorted(requirement.scenarios, key=lambda scenario: scenario.requirements.get(requirement.id) == "pass")


def anchors_of(requirements: tuple[RequirementSummary, ...]) -> dict[str, str]:
    """Give each requirement a link fragment; an id with special characters gets a number."""
    return dict(zip((requirement.id for requirement in requirements), _fragments(requirements), strict=True))


def _fragments(requirements: tuple[RequirementSummary, ...]) -> Iterator[str]:
    for number, requirement in enumerate(requirements):
        yield requirement.id if _SAFE_ANCHOR.fullmatch(requirement.id) else f"requirement-{number}"


def _short_name(requirement: RequirementSummary) -> str:
    """Drop the area from an id, because the row of the matrix already shows it."""
    return requirement.id.removeprefix(f"{requirement.area}.") or requirement.id


REQUIREMENTS = 50
FINDINGS_OF_SCENARIO = 3
"""GitHub drops a step summary over 1 MiB, so requirements, findings and texts are limited, and the number of
omitted ones is shown."""

ICONS: dict[ConclusionState, str] = {"conformant": "✅", "holds": "☑️", "not-conformant": "❌", "undecided": "⚠️"}


def render_markdown(summary: Summary) -> str:
    """Render the report for a pull request or GITHUB_STEP_SUMMARY: a table by area, failing requirements to unfold."""
    return "\n\n".join(_blocks(summary)) + "\n"


def _blocks(summary: Summary) -> Iterator[str]:
    client = summary.run.header.client
    yield f"## BullMQ conformance: {inline(f'{client.name} {client.version} ({client.language})')}"
    if not summary.completeness.complete:
        yield f"> [!WARNING]\n> **{inline(summary.completeness.sentence)}**"
    yield f"{ICONS[summary.conclusion.state]} **{inline(summary.conclusion.sentence)}**"
    if summary.conclusion.profiles:
        yield _profiles(summary.conclusion)
    not_decided = open_facts(summary.conclusion, limit=REQUIREMENTS)
    if not_decided:
        yield details("Not decided", [preformatted(not_decided)])
    yield from _causes(summary)
    if summary.areas:
        yield _table(summary)
    yield from _troubled(summary)
    yield from (_unattributed(scenario) for scenario in summary.unattributed[:REQUIREMENTS])
    if summary.problems:
        yield "\n".join(
            ["**Problems of the run**", "", *(f"- {inline(problem)}" for problem in summary.problems[:REQUIREMENTS])]
        )
    yield details("About this run", [preformatted(run_facts(summary.run))])


def _profiles(conclusion: Conclusion) -> str:
    rows = [["profile", "verdict", "decided", "requirements"], ["---", "---", "--:", "--:"]]
    rows += [
        [inline(status.name), inline(status.remark), str(status.decided), str(status.requirements)]
        for status in conclusion.profiles
    ]
    share = conclusion.share
    rows.append(["**all**", f"**{share.percent} %**", f"**{share.decided}**", f"**{share.requirements}**"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _table(summary: Summary) -> str:
    words = [word for word in REPORTED_VERDICTS if word in summary.counts]
    rows = [
        ["area", *(f"{SYMBOLS[word]} {word}" for word in words), "all"],
        ["---", *("--:" for _ in words), "--:"],
    ]
    for area in summary.areas:
        numbers = [str(area.counts.get(word, "")) for word in words]
        rows.append([inline(area.name), *numbers, str(len(area.requirements))])
    totals = [f"**{summary.counts[word]}**" for word in words]
    rows.append(["**all**", *totals, f"**{len(summary.requirements)}**"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _troubled(summary: Summary) -> Iterator[str]:
    troubled = [
        requirement
        for requirement in summary.troubled()
        if not requirement.causes or requirement.reported in ("expected-fail", "stale")
    ]
    yield from (_requirement(requirement) for requirement in troubled[:REQUIREMENTS])
    if len(troubled) > REQUIREMENTS:
        yield f"… and {len(troubled) - REQUIREMENTS} more requirements: see the HTML report."


def _causes(summary: Summary) -> Iterator[str]:
    """Yield folded failures in full, and a list of warnings."""
    shown = [cause for cause in summary.causes if cause.verdict == "fail"]
    rows = {requirement.id: requirement for requirement in summary.requirements}
    yield from (_cause(cause, rows[cause.finding.requirement]) for cause in shown)
    minor = [cause for cause in summary.causes if cause.verdict in ("warn", "info")]
    lines = [f"- {SYMBOLS[cause.verdict]} {inline(cause.line)}" for cause in minor]
    if lines:
        yield details(count(len(minor), "warning"), ["\n".join(lines)])


def _cause(cause: Cause, requirement: RequirementSummary) -> str:
    title = f"{SYMBOLS[cause.verdict]} {inline(cause.line)} <code>{inline(cause.finding.requirement)}</code>"
    facts = [*requirement_facts(requirement), *cause_facts(cause), ("reproduce", cause.example.reproduce)]
    return details(title, [preformatted(facts)])


def _requirement(requirement: RequirementSummary) -> str:
    title = f"{SYMBOLS[requirement.reported]} {requirement.reported} <code>{inline(requirement.id)}</code>"
    title += f" ({requirement.level})" if requirement.level else ""
    return details(title, [preformatted(requirement_facts(requirement))])


def _unattributed(scenario: ScenarioSummary) -> str:
    record = scenario.record
    facts = [*scenario_facts(record), ("reproduce", record.reproduce)]
    findings = [preformatted(finding_facts(finding)) for finding in record.findings[:FINDINGS_OF_SCENARIO]]
    title = f"{SYMBOLS[record.verdict]} {record.verdict} scenario <code>{inline(record.id)}</code>"
    return details(title, [preformatted(facts), *findings])


def details(title: str, parts: list[str]) -> str:
    """Fold parts under a title. GitHub reads markdown again after the blank lines."""
    return "\n\n".join([f"<details><summary>{title}</summary>", *(part for part in parts if part), "</details>"])


def preformatted(facts: list[LabelledValue]) -> str:
    """Write labelled values into a `pre` block: inside, nothing is markdown, and escaped text cannot end it."""
    filled = [(label, clip(visible(value), 1000)) for label, value in facts if value]
    width = max((len(label) for label, _ in filled), default=0)
    indent = "\n" + " " * (width + 2)
    lines = [f"{label:<{width}}  {value.replace(chr(10), indent)}" for label, value in filled]
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""


def inline(text: str) -> str:
    """Write one line of foreign text so that nothing in it is markdown, HTML, a table cell or a mention."""
    line = clip(visible(text, keep_newlines=False), 300)
    return re.sub(r"[^\w\s.,:;()/=+-]|_", lambda found: f"&#{ord(found.group())};", line)
