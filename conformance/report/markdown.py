"""The report for a pull request or GITHUB_STEP_SUMMARY: short, a table by area, failing requirements to unfold.

GitHub drops a step summary over 1 MiB, so the number of requirements, of findings, and the length of texts are bounded;
what is left out is said.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from conformance.report.conclusion import State
from conformance.report.facts import Fact, finding_facts, group_facts, requirement_facts, run_facts
from conformance.report.findings import FindingGroup
from conformance.report.summary import RequirementSummary, ScenarioSummary, Summary
from conformance.report.text import clip, visible
from conformance.report.verdicts import SHOWN, SYMBOLS

REQUIREMENTS = 50
FINDINGS_PER_REQUIREMENT = 3

ICONS: dict[State, str] = {"conformant": "✅", "not-conformant": "❌", "undecided": "⚠️"}


def render(summary: Summary) -> str:
    """Render the report."""
    return "\n\n".join(_blocks(summary)) + "\n"


def _blocks(summary: Summary) -> Iterator[str]:
    client = summary.run.header.client
    yield f"## BullMQ conformance: {_inline(f'{client.name} {client.version} ({client.language})')}"
    if not summary.completeness.complete:
        yield f"> [!WARNING]\n> **{_inline(summary.completeness.sentence)}**"
    yield f"{ICONS[summary.conclusion.state]} **{_inline(summary.conclusion.sentence)}**"
    if summary.areas:
        yield _table(summary)
    yield from _troubled(summary)
    yield from (_unattributed(scenario) for scenario in summary.unattributed[:REQUIREMENTS])
    if summary.problems:
        yield "\n".join(
            ["**Problems of the run**", "", *(f"- {_inline(one)}" for one in summary.problems[:REQUIREMENTS])]
        )
    yield _details("About this run", [_preformatted(run_facts(summary.run))])


def _table(summary: Summary) -> str:
    words = [word for word in SHOWN if word in summary.counts]
    rows = [
        ["area", *(f"{SYMBOLS[word]} {word}" for word in words), "all"],
        ["---", *("--:" for _ in words), "--:"],
    ]
    for area in summary.areas:
        numbers = [str(area.counts.get(word, "")) for word in words]
        rows.append([_inline(area.name), *numbers, str(len(area.requirements))])
    totals = [f"**{summary.counts[word]}**" for word in words]
    rows.append(["**all**", *totals, f"**{len(summary.requirements)}**"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def _troubled(summary: Summary) -> Iterator[str]:
    troubled = summary.troubled()
    yield from (_requirement(requirement) for requirement in troubled[:REQUIREMENTS])
    if len(troubled) > REQUIREMENTS:
        yield f"… and {len(troubled) - REQUIREMENTS} more requirements: see the HTML report."


def _requirement(requirement: RequirementSummary) -> str:
    title = f"{SYMBOLS[requirement.shown]} {requirement.shown} <code>{_inline(requirement.id)}</code>"
    title += f" ({requirement.level})" if requirement.level else ""
    parts = [_preformatted(requirement_facts(requirement))]
    parts += [_finding(group) for group in requirement.findings[:FINDINGS_PER_REQUIREMENT]]
    if len(requirement.findings) > FINDINGS_PER_REQUIREMENT:
        parts.append(
            f"… and {len(requirement.findings) - FINDINGS_PER_REQUIREMENT} more findings: see the HTML report."
        )
    return _details(title, parts)


def _finding(group: FindingGroup) -> str:
    return _preformatted([*group_facts(group), ("reproduce", group.reproduce)])


def _unattributed(scenario: ScenarioSummary) -> str:
    record = scenario.record
    facts = [("scenario", record.title), ("reason", record.reason), ("reproduce", record.reproduce)]
    findings = [_preformatted(finding_facts(finding)) for finding in record.findings[:FINDINGS_PER_REQUIREMENT]]
    title = f"{SYMBOLS[record.verdict]} {record.verdict} scenario <code>{_inline(record.id)}</code>"
    return _details(title, [_preformatted(facts), *findings])


def _details(title: str, parts: list[str]) -> str:
    """Fold parts under a title. GitHub reads markdown again after the blank lines."""
    return "\n\n".join([f"<details><summary>{title}</summary>", *(part for part in parts if part), "</details>"])


def _preformatted(facts: list[Fact]) -> str:
    """Write labelled values into a `pre` block: inside, nothing is markdown, and escaped text cannot end it."""
    told = [(label, clip(visible(value), 1000)) for label, value in facts if value]
    width = max((len(label) for label, _ in told), default=0)
    indent = "\n" + " " * (width + 2)
    lines = [f"{label:<{width}}  {value.replace(chr(10), indent)}" for label, value in told]
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""


def _inline(text: str) -> str:
    """Write one line of foreign text so that nothing in it is markdown, HTML, a table cell or a mention."""
    line = clip(visible(text, keep_newlines=False), 300)
    return re.sub(r"[^\w\s.,:;()/=+-]|_", lambda found: f"&#{ord(found.group())};", line)
