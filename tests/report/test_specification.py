"""The checklist by the specification's own ids: every word, in the order of the specification, and foreign text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from conformance.cli.requirements import explain
from conformance.findings import Finding
from conformance.gate.proof import all_proofs
from conformance.gate.records import ScenarioRecord, Verdict, encode
from conformance.ledger.loader import examined_rows, load_claims, load_ledger
from conformance.ledger.profiles import load_profiles
from conformance.problems import UsageProblem
from conformance.report.output import load_summary
from conformance.report.run_file import Run
from conformance.report.specification import (
    PARTS,
    ClaimLine,
    claim_lines,
    claims_sentence,
    part_of,
    render_specification,
    render_specification_markdown,
)
from conformance.report.summary import Summary, summarise
from conformance.speed.gates import bounded_measures, specified_bounds
from conformance.speed.measures import MEASURES
from conformance.speed.records import MeasuredRatio, SpeedReport
from tests.hostile_texts import HOSTILE, cells_of_rows, harm_in_html
from tests.report import sample_runs


def summary_of(*scenarios: ScenarioRecord, **header: Any) -> Summary:
    run = Run(
        header=sample_runs.header(planned=len(scenarios), **header), scenarios=scenarios, footer=sample_runs.footer()
    )
    return summarise(run, examined_rows(), load_profiles())


def about(requirement: str, verdict: Verdict, *findings: Finding, **changes: Any) -> ScenarioRecord:
    record = sample_runs.scenario("area.name", verdict, requirement, **changes)
    return msgspec.structs.replace(record, findings=list(findings))


def line_of(claim: str, summary: Summary) -> ClaimLine:
    return next(line for line in claim_lines(summary) if line.claim == claim)


def wrong(requirement: str, message: str = "the job is elsewhere") -> Finding:
    return sample_runs.finding(requirement, "job.state", "active", "wait", message=message)


def test_every_claim_is_listed_once_in_the_order_of_the_specification() -> None:
    listed = [line.claim for line in claim_lines(summary_of())]
    assert listed == [claim for claim in load_claims() if part_of(claim)]
    assert list(dict.fromkeys(map(part_of, listed))) == list(PARTS)
    assert {"FR-1.1", "FR-10.8", "NFR-1.1", "NFR-5.5", "SC-1", "SC-16"} <= set(listed)


@pytest.mark.parametrize(("claim", "part"), [("FR-2.15", "FR-2"), ("SC-9", "SC"), ("DM-4", ""), ("SCR-1", "")])
def test_parts(claim: str, part: str) -> None:
    assert part_of(claim) == part


def test_a_requirement_that_passes_holds_or_is_disputed() -> None:
    # Both claims belong to one disputed row; Node.js does what the first one says and not what the second one does.
    summary = summary_of(about("stalled.race.one-outcome", "pass"))
    assert line_of("NFR-4.15", summary).word == "holds"
    disputed = line_of("NFR-4.17", summary)
    assert (disputed.word, disputed.why) == ("disputed", f"Node.js: {disputed.requirement.oracle}")
    assert disputed.command == "bullmq-conformance explain NFR-4.17 --prove"


def test_a_failure_gives_its_cause_also_if_it_only_warns_or_is_known() -> None:
    must, should = "order.due.promoted", "lock.lost.handler-goes-on"
    failing = summary_of(about(must, "fail", wrong(must)), about(should, "fail", wrong(should)))
    for claim in ("FR-1.3", "FR-2.9"):
        line = line_of(claim, failing)
        assert line.word == "fails"
        assert "job.state" in line.why
    known = summary_of(about(must, "fail", wrong(must), known={must: "issue 12"}))
    assert line_of("FR-1.3", known).word == "fails"
    assert "known: issue 12" in line_of("FR-1.3", known).why


@pytest.mark.parametrize(
    ("verdict", "word"), [("unsupported", "not declared"), ("inconclusive", "not decided"), ("error", "not decided")]
)
def test_an_open_requirement_gives_the_reason_of_its_scenario(verdict: Verdict, word: str) -> None:
    line = line_of("FR-1.3", summary_of(about("order.due.promoted", verdict, reason="no worker.open")))
    assert line.word == word
    assert "no worker.open" in line.why


def test_requirements_outside_the_run_give_the_reason_of_the_run() -> None:
    line = line_of("FR-1.3", summary_of(not_run={"order.due.promoted": "only in tier full"}))
    assert (line.word, line.why) == ("not decided", "only in tier full")


def test_rules_that_no_scenario_checks_say_why() -> None:
    lines = claim_lines(summary_of())
    without = [line for line in lines if not line.requirement.examined]
    assert without
    assert all(line.why for line in without)
    assert line_of("FR-9.8", summary_of()).word == "not declared"


def test_every_disputed_line_has_a_proof() -> None:
    passing = [about(requirement, "pass") for requirement in examined_rows()]
    disputed = [line for line in claim_lines(summary_of(*passing)) if line.word == "disputed"]
    assert disputed
    assert [line.claim for line in disputed if line.requirement.id not in all_proofs()] == []


def test_the_sentence_counts_every_line() -> None:
    summary = summary_of(about("order.due.promoted", "pass"))
    lines = claim_lines(summary)
    numbers = [int(number) for number in re.findall(r"\d+", claims_sentence(lines))]
    assert numbers[0] == len(lines) == sum(numbers[1:])
    assert claims_sentence(lines) in render_specification(summary)
    assert claims_sentence(lines) in render_specification_markdown(summary)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_a_client_breaks_a_page(name: str) -> None:
    text, must = HOSTILE[name], "order.due.promoted"
    summary = summary_of(
        about(must, "fail", wrong(must, text), reason=text), client=sample_runs.party(name=text, version=text)
    )
    assert harm_in_html(render_specification(summary)) == []
    page = render_specification_markdown(summary)
    assert harm_in_html(page) == []
    assert cells_of_rows(page) == {5}


# Further results: `bench`, and another run.


def bench_of(ratio: float, *measures: str, **changes: Any) -> SpeedReport:
    """Results of `bench` in which the client has this part of each limit of the specification, and the oracle half."""
    limits = {measure.name: measure for measure in MEASURES if measure.name in (measures or BOUNDED)}
    bounds = {
        bound.measure: bound for bound in specified_bounds(ROWS_OF_BENCH, {name: limits[name].unit for name in limits})
    }
    ratios = [
        MeasuredRatio(
            measure=name,
            meaning="",
            unit=bound.unit,
            state="measured",
            clients=[bound.value * (ratio if bound.at_most else 1 / ratio)] * 5,
            oracles=[bound.value * (0.5 if bound.at_most else 2)] * 5,
        )
        for name, bound in bounds.items()
    ]
    client, oracle = sample_runs.header().client.text, sample_runs.header().oracle.text
    facts = {"kit": "1", "redis": "", "rounds": 5, "jobs": 1000, "load": (0.0, 0.0), "ratios": ratios}
    return SpeedReport(**{"client": client, "oracle": oracle, **facts, **changes})


ROWS_OF_BENCH = [row.bench for row in load_ledger().values() if row.bench]
BOUNDED = {name for row in ROWS_OF_BENCH for name in bounded_measures(row)}


def test_every_claim_can_be_decided() -> None:
    # With every scenario (of a cluster, too) and every limit, no claim of the specification stays open.
    passing = [about(requirement, "pass") for requirement in examined_rows()]
    whole = replace(summary_of(*passing), benches=(bench_of(0.5),))
    assert [line.claim for line in claim_lines(whole) if line.word in ("not decided", "fails")] == []
    without = [line for line in claim_lines(summary_of(*passing)) if line.word == "not decided"]
    assert {line.claim for line in without} == {
        "NFR-1.1",
        "NFR-1.2",
        "NFR-1.4",
        "NFR-1.5",
        "NFR-4.6",
        "SC-8",
        "SC-9",
        "SC-10",
    }
    assert all(line.why.startswith("`bench --at-") for line in without)


@pytest.mark.parametrize("claim", ["FR-3.9", "NFR-1.1", "NFR-1.2", "NFR-1.3", "NFR-1.4", "NFR-1.5", "NFR-4.6", "SC-9"])
def test_a_client_beyond_a_limit_fails_its_claim(claim: str) -> None:
    line = line_of(claim, replace(summary_of(), benches=(bench_of(1.5),)))
    assert line.word == "fails"
    assert re.search("(more|less) than", line.why)


def test_limits_that_were_not_measured_decide_nothing() -> None:
    partly = replace(summary_of(), benches=(bench_of(0.5, "claim"),))
    assert line_of("NFR-1.1", partly).word == "not decided"
    both = replace(partly, benches=(*partly.benches, bench_of(0.5, "pickup")))
    assert line_of("NFR-1.1", both).word == "holds"
    assert line_of("NFR-1.1", replace(both, benches=(*both.benches, bench_of(2, "claim")))).word == "fails"
    starved = bench_of(2)
    starved = msgspec.structs.replace(
        starved, ratios=[msgspec.structs.replace(ratio, starved=0.9) for ratio in starved.ratios]
    )
    assert line_of("NFR-1.1", replace(partly, benches=(starved,))).word == "not decided"
    assert "cannot decide" in line_of("NFR-1.1", replace(partly, benches=(starved,))).why


def test_a_limit_of_what_a_driver_lacks_is_not_declared() -> None:
    lacking = MeasuredRatio(measure="claim", meaning="", unit="ms", state="not-declared", reason="no worker.getNextJob")
    own_loop = bench_of(0.5, "pickup")
    own_loop = msgspec.structs.replace(own_loop, ratios=[*own_loop.ratios, lacking])
    assert line_of("NFR-1.1", replace(summary_of(), benches=(own_loop,))).word == "holds"
    nothing = msgspec.structs.replace(lacking, measure="extend")
    line = line_of("NFR-1.2", replace(summary_of(), benches=(bench_of(0.5, "log", ratios=[nothing]),)))
    assert (line.word, line.why) == ("not declared", "no worker.getNextJob")


def test_another_run_decides_what_this_one_leaves_open_and_its_failures_count() -> None:
    row = load_ledger().by_claim()["FR-9.5"].id
    here = summary_of(about("order.due.promoted", "pass"), not_run={row: "need a Redis Cluster"})
    assert line_of("FR-9.5", here).word == "not decided"
    there = summary_of(about(row, "pass"), about("order.due.promoted", "fail", wrong("order.due.promoted")))
    both = replace(here, others=(there,))
    assert line_of("FR-9.5", both).word == "holds"
    assert line_of("FR-1.3", both).word == "fails"
    assert there.run.header.run in line_of("FR-1.3", both).why
    assert there.run.header.run in render_specification(both)


def test_results_of_another_client_are_refused(tmp_path: Path) -> None:
    run = tmp_path / "run" / "run.jsonl"
    run.parent.mkdir()
    run.write_bytes(encode(sample_runs.header(planned=0)) + encode(sample_runs.footer()))
    for name, report in {"mine": bench_of(0.5), "other": bench_of(0.5, client="another 1.0")}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "bench.json").write_bytes(msgspec.json.encode(report))
    assert line_of("NFR-1.2", load_summary(run, also=[tmp_path / "mine"])).word == "holds"
    with pytest.raises(UsageProblem, match=r"bench.json is of another 1.0, the run of sample-client"):
        load_summary(run, also=[tmp_path / "other"])
    (tmp_path / "other" / "bench.json").write_text("{}", "utf-8")
    with pytest.raises(UsageProblem, match=r"is not a result of `bench`"):
        load_summary(run, also=[tmp_path / "other"])


def explained(*arguments: str) -> Sequence[str]:
    result = CliRunner().invoke(explain, arguments)
    return result.output.splitlines()


def test_explain_leads_to_the_line_of_the_list() -> None:
    assert "in a run's folder: specification.html#FR-9.8" in explained("FR-9.8")
    assert '<tr id="FR-9.8">' in render_specification(summary_of())
    listed = [line for line in explained("cluster.in-ci") if line.startswith("in a run's folder")]
    assert len(listed) > 1
