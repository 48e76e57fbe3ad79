"""Which scenarios a run takes, how functions become scenarios, and how all of them are found."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.gate.options import RunConfig, split_command
from conformance.gate.plugin import scenario_of_node
from conformance.gate.selection import (
    all_scenarios,
    area_of,
    is_selected,
    may_be_selected,
    running_order,
    scenario_id,
    scenario_of,
    scenarios_by_requirement,
    selected_cases,
)
from conformance.ledger.loader import load_ledger
from conformance.participants.marks import TIERS, Scenario, Tier, handover, scenario, shared, tier_of
from conformance.participants.roles import assignments
from conformance.problems import UsageProblem

from .gate_builders import item, levels, made

ROOT = Path(__file__).parents[2]

# Names.


def test_the_area_is_the_module_and_the_id_adds_the_function() -> None:
    one = item(made("a.must"), module="test_job_hash.py", name="test_the_name[x-1]")
    assert area_of(one) == "job-hash"
    assert scenario_id(one) == "job-hash/the_name[x-1]"


def test_an_ordinary_test_is_not_a_scenario() -> None:
    assert scenario_of(item()) is None
    one = made("a.must")
    assert scenario_of(item(one)) is one


# Selection.


def selects(scenario: Scenario, **options: Any) -> bool:
    one = item(scenario, module="test_job_hash.py", name="test_the_name[x-1]")
    return is_selected(one, RunConfig(**options), levels())


def test_an_ordinary_test_is_always_taken() -> None:
    assert is_selected(item(), RunConfig(select=["nothing"], tier="smoke", level="MUST"), levels())


@pytest.mark.parametrize(
    ("versions", "cases", "taken"),
    [
        ("", {}, True),
        ("<6", {}, False),
        (">=6", {}, True),
        ("", {"x-*": "<6"}, False),
        ("", {"x-*": ">=6"}, True),
        ("", {"y-*": "<6"}, True),
        ("<6", {"x-*": ">=6"}, False),
    ],
)
def test_a_scenario_or_a_case_of_it_is_about_some_versions(versions: str, cases: dict[str, str], taken: bool) -> None:
    assert selects(replace(made("a.must"), bullmq=versions, cases=cases), oracle="6.7.0") is taken


NAME = "job-hash/the_name"


@pytest.mark.parametrize(
    ("pattern", "may"),
    [
        (NAME, True),
        (f"{NAME}[x-1]", True),
        ("*[x-1]", True),
        ("*x-1?", True),
        (f"{NAME}?x*", True),
        ("job-hash", True),
        ("a.m*", True),
        (f"{NAME}s[x-1]", False),
        ("a.should", False),
        ("[x-1]", False),
        ("", False),
    ],
)
def test_a_scenario_is_left_out_before_it_has_cases_where_no_case_would_be_taken(pattern: str, may: bool) -> None:
    assert may_be_selected(NAME, made("a.must"), RunConfig(select=[pattern]), levels()) is may


def test_a_scenario_is_selected_if_only_its_cases_can_exclude_it() -> None:
    one = replace(made("a.must"), cases={"*": ">=6"})
    assert may_be_selected(NAME, one, RunConfig(), levels())
    assert not may_be_selected(NAME, replace(one, bullmq=">=6"), RunConfig(), levels())
    assert not may_be_selected(NAME, replace(one, tier="full"), RunConfig(), levels())


@given(st.lists(st.sampled_from(["*", "?", "[x", "-1]", "the", "_name", "job", "-hash/", "a.", "must", "x"])))
def test_no_case_that_is_selected_is_left_out_before(parts: list[str]) -> None:
    one, select = made("a.must"), ["".join(parts)]
    assert not selects(one, select=select) or may_be_selected(NAME, one, RunConfig(select=select), levels())


@pytest.mark.parametrize("scenario_tier", TIERS)
@pytest.mark.parametrize("run_tier", TIERS)
def test_a_tier_takes_itself_and_what_is_below(scenario_tier: Tier, run_tier: Tier) -> None:
    taken = {("smoke", tier) for tier in TIERS} | {("core", "core"), ("core", "full"), ("full", "full")}
    assert selects(made("a.must", tier=scenario_tier), tier=run_tier) is ((scenario_tier, run_tier) in taken)


@pytest.mark.parametrize(
    ("level", "taken"),
    [("MUST", {"a.must"}), ("SHOULD", {"a.must", "a.should"}), ("MAY", {"a.must", "a.should", "a.may"})],
)
def test_a_level_takes_itself_and_what_is_above(level: Literal["MUST", "SHOULD", "MAY"], taken: set[str]) -> None:
    assert {name for name in ("a.must", "a.should", "a.may") if selects(made(name), level=level)} == taken


def test_hand_overs_alone() -> None:
    def test_it(adder: Any, worker: Any) -> None:
        """Two roles."""

    assert selects(scenario_behind(handover("a.must")(test_it)), handovers=True)
    assert not selects(made("a.must"), handovers=True)


def test_one_requirement_of_the_level_is_enough() -> None:
    assert selects(made("a.may", "a.must"), level="MUST")


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("a.must", True),
        ("a.*", True),
        ("a.should", True),
        ("b.*", False),
        ("job-hash", True),
        ("job-*", True),
        ("job", False),
        ("a", True),
        ("b", False),
        ("job-hash/the_name", True),
        ("job-hash/the_name[x-1]", True),
        ("job-hash/the_name[x-2]", False),
        ("*/the_*", True),
        ("the_name", False),
        ("A.MUST", False),
    ],
)
def test_select_matches_requirements_their_areas_and_ids(pattern: str, taken: bool) -> None:
    """The area of a row, which reports print, and that of the scenario, which is part of its id."""
    assert selects(made("a.must", "a.should"), select=[pattern]) is taken


def test_several_patterns_add_up() -> None:
    assert selects(made("a.must"), select=["b.*", "a.must"])


def test_slow_scenarios_run_first() -> None:
    items = [item(made("a.must")), item(), item(made("a.must", slow=True))]
    assert [running_order(item) for item in items] == [1, 1, 0]


# From functions to scenarios.


def signature(test: Callable[..., None]) -> list[str]:
    return list(inspect.signature(test).parameters)


def marks(test: Any) -> list[Any]:
    return list(test.pytestmark)


def scenario_behind(test: Any) -> Scenario:
    found = test.scenario
    assert isinstance(found, Scenario)
    return found


def test_a_differential_scenario_becomes_a_test() -> None:
    @scenario("a.must", "a.should", tier="smoke", clock="real", slow=True, compare=False, without={"x": "why"})
    def test_it(client: Any) -> None:
        """It holds.

        More about it.
        """

    behind = scenario_behind(test_it)
    assert signature(test_it) == ["runner", "request"]
    assert (test_it.__name__, behind.name, behind.title) == ("test_it", "it", "It holds.")
    assert behind.requirements == ("a.must", "a.should")
    assert (behind.style, behind.tier, behind.clock) == ("differential", "smoke", "real")
    assert (behind.slow, behind.compare, behind.without) == (True, False, {"x": "why"})


def test_a_scenario_without_docstring_is_called_by_its_name() -> None:
    @scenario("a.must")
    def test_it_holds(client: Any) -> None:
        pass

    assert scenario_behind(test_it_holds).title == "it_holds"


def test_parameters_become_fixtures_and_their_marks_stay() -> None:
    @pytest.mark.parametrize("size", [1, 2])
    @scenario("a.must")
    def outside(client: Any, size: int) -> None:
        """Marked after the scenario."""

    @scenario("a.must")
    @pytest.mark.parametrize("size", [1, 2])
    def inside(client: Any, size: int) -> None:
        """Marked before the scenario."""

    for test in (outside, inside):
        assert signature(test) == ["runner", "request", "size"]
        assert [mark.args for mark in marks(test)] == [("size", [1, 2])]


def test_a_handover_runs_with_every_assignment() -> None:
    @handover("a.must")
    @pytest.mark.parametrize("size", [1, 2])
    def test_it(producer: Any, consumer: Any, size: int) -> None:
        """It is handed over."""

    assert signature(test_it) == ["runner", "request", "assignment", "size"]
    every = assignments(("producer", "consumer"))
    assert [mark.args for mark in marks(test_it)] == [("size", [1, 2]), ("assignment", every)]
    assert (scenario_behind(test_it).style, scenario_behind(test_it).clock) == ("handover", "real")


def test_a_handover_names_two_roles() -> None:
    def test_it(worker: Any) -> None:
        """There is no hand-over."""

    with pytest.raises(TypeError, match="give it two parameters out of adder"):
        handover("a.must")(test_it)


def test_the_tier_of_an_assignment() -> None:
    def test_it(adder: Any, holder: Any, recoverer: Any) -> None:
        """Three roles."""

    made = scenario_behind(handover("a.must", tier="smoke")(test_it))
    tiers = [tier_of(made, {"assignment": assignment}) for assignment in assignments(made.participants)]
    assert tiers == ["smoke", "smoke", "full", "full", "full", "full"]
    assert tier_of(made, {}) == "smoke"


def test_a_shared_scenario_runs_once_with_both() -> None:
    @shared("a.must")
    def test_it(client: Any, oracle: Any) -> None:
        """Both at once."""

    assert signature(test_it) == ["runner", "request"]
    assert marks(test_it) == []
    assert scenario_behind(test_it).style == "shared"


@pytest.mark.parametrize("mark", [scenario, handover, shared])
def test_a_scenario_names_a_requirement(mark: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match="at least one requirement"):
        mark()


# All scenarios.


def test_the_catalogue_finds_the_kits_scenarios() -> None:
    found = dict(all_scenarios())
    assert len(found) > 100
    assert all("/" in name and one.requirements for name, one in found.items())
    assert "add/a_lifo_job_enters_wait_at_the_right" in scenarios_by_requirement()["add.lifo"]


def test_no_two_scenarios_share_an_id() -> None:
    names = [name for name, _ in all_scenarios()]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_the_catalogue_has_the_ids_that_pytest_makes() -> None:
    """Otherwise a whole run would look narrowed, and its known failures would never be judged."""
    words = [sys.executable, "-m", "pytest", "conformance/scenarios", "--collect-only", "-q", "-n", "0"]
    words += ["--tier", "full", "--redis", "cluster"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    collected = {scenario_of_node(line) for line in done.stdout.splitlines() if "::" in line}
    config = RunConfig(tier="full", redis="cluster")
    assert collected == selected_cases(config, load_ledger(config.oracle_version))


def test_the_catalogue_reads_a_package_of_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "some_scenarios_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("raise AssertionError('only test modules are read')")
    (package / "test_job_hash.py").write_text(
        textwrap.dedent("""
        from conformance.participants.marks import handover, scenario

        @scenario("a.must", "a.should")
        def test_one(client): "One."

        @handover("a.must")
        def test_two(producer, consumer): "Two."

        def test_ordinary(): pass
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("conformance.gate.selection.SCENARIOS", package.name)
    assert scenarios_by_requirement() == {"a.must": ["job-hash/one", "job-hash/two"], "a.should": ["job-hash/one"]}


# A driver's command, as pytest gets it.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("driver", ["driver"]),
        ("my 'own driver' -v", ["my", "own driver", "-v"]),
        ('["my driver", "-v"]', ["my driver", "-v"]),
    ],
)
def test_a_command_is_split_into_words(text: str, words: list[str]) -> None:
    assert split_command(text) == words


@pytest.mark.parametrize("text", ["unclosed 'quote", '["unclosed', "[1, 2]", '[["nested"]]'])
def test_a_command_that_cannot_be_split_is_a_usage_problem(text: str) -> None:
    with pytest.raises(UsageProblem, match="cannot be read"):
        split_command(text)
