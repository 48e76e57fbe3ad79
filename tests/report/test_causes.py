"""Findings folded by cause: what is one, in which order they come, and what they are called."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from conformance.findings import Finding
from conformance.gate.records import ScenarioRecord, StepRecord
from conformance.report.causes import MOST_CAUSES, SEVERITIES, fold, title_of
from conformance.report.summary import scenario_verdict
from tests.report.sample_runs import SAMPLE_ROWS, scenario
from tests.report.sample_runs import finding as sample_finding

MUST, SHOULD, MAY = "add.plain.waits", "events.waiting", "events.metrics"


def finding(where: str = "meta.version", requirement: str = MUST, **changes: Any) -> Finding:
    return sample_finding(requirement, where, "1", "", **changes)


def met(name: str, *findings: Finding, **changes: Any) -> ScenarioRecord:
    return scenario(name, "fail", MUST, findings=list(findings), **changes)


def test_one_place_and_kind_is_one_cause_however_often_it_is_met() -> None:
    missing = finding(kind="missing-field", severity="cosmetic")
    (cause,) = fold([met(f"s{number}", missing, missing) for number in range(388)], SAMPLE_ROWS)
    assert cause.line == "meta.version is missing, 776 times in 388 scenarios"
    (once,) = fold([met(f"s{number}", missing) for number in range(388)], SAMPLE_ROWS)
    assert once.line == "meta.version is missing, in 388 scenarios"


@pytest.mark.parametrize(
    "other",
    [
        finding("meta.paused"),
        finding(kind="missing-field"),
        finding(severity="lost-jobs"),
    ],
)
def test_another_place_or_kind_is_another_cause(other: Finding) -> None:
    assert len(fold([met("a", finding(), other)], SAMPLE_ROWS)) == 2


def test_one_place_and_kind_is_one_cause_however_many_requirements_it_violates() -> None:
    (cause,) = fold([met("a", finding(requirement=SHOULD)), met("b", finding(), finding(requirement=MAY))], SAMPLE_ROWS)
    assert (cause.requirements, cause.verdict) == ((MUST, SHOULD, MAY), "fail"), "the example is one that fails"
    assert (cause.finding.requirement, cause.level, cause.scenarios) == (MUST, "MUST", ("a", "b"))
    (excused,) = fold([met("a", finding(), known={MUST: "later"}), met("b", finding(requirement=SHOULD))], SAMPLE_ROWS)
    assert excused.verdict == "warn"


def test_repetitions_that_a_record_folded_are_counted() -> None:
    many = msgspec.structs.replace(finding("job", kind="missing-job", severity="lost-jobs"), times=40)
    (cause,) = fold([met("a", many)], SAMPLE_ROWS)
    assert cause.line == "40 jobs lost, 40 times in 1 scenario"


def stated(message: str, expected: str = "1", actual: str = "2", **changes: Any) -> Finding:
    changes = {"source": "assertion", "kind": "assertion", **changes}
    return msgspec.structs.replace(finding("scenario"), message=message, expected=expected, actual=actual, **changes)


SAME_ROOT = {
    "times are in seconds, not in ms": [
        msgspec.structs.replace(finding("job.timestamp"), expected='"1700000000000"', actual='"1700000000"'),
        msgspec.structs.replace(
            finding("event.delayed", kind="event-field"), expected="1700000005123", actual="1700000005"
        ),
        stated("a delayed job is due", "6963200000000000", "6963200000000"),
    ],
    "the marker that wakes idle workers is missing": [
        finding("marker.base", kind="missing-key"),
        finding("invariant.base-marker", kind="base-marker"),
        stated("a marker wakes the worker", "0", "null"),
    ],
    "a handle that the kit still uses is gone": [
        stated("resolve failed (other): there is no handle worker-3", source="protocol", kind="operation-failed"),
        stated(
            "close failed (other): no handle is called w1", source="protocol", kind="operation-failed", place="close"
        ),
    ],
    "the client's process crashes: fatal error: concurrent map read and map write": [
        stated(
            f"driver `./driver`: it ended (exit code 2) during {step} — keep running until stdin ends\n"
            "  the last lines of its stderr:\n  | fatal error: concurrent map read and map write\n  | \n"
            f"  | goroutine {number} [running]:",
            source="protocol",
            kind="driver-broken",
            place=step,
        )
        for number, step in ((3188, "open"), (4, "queue.add"))
    ],
    "calls are accepted that must be refused with invalid-argument": [
        stated("repeat options {'every': 1} are refused", "refused with invalid-argument", "accepted"),
        stated("an endDate in the past is refused", "refused with invalid-argument", "accepted", where="answer"),
        msgspec.structs.replace(
            finding("answer.queue.add.outcome", source="answer"), expected="invalid-argument", actual="ok"
        ),
    ],
    "does not hold: 200 jobs are completed": [
        stated("200 jobs are completed"),
        stated("1 jobs are completed", requirement=SHOULD),
    ],
    "queue.add failed (other): job 1 of q cannot be read": [
        stated("queue.add failed (other): job 1 of q cannot be read", source="protocol", kind="operation-failed"),
        stated("queue.add failed (other): job x of q2 cannot be read", source="protocol", kind="operation-failed"),
    ],
    "the answer to queue.add does not fit the schema": [
        stated("driver `a`: the answer to queue.add does not fit the schema", source="protocol", kind="driver-broken"),
        stated("driver `b`: the answer to queue.add does not fit, 3", source="protocol", kind="driver-broken"),
    ],
}


@pytest.mark.parametrize("title", SAME_ROOT)
def test_findings_with_one_root_are_one_cause(title: str) -> None:
    (cause,) = fold([met(f"s{number}", item) for number, item in enumerate(SAME_ROOT[title])], SAMPLE_ROWS)
    assert cause.title == title


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (stated("the job waits", "1000", "1"), stated("the job is active", "1000", "1")),
        (stated("a marker wakes", "0", "5"), finding("marker.base", kind="missing-key")),
        (stated("x", "refused with missing-job", "accepted"), stated("x", "refused with invalid-argument", "accepted")),
        (
            stated("queue.add failed (other): TypeError: x", source="protocol", kind="operation-failed"),
            stated("queue.add failed (other): timeout", source="protocol", kind="operation-failed"),
        ),
    ],
)
def test_other_roots_are_other_causes(one: Finding, other: Finding) -> None:
    assert len(fold([met("a", one, other)], SAMPLE_ROWS)) == 2


def test_statements_are_distinguished_by_their_content() -> None:
    one, two = (finding("scenario", source="assertion", message=text) for text in ("jobs wait", "jobs are counted"))
    assert [cause.title for cause in fold([met("a", one, two)], SAMPLE_ROWS)] == [
        "does not hold: jobs wait",
        "does not hold: jobs are counted",
    ]


def test_lost_jobs_come_first_and_are_called_lost() -> None:
    findings = [finding(f"job.{severity}", severity=severity) for severity in reversed(SEVERITIES)]
    lost = [finding("job.lost-jobs", severity="lost-jobs", key="q:2")]
    causes = fold([met("a", *findings, *lost)], SAMPLE_ROWS)
    assert [cause.finding.severity for cause in causes] == list(SEVERITIES)
    assert [cause.number for cause in causes] == [1, 2, 3, 4, 5]
    assert causes[0].line == "2 jobs lost, 2 times in 1 scenario"


def test_the_cause_of_most_failing_scenarios_comes_first() -> None:
    lost, rare = finding("job.a", severity="lost-jobs"), finding("job.b", severity="breaks-others")
    often, warned = finding("job.c", severity="missing"), finding("job.d", severity="cosmetic")
    runs = [met("a", lost, warned), met("b", often, rare, warned), met("c", often, warned), met("d", often, warned)]
    causes = fold(runs, SAMPLE_ROWS)
    assert [cause.finding.where for cause in causes] == ["job.c", "job.a", "job.b", "job.d"]


def test_roots_with_one_owner_are_one_cause_if_there_are_too_many() -> None:
    other = "add.id.counter"
    places = [finding(f"job.opts.option{number}") for number in range(MOST_CAUSES)]
    cause, statement = fold([met("a", *places), met("b", places[3], stated("x", requirement=other))], SAMPLE_ROWS)
    assert (len(cause.scenarios), cause.finding.where) == (2, "job.opts.option3"), "the root that explains most"
    assert statement.requirements == (other,)


def test_a_statement_follows_from_the_failed_call_that_violates_the_same_requirement() -> None:
    places = [finding(f"job.opts.option{number}") for number in range(MOST_CAUSES)]
    call = {"source": "protocol", "kind": "operation-failed"}
    failed = [stated("moveToFailed failed (other): active", requirement=name, **call) for name in ("x.one", "x.two")]
    runs = [met("a", *places), *(met(f"f{name.requirement}", name) for name in failed)]
    runs.append(met("c", stated("the job is in failed", requirement="x.one")))
    causes = fold(runs, SAMPLE_ROWS)
    assert [cause.title for cause in causes[:1]] == ["moveToFailed failed (other): active"]
    assert (causes[0].scenarios, len(causes)) == (("fx.one", "fx.two", "c"), 2)


def test_the_rarest_causes_are_counted_by_family_and_never_lost_jobs() -> None:
    lost = finding("job", "z.lost", kind="missing-job", severity="lost-jobs")
    rare = [finding(f"job.f{number}", f"area{number % 3}.row{number}") for number in range(200)]
    warned = [finding(f"job.w{number}", SHOULD, kind="extra-field", severity="cosmetic") for number in range(3)]
    often = finding("job.often", "z.often")
    causes = fold([met("a", *rare, *warned, lost, often), met("b", often)], SAMPLE_ROWS)
    assert len(causes) == MOST_CAUSES
    assert (causes[0].finding.where, causes[1].title) == ("job.often", "1 job lost")
    families = {cause.title.partition(":")[0] for cause in causes[-4:]}
    assert families == {"area area0", "area area1", "area area2", "warnings"}
    assert {name for cause in causes for name in cause.requirements} >= {item.requirement for item in (*rare, lost)}


def test_causes_are_sorted_by_failures_then_warnings_then_known_failures() -> None:
    known = met("a", finding("job.data", severity="lost-jobs"), known={MUST: "later"})
    others = met("b", finding("job.b", SHOULD), finding("job.c", "add.id.counter"), finding("job.d", MAY))
    causes = fold([known, others], SAMPLE_ROWS)
    assert [cause.verdict for cause in causes] == ["fail", "warn", "info", "expected-fail"]


def test_the_simplest_scenario_is_the_example() -> None:
    call = StepRecord(by="both", do="queue.add", on="queue-1")
    node = StepRecord(by="oracle", do="queue.add", on="queue-1")
    long, short = met("long", finding(), steps=[call] * 3), met("short", finding(), steps=[call])
    shared, bare = met("shared", finding(), steps=[node]), met("bare", finding())
    (cause,) = fold([bare, shared, long, short], SAMPLE_ROWS)
    assert cause.example.id == "short"
    (cause,) = fold([bare, shared], SAMPLE_ROWS)
    assert cause.example.id == "shared"


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"kind": "missing-field", "where": "job.failedReason"}, "job.failedReason is missing"),
        (
            {"kind": "missing-event", "where": "event.waiting", "source": "events"},
            "the event `waiting` is missing",
        ),
        (
            {"kind": "wrong-answer", "where": "answer.queue.getJob.job", "source": "answer"},
            "queue.getJob.job is a different answer",
        ),
        (
            {"kind": "oracle-getters", "source": "oracle-health", "where": "oracle.getters"},
            "Node's getters cannot read the client's queue",
        ),
        (
            {"kind": "argument-count", "source": "traffic", "actual": "#31 pause: 1 arguments instead of 2"},
            "pause: 1 arguments instead of 2",
        ),
        ({"kind": "new-kind", "where": "job.x"}, "job.x: new-kind"),
    ],
)
def test_titles_name_what_is_wrong(changes: dict[str, Any], title: str) -> None:
    assert title_of(msgspec.structs.replace(finding(), **changes)) == title


def test_every_severity_says_why_it_matters() -> None:
    for severity in SEVERITIES:
        cause = fold([met("a", finding(severity=severity))], SAMPLE_ROWS)[0]
        assert cause.finding.severity == severity


@pytest.mark.parametrize(("about", "shown"), [([MUST], "pass"), ([SHOULD], "warn"), ([], "warn")])
def test_a_warning_about_another_requirement_is_none_about_the_scenario(about: list[str], shown: str) -> None:
    record = scenario(
        "a",
        "pass" if about == [MUST] else "warn",
        requirements={MUST: "pass", SHOULD: "warn"},
        findings=[finding("event.waiting", SHOULD, severity="cosmetic")],
        about=about,
    )
    assert scenario_verdict(record, SAMPLE_ROWS) == shown


def test_a_failure_of_another_requirement_is_still_one_of_the_scenario() -> None:
    record = scenario("a", "fail", requirements={SHOULD: "pass", MUST: "fail"}, findings=[finding()], about=[SHOULD])
    assert scenario_verdict(record, SAMPLE_ROWS) == "fail"
