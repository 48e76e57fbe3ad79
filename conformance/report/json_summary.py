"""The summary for programs: one JSON document, described by `schema/summary.schema.json`, and the badge of a README."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from conformance.findings import Finding
from conformance.gate.conclusion import Conclusion, ConclusionState
from conformance.gate.outcomes import REPORTED_VERDICTS, ReportedVerdict
from conformance.gate.profile_status import ProfileState, ProfileStatus, named
from conformance.gate.records import Level, Party, RedisInfo, StepRecord, Verdict
from conformance.pages.compact_json import compact_json
from conformance.pages.text import clip, visible
from conformance.report.bug_report import FOLDER, file_name
from conformance.report.causes import Cause, CauseVerdict
from conformance.report.summary import Counts, RequirementSummary, ScenarioSummary, Summary

SUMMARY_FORMAT = 2
"""Within a format, fields are added but never renamed, removed or given another meaning. Every reported verdict is a
key of every count, so that a reader needs no defaults. Since 2 the findings of a requirement are grouped by cause, and
`example` is from the simplest scenario; before, only equal findings were grouped, with the first as the example."""


STEPS_OF_CAUSE = 20
FINDINGS_OF_REQUIREMENT = 2
LONGEST_SIDE = 60
"""Characters of each text in the findings of a requirement; `causes` has them in full."""
MOST_REASONS = 3
MOST_SCENARIOS = 20
LONGEST_REASON = 200


class JsonRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run. Times are Unix ms; `finished_ms` and `exit_code` are null for a run that was cut."""

    run: str
    kit: str
    requirement_set: str
    tier: str
    seed: int
    command: list[str]
    started_ms: int
    finished_ms: int | None
    exit_code: int | None
    client: Party
    oracle: Party
    partner: Party | None
    redis: RedisInfo
    environment: dict[str, str]


class JsonConclusion(msgspec.Struct, frozen=True, kw_only=True):
    """The conclusion. `complete`: false for a run that was cut or stopped early; then `conformant` is false too.

    `percent`: share of `decided` in `requirements` (all that the ledger examines), rounded down. `exit_code`: as in the
    README.
    """

    state: ConclusionState
    conformant: bool
    complete: bool
    planned: int
    recorded: int
    reasons: list[str]
    sentence: str
    exit_code: int
    advice: str
    decided: int
    requirements: int
    percent: int


class JsonProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Status of one profile. `requirements` and `decided` are numbers, the lists contain requirement ids.

    `missing`: operations and capabilities that the driver does not declare. `open`: undecided requirements by reason.
    """

    name: str
    title: str
    state: ProfileState
    remark: str
    requirements: int
    decided: int
    failing: list[str]
    known: list[str]
    missing: list[str]
    open: dict[str, list[str]]


class JsonCause(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, with all its occurrences.

    `number`: position among the causes. `requirement`: of the example; `requirements`: all that it violates.
    `verdict`: the verdict that it gives its requirement. `example`: the finding in the simplest scenario that shows it;
    `steps`: the last 20 steps of that scenario; run.jsonl has all. `bug_report`: file in the
    same folder with a text for a bug tracker; empty beyond the first 200 causes.
    """

    number: int
    title: str
    requirement: str
    requirements: list[str]
    verdict: CauseVerdict
    example: Finding
    occurrences: int
    scenarios: list[str]
    steps: list[StepRecord]
    reproduce: str
    bug_report: str


class JsonFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of one cause that are about one requirement. `example`: one of them, with short texts.

    `scenarios`: ids of the first 20 scenarios that show it; `causes` has all.
    """

    example: Finding
    occurrences: int
    scenarios: list[str]
    reproduce: str


class JsonRequirement(msgspec.Struct, frozen=True, kw_only=True):
    """One requirement over all its scenarios.

    `verdict`: as recorded. `shown`: after level and known.toml. `blocks`: it makes the run fail. `level` is null and
    texts are empty if the ledger lacks the id. `findings`: the first 2, the most severe first; `causes` has all.
    """

    id: str
    area: str
    level: Level | None
    statement: str
    source: str
    verdict: Verdict
    shown: ReportedVerdict
    blocks: bool
    known: list[str]
    reasons: list[str]
    scenarios: list[str]
    findings: list[JsonFinding]


class JsonScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario. `unattributed`: no requirement explains its verdict."""

    id: str
    title: str
    area: str
    tier: str
    verdict: Verdict
    shown: ReportedVerdict
    unattributed: bool
    requirements: dict[str, Verdict]
    reason: str
    reproduce: str
    timings_ms: dict[str, float]
    client_cpu_ms: float
    oracle_cpu_ms: float
    repeated: list[str]


