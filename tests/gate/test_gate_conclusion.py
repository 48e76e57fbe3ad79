"""The profiles to which a client conforms, the sentence that says so, and the exit code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from conformance.gate.conclusion import Conclusion, ConclusionState, RunEvidence, draw_conclusion, percentage
from conformance.gate.records import Level, Party, RedisInfo, RunFooter, RunHeader, ScenarioRecord, Verdict
from conformance.ledger.profiles import Profile, ProfileTable

from .gate_builders import finding

LEVELS: dict[str, Level] = {
    "add.waits": "MUST",
    "add.kept": "SHOULD",
    "run.moves": "MUST",
    "run.keeps": "MUST",
    "flow.waits": "MUST",
    "cluster.works": "MUST",
    "wire.keys": "MUST",
}
PROFILES = ProfileTable(
    [
        Profile(name="wire", title="everybody", rows=("wire.*",)),
        Profile(name="producer", title="adds", operations=("queue.add",), rows=("add.*",)),
        Profile(name="worker", title="runs", capabilities=("managed-worker",), rows=("run.*",)),
        Profile(name="flows", title="families", operations=("queue.add", "flow.add", "flow.get"), rows=("flow.*",)),
        Profile(name="cluster", title="slots", capabilities=("cluster",), needs="cluster", rows=("cluster.*",)),
    ]
)
ADD_ONLY = ("queue.add",)
ADD_AND_RUN = ("queue.add", "managed-worker")
EVERYTHING = (*ADD_AND_RUN, "flow.add", "flow.get", "cluster")
ON_ONE_REDIS = tuple(name for name in LEVELS if not name.startswith("cluster"))


def evidence(
    *scenarios: ScenarioRecord,
    declared: tuple[str, ...] = ADD_ONLY,
    mode: Any = "standalone",
    tier: str = "core",
    planned: int | None = None,
    not_run: dict[str, str] | None = None,
    partner: Party | None = None,
    footer: RunFooter | None = None,
    **options: Any,
) -> RunEvidence:
    """A run of a client that declares this."""
    party = Party(name="c", language="x", version="1", targets="5", command=[], capabilities=[], ops=list(declared))
    header = RunHeader(
        format=1,
        kit="0",
        run="r",
        started_ms=0,
        seed=0,
        tier=tier,
        command=[],
        requirement_set="5",
        client=party,
        oracle=party,
        redis=RedisInfo(source="", version="7", mode=mode, settings={}),
        environment={},
        planned=len(scenarios) if planned is None else planned,
        options=options,
        not_run=not_run or {},
        partner=partner,
    )
    end = footer or RunFooter(finished_ms=1, exit_code=0, verdicts={})
    return RunEvidence(header=header, scenarios=scenarios, footer=end, levels=LEVELS, profiles=PROFILES)


def concluded(*scenarios: ScenarioRecord, **settings: Any) -> Conclusion:
    return draw_conclusion(evidence(*scenarios, **settings))


def one(verdict: Verdict, *requirements: str, **changes: Any) -> ScenarioRecord:
    return ScenarioRecord(
        id=f"a/{verdict}",
        title="One.",
        area="a",
        tier="core",
        verdict=verdict,
        requirements=dict.fromkeys(requirements, verdict),
        **changes,
    )


def states(conclusion: Conclusion) -> dict[str, str]:
    return {status.name: status.state for status in conclusion.profiles}


def test_a_client_that_only_adds_is_conformant_as_a_producer_and_as_nothing_else() -> None:
    conclusion = concluded(
        one("pass", "add.waits", "add.kept", "wire.keys"), one("unsupported", "run.moves", "run.keeps", "flow.waits")
    )
    assert (conclusion.state, conclusion.exit_code) == ("conformant", 0)
    assert conclusion.sentence == ("CONFORMANT as producer. 3 of 7 requirements decided (42 %).")


def test_a_failed_profile_is_named_next_to_the_passed_ones() -> None:
    conclusion = concluded(
        one("pass", "add.waits", "add.kept", "run.keeps", "wire.keys"), one("fail", "run.moves"), declared=ADD_AND_RUN
    )
    assert (conclusion.state, conclusion.exit_code) == ("not-conformant", 1)
    assert conclusion.sentence.startswith("CONFORMANT as producer; NOT as worker (1 of 2 fails). ")


def test_a_failure_fails_the_run_also_where_other_things_are_open() -> None:
    conclusion = concluded(one("fail", "run.moves"), one("inconclusive", "add.waits"), declared=ADD_AND_RUN)
    assert conclusion.exit_code == 1
    assert conclusion.sentence.startswith("NOT CONFORMANT as worker (1 of 2 fails); undecided as producer (0 of 2")


def test_a_failure_of_a_profile_that_is_declared_in_part_fails_the_run() -> None:
    conclusion = concluded(
        one("pass", "add.waits", "add.kept"), one("fail", "flow.waits"), declared=("queue.add", "flow.add")
    )
    assert (states(conclusion)["flows"], conclusion.exit_code) == ("not-conformant", 1)
    assert conclusion.sentence.startswith(
        "NOT CONFORMANT; CONFORMANT as producer; flows declared in part (1 failure). "
    )


def test_a_profile_of_which_nothing_is_declared_is_not_in_the_sentence_unless_it_was_asked_for() -> None:
    found = (one("pass", "add.waits", "add.kept"), one("fail", "flow.waits"))
    conclusion = concluded(*found, declared=("queue.add",))
    assert conclusion.sentence.startswith("NOT CONFORMANT; CONFORMANT as producer (1 failure). ")
    assert states(conclusion)["flows"] == "not-conformant", "the table of profiles still shows it"
    asked = concluded(*found, declared=("queue.add",), profile=["producer", "flows"])
    assert asked.sentence.startswith("CONFORMANT as producer; NOT as flows (1 of 1 fails). ")


def test_a_profile_of_which_operations_are_missing_is_declared_in_part_once_something_is_decided() -> None:
    declared = ("queue.add", "flow.add")
    conclusion = concluded(one("pass", "add.waits", "add.kept", "flow.waits"), declared=declared)
    flows = next(status for status in conclusion.profiles if status.name == "flows")
    assert (flows.state, flows.missing) == ("partly-declared", ("flow.get",))
    assert flows.remark == "declared in part (flow.get missing; 1 of 1 decided)"
    assert "flows declared in part" in conclusion.sentence


def test_a_declared_profile_whose_every_requirement_is_unsupported_is_not_declared() -> None:
    conclusion = concluded(
        one("pass", "add.waits", "add.kept"), one("unsupported", "run.moves", "run.keeps"), declared=ADD_AND_RUN
    )
    assert states(conclusion)["worker"] == "not-declared"


def test_all_profiles_of_one_redis_leave_the_cluster_open() -> None:
    conclusion = concluded(one("pass", *ON_ONE_REDIS), declared=EVERYTHING)
    assert conclusion.sentence == (
        "CONFORMANT in all 3 profiles that one Redis can check; cluster not checked. "
        "6 of 7 requirements decided (85 %)."
    )


def test_only_a_client_with_every_requirement_decided_is_conformant() -> None:
    conclusion = concluded(one("pass", *LEVELS), declared=EVERYTHING, mode="cluster")
    assert conclusion.sentence == "CONFORMANT. 7 of 7 requirements decided (100 %)."


def test_a_known_failure_leaves_a_profile_whole_and_is_reported() -> None:
    known = one("fail", "run.moves", known={"run.moves": "later"})
    behind = one("unchecked", "run.keeps", known={"run.keeps": "not reached"})
    conclusion = concluded(known, behind, one("pass", "add.waits", "add.kept"), declared=ADD_AND_RUN)
    assert conclusion.exit_code == 0
    assert conclusion.sentence == (
        "CONFORMANT as producer and worker (except 2 known failures) "
        "(2 known failures). 3 of 7 requirements decided (42 %)."
    )


def test_a_selection_is_never_called_conformant() -> None:
    conclusion = concluded(one("pass", "add.waits", "add.kept"), select=["add.*"])
    assert (conclusion.state, conclusion.exit_code) == ("holds", 0)
    assert conclusion.sentence.startswith("SELECTION HOLDS: 2 of 2 selected requirements pass.")
    failing = concluded(
        one("pass", "add.waits"), one("fail", "add.kept", findings=[finding("add.waits")]), select=["a"]
    )
    assert failing.sentence.startswith("NOT CONFORMANT in this selection")


def test_the_smoke_tier_is_a_selection() -> None:
    assert concluded(one("pass", "add.waits", "add.kept"), tier="smoke").state == "holds"


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        (one("unsupported", "add.waits"), {"select": ["add.*"]}),
        (one("unsupported", *LEVELS), {}),
        (one("unsupported", *LEVELS), {"min_decided": "0"}),
        (one("pass", "add.waits"), {}),
        (one("inconclusive", "add.waits"), {"select": ["add.*"]}),
    ],
    ids=["nothing in a selection", "nothing at all", "nothing, and no share asked for", "no whole profile", "open"],
)
def test_a_client_without_decided_requirements_is_undecided(scenario: ScenarioRecord, settings: dict[str, Any]) -> None:
    conclusion = concluded(scenario, **settings)
    assert (conclusion.state, conclusion.exit_code) == ("undecided", 4)
    assert conclusion.sentence.startswith("UNDECIDED: ")
    assert "Next: " in conclusion.sentence


@pytest.mark.parametrize(
    ("scenarios", "statement"),
    [
        ([one("pass", "add.waits")], "1 of 1 selected requirement passes."),
        ([one("pass", "add.waits", "add.kept")], "2 of 2 selected requirements pass."),
        ([one("pass", "add.waits"), one("unsupported", "add.kept")], "1 of 2 selected requirements passes."),
        (
            [one("fail", "add.waits", known={"add.waits": "why"})],
            "1 of 1 selected requirement passes or is known to fail",
        ),
    ],
)
def test_a_selection_counts_in_plain_english(scenarios: list[ScenarioRecord], statement: str) -> None:
    assert concluded(*scenarios, select=["add.*"]).sentence.startswith(f"SELECTION HOLDS: {statement}")


def test_a_smaller_share_is_advised_only_if_it_would_help() -> None:
    assert "--min-decided` accepts" in concluded(one("pass", "add.waits")).advice
    unchecked = (one("pass", "add.waits"), one("unchecked", "run.moves"))
    for settings in ({}, {"min_decided": "10"}):
        conclusion = concluded(*unchecked, declared=ADD_AND_RUN, **settings)
        assert conclusion.exit_code == 4
        assert "--min-decided" not in conclusion.advice


def test_an_open_question_about_a_must_outweighs_a_whole_profile() -> None:
    whole = one("pass", "add.waits", "add.kept")
    assert concluded(whole, one("inconclusive", "run.moves"), declared=ADD_AND_RUN).exit_code == 4
    assert concluded(whole, one("unchecked", "run.moves"), declared=ADD_AND_RUN).exit_code == 4
    assert concluded(whole, one("unchecked", "run.moves")).exit_code == 0


@pytest.mark.parametrize(("ended_by", "exit_code"), [("warn", 0), ("fail", 4), ("pass", 4)])
def test_a_warning_that_ends_a_scenario_opens_nothing_that_others_decide(ended_by: Verdict, exit_code: int) -> None:
    moves, ends = one("pass", "run.moves"), one(ended_by, "add.kept", "run.moves")
    ends.requirements["run.moves"] = "unchecked"
    whole = one("pass", "add.waits", "add.kept", "run.keeps")
    assert concluded(whole, moves, ends, declared=ADD_AND_RUN).exit_code == exit_code
    if ended_by == "warn":
        assert concluded(whole, ends, declared=ADD_AND_RUN).exit_code == 4, "no scenario reached it"


def test_a_failure_of_a_requirement_on_every_client_fails_the_run_and_every_profile() -> None:
    assert concluded(one("pass", "wire.keys")).exit_code == 4
    failing = concluded(one("pass", "add.waits", "add.kept"), one("fail", "wire.keys"))
    assert failing.exit_code == 1
    assert failing.sentence.startswith("CONFORMANT as producer; NOT as wire (1 of 1 fails)")


@pytest.mark.parametrize(
    ("asked", "state", "code"),
    [("14%", "holds", 0), ("14.2", "holds", 0), ("28", "holds", 0), ("29", "undecided", 4), ("100 %", "undecided", 4)],
)
def test_a_minimum_share_replaces_a_whole_profile(asked: str, state: ConclusionState, code: int) -> None:
    """2 of 7 are 28.57 %."""
    conclusion = concluded(one("pass", "run.moves", "add.waits"), min_decided=asked)
    assert (conclusion.state, conclusion.exit_code) == (state, code)


def test_a_share_that_is_not_reached_outweighs_a_whole_profile() -> None:
    whole = one("pass", "add.waits", "add.kept")
    assert concluded(whole, min_decided="28").sentence.startswith("CONFORMANT as producer")
    missed = concluded(whole, min_decided="50")
    assert missed.exit_code == 4
    assert "less than the 50 % that --min-decided asks for" in missed.sentence


def test_required_profiles_decide_alone() -> None:
    scenarios = (one("pass", "add.waits", "add.kept"), one("fail", "run.moves"))
    conclusion = concluded(*scenarios, declared=ADD_AND_RUN, profile=["producer"])
    assert conclusion.exit_code == 0
    assert conclusion.sentence == (
        "CONFORMANT as producer; NOT as worker (1 of 2 fails). 3 of 7 requirements decided (42 %)."
    )
    assert concluded(*scenarios, declared=ADD_AND_RUN, profile=["worker"]).exit_code == 1


def test_a_required_profile_has_to_be_whole() -> None:
    conclusion = concluded(one("pass", "add.waits"), profile=["producer"], not_run={"add.kept": "in tier full"})
    assert conclusion.exit_code == 4
    assert conclusion.sentence == (
        "UNDECIDED: not whole: producer (producer: undecided (1 of 2 decided; 1 in tier full)). "
        "1 of 7 requirements decided (14 %). Next: `--tier full`."
    )


def test_a_run_of_one_level_is_judged_by_it() -> None:
    conclusion = concluded(one("pass", "add.waits"), level="MUST")
    assert conclusion.sentence.startswith("CONFORMANT as producer (level")
    assert "(level MUST only)" in conclusion.sentence


def test_an_error_of_the_kit_is_neither_a_failure_nor_open() -> None:
    whole = one("pass", "add.waits", "add.kept")
    assert concluded(whole, one("error", "run.moves")).exit_code == 3
    assert concluded(whole, planned=2).exit_code == 3
    assert concluded(one("fail", "add.waits"), one("error", "run.moves")).exit_code == 1


def test_a_run_that_was_ended_early_is_undecided_and_not_broken() -> None:
    footer = RunFooter(finished_ms=1, exit_code=0, verdicts={}, stopped="the budget of 1 s was spent")
    conclusion = concluded(one("pass", "add.waits", "add.kept"), planned=2, footer=footer)
    assert conclusion.exit_code == 4
    assert "the budget of 1 s was spent" in conclusion.sentence


def test_run_wide_problems_fail_the_run_without_a_verdict_on_the_client() -> None:
    stale = RunFooter(finished_ms=1, exit_code=0, verdicts={}, stale={"add.waits": "old"})
    conclusion = concluded(one("pass", "add.waits", "add.kept"), footer=stale)
    assert conclusion.exit_code == 1
    assert conclusion.sentence.startswith("NOT CONFORMANT; CONFORMANT as producer (")
    assert "1 stale entry in known.toml" in conclusion.sentence


def test_the_reason_for_an_open_requirement_is_given_by_profile() -> None:
    conclusion = concluded(
        one("pass", "add.waits"),
        one("unsupported", "run.moves"),
        declared=EVERYTHING,
        not_run={"add.kept": "in tier full", "cluster.works": "need a Redis Cluster"},
    )
    assert {status.name: dict(status.open) for status in conclusion.profiles} == {
        "wire": {"not run": ("wire.keys",)},
        "producer": {"in tier full": ("add.kept",)},
        "worker": {"not declared": ("run.moves",), "not run": ("run.keeps",)},
        "flows": {"not run": ("flow.waits",)},
        "cluster": {"need a Redis Cluster": ("cluster.works",)},
    }
    assert "cluster not checked" in concluded(one("pass", "add.waits", "add.kept"), declared=EVERYTHING).sentence


@pytest.mark.parametrize(("text", "percent"), [("30", 30), ("30%", 30), (" 12.5 % ", 12.5), ("0", 0), ("100", 100)])
def test_percentages_are_read(text: str, percent: float) -> None:
    assert percentage(text) == percent


@pytest.mark.parametrize("text", ["", "x", "101", "-1", "nan", "30%%"])
def test_an_invalid_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        percentage(text)


def test_a_partner_is_named_in_the_sentence() -> None:
    partner = Party(name="other", language="go", version="2", targets="5", command=[], capabilities=[], ops=[])
    found = concluded(one("pass", "add.waits", "add.kept"), partner=partner)
    assert found.sentence.endswith("Its partner in hand-overs was other 2 (go).")
    assert "partner" not in concluded(one("pass", "add.waits", "add.kept")).sentence


def test_hand_overs_alone_say_nothing_of_profiles() -> None:
    assert concluded(one("pass", "add.waits", "add.kept"), handovers=True).statement.startswith("SELECTION HOLDS")


# Profiles that add a few requirements to another one.

WITH_A_BASE = ProfileTable(
    [
        Profile(name="producer", title="adds", operations=("queue.add",), rows=("add.*",)),
        Profile(name="worker", title="runs", capabilities=("managed-worker",), rows=("run.moves",)),
        Profile(name="reporter", title="tells", capabilities=("managed-worker",), rows=("run.keeps",), base="worker"),
    ]
)


@pytest.mark.parametrize(
    ("of_the_base", "state", "remark"),
    [
        ("pass", "conformant", "conformant"),
        ("fail", "undecided", "undecided (1 of 1 decided; it needs worker)"),
        ("inconclusive", "undecided", "undecided (1 of 1 decided; it needs worker)"),
    ],
)
def test_a_profile_needs_its_base(of_the_base: Verdict, state: str, remark: str) -> None:
    scenarios = one("pass", "add.waits", "add.kept", "run.keeps"), one(of_the_base, "run.moves")
    run = replace(evidence(*scenarios, declared=ADD_AND_RUN), profiles=WITH_A_BASE)
    conclusion = draw_conclusion(run)
    reporter = next(status for status in conclusion.profiles if status.name == "reporter")
    assert (reporter.state, reporter.remark) == (state, remark)
    assert ("needs worker" in conclusion.sentence) is (of_the_base == "fail")


def test_a_required_profile_requires_its_base() -> None:
    scenarios = one("pass", "run.keeps"), one("fail", "run.moves")
    run = replace(evidence(*scenarios, declared=ADD_AND_RUN, profile=["reporter"]), profiles=WITH_A_BASE)
    assert draw_conclusion(run).state == "not-conformant"
