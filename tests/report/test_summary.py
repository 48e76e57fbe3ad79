"""The aggregation: worst verdicts, overlays, levels, repeated findings, and the conclusion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.findings import Finding
from conformance.gate.conclusion import ConclusionState
from conformance.gate.outcomes import ReportedVerdict
from conformance.gate.records import ScenarioRecord, Verdict
from conformance.report.run_file import Run, read_run
from conformance.report.summary import (
    NO_ROWS,
    RequirementRows,
    RequirementSummary,
    Summary,
    open_facts,
    run_facts,
    scenario_verdict,
    summarise,
    verdict_facts,
)
from tests.report import sample_runs

MUST, SHOULD, MAY = "add.plain.waits", "events.waiting", "events.metrics"


@pytest.fixture
def build(rows: RequirementRows) -> Callable[..., Summary]:
    """Summarise scenarios in an otherwise ordinary run."""

    def of(*scenarios: ScenarioRecord, exit_code: int = 0, stale: dict[str, str] | None = None) -> Summary:
        first = sample_runs.header(planned=len(scenarios))
        last = sample_runs.footer(exit_code=exit_code, stale=stale or {})
        return summarise(Run(header=first, scenarios=scenarios, footer=last), rows, sample_runs.SAMPLE_PROFILES)

    return of


@pytest.fixture
def build_with_rest(build: Callable[..., Summary], rows: RequirementRows) -> Callable[..., Summary]:
    """The like, in a run in which every other requirement of the ledger passes."""

    def of(*scenarios: ScenarioRecord, **settings: Any) -> Summary:
        spoken_of = {requirement for scenario in scenarios for requirement in scenario.requirements}
        return build(*scenarios, *(scenario("pass", row) for row in rows if row not in spoken_of), **settings)

    return of


def scenario(verdict: Verdict, requirement: str = MUST, **changes: Any) -> ScenarioRecord:
    return sample_runs.scenario(f"add.{verdict}", verdict, requirement, **changes)


def finding(requirement: str = MUST, expected: str = "1", actual: str = "2", where: str = "job.opts") -> Finding:
    return sample_runs.finding(requirement, where, expected, actual)


def only(summary: Summary) -> RequirementSummary:
    (requirement,) = summary.requirements
    return requirement


def test_a_failure_has_no_reason_from_a_scenario_that_ended_differently(build: Callable[..., Summary]) -> None:
    busy, gone = "the machine was too busy", "the driver could not be used"
    undecided = scenario("inconclusive", reason=busy)
    failing = scenario("fail", findings=[finding()], reason="a hanging call was not repeated")
    assert only(build(scenario("pass"), undecided)).reasons == (busy,)
    assert only(build(undecided, failing)).reasons == ()
    assert only(build(undecided, failing, scenario("error", reason=gone))).reasons == ()
    assert only(build(undecided, scenario("error", reason=gone))).reasons == (gone,)


@pytest.mark.parametrize(
    ("verdicts", "shown"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "unsupported"), "pass"),
        (("pass", "unsupported", "warn"), "warn"),
        (("warn", "inconclusive"), "inconclusive"),
        (("inconclusive", "error"), "error"),
        (("pass", "error", "fail"), "fail"),
    ],
)
def test_the_worst_scenario_decides(
    verdicts: tuple[Verdict, ...], shown: ReportedVerdict, build: Callable[..., Summary]
) -> None:
    requirement = only(build(*map(scenario, verdicts)))
    assert requirement.reported == shown
    assert len(requirement.scenarios) == len(verdicts)


@pytest.mark.parametrize(
    ("requirement", "shown", "state"),
    [(MUST, "fail", "not-conformant"), (SHOULD, "warn", "conformant"), (MAY, "info", "conformant")],
)
def test_the_level_weighs_a_failure(
    requirement: str,
    shown: ReportedVerdict,
    state: ConclusionState,
    build: Callable[..., Summary],
    build_with_rest: Callable[..., Summary],
) -> None:
    assert only(build(scenario("fail", requirement))).reported == shown
    assert build_with_rest(scenario("fail", requirement)).conclusion.state == state


def test_a_may_that_passes_with_findings_informs(build: Callable[..., Summary]) -> None:
    assert only(build(scenario("pass", MAY, findings=[finding(MAY)]))).reported == "info"
    assert only(build(scenario("pass", MUST, findings=[finding(MUST)]))).reported == "pass"


def test_a_known_failure_is_excused_only_where_it_is_listed(
    build: Callable[..., Summary], build_with_rest: Callable[..., Summary]
) -> None:
    listed = scenario("fail", known={MUST: "later"})
    assert (only(build(listed)).reported, only(build(listed)).known) == ("expected-fail", ("later",))
    conclusion = build_with_rest(listed).conclusion
    assert conclusion.conformant
    assert "1 known failure" in conclusion.sentence
    assert only(build(listed, scenario("fail"))).reported == "fail"


def test_an_error_is_never_excused(build: Callable[..., Summary]) -> None:
    assert only(build(scenario("error", known={MUST: "later"}))).reported == "error"


@pytest.mark.parametrize(("known", "shown"), [({MUST: "not reached"}, "expected-fail"), ({}, "inconclusive")])
def test_an_open_question_is_excused_where_the_gate_says_so(
    known: dict[str, str], shown: str, build: Callable[..., Summary]
) -> None:
    assert only(build(scenario("inconclusive", known=known))).reported == shown


def test_a_stale_entry_keeps_the_run_from_being_conformant(
    build: Callable[..., Summary], build_with_rest: Callable[..., Summary]
) -> None:
    summary = build(scenario("pass"), stale={MUST: "was slow"})
    assert (only(summary).reported, only(summary).known) == ("stale", ("was slow",))
    assert summary.conclusion.state == "not-conformant"
    assert build_with_rest(scenario("pass")).conclusion.state == "conformant"


def test_a_run_without_scenarios_is_undecided(build: Callable[..., Summary]) -> None:
    assert build().conclusion.state == "undecided"


def test_the_exit_code_of_the_run_is_heard(build_with_rest: Callable[..., Summary]) -> None:
    assert build_with_rest(exit_code=1).conclusion.state == "not-conformant"
    assert build_with_rest(exit_code=3).conclusion.state == "undecided"
    assert build_with_rest(exit_code=0).conclusion.state == "conformant"


def test_a_good_exit_code_does_not_outvote_a_failure(build: Callable[..., Summary]) -> None:
    assert build(scenario("fail"), exit_code=0).conclusion.state == "not-conformant"


def test_a_finding_against_a_requirement_without_a_verdict_is_a_failure(build: Callable[..., Summary]) -> None:
    summary = build(scenario("fail", findings=[finding(), finding("lock.renewed")]))
    assert {requirement.id: requirement.reported for requirement in summary.requirements} == {
        MUST: "fail",
        "lock.renewed": "fail",
    }


def test_an_error_without_a_requirement_is_not_lost(build: Callable[..., Summary]) -> None:
    summary = build(scenario("error", requirements={}), scenario("pass"))
    assert [scenario.record.verdict for scenario in summary.unattributed] == ["error"]
    assert summary.conclusion.state == "undecided"
    both = build(scenario("error", requirements={MUST: "fail"}))
    assert both.scenarios[0].unattributed
    assert not build(scenario("error")).unattributed


def test_equal_findings_are_counted_once(build: Callable[..., Summary]) -> None:
    noon, later = finding(expected="1700000000000", actual="5"), finding(expected="1700000009999", actual="5")
    other_value, other_place = finding(expected="3", actual="5"), finding(where="job.data")
    summary = build(
        scenario("fail", id="a", findings=[noon, later]),
        scenario("fail", id="b", findings=[later, other_value, other_place]),
    )
    causes = only(summary).causes
    assert [(cause.occurrences, cause.scenarios) for cause in causes] == [(4, ("a", "b")), (1, ("b",))]
    assert causes[0].finding == noon


def test_the_most_severe_finding_comes_first(build: Callable[..., Summary]) -> None:
    cosmetic = msgspec.structs.replace(finding(), severity="cosmetic")
    breaking = msgspec.structs.replace(finding(where="job.id"), severity="breaks-others")
    causes = only(build(scenario("fail", findings=[cosmetic, breaking]))).causes
    assert [cause.finding.severity for cause in causes] == ["breaks-others", "cosmetic"]


def test_areas_come_from_the_ledger_and_else_from_the_scenario(
    run_path: Callable[[str], Path], rows: RequirementRows
) -> None:
    run = read_run(run_path("full"))
    assert [area.name for area in summarise(run, rows).areas] == ["add", "events", "flow", "lock", "retry"]
    without = summarise(run, NO_ROWS)
    assert {requirement.id: requirement.area for requirement in without.requirements}["add.timestamp"] == "add"
    assert {requirement.level for requirement in without.requirements} == {None}


def test_counts_add_up(summary_of: Callable[[str], Summary]) -> None:
    summary = summary_of("full")
    assert sum(summary.counts.values()) == len(summary.requirements)
    assert sum(sum(area.counts.values()) for area in summary.areas) == len(summary.requirements)
    assert sum(summary.scenario_counts.values()) == len(summary.scenarios)


def test_untested_requirements_are_listed(summary_of: Callable[[str], Summary]) -> None:
    summary = summary_of("full")
    assert summary.untested == ("rate.limit",)
    assert dict(open_facts(summary_of("conformant").conclusion))["worker"] == (
        "3 not run: lock.renewed, retry.fixed-backoff, retry.jitter; 1 in tier full: rate.limit"
    )


def test_a_selection_names_only_what_it_checked(rows: RequirementRows) -> None:
    header = sample_runs.header(planned=1, options={"select": ["add.*"]})
    run = Run(header=header, scenarios=(scenario("pass"),), footer=sample_runs.footer())
    conclusion = summarise(run, rows, sample_runs.SAMPLE_PROFILES).conclusion
    assert [name for name, _ in verdict_facts(conclusion)] == ["producer"]
    assert open_facts(conclusion)[-1] == ("all others", "9 outside the selection")


def test_many_open_requirements_are_counted_and_some_are_named(summary_of: Callable[[str], Summary]) -> None:
    facts = dict(open_facts(summary_of("conformant").conclusion, limit=1))
    assert facts["worker"] == "3 not run: lock.renewed and 2 more; 1 in tier full: rate.limit"


@pytest.mark.parametrize("planned", [3, 4])
def test_a_missing_scenario_makes_a_run_incomplete(planned: int, run_path: Callable[[str], Path]) -> None:
    run = read_run(run_path("conformant"))
    header = msgspec.structs.replace(run.header, planned=planned)
    whole = Run(header=header, scenarios=run.scenarios, footer=run.footer)
    summary = summarise(whole, sample_runs.SAMPLE_ROWS, sample_runs.SAMPLE_PROFILES)
    assert summary.completeness.complete == (planned == 3)
    assert summary.conclusion.conformant == (planned == 3)


def test_a_cut_run_is_never_conformant_but_may_be_known_not_to_be(
    summary_of: Callable[[str], Summary], run_path: Callable[[str], Path]
) -> None:
    assert summary_of("incomplete").conclusion.state == "undecided"
    full = read_run(run_path("full"))
    cut = summarise(Run(header=full.header, scenarios=full.scenarios, footer=None))
    assert cut.conclusion.state == "not-conformant"


def test_the_word_for_a_single_scenario(rows: RequirementRows) -> None:
    assert scenario_verdict(scenario("fail", SHOULD), rows) == "warn"
    assert scenario_verdict(scenario("fail", SHOULD)) == "fail"
    assert scenario_verdict(scenario("fail", known={MUST: "later"}), rows) == "expected-fail"
    assert scenario_verdict(scenario("unsupported", requirements={}), rows) == "unsupported"
    assert scenario_verdict(scenario("pass"), rows) == "pass"


def test_a_run_names_all_versions_that_took_part() -> None:
    parties: dict[str, Any] = {
        "client": sample_runs.party(packages={"redis": "7.4.1", "msgpack": "1.1.2"}),
        "oracle": sample_runs.party(name="node", language="javascript", version="6.7.0", packages={"ioredis": "5.9.0"}),
    }
    run = Run(header=sample_runs.header(**parties), scenarios=(), footer=None)
    facts = dict(run_facts(run))
    assert facts["client"] == "sample-client 1.4.0 (python; redis 7.4.1, msgpack 1.1.2), targets BullMQ 5.62.0"
    assert facts["oracle"] == "node 6.7.0 (javascript; ioredis 5.9.0)"


def test_a_run_names_the_redis_that_scenarios_start_if_it_is_another_one() -> None:
    def facts(**environment: str) -> dict[str, str]:
        return dict(run_facts(Run(header=sample_runs.header(environment=environment), scenarios=(), footer=None)))

    named = facts(**{"private redis": "redis-server 7.0.15 from PATH"})["private redis"]
    assert named == "redis-server 7.0.15 from PATH (in scenarios that restart Redis or fill its memory)"
    assert "private redis" not in facts()


def test_a_run_names_what_held_only_when_it_was_repeated() -> None:
    held = msgspec.structs.replace(scenario("pass"), unsteady="now and then")
    run = Run(header=sample_runs.header(), scenarios=(held, scenario("pass")), footer=None)
    assert dict(run_facts(run))["unsteady"] == f"{held.id}: failed, but held when repeated (now and then)"
    assert "unsteady" not in dict(run_facts(Run(header=run.header, scenarios=(scenario("pass"),), footer=None)))


@pytest.mark.parametrize(("client_ms", "is_named"), [(60_001.0, True), (60_000.0, False)])
def test_a_client_that_needs_ten_times_the_oracles_time_is_named(client_ms: float, is_named: bool) -> None:
    spent = msgspec.structs.replace(scenario("pass"), client_cpu_ms=client_ms, oracle_cpu_ms=6000.0)
    facts = dict(run_facts(Run(header=sample_runs.header(), scenarios=(spent,), footer=None)))
    assert facts.get("cpu time") == ("the client has used 1 min 00 s, the oracle 6.0 s" if is_named else None)


def test_installed_packages_are_named_with_one_hash_of_all() -> None:
    header = sample_runs.header()
    installed = {"bullmq": "5.62.0 sha512-a", "ioredis": "5.8.1 sha512-b"}
    texts = set()
    for who in ("oracle", "client"):
        party = msgspec.structs.replace(getattr(header, who), installed=installed)
        run = Run(header=msgspec.structs.replace(header, **{who: party}), scenarios=(), footer=None)
        named, _, text = dict(run_facts(run))["installed"].partition(": ")
        assert named == who
        texts.add(text)
        installed["ioredis"] = "5.8.1 sha512-c"
    assert all(text.startswith("2 verified packages, sha256 ") for text in texts)
    assert len(texts) == 2, "another archive has another hash"
    assert "installed" not in dict(run_facts(Run(header=header, scenarios=(), footer=None)))