class JsonArea(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of one area, counted by shown word."""

    name: str
    shown: ReportedVerdict
    counts: dict[ReportedVerdict, int]


class JsonSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The document. `counts`: requirements by shown verdict. `untested`: ids that no scenario of the run covers.

    `not_decided`: why examined requirements were not decided, including untested ones.
    """

    kind: Literal["bullmq-conformance-summary"] = "bullmq-conformance-summary"
    format: int
    run: JsonRun
    conclusion: JsonConclusion
    counts: dict[ReportedVerdict, int]
    scenario_counts: dict[ReportedVerdict, int]
    areas: list[JsonArea]
    causes: list[JsonCause]
    requirements: list[JsonRequirement]
    scenarios: list[JsonScenario]
    problems: list[str]
    untested: list[str]
    profiles: list[JsonProfile]
    not_decided: dict[str, str]


def render_json(summary: Summary) -> str:
    """Render the document, indented so that two of them can be compared line by line.

    It is ASCII: readers get the exact texts, and a terminal that it is printed to gets no control characters.
    """
    return json.dumps(msgspec.to_builtins(document(summary)), indent=1) + "\n"


def schema() -> dict[str, Any]:
    """Build the JSON Schema of the document, as published in `schema/summary.schema.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(JsonSummary)}


def document(summary: Summary) -> JsonSummary:
    """Build the document of a summary."""
    return JsonSummary(
        format=SUMMARY_FORMAT,
        run=_run(summary),
        conclusion=_conclusion(summary),
        counts=_all_words(summary.counts),
        scenario_counts=_all_words(summary.scenario_counts),
        areas=[JsonArea(name=area.name, shown=area.reported, counts=_all_words(area.counts)) for area in summary.areas],
        causes=[_cause(cause) for cause in summary.causes],
        requirements=[_requirement(requirement) for requirement in summary.requirements],
        scenarios=[_scenario(scenario) for scenario in summary.scenarios],
        problems=list(summary.problems),
        untested=list(summary.untested),
        profiles=[_profile(status) for status in summary.conclusion.profiles],
        not_decided=dict(summary.conclusion.open),
    )


def _profile(status: ProfileStatus) -> JsonProfile:
    return JsonProfile(
        name=status.name,
        title=status.title,
        state=status.state,
        remark=status.remark,
        requirements=status.requirements,
        decided=status.decided,
        failing=list(status.failing),
        known=list(status.excused),
        missing=list(status.missing),
        open={reason: list(requirements) for reason, requirements in status.open.items()},
    )


def _all_words(counts: Counts) -> dict[ReportedVerdict, int]:
    return {word: counts.get(word, 0) for word in REPORTED_VERDICTS}


def _run(summary: Summary) -> JsonRun:
    header, footer = summary.run.header, summary.run.footer
    return JsonRun(
        run=header.run,
        kit=header.kit,
        requirement_set=header.requirement_set,
        tier=header.tier,
        seed=header.seed,
        command=header.command,
        started_ms=header.started_ms,
        finished_ms=footer.finished_ms if footer else None,
        exit_code=footer.exit_code if footer else None,
        client=header.client,
        oracle=header.oracle,
        partner=header.partner,
        redis=header.redis,
        environment=header.environment,
    )


def _conclusion(summary: Summary) -> JsonConclusion:
    conclusion, completeness = summary.conclusion, summary.completeness
    return JsonConclusion(
        state=conclusion.state,
        conformant=conclusion.conformant,
        complete=completeness.complete,
        planned=completeness.planned,
        recorded=completeness.recorded,
        reasons=list(conclusion.reasons),
        sentence=conclusion.sentence,
        exit_code=conclusion.exit_code,
        advice=conclusion.advice,
        decided=conclusion.share.decided,
        requirements=conclusion.share.requirements,
        percent=conclusion.share.percent,
    )


def _requirement(requirement: RequirementSummary) -> JsonRequirement:
    return JsonRequirement(
        id=requirement.id,
        area=requirement.area,
        level=requirement.level,
        statement=requirement.statement,
        source=requirement.source,
        verdict=requirement.verdict,
        shown=requirement.reported,
        blocks=requirement.blocks,
        known=list(requirement.known),
        reasons=[clip(reason, LONGEST_REASON) for reason in requirement.reasons[:MOST_REASONS]],
        scenarios=[scenario.id for scenario in requirement.scenarios],
        findings=[_finding(cause, requirement.id) for cause in requirement.causes[:FINDINGS_OF_REQUIREMENT]],
    )


def _cause(cause: Cause) -> JsonCause:
    return JsonCause(
        number=cause.number,
        title=cause.title,
        requirement=cause.finding.requirement,
        requirements=list(cause.requirements),
        verdict=cause.verdict,
        example=cause.finding,
        occurrences=cause.occurrences,
        scenarios=list(cause.scenarios),
        steps=cause.example.steps[-STEPS_OF_CAUSE:],
        reproduce=cause.example.reproduce,
        bug_report=f"{FOLDER}/{file_name(cause)}",
    )


def _finding(cause: Cause, requirement: str) -> JsonFinding:
    violation = cause.violations[requirement]
    finding = violation.finding
    texts = {name: clip(getattr(finding, name), LONGEST_SIDE) for name in ("expected", "actual", "message")}
    return JsonFinding(
        # Readings and long texts are in `causes`, once for all requirements.
        example=msgspec.structs.replace(finding, redis=[], **texts),
        occurrences=violation.occurrences,
        scenarios=list(violation.scenarios)[:MOST_SCENARIOS],
        reproduce=cause.example.reproduce,
    )


def _scenario(scenario: ScenarioSummary) -> JsonScenario:
    record = scenario.record
    return JsonScenario(
        id=record.id,
        title=record.title,
        area=record.area,
        tier=record.tier,
        verdict=record.verdict,
        shown=scenario.reported,
        unattributed=scenario.unattributed,
        requirements=record.requirements,
        reason=clip(record.reason, LONGEST_REASON),
        reproduce=record.reproduce,
        timings_ms=record.timings_ms,
        client_cpu_ms=record.client_cpu_ms,
        oracle_cpu_ms=record.oracle_cpu_ms,
        repeated=record.repeated,
    )


def render_badge(summary: Summary) -> str:
    """Render the badge: the JSON that shields.io reads from an endpoint (https://shields.io/badges/endpoint-badge).

    It says as what the client is conformant and how much was decided: bright green for all profiles, green for some,
    yellow where known failures are excused. Nothing else is green.
    """
    message, color = _badge_message(summary)
    badge = {
        "schemaVersion": 1,
        "label": visible(f"BullMQ {summary.run.header.oracle.version}", keep_newlines=False),
        "message": message,
        "color": color,
        "isError": summary.conclusion.state in {"not-conformant", "undecided"},
    }
    return json.dumps(badge, ensure_ascii=False, indent=2) + "\n"


def _badge_message(summary: Summary) -> tuple[str, str]:
    if not summary.completeness.complete:
        return "incomplete run", "lightgrey"
    conclusion = summary.conclusion
    share = f"{conclusion.share.percent} %"
    match conclusion.state:
        case "conformant":
            return f"{_as_what(conclusion)} · {share}", _color(conclusion)
        case "not-conformant":
            failing = ", ".join(status.name for status in named(conclusion.profiles, {"not-conformant"}))
            return f"not conformant{f' as {failing}' if failing else ''} · {share}", "red"
        case "holds":
            return f"no verdict · {share}", "lightgrey"
        case _:
            return f"undecided · {share}", "lightgrey"


def _as_what(conclusion: Conclusion) -> str:
    """Return the conformant profiles, or what is missing in all of them."""
    if _is_everything(conclusion):
        return "conformant"
    special = [status for status in conclusion.profiles if not status.is_common]
    whole = [status.name for status in special if status.whole]
    lacking = [status.name for status in special if not status.whole]
    return f"all but {', '.join(lacking)}" if 0 < len(lacking) < len(whole) else ", ".join(whole)


def _color(conclusion: Conclusion) -> str:
    states = {status.state for status in conclusion.profiles}
    if states & {"known-failures", "not-conformant"}:
        return "yellow"
    return "brightgreen" if _is_everything(conclusion) else "green"


def _is_everything(conclusion: Conclusion) -> bool:
    return {status.state for status in conclusion.profiles} == {"conformant"} and not conclusion.open


if __name__ == "__main__":  # prints the schema, to be published next to this module
    print(compact_json(schema()), end="")
