"""known.toml: how it is read, what it excuses, and how it bites back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.gate.known_failures import (
    KnownFailure,
    excuse,
    judged_entries,
    list_for,
    list_name,
    load_known,
    stale_entries,
    unexplained,
    unmatched_entries,
)
from conformance.gate.options import RunConfig
from conformance.gate.records import Verdict
from conformance.participants.marks import Tier
from conformance.problems import UsageProblem
from conformance.upstream.package import HARNESS

from .gate_builders import finding, record

REQUIREMENTS = ("a.must", "a.name")


@pytest.fixture
def known_toml(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "known.toml"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return path

    return write


# Which list.


def test_each_oracle_has_a_list_of_its_own() -> None:
    assert list_name(RunConfig().oracle_version) == "known.toml"
    assert list_name("6.7.0") == "known-6.7.0.toml"


def test_a_folder_selects_the_list_of_the_oracle(tmp_path: Path) -> None:
    assert list_for(tmp_path, "5.62.0", "--known") == tmp_path / "known.toml"
    assert RunConfig(known=str(tmp_path), oracle="6.7.0").known_path == tmp_path / "known-6.7.0.toml"
    assert RunConfig(write_known=str(tmp_path), oracle="6.7.0").written_list == tmp_path / "known-6.7.0.toml"
    assert RunConfig().written_list is None


def test_the_list_of_another_oracle_is_refused(tmp_path: Path) -> None:
    of_the_newer = str(tmp_path / "known-6.7.0.toml")
    assert RunConfig(known=of_the_newer, oracle="6.7.0").known_path == Path(of_the_newer)
    with pytest.raises(UsageProblem, match=r"--known .*6\.7\.0, but this run's oracle is 5\.62\.0"):
        RunConfig(known=of_the_newer).known_path  # noqa: B018
    with pytest.raises(UsageProblem, match=r"--write-known .*6\.7\.0, but this run's oracle is 5\.81\.5"):
        RunConfig(write_known=of_the_newer, oracle="5.81.5").written_list  # noqa: B018


def test_a_named_clients_list_is_not_read_with_another_oracle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("conformance.gate.options.client_folders", lambda: {"theirs": tmp_path})
    (tmp_path / "known.toml").touch()
    assert RunConfig(client="theirs").known_path == tmp_path / "known.toml"
    assert RunConfig(client="theirs", oracle="6.7.0").known_path is None
    (tmp_path / "known-6.7.0.toml").touch()
    assert RunConfig(client="theirs", oracle="6.7.0").known_path == tmp_path / "known-6.7.0.toml"


def test_node_on_another_library_has_a_list_of_its_own() -> None:
    config = RunConfig(client="node@6.7.0", library="valkey-glide", oracle="6.7.0")
    assert config.known_path == HARNESS / "known" / "valkey_glide" / "known-6.7.0.toml"
    assert RunConfig(client="node@6.7.0", library="valkey-glide", oracle="5.81.5").known_path is None
    assert RunConfig(client="node@6.7.0", oracle="6.7.0").known_path is None


# Reading.


def test_no_file_means_no_entries() -> None:
    assert load_known(None, REQUIREMENTS) == ()


def test_entries_of_a_cause_have_its_reason(known_toml: Callable[[str], Path]) -> None:
    entries = '[{requirement = "a.must", where = "job.*"}, {requirement = "a.name", sometimes = true}]'
    path = known_toml(f'[cause]\n"old" = {entries}\n')
    assert load_known(path, REQUIREMENTS) == (
        KnownFailure(requirement="a.must", reason="old", where="job.*"),
        KnownFailure(requirement="a.name", reason="old", sometimes=True),
    )


def test_an_empty_file_means_no_entries(known_toml: Callable[[str], Path]) -> None:
    assert load_known(known_toml(""), REQUIREMENTS) == ()


def test_entries_are_read_with_their_defaults(known_toml: Callable[[str], Path]) -> None:
    path = known_toml(
        '[[known]]\nrequirement = "a.must"\nreason = "old"\n'
        '[[known]]\nrequirement = "a.name"\nreason = "too"\nissue = "https://x"\nwhere = "job.*"\nmessage = "the"\n'
    )
    assert load_known(path, REQUIREMENTS) == (
        KnownFailure(requirement="a.must", reason="old", where="*", message="", issue=""),
        KnownFailure(requirement="a.name", reason="too", where="job.*", message="the", issue="https://x"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "[[known",
        '[cause]\n"x" = [{where = "job.*"}]',
        '[cause]\n"x" = {requirement = "a.must"}',
        "known = 3",
        '[[known]]\nrequirement = "a.must"',
        '[[known]]\nreason = "no requirement"',
        '[[known]]\nrequirement = "a.must"\nreason = "x"\nwehre = "job.*"',
        '[[know]]\nrequirement = "a.must"\nreason = "x"',
        '[[known]]\nrequirement = "a.must"\nreason = 7',
        "\udcff",
    ],
    ids=[
        "no toml",
        "half an entry",
        "cause without reason",
        "no table",
        "no reason",
        "no requirement",
        "unknown key",
        "unknown table",
        "number",
        "no utf-8",
    ],
)
def test_a_malformed_file_is_a_usage_problem(known_toml: Callable[[str], Path], text: str) -> None:
    path = known_toml(text)
    with pytest.raises(UsageProblem) as caught:
        load_known(path, REQUIREMENTS)
    assert caught.value.what.startswith(f"--known {path}: ")
    assert caught.value.hint


def test_an_unknown_requirement_is_a_usage_problem(known_toml: Callable[[str], Path]) -> None:
    path = known_toml('[[known]]\nrequirement = "a.mist"\nreason = "x"')
    with pytest.raises(UsageProblem, match=r"unknown requirement 'a\.mist'"):
        load_known(path, REQUIREMENTS)


def test_a_missing_file_is_a_usage_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="No such file"):
        load_known(tmp_path / "nowhere.toml", REQUIREMENTS)


def test_a_folder_is_a_usage_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="directory"):
        load_known(tmp_path, REQUIREMENTS)


# Excusing.


def test_a_requirement_is_excused_when_an_entry_matches_its_every_finding() -> None:
    entries = [KnownFailure(requirement="a.must", reason="old", where="job.*")]
    assert excuse([finding(where="job.name"), finding(where="job.delay")], entries, "a/one") == {"a.must": "old"}


def test_one_finding_that_no_entry_matches_spoils_the_excuse() -> None:
    entries = [KnownFailure(requirement="a.must", reason="old", where="job.*")]
    assert excuse([finding(where="job.name"), finding(where="event.added")], entries, "a/one") == {}


def test_several_entries_can_share_the_work_and_every_reason_is_reported_once() -> None:
    entries = [
        KnownFailure(requirement="a.must", reason="old", where="job.*"),
        KnownFailure(requirement="a.must", reason="late", where="event.*"),
    ]
    findings = [finding(where="job.name"), finding(where="event.added"), finding(where="job.delay")]
    assert excuse(findings, entries, "a/one") == {"a.must": "old; late"}


def test_an_entry_speaks_about_its_own_requirement_only() -> None:
    entries = [KnownFailure(requirement="a.name", reason="old")]
    assert excuse([finding("a.must"), finding("a.name")], entries, "a/one") == {"a.name": "old"}


@pytest.mark.parametrize(
    ("entry", "excuses"),
    [
        (KnownFailure(requirement="a.must", reason="x"), True),
        (KnownFailure(requirement="a.must", reason="x", where="job.*"), True),
        (KnownFailure(requirement="a.must", reason="x", where="job.NAME"), False),
        (KnownFailure(requirement="a.must", reason="x", where="event.*"), False),
        (KnownFailure(requirement="a.must", reason="x", message="the name"), True),
        (KnownFailure(requirement="a.must", reason="x", message="name"), False),
        (KnownFailure(requirement="a.must", reason="x", where="job.*", message="no"), False),
    ],
)
def test_field_where_is_a_glob_and_message_a_prefix(entry: KnownFailure, excuses: bool) -> None:
    assert entry.excuses(finding(where="job.name", message="the name differs"), "a/one") is excuses


# Biting back.

ENTRY = KnownFailure(requirement="a.must", reason="old", where="job.*")


def test_an_entry_whose_requirement_passes_is_stale() -> None:
    assert stale_entries([ENTRY], [record({"a.must": "pass"}), record({"a.must": "pass"})]) == {"a.must": "old"}


def test_an_entry_is_not_stale_while_one_scenario_does_not_pass() -> None:
    records = [record({"a.must": "pass"}), record({"a.must": "fail"}, finding())]
    assert stale_entries([ENTRY], records) == {}


def test_an_entry_that_was_not_judged_is_neither_stale_nor_unmatched() -> None:
    records = [record({"a.name": "pass"})]
    assert stale_entries([ENTRY], records) == {}
    assert unmatched_entries([ENTRY], records) == []


def test_an_entry_that_matches_nothing_of_a_failing_requirement_is_reported() -> None:
    messages = unmatched_entries([ENTRY], [record({"a.must": "fail"}, finding(where="event.added"))])
    assert len(messages) == 1
    assert "a.must" in messages[0]
    assert "'job.*'" in messages[0]


def test_an_entry_that_matches_is_not_reported() -> None:
    assert unmatched_entries([ENTRY], [record({"a.must": "fail"}, finding(where="job.name"))]) == []


def test_a_stale_entry_is_reported_once_and_not_as_unmatched_too() -> None:
    assert unmatched_entries([ENTRY], [record({"a.must": "pass"})]) == []


def test_a_race_that_did_not_occur_in_this_run_is_accepted() -> None:
    entry = KnownFailure(requirement="a.must", reason="a race", where="job.*", sometimes=True)
    assert stale_entries([entry], [record({"a.must": "pass"})]) == {}
    assert unmatched_entries([entry], [record({"a.must": "fail"}, finding(where="event.added"))]) == []
    assert excuse([finding(where="job.name")], [entry], "a/one") == {"a.must": "a race"}


# Scenarios.


@pytest.mark.parametrize(
    ("pattern", "is_about"),
    [
        ("*", True),
        ("lock/lost[complete]", True),
        ("lock/lost", True),
        ("lock/*", True),
        ("lock/lost[c*]", True),
        ("lock/lost[fail]", False),
        ("lock/los", False),
        ("lock/lost[cde]", False),
    ],
)
def test_an_entry_may_name_scenarios_and_their_parameters(pattern: str, is_about: bool) -> None:
    entry = KnownFailure(requirement="a.must", reason="x", scenario=pattern)
    assert entry.is_about("lock/lost[complete]") is is_about
    assert entry.excuses(finding(), "lock/lost[complete]") is is_about
    assert (excuse([finding()], [entry], "lock/lost[complete]") == {"a.must": "x"}) is is_about


CASES = {
    "smoke": {"a/one[1]"},
    "core": {"a/one[1]", "a/one[2]", "a/two"},
    "full": {"a/one[1]", "a/one[2]", "a/one[3]", "a/two"},
}
"""Cases of a whole run, by tier."""


@pytest.mark.parametrize(
    ("scenario", "tier", "judging"),
    [
        ("*", "core", {"core", "full"}),
        ("*", "full", {"full"}),
        ("*", "smoke", {"smoke", "core", "full", "select a/one"}),
        ("a/one", "core", {"core", "full", "select a/one"}),
        ("a/one[1]", "core", {"smoke", "core", "full", "select a/one"}),
        ("a/one", "full", {"full"}),
        ("a/one", "smoke", {"smoke", "core", "full", "select a/one"}),
        ("a/o*", "core", {"core", "full", "select a/one"}),
        ("a/*", "core", {"core", "full"}),
        ("a/three", "core", set()),
    ],
)
def test_an_entry_is_judged_by_a_run_of_all_that_it_was_made_from(scenario: str, tier: Tier, judging: set[str]) -> None:
    entry = KnownFailure(requirement="a.must", reason="x", scenario=scenario, tier=tier)
    runs: dict[str, set[str]] = {**CASES, "select a/one": {"a/one[1]", "a/one[2]"}, "stopped": {"a/two"}}
    judges = {
        name
        for name, ids in runs.items()
        if judged_entries([entry], [record({"a.must": "pass"}, name=case) for case in ids], lambda tier: CASES[tier])
    }
    assert judges == judging


def test_an_entry_is_judged_by_its_own_scenarios_only() -> None:
    entry = KnownFailure(requirement="a.must", reason="x", scenario="a/one[1]")
    fails_elsewhere = record({"a.must": "fail"}, finding(), name="a/two")
    assert stale_entries([entry], [record({"a.must": "pass"}, name="a/one[1]"), fails_elsewhere]) == {"a.must": "x"}
    [messages] = unmatched_entries([entry], [record({"a.must": "fail"}, name="a/one[1]"), fails_elsewhere])
    assert "a/one[1]" in messages


@pytest.mark.parametrize("verdict", ["unchecked", "unsupported", "inconclusive", "error"])
def test_an_undecided_requirement_says_nothing_about_an_entry(verdict: Verdict) -> None:
    records = [record({"a.must": verdict})]
    assert stale_entries([ENTRY], records) == {}
    assert unmatched_entries([ENTRY], records) == []


# Reasons.


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_reason_is_needed(known_toml: Callable[[str], Path], reason: str) -> None:
    path = known_toml(f'[[known]]\nrequirement = "a.must"\nreason = "{reason}"')
    with pytest.raises(UsageProblem, match=r"a\.must has no reason"):
        load_known(path, REQUIREMENTS)


def test_reasons_to_be_filled_in_are_counted() -> None:
    reasons = ["TODO: the name differs", "TODO", "TODOS are not meant", "old"]
    assert unexplained([KnownFailure(requirement="a.must", reason=reason) for reason in reasons]) == 2
