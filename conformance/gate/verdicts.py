"""Verdicts of a trial, the scenario's line in the run file, and pytest's outcome."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import pytest

from conformance.findings import Finding
from conformance.gate.known_failures import KnownFailure, excuse
from conformance.gate.options import RunConfig
from conformance.gate.record_bounds import compact, readable
from conformance.gate.records import SYSTEM_FOLDERS, ScenarioRecord, Verdict, redacted, worst
from conformance.gate.selection import area_of, scenario_id, tier_of_item
from conformance.gate.trial_result import TrialResult
from conformance.ledger.loader import Ledger
from conformance.options import options_of
from conformance.participants.marks import Scenario


def verdict_of(finding: Finding, ledger: Ledger) -> Verdict:
    """Return the verdict of a finding: a MUST fails, a SHOULD warns, a MAY informs; cosmetic findings never fail."""
    level = ledger.row(finding.requirement).level
    if level == "MAY":
        return "pass"
    return "warn" if level == "SHOULD" or finding.severity == "cosmetic" else "fail"


def requirement_verdicts(
    requirements: tuple[str, ...], findings: Iterable[Finding], ledger: Ledger, *, unblamed: Verdict
) -> dict[str, Verdict]:
    """Return the verdict of the scenario's own requirements, and of those that its findings count against.

    `unblamed`: the verdict of own requirements without findings. It is `pass` only if the scenario reached its end;
    otherwise they were not fully checked.
    """
    verdicts: dict[str, Verdict] = {}
    for finding in findings:
        verdict = verdict_of(finding, ledger)
        verdicts[finding.requirement] = worst([verdicts.get(finding.requirement, "pass"), verdict])
    # Findings override `unblamed`, also for requirements that only attribution brings in.
    return {**dict.fromkeys(requirements, unblamed), **verdicts}


NOT_REACHED = "not reached, because of a known failure before it"
UNFINISHED: tuple[Verdict, ...] = ("inconclusive", "unchecked")


def make_record(
    item: pytest.Item,
    scenario: Scenario,
    result: TrialResult,
    *,
    config: RunConfig,
    known: Collection[KnownFailure],
    ledger: Ledger,
) -> ScenarioRecord:
    """Return the scenario's line. A warning about a requirement of another scenario does not affect its verdict."""
    verdicts = _verdicts(scenario, result, ledger)
    plain = readable(
        ScenarioRecord(
            id=scenario_id(item),
            title=scenario.title,
            area=area_of(item),
            tier=tier_of_item(item, scenario),
            verdict=worst(verdicts.values()),
            requirements=verdicts,
            findings=result.findings,
            # The worst reason first: an error explains all the others.
            reason=result.error or result.changed or result.unsupported or result.inconclusive or result.given_up,
            timings_ms={name: round(spent, 3) for name, spent in result.timings_ms.items()},
            client_cpu_ms=result.cpu_ms.get("client", 0.0),
            oracle_cpu_ms=result.cpu_ms.get("oracle", 0.0),
            reproduce=reproduce_line(scenario_id(item), config),
            log=result.log,
            unanswered=result.unanswered,
            about=list(scenario.requirements),
            steps=result.steps,
        )
    )
    # Folded last: an entry of known.toml may excuse some findings of a kind and not others.
    return compact(with_excuses(plain, known, ledger, reached_end=result.reached_end))


def with_excuses(
    record: ScenarioRecord, known: Collection[KnownFailure], ledger: Ledger, *, reached_end: bool
) -> ScenarioRecord:
    """Return the scenario's line with known failures excused. `reached_end`: the scenario was not cut short."""
    failing = [finding for finding in record.findings if verdict_of(finding, ledger) == "fail"]
    excused = excuse(failing, known, record.id)
    # Only if the known failure stopped the scenario: a finished scenario has checked everything.
    if excused and not reached_end:
        excused |= {name: NOT_REACHED for name, verdict in record.requirements.items() if verdict in UNFINISHED}
    counting = (
        verdict
        for name, verdict in record.requirements.items()
        # A warning about another scenario's requirement is reported, but does not decide this one.
        if name not in excused and not (verdict == "warn" and name not in record.about)
    )
    return msgspec.structs.replace(record, verdict=worst(counting), known=excused)


def _verdicts(scenario: Scenario, result: TrialResult, ledger: Ledger) -> dict[str, Verdict]:
    # No finding of a broken trial can be trusted, so all requirements get the error.
    if result.error:
        return dict.fromkeys(scenario.requirements, "error")
    verdicts = requirement_verdicts(scenario.requirements, result.findings, ledger, unblamed=unblamed(result))
    # Also after an abort: operations of a stand-in show nothing about the client.
    return {**verdicts, **dict.fromkeys(result.undecided, "unsupported")}


def unblamed(result: TrialResult) -> Verdict:
    """Return the verdict of a requirement that no finding counts against."""
    # `changed` comes first: on an unsupported oracle even a full run was not compared with what was expected.
    if result.changed:
        return "changed"
    if result.reached_end:
        # If only one side has a job, its events, lock and position were not compared.
        one_sided = any(finding.kind in ("missing-job", "extra-job") for finding in result.findings)
        return "unchecked" if one_sided else "pass"
    if result.unsupported:
        return "unsupported"
    return "inconclusive" if result.inconclusive else "unchecked"


def reproduce_line(scenario: str, config: RunConfig) -> str:
    """Return the command that repeats this scenario with the same options; passwords in it are replaced by `***`."""
    words = ["bullmq-conformance", "run", "--select", scenario, "--tier", config.tier]
    words += [word for option in options_of(RunConfig) if option.reproduce for word in option.words(config)]
    words += ["--", *config.command] if config.command else ["--client", config.client]
    return shlex.join(redacted([without_local_folder(word) for word in words]))


def without_local_folder(word: str) -> str:
    """Return a word of a command line without local folders: programs on PATH by name, files relative to here.

    System folders stay, because they are the same on other machines.
    """
    before, separator, path = word.rpartition("=" if word.startswith("--") else "binary:")
    if not Path(path).is_absolute() or path.startswith(SYSTEM_FOLDERS):
        return word
    name = Path(path).name
    return f"{before}{separator}{name if shutil.which(name) == path else os.path.relpath(path)}"


def conclude(record: ScenarioRecord) -> None:
    """Raise pytest's outcome exception for a scenario that did not simply pass."""
    # Everything but a plain failure is a skip or an expected failure for pytest.
    if record.verdict in ("fail", "error", "inconclusive"):
        pytest.fail(_explanation(record), pytrace=False)
    if record.verdict == "changed":
        pytest.skip(record.reason)
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
