"""Reports in markup: the HTML page for a browser, and the Markdown for a pull request."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from conformance.gate.conclusion import Conclusion, ConclusionState
from conformance.gate.outcomes import REPORTED_VERDICTS
from conformance.report.summary import (
    FindingGroup,
    LabelledValue,
    RequirementSummary,
    ScenarioSummary,
    Summary,
    finding_facts,
    group_facts,
    open_facts,
    requirement_facts,
    run_facts,
    scenario_facts,
)
from conformance.report.text import clip, count, duration, visible
from conformance.report.verdicts import MEANING, SYMBOLS

_SAFE_ANCHOR = re.compile(r"[A-Za-z0-9._-]+")


def render_html(summary: Summary) -> str:
    """Render the page for a browser: self-contained, it asks for nothing on the network.

    Foreign text is escaped by Jinja2. Should an escape ever be missing, the content security policy still lets no
    script run but the page's own, which it names by its hash.
    """
    script = _asset("report.js")
    return (
        _environment()
        .get_template("report.html")
        .render(
            summary=summary,
            facts=run_facts(summary.run),
            anchors=_anchors(summary.requirements),
            script=script,
            style=_asset("report.css"),
            script_hash=_script_hash(script),
            reported_words=[word for word in REPORTED_VERDICTS if word in summary.counts],
            symbols=SYMBOLS,
            meaning=MEANING,
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("conformance.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.filters["duration"] = duration
    environment.globals["count"] = count
    environment.globals["short_name"] = _short_name
    return environment


def _asset(name: str) -> str:
    return files("conformance.report").joinpath("templates", name).read_text("utf-8")


def _script_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _anchors(requirements: tuple[RequirementSummary, ...]) -> dict[str, str]:
    """Give each requirement a fragment that can be linked to; an id that is no plain name gets a number."""
    return dict(zip((requirement.id for requirement in requirements), _fragments(requirements), strict=True))


def _fragments(requirements: tuple[RequirementSummary, ...]) -> Iterator[str]:
    for number, requirement in enumerate(requirements):
        yield requirement.id if _SAFE_ANCHOR.fullmatch(requirement.id) else f"requirement-{number}"


def _short_name(requirement: RequirementSummary) -> str:
    """Drop the area from an id, because the row of the matrix already says it."""
    return requirement.id.removeprefix(f"{requirement.area}.") or requirement.id


REQUIREMENTS = 50
FINDINGS_PER_REQUIREMENT = 3
"""GitHub drops a step summary over 1 MiB: requirements, findings and the length of texts are bounded, and what is left
out is said."""

ICONS: dict[ConclusionState, str] = {"conformant": "✅", "holds": "☑️", "not-conformant": "❌", "undecided": "⚠️"}


def render_markdown(summary: Summary) -> str:
    """Render the report for a pull request or GITHUB_STEP_SUMMARY: a table by area, failing requirements to unfold."""
    return "\n\n".join(_blocks(summary)) + "\n"


def _blocks(summary: Summary) -> Iterator[str]:
    client = summary.run.header.client
    yield f"## BullMQ conformance: {_inline(f'{client.name} {client.version} ({client.language})')}"
    if not summary.completeness.complete:
        yield f"> [!WARNING]\n> **{_inline(summary.completeness.sentence)}**"
    yield f"{ICONS[summary.conclusion.state]} **{_inline(summary.conclusion.sentence)}**"
    if summary.conclusion.profiles:
        yield _profiles(summary.conclusion)
    not_decided = open_facts(summary.conclusion, limit=REQUIREMENTS)
    if not_decided:
        yield _details("Not decided", [_preformatted(not_decided)])
    if summary.areas:
        yield _table(summary)
    yield from _troubled(summary)
    yield from (_unattributed(scenario) for scenario in summary.unattributed[:REQUIREMENTS])
    if summary.problems:
        yield "\n".join(
            ["**Problems of the run**", "", *(f"- {_inline(problem)}" for problem in summary.problems[:REQUIREMENTS])]
        )
    yield _details("About this run", [_preformatted(run_facts(summary.run))])


def _profiles(conclusion: Conclusion) -> str:
    rows = [["profile", "verdict", "decided", "requirements"], ["---", "---", "--:", "--:"]]
    rows += [
        [_inline(status.name), _inline(status.remark), str(status.decided), str(status.requirements)]
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
    title = f"{SYMBOLS[requirement.reported]} {requirement.reported} <code>{_inline(requirement.id)}</code>"
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
    facts = [*scenario_facts(record), ("reproduce", record.reproduce)]
    findings = [_preformatted(finding_facts(finding)) for finding in record.findings[:FINDINGS_PER_REQUIREMENT]]
    title = f"{SYMBOLS[record.verdict]} {record.verdict} scenario <code>{_inline(record.id)}</code>"
    return _details(title, [_preformatted(facts), *findings])


def _details(title: str, parts: list[str]) -> str:
    """Fold parts under a title. GitHub reads markdown again after the blank lines."""
    return "\n\n".join([f"<details><summary>{title}</summary>", *(part for part in parts if part), "</details>"])


def _preformatted(facts: list[LabelledValue]) -> str:
    """Write labelled values into a `pre` block: inside, nothing is markdown, and escaped text cannot end it."""
    filled = [(label, clip(visible(value), 1000)) for label, value in facts if value]
    width = max((len(label) for label, _ in filled), default=0)
    indent = "\n" + " " * (width + 2)
    lines = [f"{label:<{width}}  {value.replace(chr(10), indent)}" for label, value in filled]
    return f"<pre>{html.escape(chr(10).join(lines))}</pre>" if lines else ""


def _inline(text: str) -> str:
    """Write one line of foreign text so that nothing in it is markdown, HTML, a table cell or a mention."""
    line = clip(visible(text, keep_newlines=False), 300)
    return re.sub(r"[^\w\s.,:;()/=+-]|_", lambda found: f"&#{ord(found.group())};", line)
