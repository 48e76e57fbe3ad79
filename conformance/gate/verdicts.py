"""From what a trial found to verdicts, to the scenario's line in the run file, and to pytest's outcome."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
import pytest

from conformance.findings import Finding
from conformance.gate.known import KnownFailure, excuse
from conformance.gate.options import RunConfig
from conformance.gate.records import ScenarioRecord, Verdict, redacted, worst
from conformance.gate.selection import area_of, scenario_id, tier_of_item
from conformance.gate.trial import TrialResult
from conformance.ledger.loader import Ledger
from conformance.options import options_of
from conformance.participants.marks import Scenario


def verdict_of(finding: Finding, ledger: Ledger) -> Verdict:
    """A MUST fails, a SHOULD warns, a MAY only informs; what is merely cosmetic never fails."""
    level = ledger.row(finding.requirement).level
    if level == "MAY":
        return "pass"
    return "warn" if level == "SHOULD" or finding.severity == "cosmetic" else "fail"


def requirement_verdicts(
    requirements: tuple[str, ...], findings: Iterable[Finding], ledger: Ledger, *, unblamed: Verdict
) -> dict[str, Verdict]:
    """Verdict per requirement: the scenario's own, and those that its findings are attributed to.

    `unblamed`: the verdict of the scenario's own requirements that no finding speaks against. It is `pass` only where
    the scenario came to its end; else they were not fully looked at.
    """
    verdicts: dict[str, Verdict] = {}
    for finding in findings:
        verdict = verdict_of(finding, ledger)
        verdicts[finding.requirement] = worst([verdicts.get(finding.requirement, "pass"), verdict])
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
    """The scenario's line. What is only a warning about somebody else's requirement is no verdict on this scenario."""
    verdicts = _verdicts(scenario, result, ledger)
    plain = ScenarioRecord(
        id=scenario_id(item),
        title=scenario.title,
        area=area_of(item),
        tier=tier_of_item(item, scenario),
        verdict=worst(verdicts.values()),
        requirements=verdicts,
        findings=result.findings,
        reason=result.error or result.changed or result.unsupported or result.inconclusive or result.given_up,
        timings_ms={name: round(spent, 3) for name, spent in result.timings_ms.items()},
        reproduce=reproduce_line(scenario_id(item), config),
        log=result.log,
        unanswered=result.unanswered,
        about=list(scenario.requirements),
        steps=result.steps,
    )
    return with_excuses(plain, known, ledger, reached_end=result.reached_end)


def with_excuses(
    record: ScenarioRecord, known: Collection[KnownFailure], ledger: Ledger, *, reached_end: bool
) -> ScenarioRecord:
    """The scenario's line where these failures are known. `reached_end`: it was not cut short."""
    failing = [finding for finding in record.findings if verdict_of(finding, ledger) == "fail"]
    excused = excuse(failing, known, record.id)
    if excused and not reached_end:
        excused |= {name: NOT_REACHED for name, verdict in record.requirements.items() if verdict in UNFINISHED}
    counting = (
        verdict
        for name, verdict in record.requirements.items()
        if name not in excused and not (verdict == "warn" and name not in record.about)
    )
    return msgspec.structs.replace(record, verdict=worst(counting), known=excused)


def _verdicts(scenario: Scenario, result: TrialResult, ledger: Ledger) -> dict[str, Verdict]:
    if result.error:
        return dict.fromkeys(scenario.requirements, "error")
    verdicts = requirement_verdicts(scenario.requirements, result.findings, ledger, unblamed=unblamed(result))
    # However the scenario ended: what the oracle did says nothing of the client.
    return {**verdicts, **dict.fromkeys(result.undecided, "unsupported")}


def unblamed(result: TrialResult) -> Verdict:
    """What is known of a requirement that no finding of the trial speaks against."""
    if result.changed:
        return "changed"
    if result.reached_end:
        # What belongs to a job that only one side has is not compared: its events, its lock, its place.
        one_sided = any(finding.kind in ("missing-job", "extra-job") for finding in result.findings)
        return "unchecked" if one_sided else "pass"
    if result.unsupported:
        return "unsupported"
    return "inconclusive" if result.inconclusive else "unchecked"


def reproduce_line(scenario: str, config: RunConfig) -> str:
    """The command that runs this scenario again in the same way; a password in it has to be filled in again."""
    words = ["bullmq-conformance", "run", "--select", scenario, "--tier", config.tier]
    words += [word for option in options_of(RunConfig) if option.reproduce for word in option.words(config)]
    words += ["--", *config.command] if config.command else ["--client", config.client]
    return shlex.join(redacted([without_local_folder(word) for word in words]))


SYSTEM_FOLDERS = ("/usr/", "/bin/", "/opt/")


def without_local_folder(word: str) -> str:
    """A word of a command line as it can be passed on: a program on PATH by its name, a file as seen from here.

    Where systems have their programs is the same on other machines.
    """
    before, separator, path = word.rpartition("=" if word.startswith("--") else "binary:")
    if not Path(path).is_absolute() or path.startswith(SYSTEM_FOLDERS):
        return word
    name = Path(path).name
    return f"{before}{separator}{name if shutil.which(name) == path else os.path.relpath(path)}"


def conclude(record: ScenarioRecord) -> None:
    """Tell pytest: raise its own outcome exceptions for a scenario that did not simply pass."""
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
