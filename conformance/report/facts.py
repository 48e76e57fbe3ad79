"""What the text reports say about a run, a requirement and a finding: labelled values, in a fixed order."""

from __future__ import annotations

import shlex

from conformance.gate.records import Finding
from conformance.report.findings import FindingGroup
from conformance.report.run_file import Run
from conformance.report.summary import RequirementSummary
from conformance.report.text import Parted, clip, clip_parted, count, duration, moment, part, visible

Fact = tuple[str, str]
"""A label and its value. Values are visible text, not yet escaped for any format."""

WORTH_LOCATING = 24
"""Characters: in shorter texts the difference is plain to see."""


def run_facts(run: Run) -> list[Fact]:
    """Describe a run: who was compared with whom, on what, when."""
    header = run.header
    client, oracle, redis = header.client, header.oracle, header.redis
    facts = [
        ("client", f"{client.name} {client.version} ({client.language}), targets BullMQ {client.targets}"),
        ("oracle", f"{oracle.name} {oracle.version} ({oracle.language})"),
        ("redis", f"{redis.version}, {redis.mode}, from {redis.source}"),
        ("run", f"{header.run}, tier {header.tier}, seed {header.seed}, kit {header.kit}"),
        ("requirements", f"set {header.requirement_set}"),
        ("started", moment(header.started_ms)),
        ("command", shlex.join(header.command)),
    ]
    if run.footer:
        facts.append(("duration", duration(run.footer.finished_ms - header.started_ms)))
    return [(label, visible(value, keep_newlines=False)) for label, value in facts]


def requirement_facts(requirement: RequirementSummary) -> list[Fact]:
    """Describe a requirement: what it says and where that is stated, and what its scenarios said beside findings."""
    facts = [("statement", requirement.statement), ("source", requirement.source)]
    facts += [("known", reason) for reason in requirement.known]
    facts += [("reason", reason) for reason in requirement.reasons]
    return [(label, visible(value)) for label, value in facts if value]


def finding_facts(finding: Finding, *, limit: int = 160) -> list[Fact]:
    """Describe one finding. `limit`: how many characters of a text are shown around the difference."""
    expected, actual = part(finding.expected, finding.actual)
    facts = [
        ("where", f"{finding.where} ({finding.kind}, {finding.severity}, seen by {finding.source})"),
        ("key", finding.key),
        ("message", clip(finding.message, limit * 2)),
        ("expected", "".join(clip_parted(expected, limit)) or "(empty)"),
        ("actual", "".join(clip_parted(actual, limit)) or "(empty)"),
        ("differs", _difference(finding, expected, actual)),
    ]
    return [(label, visible(value)) for label, value in facts if value]


def group_facts(group: FindingGroup, *, limit: int = 160) -> list[Fact]:
    """Describe a group by its example, and say how often and where it was met."""
    shown = ", ".join(group.scenarios[:3])
    more = f" and {len(group.scenarios) - 3} more" if len(group.scenarios) > 3 else ""
    times = f"{count(group.occurrences, 'time')} in {count(len(group.scenarios), 'scenario')}: {shown}{more}"
    return [*finding_facts(group.example, limit=limit), ("seen", visible(times))]


def _difference(finding: Finding, expected: Parted, actual: Parted) -> str:
    """Locate the difference inside long texts; short ones, and texts with nothing in common, need no help."""
    if max(len(finding.expected), len(finding.actual)) < WORTH_LOCATING or finding.expected == finding.actual:
        return ""
    if not (expected.before or expected.after):
        return ""
    position = len(expected.before) + 1
    return f"at character {position}: {_quoted(expected.different)} expected, {_quoted(actual.different)} found"


def _quoted(text: str) -> str:
    return f"“{clip(text, 40)}”" if text else "nothing"
