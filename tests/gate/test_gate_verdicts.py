"""From findings to verdicts, and from a scenario's evidence to its record."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec
import pytest

from conformance.findings import Finding, Severity
from conformance.gate import verdicts
from conformance.gate.known_failures import KnownFailure
from conformance.gate.options import RunConfig
from conformance.gate.records import HIDDEN, ScenarioRecord, Verdict, redacted, worst
from conformance.gate.trial_result import TrialResult
from conformance.gate.verdicts import requirement_verdicts, verdict_of

from .gate_builders import finding, item, levels, made

OWN = ("a.must", "a.should")

# Verdicts of findings.


@pytest.mark.parametrize(
    ("requirement", "severity", "verdict"),
    [
        ("a.must", "wrong-behaviour", "fail"),
        ("a.must", "breaks-others", "fail"),
        ("a.must", "missing", "fail"),
        ("a.must", "cosmetic", "warn"),
        ("a.should", "breaks-others", "warn"),
        ("a.should", "cosmetic", "warn"),
        ("a.may", "breaks-others", "pass"),
    ],
)
def test_the_level_and_the_severity_decide(requirement: str, severity: Severity, verdict: Verdict) -> None:
    assert verdict_of(finding(requirement, severity=severity), levels()) == verdict


# Verdicts of the requirements of a scenario.


def test_without_findings_everything_passes() -> None:
    assert requirement_verdicts(OWN, [], levels(), unblamed="pass") == {"a.must": "pass", "a.should": "pass"}


def test_a_requirement_that_was_not_reached_is_unchecked() -> None:
    verdicts = requirement_verdicts(OWN, [finding("a.must")], levels(), unblamed="unchecked")
    assert verdicts == {"a.must": "fail", "a.should": "unchecked"}


def test_a_warning_on_the_way_does_not_stay_unchecked() -> None:
    verdicts = requirement_verdicts(OWN, [finding("a.should")], levels(), unblamed="unchecked")
    assert verdicts == {"a.must": "unchecked", "a.should": "warn"}


def test_a_finding_may_count_against_a_requirement_of_another_scenario() -> None:
    verdicts = requirement_verdicts(OWN, [finding("a.name")], levels(), unblamed="pass")
    assert verdicts == {"a.must": "pass", "a.should": "pass", "a.name": "fail"}


def test_the_gravest_finding_counts() -> None:
    findings = [finding("a.must", severity="cosmetic"), finding("a.must"), finding("a.must", severity="cosmetic")]
    assert requirement_verdicts(("a.must",), findings, levels(), unblamed="pass") == {"a.must": "fail"}


@pytest.mark.parametrize(
    ("verdicts", "gravest"),
    [
        ([], "pass"),
        (["pass", "warn"], "warn"),
        (["error", "fail"], "fail"),
        (["unsupported", "warn"], "warn"),
        (["inconclusive", "fail"], "fail"),
    ],
)
def test_the_gravest_of_several_verdicts(verdicts: list[Verdict], gravest: Verdict) -> None:
    assert worst(verdicts) == gravest


# Records.


def recorded(
    evidence: TrialResult, *known: KnownFailure, requirements: tuple[str, ...] = OWN, config: RunConfig | None = None
) -> ScenarioRecord:
    return verdicts.make_record(
        item(made(*requirements), name="test_it[one-two]"),
        made(*requirements),
        evidence,
        config=config or RunConfig(),
        known=known,
        ledger=levels(),
    )


def test_a_record_says_what_ran() -> None:
    one = recorded(TrialResult(timings_ms={"total": 1.23456}, log=["a line"]))
    assert (one.id, one.area, one.tier) == ("job-hash/it[one-two]", "job-hash", "core")
    assert one.title == "Something holds."
    assert one.verdict == "pass"
    assert one.timings_ms == {"total": 1.235}
    assert one.log == ["a line"]


def test_an_error_says_nothing_about_the_client() -> None:
    one = recorded(TrialResult(error="the oracle fell over", findings=[finding()]))
    assert one.verdict == "error"
    assert one.requirements == {"a.must": "error", "a.should": "error"}
    assert one.reason == "the oracle fell over"


def test_an_unsupported_scenario_is_shown_as_unsupported() -> None:
    one = recorded(TrialResult(unsupported="no queue.add", reached_end=False))
    assert one.verdict == "unsupported"
    assert set(one.requirements.values()) == {"unsupported"}
    assert one.reason == "no queue.add"


def test_a_failure_before_the_unsupported_call_still_fails() -> None:
    one = recorded(TrialResult(unsupported="no queue.add", reached_end=False, findings=[finding("a.must")]))
    assert one.requirements == {"a.must": "fail", "a.should": "unsupported"}
    assert one.verdict == "fail"


@pytest.mark.parametrize(("kind", "verdict"), [("missing-job", "unchecked"), ("extra-job", "unchecked"), ("x", "pass")])
def test_facts_about_a_job_of_one_side_only_were_not_checked(kind: str, verdict: Verdict) -> None:
    lost = msgspec.structs.replace(finding("a.must"), kind=kind, where="job")
    assert recorded(TrialResult(findings=[lost])).requirements == {"a.must": "fail", "a.should": verdict}


@pytest.mark.parametrize(
    "ended", [{}, {"reached_end": False}, {"reached_end": False, "inconclusive": "no answer"}], ids=repr
)
def test_requirements_that_only_the_oracle_performed_are_unsupported_for_any_ending(ended: dict[str, Any]) -> None:
    one = recorded(TrialResult(undecided=frozenset({"a.should"}), **ended))
    assert one.requirements["a.should"] == "unsupported"
    assert one.requirements["a.must"] != "unsupported"
    everything = recorded(TrialResult(undecided=frozenset(OWN), **ended))
    assert (everything.verdict, set(everything.requirements.values())) == ("unsupported", {"unsupported"})


def test_an_open_question_is_inconclusive() -> None:
    one = recorded(TrialResult(inconclusive="cannot be known", reached_end=False))
    assert one.verdict == "inconclusive"
    assert one.reason == "cannot be known"


def test_a_known_failure_is_excused_and_stays_visible() -> None:
    one = recorded(TrialResult(findings=[finding("a.must")]), KnownFailure(requirement="a.must", reason="old"))
    assert one.requirements["a.must"] == "fail"
    assert one.known == {"a.must": "old"}
    assert one.verdict == "pass"


def test_a_known_failure_excuses_what_was_not_reached_because_of_it() -> None:
    evidence = TrialResult(findings=[finding("a.must")], reached_end=False)
    one = recorded(evidence, KnownFailure(requirement="a.must", reason="old"))
    assert one.known == {"a.must": "old", "a.should": verdicts.NOT_REACHED}
    assert one.verdict == "pass"


def test_an_unknown_failure_excuses_nothing() -> None:
    evidence = TrialResult(findings=[finding("a.must")], reached_end=False)
    one = recorded(evidence, KnownFailure(requirement="a.name", reason="another"))
    assert one.known == {}
    assert one.verdict == "fail"


def test_an_error_is_never_excused() -> None:
    evidence = TrialResult(error="no Redis", findings=[finding("a.must")])
    assert recorded(evidence, KnownFailure(requirement="a.must", reason="old")).verdict == "error"


def test_a_suspicion_needs_no_excuse_next_to_a_known_failure() -> None:
    findings = [finding("a.must", where="job.name"), finding("a.must", where="event.added", severity="cosmetic")]
    one = recorded(TrialResult(findings=findings), KnownFailure(requirement="a.must", reason="old", where="job.*"))
    assert one.known == {"a.must": "old"}
    assert one.verdict == "pass"


def test_a_warning_needs_no_excuse() -> None:
    one = recorded(TrialResult(findings=[finding("a.should")]), KnownFailure(requirement="a.must", reason="old"))
    assert one.verdict == "warn"
    assert one.known == {}


# The report to pytest.


def conclusion(one: ScenarioRecord) -> str:
    try:
        verdicts.conclude(one)
    except BaseException as raised:  # noqa: BLE001 - pytest's outcomes are not Exceptions
        return f"{type(raised).__name__}: {raised}"
    return "passed"


def test_each_verdict_has_its_outcome_in_pytest() -> None:
    excused = recorded(TrialResult(findings=[finding("a.must")]), KnownFailure(requirement="a.must", reason="old"))
    assert conclusion(recorded(TrialResult())) == "passed"
    assert conclusion(recorded(TrialResult(findings=[finding("a.should")]))) == "passed"
    assert conclusion(recorded(TrialResult(unsupported="no op", reached_end=False))).startswith("Skipped: unsupported")
    assert conclusion(excused).startswith("XFailed")
    assert conclusion(recorded(TrialResult(error="broke"))).startswith("Failed: error: Something holds.\nbroke")
    assert conclusion(recorded(TrialResult(inconclusive="?", reached_end=False))).startswith("Failed: inconclusive")


def test_a_failure_shows_the_requirement_both_sides_and_how_to_reproduce_it() -> None:
    found: list[Finding] = [finding("a.must", message="this one"), finding("a.name", message="that one")]
    one = recorded(TrialResult(findings=found), KnownFailure(requirement="a.name", reason="old"))
    text = conclusion(one)
    assert "a.must: this one\n    expected one\n    actual   another" in text
    assert "that one" not in text
    assert text.endswith(f"reproduce: {one.reproduce}")


# Running it again.


def test_the_reproduce_line_names_everything_that_matters() -> None:
    config = RunConfig(client="node", redis="bundled", node="/opt/node", seed=7, tier="full")
    assert recorded(TrialResult(), config=config).reproduce == (
        "bullmq-conformance run --select 'job-hash/it[one-two]' --tier full"
        " --redis bundled --node /opt/node --seed 7 --client node"
    )


def test_the_reproduce_line_of_a_driver_quotes_its_command() -> None:
    line = recorded(TrialResult(), config=RunConfig(client="mine", command=["my driver", "-v"])).reproduce
    assert shlex.split(line)[-3:] == ["--", "my driver", "-v"]


def test_the_reproduce_line_shows_no_password() -> None:
    line = recorded(TrialResult(), config=RunConfig(redis="rediss://me:s3cret@redis.example:6380/2")).reproduce
    assert "s3cret" not in line
    assert shlex.split(line)[-3] == f"rediss://me:{HIDDEN}@redis.example:6380/2"


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://me@h:6379", "redis://me@h:6379"),
        ("redis://me:pw@h", "redis://me:***@h"),
        ("redis://:pw@h", "redis://:***@h"),
        ("--redis=redis://:p:w/@x@h/1", "--redis=redis://:***@h/1"),
        ("redis+cluster://u:pw@a:1,b:2", "redis+cluster://u:***@a:1,b:2"),
        ("REDIS://u:pw@h", "REDIS://u:***@h"),
        ("a:b@c", "a:b@c"),
        ("--select", "--select"),
    ],
)
def test_only_the_password_is_hidden(word: str, written: str) -> None:
    assert redacted([word]) == [written]
