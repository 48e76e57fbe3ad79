"""The checklist by the specification's own ids: every word, in the order of the specification, and foreign text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from conformance.cli.requirements import explain
from conformance.findings import Finding
from conformance.gate.proof import all_proofs
from conformance.gate.records import ScenarioRecord, Verdict
from conformance.ledger.loader import examined_rows, load_claims
from conformance.ledger.profiles import load_profiles
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


def explained(*arguments: str) -> Sequence[str]:
    result = CliRunner().invoke(explain, arguments)
    return result.output.splitlines()


def test_explain_leads_to_the_line_of_the_list() -> None:
    assert "in a run's folder: specification.html#FR-9.8" in explained("FR-9.8")
    assert '<tr id="FR-9.8">' in render_specification(summary_of())
    listed = [line for line in explained("cluster.in-ci") if line.startswith("in a run's folder")]
    assert len(listed) > 1
