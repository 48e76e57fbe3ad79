"""From the evidence of a scenario to its line in the run file, and to pytest's outcome."""

from __future__ import annotations

import shlex
from collections.abc import Collection

import pytest

from conformance.gate.judging.attribution import requirement_verdicts, verdict_of, worst
from conformance.gate.judging.known import Known, excuse
from conformance.gate.run.config import RunConfig
from conformance.gate.run.records import ScenarioRecord, Verdict
from conformance.gate.run.redaction import redacted
from conformance.gate.run.selection import area_of, scenario_id
from conformance.gate.scenario import Scenario
from conformance.gate.trial import Evidence
from conformance.ledger.loader import Ledger

NOT_REACHED = "not reached, because of a known failure before it"


def make_record(
    item: pytest.Item,
    scenario: Scenario,
    evidence: Evidence,
    *,
    config: RunConfig,
    known: Collection[Known],
    ledger: Ledger,
) -> ScenarioRecord:
    """The scenario's line."""
    verdicts = _verdicts(scenario, evidence, ledger)
    failing = [finding for finding in evidence.findings if verdict_of(finding, ledger) == "fail"]
    excused = excuse(failing, known)
    if excused and not evidence.reached_end:
        excused |= {name: NOT_REACHED for name, verdict in verdicts.items() if verdict == "inconclusive"}
    return ScenarioRecord(
        id=scenario_id(item),
        title=scenario.title,
        area=area_of(item),
        tier=scenario.tier,
        verdict=worst(verdict for name, verdict in verdicts.items() if name not in excused),
        requirements=verdicts,
        findings=evidence.findings,
        known=excused,
        reason=evidence.error or evidence.unsupported or evidence.inconclusive,
        timings_ms={name: round(spent, 3) for name, spent in evidence.timings_ms.items()},
        reproduce=reproduce_line(scenario_id(item), config),
        log=evidence.log,
    )


def _verdicts(scenario: Scenario, evidence: Evidence, ledger: Ledger) -> dict[str, Verdict]:
    if evidence.error:
        return dict.fromkeys(scenario.requirements, "error")
    verdicts = requirement_verdicts(scenario.requirements, evidence.findings, ledger, reached_end=evidence.reached_end)
    if evidence.unsupported:
        return {name: "unsupported" if verdict == "inconclusive" else verdict for name, verdict in verdicts.items()}
    return verdicts


def reproduce_line(scenario: str, config: RunConfig) -> str:
    """The command that runs this scenario again in the same way; a password in it has to be filled in again."""
    words = ["bullmq-conformance", "run", "--select", scenario.split("[", maxsplit=1)[0], "--tier", config.tier]
    for option, value in (("--redis", config.redis), ("--node", config.node), ("--seed", config.seed)):
        words += [option, str(value)] if value else []
    words += [word for rule in config.no_rule for word in ("--no-rule", rule)]
    words += ["--", *config.command] if config.command else ["--client", config.client]
    return shlex.join(redacted(words))


def conclude(record: ScenarioRecord) -> None:
    """Tell pytest: raise its own outcome exceptions for a scenario that did not simply pass."""
    if record.verdict in ("fail", "error", "inconclusive"):
        pytest.fail(_explanation(record), pytrace=False)
    if record.verdict == "unsupported":
        pytest.skip(f"unsupported by this client: {record.reason}")
    if record.known:
        pytest.xfail("; ".join(dict.fromkeys(record.known.values())))


def _explanation(record: ScenarioRecord) -> str:
    lines = [f"{record.verdict}: {record.title}"]
    lines += [record.reason] if record.reason else []
    for finding in record.findings:
        if finding.requirement not in record.known:
            lines.append(f"{finding.requirement}: {finding.message}")
            lines.append(f"    expected {finding.expected}")
            lines.append(f"    actual   {finding.actual}")
    return "\n".join([*lines, f"reproduce: {record.reproduce}"])
