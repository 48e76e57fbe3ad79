"""Writing known.toml from a run: a young client adopts the gate as it is, and only gets better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conformance.findings import Finding
from conformance.gate.known_failures import KnownFailure, excuse, parse_known
from conformance.gate.ratchet import KnownWriter, entry_of, entry_text, new_entries, rewritten, still_known
from conformance.gate.records import Party, RedisInfo, RunFooter, RunHeader, ScenarioRecord
from conformance.participants.marks import Tier
from conformance.problems import UsageProblem

from .gate_builders import finding, levels, record

PARTY = Party(name="c", language="go", version="1", targets="5", command=[], capabilities=[], ops=[])
REDIS = RedisInfo(source="local", version="7", mode="standalone", settings={})
OLD = """# What we know.

[[known]]
requirement = "a.name"
reason = "old"
where = "job.name"

# About the next.
[[known]]
requirement = "a.must"
reason = "too"
issue = "https://x"  # read it
"""


def whole_run(_tier: Tier) -> list[str]:
    """A kit with one scenario."""
    return ["a/one"]


def header(planned: int) -> RunHeader:
    facts: dict[str, Any] = {"format": 1, "kit": "1", "run": "r", "started_ms": 0, "seed": 0, "tier": "core"}
    return RunHeader(
        **facts,
        command=[],
        requirement_set="5",
        client=PARTY,
        oracle=PARTY,
        redis=REDIS,
        environment={},
        planned=planned,
    )


def write(
    path: Path, *records: ScenarioRecord, planned: int | None = None, left_out: Sequence[str] = (), stopped: str = ""
) -> list[str]:
    """Send a run to the writer, as the gate would; return its messages. `left_out`: ids of left out scenarios."""
    said: list[str] = []
    everything = {*left_out, *(entry.id for entry in records)}
    writer = KnownWriter(path, levels(), whole_run=lambda _tier: everything, announce=said.append)
    writer(header(len(records) if planned is None else planned))
    for entry in records:
        writer(entry)
    writer(RunFooter(finished_ms=1, exit_code=1, verdicts={}, stopped=stopped))
    return said


def failing(*findings: Finding, name: str = "a/one") -> ScenarioRecord:
    return record(
        dict.fromkeys([finding.requirement for finding in findings], "fail"), *findings, name=name, verdict="fail"
    )


def test_the_first_run_lists_every_cause_once_and_the_second_is_excused(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    one = failing(finding("a.name", where="job.name"), finding("a.must", where="event.added"))
    two = failing(finding("a.name", where="job.name", message="it differs again"), name="a/two")
    said = write(path, one, two)
    entries = parse_known(path.read_text("utf-8")).known
    assert [(entry.requirement, entry.where, entry.scenario) for entry in entries] == [
        ("a.name", "job.name", "*"),
        ("a.must", "event.added", "*"),
    ]
    assert all(entry.reason.startswith("TODO: ") for entry in entries)
    assert said == [f"{path}: 2 entries added, 0 kept, 0 dropped; 2 reasons to be filled in"]
    for seen in (one, two):
        assert excuse(seen.findings, entries, seen.id).keys() == {finding.requirement for finding in seen.findings}
    assert excuse([finding("a.must", where="job.delay")], entries, "a/one") == {}, "a new failure is not excused"


def test_a_failure_without_locator_is_known_in_its_scenario_only() -> None:
    entry = entry_of(finding(where="scenario"), "lock/lost[complete]")
    assert entry.excuses(finding(where="scenario"), "lock/lost[fail]")
    assert not entry.excuses(finding(where="scenario"), "lock/kept")


@pytest.mark.parametrize(
    "found",
    [finding("a.should"), finding("a.may"), finding("a.must", severity="cosmetic")],
    ids=["should", "may", "cosmetic"],
)
def test_a_finding_that_does_not_fail_needs_no_entry(found: Finding) -> None:
    assert new_entries([], [failing(found)], levels(), "core") == []


def test_an_error_of_the_kit_gets_no_entry() -> None:
    assert new_entries([], [record({"a.must": "error"}, finding())], levels(), "core") == []


def test_a_locator_is_taken_literally() -> None:
    entry = entry_of(finding(where="job.opts[0]*"), "a/one")
    assert entry.excuses(finding(where="job.opts[0]*"), "a/one")
    assert not entry.excuses(finding(where="job.opts0x"), "a/one")


# An existing file.


def test_reasons_and_comments_stay_and_what_passes_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(OLD, "utf-8")
    said = write(path, record({"a.name": "pass"}), failing(finding("a.must"), name="a/two"))
    text = path.read_text("utf-8")
    assert [(entry.requirement, entry.reason) for entry in parse_known(text).known] == [("a.must", "too")]
    assert text.startswith("# What we know.\n")
    assert "# About the next.\n[[known]]" in text
    assert "# read it" in text
    assert said == [f"{path}: 0 entries added, 1 kept, 1 dropped; 0 reasons to be filled in"]


def test_a_cause_stays_whole_or_leaves_the_entries_that_still_fail() -> None:
    text = (
        "# What we know.\n\n[cause]\n"
        '"old" = [\n  {requirement = "a.must"},\n  {requirement = "a.name", where = "job.*"}]\n'
        "'gone' = [{requirement = \"a.name\"}]\n"
        '# About the next.\n"x" = [{requirement = "a.may"}]\n'
    )
    must, name, gone, may = parse_known(text).known
    assert rewritten(text, [may, must, name, gone], []) == text
    assert rewritten(text, [may, name], []) == (
        '# What we know.\n\n[cause]\n"old" = [\n  {requirement = "a.name", where = "job.*"}]\n'
        '# About the next.\n"x" = [{requirement = "a.may"}]\n'
    )


def test_nothing_is_dropped_by_a_run_that_did_not_look(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(OLD, "utf-8")
    write(path, record({"a.name": "pass", "a.must": "pass"}), left_out=["a/two"])
    assert path.read_text("utf-8") == OLD
    write(path, record({"a.name": "pass", "a.must": "pass"}), planned=2, left_out=["a/two"])
    assert path.read_text("utf-8") == OLD


def test_the_last_line_about_an_incomplete_run_says_so(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    said = write(path, failing(finding()), planned=3, stopped="--budget is used up")
    assert said[-1] == (
        f"{path} is incomplete: INCOMPLETE RUN: 1 of 3 planned scenarios recorded, --budget is used up. "
        "Write it again with a complete run."
    )
    assert len(write(tmp_path / "whole.toml", failing(finding()))) == 1


@pytest.mark.parametrize(
    ("run", "shown_in", "tier"),
    [
        ("core", ["smoke"], "core"),
        ("core", ["core"], "core"),
        ("full", ["core"], "core"),
        ("full", ["core", "full"], "full"),
        ("full", ["full", "core"], "full"),
        ("smoke", ["smoke"], "smoke"),
    ],
)
def test_an_entry_names_the_tier_that_has_all_it_was_made_from(run: str, shown_in: list[str], tier: str) -> None:
    records = [
        msgspec.structs.replace(failing(finding(), name=f"a/{number}"), tier=of) for number, of in enumerate(shown_in)
    ]
    [entry] = new_entries([], records, levels(), run)
    assert entry.tier == tier
    assert ("tier = " in entry_text(entry)) is (tier != "core")


def test_a_broken_run_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    writer = KnownWriter(path, levels(), whole_run=whole_run, announce=lambda _line: None)
    writer(header(1))
    writer(failing(finding()))
    assert not path.exists()


def test_a_race_is_not_dropped_by_a_run_that_did_not_meet_it() -> None:
    entry = KnownFailure(requirement="a.must", reason="a race", sometimes=True)
    assert still_known([entry], [record({"a.must": "pass"})], levels(), whole_run) == [entry]


def test_an_entry_that_only_matches_what_does_not_fail_is_dropped() -> None:
    entry = KnownFailure(requirement="a.must", reason="x", where="job.*")
    records = [failing(finding(where="job.name", severity="cosmetic"), finding(where="event.added"))]
    assert still_known([entry], records, levels(), whole_run) == []


def test_entries_are_right_even_if_comments_cannot_be_placed() -> None:
    text = 'known = [{requirement = "a.must", reason = "x"}]\n'
    [entry] = parse_known(text).known
    other = KnownFailure(requirement="a.name", reason="""TODO: a "quoted" \x7f text\nand [[known]]""")
    assert list(parse_known(rewritten(text, [entry], [other])).known) == [entry, other]


def test_an_entry_is_written_as_it_is_read() -> None:
    entry = KnownFailure(requirement="a.must", reason="é \\ \t\x00", where="job.*", scenario="a/b[c]", sometimes=True)
    assert list(parse_known(entry_text(entry)).known) == [entry]


def test_half_a_character_cannot_be_written_and_is_still_matched() -> None:
    entry = entry_of(finding(where="job.\ud83d", message="\ud83d"), "a/one")
    entry_text(entry).encode("utf-8")
    assert entry.excuses(finding(where="job.\ud83d"), "a/one")


@pytest.mark.parametrize("path", [".", "nowhere/known.toml"])
def test_an_unwritable_path_is_reported_before_the_run(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageProblem, match="cannot write a file there"):
        KnownWriter(tmp_path / path, levels(), whole_run=whole_run, announce=lambda _line: None)


def test_the_reason_of_a_broken_driver_is_short_and_holds_no_path_of_this_machine() -> None:
    message = "driver `/home/me/driver --fast`: it ended (exit code 2) during queue.pause\n  | at driver.go:17"
    assert entry_of(finding(message=message), "a/one").reason == "TODO: it ended (exit code 2) during queue.pause"
    assert len(entry_of(finding(message="x" * 9999), "a/one").reason) < 200
