"""Outputs of the ledger: its coverage, its page, and the verbs `ledger` and `explain` in this process."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.cli import main as cli_main
from conformance.cli import requirements as ledger_verb
from conformance.gate.proof import Proof, all_proofs
from conformance.ledger.loader import Ledger, Requirement, Status, load_ledger
from conformance.ledger.overview import (
    MISSING_CLAIM,
    MISSING_MUTANT,
    MISSING_SCENARIO,
    CoverageGap,
    coverage_of,
    facts_of,
    requirements_page,
)
from conformance.ledger.profiles import NO_PROFILES, load_profiles
from conformance.participants.expect import equal
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant


def requirement(name: str, status: Status = "tested", reason: str = "", claims: tuple[str, ...] = ()) -> Requirement:
    return Requirement(
        id=name,
        area=name.partition(".")[0],
        level="MUST",
        statement="It holds.",
        source="x.lua",
        oracle="",
        claims=claims,
        owns=(),
        status=status,
        reason=reason,
    )


LEDGER = Ledger(
    [
        requirement("a.complete", claims=("C-1",)),
        requirement("a.without-mutant"),
        requirement("a.without-scenario"),
        requirement("a.disputed", "disputed"),
        requirement("b.planned", "untestable", "scenario missing: kill something"),
        requirement("b.never", "untestable", "a text for readers"),
        requirement("b.library", "client-only", "no other client sees it"),
        requirement("b.fact", "disputed", "a fact about upstream"),
    ],
    {"a": "Area A", "b": "Area B"},
)
SCENARIOS = {"a.complete": ["a/one"], "a.without-mutant": ["a/one"], "a.disputed": ["a/two"]}
MUTANTS = {"a.complete": ["broken"], "a.disputed": ["broken"]}


def test_areas_are_counted() -> None:
    first, second = coverage_of(LEDGER, ["C-1"], SCENARIOS, MUTANTS).areas
    assert (first.area, first.rows, first.with_scenario, first.with_mutant, first.missing_scenarios) == (
        "a",
        4,
        3,
        2,
        1,
    )
    assert first.by_status == {"tested": 3, "disputed": 1, "measured": 0, "client-only": 0, "untestable": 0}
    assert second.by_status == {"tested": 0, "disputed": 1, "measured": 0, "client-only": 1, "untestable": 2}
    assert (second.rows, second.with_scenario, second.missing_scenarios) == (4, 0, 1)


def test_everything_that_is_missing_is_listed() -> None:
    assert coverage_of(LEDGER, ["C-1", "C-2"], SCENARIOS, MUTANTS).gaps == (
        CoverageGap(MISSING_CLAIM, "C-2"),
        CoverageGap(MISSING_MUTANT, "a.without-mutant"),
        CoverageGap(MISSING_SCENARIO, "a.without-scenario"),
        CoverageGap(MISSING_SCENARIO, "b.planned", "scenario missing: kill something"),
    )


def test_nothing_is_missing_from_a_complete_ledger() -> None:
    ledger = Ledger([LEDGER.row("a.complete"), LEDGER.row("b.never")], LEDGER.areas)
    assert coverage_of(ledger, ["C-1"], SCENARIOS, MUTANTS).gaps == ()


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "requirements.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == requirements_page(load_ledger(), load_profiles()), "run `make generate`"


def test_every_area_links_to_the_file_of_its_rules() -> None:
    links = dict(re.findall(r"^\| \[([^]]+)\]\((\S+)\) \|", PAGE.read_text("utf-8"), re.MULTILINE))
    for area, title in load_ledger().areas.items():
        text = (PAGE.parent / links[title]).read_text("utf-8")
        assert all(row.id in text for row in load_ledger().values() if row.area == area), title


def test_an_area_is_counted_on_the_page_and_a_rule_has_facts() -> None:
    row = Requirement(
        id="a.one",
        area="a",
        level="SHOULD",
        statement="It holds.",
        source="x.lua",
        status="disputed",
        reason="scenario missing",
        paper="It is so.",
        oracle="It is otherwise.",
        claims=("FR-1", "FR-2"),
        owns=(),
    )
    page = requirements_page(Ledger([row], {"a": "What's in Area-A"}), NO_PROFILES)
    assert "| [What's in Area-A](../../conformance/ledger/a.yaml) | 1 | 0 | 1 | 0 | 0 |" in page
    assert facts_of(row, None) == {
        "The specification": "It is so.",
        "BullMQ 5.62.0": "It is otherwise.",
        "No scenario": "scenario missing",
        "Stated in": "x.lua",
        "Claims": "FR-1, FR-2",
    }


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs the program and answers exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bullmq-conformance", *words])
        capfd.readouterr()
        code = cli_main.run()
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, list[str]]], None]:
    """Makes the ledger one row with one claim, and the mutants what the test says."""
    row = load_ledger().row("lock.token")

    def use(mutants: dict[str, list[str]]) -> None:
        monkeypatch.setattr(ledger_verb, "load_ledger", lambda: Ledger([row], {"lock": "Locks"}))
        monkeypatch.setattr(ledger_verb, "load_claims", lambda: dict.fromkeys(row.claims, "DIFFERS"))
        monkeypatch.setattr(ledger_verb, "killed_rows", lambda: mutants)

    return use


def test_the_coverage_lists_areas_and_gaps(call: Call) -> None:
    code, out, _ = call("ledger", "coverage")
    assert code == 0
    first, *lines = out.splitlines()
    assert first.split()[:4] == ["area", "rows", "tested", "disputed"]
    assert {line.split()[0] for line in lines[: len(load_ledger().areas)]} == set(load_ledger().areas)
    assert lines[-1].startswith(f"{len(load_ledger())} rows, ")


def test_strict_fails_when_something_is_missing(call: Call, small: Callable[[dict[str, list[str]]], None]) -> None:
    small({})
    code, out, _ = call("ledger", "coverage", "--strict")
    assert code == 1
    assert "no mutant: lock.token" in out
    assert "missing: 1 x no mutant" in out
    assert call("ledger", "coverage")[0] == 0


def test_strict_passes_when_nothing_is_missing(call: Call, small: Callable[[dict[str, list[str]]], None]) -> None:
    small({"lock.token": ["some.mutant"]})
    code, out, _ = call("ledger", "coverage", "--strict")
    assert code == 0
    assert out.splitlines()[-1] == "1 rows, 1 with scenario, 1 with mutant; missing: nothing"


def test_the_page_has_every_profile_with_its_rules() -> None:
    page = requirements_page(load_ledger(), load_profiles())
    assert "| bulk | adds many jobs in one step | 2 | `queue.addBulk`; conformant as producer |" in page
    assert "| `cluster` and a Redis Cluster |" in page


def test_profiles_are_listed_with_what_they_need_and_consist_of(call: Call) -> None:
    code, out, _ = call("list", "--profiles")
    assert code == 0
    assert "bulk: adds many jobs in one step\n  needs         queue.addBulk\n  together with producer\n" in out
    assert "  requirements  2: add.bulk.order, " in out
    assert "  needs         cluster and a Redis Cluster\n" in out
    assert all(f"{name}: " in out for name in load_profiles())


def test_the_profile_of_a_row_is_explained(call: Call) -> None:
    assert "profile: manual-worker\n" in call("explain", "lock.extend")[1]
    assert "profile: " not in call("explain", next(row.id for row in load_ledger().values() if not row.examined))[1]


def test_the_page_is_printed(call: Call) -> None:
    assert call("ledger", "page") == (0, requirements_page(load_ledger(), load_profiles()), "")


@pytest.mark.parametrize("name", ["lock.token", "FR-2.3", "fr-2.3"])
def test_a_row_is_explained_by_its_id_and_by_a_claim(call: Call, name: str) -> None:
    code, out, _ = call("explain", name)
    assert code == 0
    assert out.startswith("lock.token  (MUST, area lock)\n")
    for part in (
        "status: disputed\n",
        "the paper: ",
        "the oracle: ",
        "FR-2.3 (DIFFERS)",
        "scenarios: lock/",
        "explain lock.token --prove",
    ):
        assert part in out


def test_an_excused_row_gives_its_reason(call: Call) -> None:
    _, out, _ = call("explain", "library.types")
    assert "status: client-only: types of one language" in out
    assert "run them" not in out


def test_an_unknown_claim_is_the_users_mistake(call: Call) -> None:
    code, _, err = call("explain", "FR-2.99")
    assert code == 2
    assert "unknown requirement 'FR-2.99'" in err
    assert "did you mean FR-2." in err


def test_an_undisputed_requirement_has_no_proof(call: Call) -> None:
    code, _, err = call("explain", "add.lifo", "--prove")
    assert code == 2
    assert "no proof of add.lifo, which is tested" in err


def test_a_dispute_is_proven(call: Call) -> None:
    code, out, _ = call("explain", "FR-1.2", "--prove")
    assert code == 0
    assert "paper says: A higher number is a higher priority" in out
    assert 'jobs run by priority, then by age: ["none", "one", "one again", "three", "ten"]' in out


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Proof, ...]]:
    """Two proofs, of which the second is wrong about Node."""

    @scenario("add.id.counter")
    def wrong(client: Participant) -> None:
        equal(client.queue().add("job"), "7", "the first job has the id 7")

    chosen = {
        "lock.extend": all_proofs()["lock.extend"][:1],
        "add.id.counter": (Proof("add.id.counter", wrong.scenario),),
    }
    monkeypatch.setattr(ledger_verb, "all_proofs", lambda: chosen)
    return chosen


@pytest.mark.slow
def test_all_disputes_are_proven_at_once_and_the_refuted_ones_named_last(
    call: Call, proofs: dict[str, tuple[Proof, ...]]
) -> None:
    code, out, _ = call("explain", "--prove", "--all")
    assert code == 1
    assert 'Node 5.62.0 does:\n  the check marks the active job: ["1"]' in out
    assert "Node 5.62.0 does NOT do what the ledger says: the first job has the id 7" in out
    assert out.endswith("2 proofs of 2 disputed rows; refuted: add.id.counter\n")
    del proofs["add.id.counter"]
    code, out, _ = call("explain", "--prove", "--all")
    assert (code, out.splitlines()[-1]) == (0, "1 proofs of 1 disputed rows; all of them hold")


@pytest.mark.parametrize("words", [("--all",), ("lock.token", "--all"), ("lock.token", "--prove", "--all"), ()])
def test_all_and_one_requirement_exclude_each_other(call: Call, words: tuple[str, ...]) -> None:
    code, out, _ = call("explain", *words)
    assert (code, out) == (2, "")
