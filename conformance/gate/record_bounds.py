"""Bounds of a run's records: no client makes a record invalid, or a run file too large to read.

All text of a client enters the records here: bytes that are not UTF-8 become escapes, and long texts are clipped.
Repeated findings of a kind are folded into a few examples with a count. The verdicts of a scenario are computed from
all its findings before they are folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from conformance.findings import Finding
from conformance.gate.records import Record, RunHeader, ScenarioRecord, encode, plain
from conformance.pages.text import clip, clip_split, escaped_surrogates, split_difference

LONGEST_TEXT = 1200
"""Characters that a record keeps of one text."""
SHORT_TEXT = 200
"""Characters of a text in a record whose kinds of findings the run has shown before."""
MOST_EXAMPLES = 3
"""Findings of one kind that a record keeps; the others are counted."""
MOST_KINDS = 40
"""Kinds of findings that a record keeps."""
MOST_LOG_LINES = 80
LARGEST_RECORD = 40_000
"""Bytes of a record, beyond which it loses readings of Redis and its first steps."""
FEWEST_STEPS = 15

EVIDENCE_TWICE = 2
"""The steps and readings of a kind of finding are kept in this many records of a run."""
MOST_EVIDENCE = 2_000_000
"""Bytes of the records with steps and readings, after which only a kind that is new to the run keeps them."""

AnyRecord = TypeVar("AnyRecord", bound=Record)
Kind = tuple[str, ...]


def kind_of(finding: Finding) -> Kind:
    """Return what makes two findings repetitions of each other."""
    # With the evidence: a certain finding that a timed one represents would be excused with it.
    return (finding.requirement, finding.source, finding.kind, finding.severity, finding.where, finding.evidence)


def readable(record: AnyRecord) -> AnyRecord:
    """Return a record that is valid UTF-8 and without long texts; of two long texts, the parts that differ are kept."""
    if isinstance(record, ScenarioRecord):
        record = msgspec.structs.replace(record, findings=[_around_difference(finding) for finding in record.findings])
    converted: AnyRecord = msgspec.convert(_bounded(plain(record)), type(record))
    if isinstance(record, RunHeader):
        # Templates, which a cut would break. The run has checked their size, and that they are UTF-8.
        return msgspec.structs.replace(converted, reproduction=record.reproduction)
    return converted


def compact(record: ScenarioRecord) -> ScenarioRecord:
    """Return a readable record with its repeated findings folded, of at most about LARGEST_RECORD bytes."""
    log = record.log[-MOST_LOG_LINES:]
    record = msgspec.structs.replace(record, findings=folded(record.findings), log=log)
    if len(encode(record)) > LARGEST_RECORD:
        record = _without_readings(record, kept=2)
    if len(encode(record)) > LARGEST_RECORD:
        record = msgspec.structs.replace(record, log=log[-FEWEST_STEPS:], steps=record.steps[-FEWEST_STEPS:])
    if len(encode(record)) > LARGEST_RECORD:
        record = msgspec.structs.replace(_without_readings(record, kept=0), steps=[])
    return record


def folded(findings: Iterable[Finding]) -> list[Finding]:
    """Keep a few findings of each kind; the last one kept counts the others."""
    kinds: dict[Kind, list[Finding]] = {}
    for finding in findings:
        alike = kinds.setdefault(kind_of(finding), [])
        if len(alike) < MOST_EXAMPLES:
            alike.append(finding)
        else:
            alike[-1] = msgspec.structs.replace(alike[-1], times=alike[-1].times + finding.times)
    return [finding for alike in _most_important(kinds) for finding in alike]


def _most_important(kinds: dict[Kind, list[Finding]]) -> list[list[Finding]]:
    """Return at most MOST_KINDS kinds, and at least one of each requirement."""
    if len(kinds) <= MOST_KINDS:
        return list(kinds.values())
    # Every requirement that fails must keep a finding, because reports show the findings as its reasons.
    first = {kind[0]: kind for kind in reversed(kinds)}
    chosen = [kind for kind in kinds if first[kind[0]] == kind]
    chosen += [kind for kind in kinds if first[kind[0]] != kind][: max(0, MOST_KINDS - len(chosen))]
    return [kinds[kind] for kind in kinds if kind in set(chosen)]


def _statement_of(finding: Finding) -> str:
    return finding.message if finding.source == "assertion" else ""


class RecordedEvidence:
    """Shortens records whose kinds of findings a run has shown often enough."""

    def __init__(self) -> None:
        self._shown: Counter[Kind] = Counter()
        self._bytes = 0

    def thinned(self, record: ScenarioRecord) -> ScenarioRecord:
        """Return the record for the run file: verdicts stay. Call it once for each record, in the order of the run."""
        # Without the requirement: the same mistake shows in many scenarios, each about another one. With the statement
        # or the failed call, which no locator distinguishes, and apart from steps that no user can repeat.
        kinds = {
            (*kind_of(finding)[1:], finding.place, _statement_of(finding), str(record.alone))
            for finding in record.findings
        }
        most = 1 if self._bytes > MOST_EVIDENCE else EVIDENCE_TWICE
        if kinds and all(self._shown[kind] >= most for kind in kinds):
            return _short(record)
        self._shown.update(kinds)
        self._bytes += len(encode(record))
        return record


def _without_readings(record: ScenarioRecord, *, kept: int) -> ScenarioRecord:
    findings = [msgspec.structs.replace(finding, redis=finding.redis[:kept]) for finding in record.findings]
    return msgspec.structs.replace(record, findings=findings)


def _short(record: ScenarioRecord) -> ScenarioRecord:
    """Return the record without steps, readings and log, and with short texts."""
    findings = [
        msgspec.structs.replace(
            _around_difference(finding, SHORT_TEXT), redis=[], message=clip(finding.message, SHORT_TEXT)
        )
        for finding in record.findings
    ]
    return msgspec.structs.replace(record, findings=findings, steps=[], log=[], reason=clip(record.reason, SHORT_TEXT))


def _around_difference(finding: Finding, longest: int = LONGEST_TEXT) -> Finding:
    if max(len(finding.expected), len(finding.actual)) <= longest:
        return finding
    sides = [clip_split(split, longest // 4) for split in split_difference(finding.expected, finding.actual)]
    return msgspec.structs.replace(finding, expected="".join(sides[0]), actual="".join(sides[1]))


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        text = value if len(value) <= LONGEST_TEXT else clip(value, LONGEST_TEXT)
        return escaped_surrogates(text)
    if isinstance(value, list):
        return [_bounded(item) for item in value]
    if isinstance(value, dict):
        return {_bounded(name): _bounded(item) for name, item in value.items()}
    return value
