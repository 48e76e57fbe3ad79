"""The report for the page of a commit: workflow commands of GitHub, one line for the verdict and one for each cause.

GitHub reads them from what a step prints (docs.github.com, "Workflow commands for GitHub Actions"), shows the first ten
of each level on the page of the commit, and keeps the rest in the log. They are therefore in the order of the causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from conformance.pages.text import clip, visible
from conformance.problems import printable
from conformance.report.causes import Cause, CauseVerdict
from conformance.report.summary import ScenarioSummary, Summary

AnnotationLevel = Literal["error", "warning", "notice"]

LEVEL_OF: dict[CauseVerdict, AnnotationLevel] = {
    "fail": "error",
    "warn": "warning",
    "info": "notice",
    "expected-fail": "notice",
}
LONGEST = 600
"""Characters shown of one text of a client."""


def render_annotations(summary: Summary) -> str:
    """Render the lines."""
    return "".join(f"{line}\n" for line in _lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    yield _verdict(summary)
    for requirement in summary.requirements:
        if requirement.reported == "stale":
            listed = f"listed in known.toml ({'; '.join(requirement.known)}), but passes now: remove it from the list"
            yield annotation("error", requirement.id, listed)
    for problem in summary.problems:
        yield annotation("error", "the run as a whole", clip(problem, LONGEST))
    statements = {row.id: f"{row.statement} ({row.source})" for row in summary.requirements if row.statement}
    for cause in summary.causes:
        yield _cause(cause, statements.get(cause.finding.requirement, ""))
    for scenario in summary.scenarios:
        if scenario.reported in ("error", "inconclusive") and not scenario.record.findings:
            yield _open_question(scenario)


def _verdict(summary: Summary) -> str:
    """The sentence of the run; a run that was cut is always an error."""
    conclusion, completeness = summary.conclusion, summary.completeness
    fine = conclusion.state in ("conformant", "holds") and completeness.complete
    sentences = [each for each in (completeness.sentence, conclusion.sentence) if each]
    return annotation("notice" if fine else "error", summary.run.header.client.text, "\n".join(sentences))


def _cause(cause: Cause, statement: str) -> str:
    finding, known = cause.finding, cause.verdict == "expected-fail"
    title = f"{finding.requirement} ({'known failure' if known else cause.level or 'level unknown'})"
    lines = [cause.line, statement]
    lines += [f"{finding.where}: expected {_shown(finding.expected)}, found {_shown(finding.actual)}"]
    lines += [f"reproduce: {cause.example.reproduce}" if cause.example.reproduce else ""]
    return annotation(LEVEL_OF[cause.verdict], title, "\n".join(clip(line, LONGEST) for line in lines if line))


def _shown(text: str) -> str:
    return clip(text, LONGEST // 4) or "(empty)"


def _open_question(scenario: ScenarioSummary) -> str:
    """A scenario that says nothing about the client: readers of the list must see that it is not whole."""
    about = ", ".join(scenario.record.requirements)
    message = f"{scenario.reported}: {scenario.record.reason}" + (f"\nnot decided: {about}" if about else "")
    return annotation("error", scenario.record.id, clip(message, LONGEST))


def annotation(level: AnnotationLevel, title: str, message: str) -> str:
    """Write one workflow command: one line, for any `title` and `message`.

    The text that the runner prints of it does not control a terminal or an old runner either.
    """
    shown = printable(visible(message))
    return f"::{level} title={_property(visible(title, keep_newlines=False))}::{_data(shown)}"


def _data(text: str) -> str:
    """Encode as the runner decodes: the percent sign first, or what follows would be encoded twice."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Values of properties end at a comma or a colon."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
