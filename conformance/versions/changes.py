"""Differences between two versions of BullMQ, as data: the record of a comparison, and how findings become changes.

A comparison runs the scenarios with one version as the oracle and the other as the client. A finding is then not an
error but a *sign* of a change. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from conformance.findings import Finding, Severity
from conformance.gate.records import Level, ScenarioRecord
from conformance.ledger.loader import Ledger

FORMAT = 1
"""Within a format, fields are added but never renamed, removed or given another meaning."""

Aspect = Literal["together", "redis", "events", "answers", "calls", "steps"]
"""The place of a change: in what two versions do on one queue, in Redis, in the stream of events, in what a call
answers, in how scripts are called, or in a step of a scenario that does not come out."""

Side = Literal["older", "newer"]

_UNDECIDED = ("inconclusive", "error", "changed", "unchecked", "unsupported")
_OPERATION = re.compile(r"\b[a-z]+\.[a-zA-Z]+\b")
_CHANGING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{5,}")
"""Ids and times, which differ between runs."""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that the two versions do differently.

    `statement`: what the requirement says of the older version, `later` of the newer one where that is something else.
    `where`, `kind`: as in a finding. `before`, `after`: what the older and the newer version do, as short texts.
    `what`: of an assertion, what it states. `states`: whose behaviour the scenario states; where that is the newer
    one's, the older one does not hold it. `scenarios`: ids of those that show it. `release`: the first that shows it,
    `last_before`: the release before, which does not; both were run. Empty if they were not searched, or if `unknown`
    says why the release was not found.
    """

    requirement: str
    level: Level
    statement: str
    later: str = ""
    aspect: Aspect
    severity: Severity
    where: str
    kind: str
    what: str = ""
    before: str
    after: str
    states: Side = "older"
    scenarios: list[str]
    release: str = ""
    last_before: str = ""
    unknown: str = ""


class ScriptCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a script is called. `more`: whether it also takes any number of further arguments.

    `keys` and `args` are counted in the script. `key_names` and `arg_kinds` are the kit's words for them
    (`conformance/protocol/scripts.py`), empty where it does not know the script.
    """

    keys: int
    args: int
    more: bool = False
    key_names: list[str] = []
    arg_kinds: list[str] = []


class ScriptChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A script that is called otherwise, is new (`before` is None) or gone (`after` is None).

    `release`, `last_before`, `unknown`: as of a `Change`.
    """

    name: str
    before: ScriptCall | None
    after: ScriptCall | None
    release: str = ""
    last_before: str = ""
    unknown: str = ""


Subject = Literal["option", "method", "default", "value", "key", "field", "event", "script key", "script argument"]
"""A thing that users or releases write. `default`: of an object without options; `value`: in Redis or a call."""

EffectChange = Literal["new", "gone", "changed"]


class EffectHarm(msgspec.Struct, frozen=True, kw_only=True):
    """A feature of `versions mixed` that harms jobs: its worst word, and its replay files as a page links them."""

    feature: str
    word: str
    replays: list[str]


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change in what is written, and what it does to jobs while both releases share a queue.

    `before`, `after`: JSON of a default or a value. `features`: of `versions mixed`, those that use or show it. `word`:
    as there, of the worst of these features; empty if none was run, and `untried` is the reason. `harms`: of features
    whose harm no change explains better, which fewer features show; the worst first.
    """

    subject: Subject
    name: str
    change: EffectChange
    before: str = ""
    after: str = ""
    features: list[str] = []
    word: str = ""
    harms: list[EffectHarm] = []
    untried: str = ""


class VersionDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a comparison, which every page is computed from.

    `older`, `newer`: versions of BullMQ; `selected`: the patterns of scenarios, all where there are none. `scenarios`:
    how many were decided; `undecided`: those that were not, with the reason. `scripts_with_other_text`: names of
    scripts that are called as before and whose text is another. `methods_gone`, `methods_new`: operations of the driver
    protocol that only one of them has. `declared_gone`, `declared_new`: options, methods and events that only the types
    of one of them declare, as `Type.name`; `declared_otherwise`: options whose type is another, with the new type.
    `effects`: of what is written otherwise, None if it was not observed. `compared_ms`: Unix ms.
    """

    kind: Literal["bullmq-version-diff"] = "bullmq-version-diff"
    format: int = FORMAT
    kit: str
    older: str
    newer: str
    tier: str
    selected: list[str] = []
    releases: list[str] = []
    scenarios: int
    undecided: dict[str, str] = {}
    changes: list[Change] = []
    scripts: list[ScriptChange] = []
    scripts_with_other_text: list[str] = []
    methods_gone: list[str] = []
    methods_new: list[str] = []
    declared_gone: list[str] = []
    declared_new: list[str] = []
    declared_otherwise: dict[str, str] = {}
    effects: list[Effect] | None = None
    compared_ms: int


