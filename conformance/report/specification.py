"""The written specification's own list: each of its claims, and how this run decides it.

A claim is decided by the requirement that names it. If the claim and Node.js disagree and the client follows Node.js,
the claim is *disputed*: `explain CLAIM --prove` shows what Node.js does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, get_args

from conformance.gate.outcomes import DECIDED
from conformance.ledger.loader import Ledger, Requirement, load_claims, load_ledger
from conformance.pages.page import html_page
from conformance.pages.text import count, visible
from conformance.report.markup import ICONS, anchors_of, details, inline, preformatted
from conformance.report.summary import LabelledValue, RequirementSummary, Summary, run_facts
from conformance.speed.gates import bounded_measures, judged, specified_bounds
from conformance.speed.records import GateOutcome, SpeedReport

ClaimWord = Literal["holds", "fails", "disputed", "not declared", "not decided"]
CLAIM_WORDS: tuple[ClaimWord, ...] = get_args(ClaimWord)

_TELLING: tuple[ClaimWord, ...] = ("fails", "disputed", "holds", "not declared", "not decided")
"""Of several runs, the word that comes first here counts."""

CLAIM_MEANING: Mapping[ClaimWord, str] = {
    "holds": "the client does what the claim says",
    "fails": "the client does not do it",
    "disputed": "Node.js BullMQ does something else, and the client does as Node.js does",
    "not declared": "the driver does not declare what the claim is about, or no driver can",
    "not decided": "the results do not show it",
}

PARTS: Mapping[str, str] = {
    "FR-1": "Worker",
    "FR-2": "States and locks of jobs",
    "FR-3": "Stalled jobs",
    "FR-4": "Retries",
    "FR-5": "Progress and logs",
    "FR-6": "Finished jobs",
    "FR-7": "Producer",
    "FR-8": "Queue management",
    "FR-9": "Redis Cluster",
    "FR-10": "Events",
    "NFR-1": "Performance",
    "NFR-2": "Reliability",
    "NFR-3": "Metrics and logs",
    "NFR-4": "Tests",
    "NFR-5": "Other languages on the same queue",
    "SC": "Success criteria",
}
"""Parts of the specification whose claims are listed, with a title."""

_PART = re.compile(r"(FR-\d+|NFR-\d+|SC)(?=[.-]\d+$)")


@dataclass(frozen=True, kw_only=True)
class ClaimLine:
    """One claim. `statement`: the claim in the words of its row. `why`: the cause, the reason, or what Node.js does."""

    claim: str
    word: ClaimWord
    requirement: Requirement
    statement: str
    why: str

    @property
    def part(self) -> str:
        """The part of the specification that it belongs to: `FR-2`."""
        return part_of(self.claim)

    @property
    def command(self) -> str:
        """The command that explains the claim, or proves what Node.js does instead."""
        return f"bullmq-conformance explain {self.claim}" + " --prove" * (self.word == "disputed")


def part_of(claim: str) -> str:
    """The part of the specification that a claim belongs to; empty for claims of other documents."""
    found = _PART.match(claim)
    return found[1] if found else ""


def claim_lines(summary: Summary) -> list[ClaimLine]:
    """Every claim of `PARTS` in the order of the specification, as this run and the further results decide it."""
    lines = _lines(summary)
    for other in summary.others:
        where = f"run {other.run.header.run} on {other.run.header.redis.source}"
        lines = [_more_telling(line, further, where) for line, further in zip(lines, _lines(other), strict=True)]
    return lines


def _more_telling(line: ClaimLine, further: ClaimLine, where: str) -> ClaimLine:
    if _TELLING.index(further.word) >= _TELLING.index(line.word):
        return line
    return replace(further, why=f"{further.why} ({where})".strip())


def _lines(summary: Summary) -> list[ClaimLine]:
    ledger, everywhere = load_ledger(summary.run.header.requirement_set), load_ledger()
    requirements = {requirement.id: requirement for requirement in summary.requirements}
    lines = []
    for claim, verdict in load_claims().items():
        if part_of(claim):
            row = everywhere.by_claim()[claim]
            row = ledger.get(row.id, row)
            word, why = _decided(row, requirements.get(row.id), verdict == "DIFFERS", summary, ledger)
            statement = row.paper if verdict == "DIFFERS" and row.paper else row.statement
            lines.append(ClaimLine(claim=claim, word=word, requirement=row, statement=statement, why=why))
    return lines


def _decided(
    row: Requirement, found: RequirementSummary | None, differs: bool, summary: Summary, ledger: Ledger
) -> tuple[ClaimWord, str]:
    disputed = differs and row.status == "disputed"
    if row.id not in ledger:
        return "not decided", f"the rule holds for BullMQ {row.versions}"
    if row.bench:
        word, why = _measured(row, summary.benches)
        return ("disputed", f"Node.js: {row.oracle}") if disputed and word in ("holds", "not decided") else (word, why)
    if not row.examined:
        return _without_scenario(row, disputed)
    if found is None or found.verdict not in DECIDED:
        return _open(row, found, summary)
    if found.reported not in ("pass", "stale"):
        return "fails", _cause(found)
    return ("disputed", f"Node.js: {row.oracle}") if disputed else ("holds", "")


def _measured(row: Requirement, reports: Sequence[SpeedReport]) -> tuple[ClaimWord, str]:
    """The word for limits of a row that `bench` measures, and the reason."""
    found: list[tuple[ClaimWord, str]] = []
    everywhere = {ratio.measure for report in reports for ratio in report.ratios}
    if not bounded_measures(row.bench) <= everywhere:
        return "not decided", f"`bench {row.bench}` decides it"
    for report in reports:
        ratios = {ratio.measure: ratio for ratio in report.ratios}
        bounds = specified_bounds([row.bench], {name: ratio.unit for name, ratio in ratios.items()})
        found += [(_WORDS[gate.outcome], f"{gate.text}: {gate.reason}") for gate in judged(bounds, report.ratios)]
        lacking = [ratios[bound.measure].reason for bound in bounds if ratios[bound.measure].state == "not-declared"]
        if lacking and len(lacking) == len(bounds):
            found.append(("not declared", lacking[0]))
    return next((word, why) for word, why in found if word == min((word for word, _ in found), key=_WORST.index))


_WORDS: Mapping[GateOutcome, ClaimWord] = {"holds": "holds", "fails": "fails", "undecided": "not decided"}
_WORST: tuple[ClaimWord, ...] = ("fails", "not decided", "holds", "not declared")
"""Of several limits, the word that comes first here counts."""


def _without_scenario(row: Requirement, disputed: bool) -> tuple[ClaimWord, str]:
    if disputed:
        return "disputed", f"Node.js: {row.oracle}"
    # Texts for readers and rules for the work on a client are not its behaviour, so no driver declares them.
    outside = row.status == "client-only" or row.area in ("documentation", "testing", "cluster")
    return ("not declared" if outside else "not decided"), row.reason


def _open(row: Requirement, found: RequirementSummary | None, summary: Summary) -> tuple[ClaimWord, str]:
    reasons = (summary.conclusion.open.get(row.id, ""), *(found.reasons[:1] if found else ()))
    word: ClaimWord = "not declared" if found is not None and found.verdict == "unsupported" else "not decided"
    return word, ": ".join(reason for reason in reasons if reason and reason != word)


def _cause(found: RequirementSummary) -> str:
    causes = [cause.line for cause in found.causes[:1]] or list(found.reasons[:1])
    known = [f"known: {reason}" for reason in found.known[:1]]
    return "; ".join([*causes, *known])


def claims_sentence(lines: list[ClaimLine]) -> str:
    """Count the lines by word: `195 claims: 120 holds, 3 fails`."""
    numbers = Counter(line.word for line in lines)
    counted = ", ".join(f"{numbers[word]} {word}" for word in CLAIM_WORDS if numbers[word])
    return f"{count(len(lines), 'claim')}: {counted}"


def _parts(lines: list[ClaimLine]) -> list[tuple[str, str, list[ClaimLine]]]:
    return [(part, PARTS[part], list(members)) for part, members in groupby(lines, key=lambda line: line.part)]


def _facts(summary: Summary) -> list[LabelledValue]:
    """Describe the run, and the further results."""
    further = [f"run {other.run.header.run}: {dict(run_facts(other.run))['command']}" for other in summary.others]
    further += [f"bench on {report.redis}, {count(report.rounds, 'round')}" for report in summary.benches]
    return [*run_facts(summary.run), *(("also", visible(text, keep_newlines=False)) for text in further)]


def render_specification(summary: Summary) -> str:
    """Render the list as a page for a browser."""
    lines = claim_lines(summary)
    return html_page(
        "conformance.report",
        "specification.html",
        summary=summary,
        sentence=claims_sentence(lines),
        parts=_parts(lines),
        meaning=CLAIM_MEANING,
        anchors=anchors_of(summary.requirements),
        facts=_facts(summary),
    )


def render_specification_markdown(summary: Summary) -> str:
    """Render the list as Markdown."""
    return "\n\n".join(_blocks(summary, claim_lines(summary))) + "\n"


def _blocks(summary: Summary, lines: list[ClaimLine]) -> Iterator[str]:
    client = summary.run.header.client
    yield f"# The specification and {inline(f'{client.name} {client.version} ({client.language})')}"
    if not summary.completeness.complete:
        yield f"> [!WARNING]\n> **{inline(summary.completeness.sentence)}**"
    yield f"{ICONS[summary.conclusion.state]} **{inline(summary.conclusion.sentence)}**"
    yield f"{claims_sentence(lines)}."
    yield "\n".join(f"- *{word}*: {meaning}." for word, meaning in CLAIM_MEANING.items())
    for part, title, members in _parts(lines):
        yield f"## {part} {title}"
        yield "\n".join(["| claim | | rule | why |", "|---|---|---|---|", *map(_row, members)])
    yield details("About this run", [preformatted(_facts(summary))])


def _row(line: ClaimLine) -> str:
    proof = f"`{line.command}`" if line.word == "disputed" else ""
    why = " ".join(filter(None, (inline(line.why), proof)))
    rule = f"`{line.requirement.id}` ({line.requirement.level}): {inline(line.statement)}"
    return f"| {line.claim} | **{line.word}** | {rule} | {why} |"
