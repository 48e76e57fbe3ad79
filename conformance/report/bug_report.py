"""One cause as a text for the client's bug tracker, readable without the kit and this run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from conformance.findings import PREFIX
from conformance.gate.records import SYSTEM_FOLDERS, RunHeader
from conformance.pages.text import clip, visible
from conformance.report.causes import WHY, Cause
from conformance.report.reproduction import (
    REPRODUCTION_PREFIX,
    Reproduction,
    oracle_text,
    reproduction_of,
)
from conformance.report.steps import step_lines
from conformance.report.summary import Summary

FOLDER = "causes"
LONGEST = 4000
"""Characters shown of one text of a client."""


def bug_reports(summary: Summary) -> dict[str, str]:
    """Return the texts by file name in FOLDER."""
    return {file_name(cause): render_bug_report(cause, summary) for cause in summary.causes}


def file_name(cause: Cause) -> str:
    """Return a name like `01-meta.version.md`."""
    place = re.sub(r"[^A-Za-z0-9._-]+", "-", cause.finding.where).strip("-.")[:60] or "cause"
    return f"{cause.number:02}-{place}.md"


def render_bug_report(cause: Cause, summary: Summary) -> str:
    """Render title, versions, expected and actual values, a script, why it matters, and the steps of both sides."""
    return without_local_folders("\n\n".join(_parts(cause, summary)) + "\n", summary.run.header)


def _parts(cause: Cause, summary: Summary) -> Iterator[str]:
    header, finding = summary.run.header, cause.finding
    yield f"# {_sentence(cause.title)}"
    yield f"{_line(header.client.text)}, compared with {_line(oracle_text(header))}"
    versions = {**header.oracle.packages, **header.environment}
    around = ", ".join(_line(f"{name} {versions[name]}") for name in ("node", "ioredis", "os") if name in versions)
    kit = f"found by bullmq-conformance {header.kit}, {cause.met}"
    yield f"{_line(around)}; {_line(kit)}" if around else _line(kit)
    yield "## Expected and actual"
    yield _fenced("", _sides(cause))
    if any(reading.at_end for reading in finding.redis):
        yield "Node's state is from the end of the scenario, because the client stopped before it."
    reproduction = reproduction_of(cause, header)
    yield "## Reproduction"
    yield from _how(reproduction)
    yield "## Why it matters"
    row = next((row for row in summary.requirements if row.id == finding.requirement), None)
    if row is not None and row.statement:
        # The ledger's own words, which are Markdown.
        yield f"{row.statement} ({row.level or 'level unknown'}, {row.source})"
    yield WHY[finding.severity]
    if cause.example.steps:
        yield "## Steps of both sides"
        yield _fenced("", "\n".join(step_lines(cause.example)).replace(PREFIX, REPRODUCTION_PREFIX))
    if cause.example.reproduce:
        yield "With the kit:"
        yield _fenced("", _ABOVE.sub("path/to/", visible(cause.example.reproduce, keep_newlines=False)))


def _how(reproduction: Reproduction) -> Iterator[str]:
    if reproduction.obstacle:
        yield f"No script: {_sentence(reproduction.obstacle)}. These are the calls, and commands that read Redis."
        yield _fenced(reproduction.language, reproduction.script)
        return
    yield f"With a Redis on 127.0.0.1:6379{', in an empty folder' if reproduction.prepare else ''}:"
    if reproduction.prepare:
        yield _fenced("sh", "\n".join(reproduction.prepare))
    yield f"Save this as `{reproduction.file}` and run `{reproduction.run}`:"
    yield _fenced(reproduction.language, reproduction.script)
    if reproduction.look:
        yield "Then read Redis:"
        yield _fenced("sh", reproduction.look.lstrip("\n"))


def _sides(cause: Cause) -> str:
    finding = cause.finding
    lines = [
        finding.message,
        f"  expected  {finding.expected or '(empty)'}",
        f"  actual    {finding.actual or '(empty)'}",
    ]
    for reading in finding.redis:
        lines += ["", " ".join(reading.command)]
        sides = [("Node", reading.expected or reading.at_end), ("client", reading.actual)]
        lines += [f"  {side:8}  {text}" for side, text in sides if text]
    return "\n".join(visible(clip(line, LONGEST)) for line in lines).replace(PREFIX, REPRODUCTION_PREFIX)


def _fenced(language: str, text: str) -> str:
    """Return a code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def _line(text: str) -> str:
    """Return foreign text as one line of Markdown, with all special characters escaped."""
    return _escaped(clip(visible(text, keep_newlines=False), 300))


def _escaped(text: str) -> str:
    return re.sub(r"[\\`*_<>\[\]|#@&]", lambda found: f"&#{ord(found.group())};", text)


_CODE = re.compile(r"`([^`]*[^`\s][^`]*)`")


def _sentence(text: str) -> str:
    """Return a sentence of the kit with foreign names in it as one line of Markdown.

    Text between two backticks is code, in which nothing else is special; the rest is escaped.
    """
    plain = clip(visible(text, keep_newlines=False), 300)
    # Split by a pattern with one group: every second part is the content of a pair of backticks.
    parts = _CODE.split(plain)
    return "".join(f"`{part}`" if number % 2 else _escaped(part) for number, part in enumerate(parts))


def without_local_folders(text: str, header: RunHeader) -> str:
    """Replace the folders of this machine in a text: those of the programs and files of the command lines."""
    words = [word.rpartition("=")[2] for word in (*header.client.command, *header.oracle.command, *header.command)]
    folders = {str(PurePath(word).parent) for word in words if PurePath(word).is_absolute()}
    for folder in sorted(folders, key=len, reverse=True):
        # The root and system folders are the same on other machines.
        if folder != "/" and not f"{folder}/".startswith(SYSTEM_FOLDERS):
            text = text.replace(f"{folder}/", "path/to/")
    return text


_ABOVE = re.compile(r"(?<![\w./-])(?:\.\./)+(?:[^\s/'\"]+/)*")
"""In a command line: a path that leads out of the current folder, up to the name of the file."""