@dataclass(frozen=True)
class Sign:
    """Identifies a change: the requirement, the place, the kind, and the statement of an assertion.

    `states`: the version whose behaviour the scenario describes.
    """

    requirement: str
    where: str
    kind: str
    what: str
    states: Side


def sign_of(finding: Finding, states: Side) -> Sign:
    """The sign of a finding."""
    stated = finding.message.splitlines()[0] if finding.source in ("assertion", "protocol") and finding.message else ""
    return Sign(finding.requirement, finding.where, finding.kind, _CHANGING.sub("…", stated), states)


def signs_by_scenario(records: Iterable[ScenarioRecord], states: Side) -> dict[str, set[Sign] | None]:
    """The signs of each scenario, None if it was not decided."""
    return {
        record.id: None if _is_undecided(record) else {sign_of(finding, states) for finding in record.findings}
        for record in records
    }


def undecided(records: Iterable[ScenarioRecord], ops: Collection[str]) -> dict[str, str]:
    """The undecided scenarios, with reasons, but for those about operations that neither version has.

    `ops`: the operations that at least one has.
    """
    open_ones = (record for record in records if _is_undecided(record) and not _is_for_others(record, ops))
    return {record.id: record.reason or record.verdict for record in open_ones}


def _is_for_others(record: ScenarioRecord, ops: Collection[str]) -> bool:
    """Whether a scenario is only about operations of other clients, such as the logs of a library."""
    named = _OPERATION.findall(record.reason)
    return record.verdict == "unsupported" and bool(named) and not any(op in ops for op in named)


def _is_undecided(record: ScenarioRecord) -> bool:
    return record.verdict in _UNDECIDED and not record.findings


@dataclass(frozen=True, kw_only=True)
class ChangeContext:
    """The two ledgers that provide the wording, and the scenarios that run with two clients on one queue.

    `versions`: the older and the newer one. Values that are the same but for their numbers are not a change.
    """

    older: Ledger
    newer: Ledger
    versions: tuple[str, str] = ("", "")
    shared: Collection[str] = ()


def changes_of(records: Iterable[ScenarioRecord], states: Side, context: ChangeContext) -> dict[Sign, Change]:
    """The distinct changes that scenarios show, in order of occurrence."""
    met: dict[Sign, list[tuple[Finding, ScenarioRecord]]] = {}
    for record in records:
        for finding in record.findings:
            if not _names_versions(finding, context.versions, states):
                met.setdefault(sign_of(finding, states), []).append((finding, record))
    return {sign: _change(sign, found, context) for sign, found in met.items()}


def _names_versions(finding: Finding, versions: tuple[str, str], states: Side) -> bool:
    """Whether both values are the same text about the version that has it."""
    stated, other = versions if states == "older" else reversed(versions)
    return bool(stated) and stated in finding.expected and finding.expected.replace(stated, other) == finding.actual


def _change(sign: Sign, met: list[tuple[Finding, ScenarioRecord]], context: ChangeContext) -> Change:
    finding, example = min(met, key=lambda each: len(each[1].steps))
    row = context.older.get(sign.requirement) or context.newer.get(sign.requirement)
    later = context.newer.get(sign.requirement)
    statement = row.statement if row is not None else finding.message
    before, after = finding.expected, finding.actual
    return Change(
        requirement=sign.requirement,
        level=row.level if row is not None else "MUST",
        statement=statement,
        later=later.statement if later is not None and later.statement != statement else "",
        aspect=_aspect(finding, example, context.shared),
        severity=finding.severity,
        where=sign.where,
        kind=sign.kind,
        what=sign.what,
        before=before if sign.states == "older" else after,
        after=after if sign.states == "older" else before,
        states=sign.states,
        scenarios=list(dict.fromkeys([example.id, *(record.id for _, record in met)])),
    )


def _aspect(finding: Finding, example: ScenarioRecord, shared: Collection[str]) -> Aspect:
    if example.id.partition("[")[0] in shared:
        return "together"
    match finding.source:
        case "snapshot" | "invariant":
            return "redis"
        case "events" | "oracle-health":
            return "events"
        case "answer":
            return "answers"
        case "traffic":
            return "calls"
        case _:
            return "steps"


def by_requirement(changes: Iterable[Change]) -> Iterator[tuple[str, list[Change]]]:
    """The changes of each requirement, in the order of the first of each."""
    found: dict[str, list[Change]] = {}
    for change in changes:
        found.setdefault(change.requirement, []).append(change)
    yield from found.items()
