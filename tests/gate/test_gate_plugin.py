"""The pytest side of a run: what is sent to listeners, and how a run ends."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from conformance.driver.messages import ClientInfo, Ready
from conformance.environment.clients import Launch, Toolchain
from conformance.environment.prepare import Environment
from conformance.findings import Finding
from conformance.gate.bench import Bench, BenchPlan
from conformance.gate.flaky_failures import FlakyFailure
from conformance.gate.known_failures import KnownFailure
from conformance.gate.options import RunConfig
from conformance.gate.plugin import (
    FOLDER_INPUT,
    IN_DOUBT,
    PROPERTY,
    REPEATED_OUTPUT,
    GatePlugin,
    ScenarioRunner,
    insist_on_profiles,
    nothing_selected,
    party_of,
)
from conformance.gate.records import HIDDEN, Party, Record, RunFooter, RunHeader, ScenarioRecord, Verdict, encode
from conformance.gate.repetition import Repeater
from conformance.gate.selection import selected_cases
from conformance.gate.stop_rule import BUDGET_USED, StopRule
from conformance.ledger.loader import load_ledger
from conformance.problems import NothingSelected, Undecidable, UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers import RedisInstance
from conformance.upstream.node import NodeBinary
from conformance.upstream.package import BullMQPackage

from .gate_builders import finding, made, record

PARTY = Party(
    name="mini",
    language="python",
    version="1",
    targets="5.62.0",
    command=["mini"],
    capabilities=[],
    ops=["open"],
    folder="mini",
)
MINI = Launch("mini", ["mini"])
READY = Ready(
    protocol=1,
    client=ClientInfo(name="mini", language="python", version="1", targets="5.62.0"),
    ops=["open"],
    capabilities=[],
)
SERVER = RedisInstance(
    mode="standalone", nodes=["127.0.0.1:1"], source="nowhere", version="7.0.15", settings={"save": ""}, own=True
)


def prepared() -> Environment:
    """An environment in which nothing was started."""
    toolchain = Toolchain(
        NodeBinary(Path("node"), "20", "system"), BullMQPackage(Path(), "5.62.0", "00"), lambda _text: None
    )
    handshakes = {"oracle": READY, "client": READY}
    return Environment(
        toolchain=toolchain,
        scripts={},
        oracle=MINI,
        client=MINI,
        redis=SERVER,
        handshakes=handshakes,
        startup_ms={"redis": 1.5},
    )


@pytest.fixture(autouse=True)
def kit_of_one_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let known failures be judged by a run of the scenario that `record` makes."""
    monkeypatch.setattr("conformance.gate.plugin.whole_runs", lambda _config: lambda _tier: {"a/one"})


class Run:
    """A run without pytest: the inputs of the hooks, and the calls of the listeners."""

    def __init__(self, *known: KnownFailure, planned: int = 0, **options: Any) -> None:
        self.heard: list[Record] = []
        self.announced: list[str] = []
        self.plugin = GatePlugin(RunConfig(**options), [self.heard.append], self.announced.append)
        self.plugin.known = known
        self.plugin.use(prepared())
        self.plugin.pytest_xdist_node_collection_finished([f"scenarios/test_x.py::{n}" for n in range(planned)])

    def finishes(self, one: ScenarioRecord, *, when: str = "call") -> None:
        properties = [("other", "x"), (PROPERTY, encode(one).decode())]
        report = SimpleNamespace(when=when, failed=False, user_properties=properties)
        self.plugin.pytest_runtest_logreport(cast("pytest.TestReport", report))

    def doubts(self, name: str = "a/two") -> None:
        """A scenario that is repeated after all others."""
        report = SimpleNamespace(when="call", failed=False, user_properties=[(IN_DOUBT, name)])
        self.plugin.pytest_runtest_logreport(cast("pytest.TestReport", report))

    def process_ends(self, *repeated: ScenarioRecord) -> None:
        """A process of the run ends, after it has repeated these scenarios."""
        output = {REPEATED_OUTPUT: [encode(item).decode() for item in repeated]}
        node = SimpleNamespace(gateway=SimpleNamespace(id="gw1"), workeroutput=output)
        self.plugin.pytest_testnodedown(node, None)

    def breaks(self, traceback: str) -> None:
        """A scenario whose test fails before it has a record."""
        report = SimpleNamespace(
            when="setup", failed=True, user_properties=[], nodeid="scenarios/test_x.py::y", longreprtext=traceback
        )
        self.plugin.pytest_runtest_logreport(cast("pytest.TestReport", report))

    def ends(self, status: int = 0) -> int:
        """The exit status that pytest gets."""
        session = SimpleNamespace(exitstatus=status, shouldstop=False, shouldfail=False)
        self.plugin.pytest_sessionfinish(cast("pytest.Session", session), status)
        return int(session.exitstatus)

    @property
    def footer(self) -> RunFooter:
        last = self.heard[-1]
        assert isinstance(last, RunFooter)
        return last


def one(verdict: Verdict, *findings: Finding) -> ScenarioRecord:
    return record({"add.lifo": verdict}, *findings, verdict=verdict)


def test_deselected_scenarios_yield_no_items_if_pytest_does_not_report_them() -> None:
    module = SimpleNamespace(path=Path("scenarios/test_add.py"), config=SimpleNamespace())

    def items(plugin: GatePlugin) -> list[pytest.Item] | None:
        function = SimpleNamespace(scenario=made("add.lifo"))
        return plugin.pytest_pycollect_makeitem(cast("pytest.Module", module), function)

    plain = GatePlugin(RunConfig(select=["pause"]), [], lambda _text: None)
    assert items(Run(select=["pause"]).plugin) == []
    assert items(Run(select=["add.lifo"]).plugin) is None
    assert items(plain) is None, "pytest itself says how many were deselected"
    module.config.workerinput = {}
    assert items(plain) == []


def test_an_xdist_worker_creates_no_folder_that_would_remain_if_it_were_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plugin = GatePlugin(RunConfig(fail_fast=True), [], lambda _text: None)
    assert list(tmp_path.iterdir()) == []
    node = SimpleNamespace(workerinput={})
    plugin.use(prepared())
    plugin.pytest_configure_node(node)
    assert [str(path) for path in tmp_path.iterdir()] == [node.workerinput[FOLDER_INPUT]], "the controller makes it"


def test_a_run_is_a_header_its_scenarios_and_a_footer() -> None:
    before = time.time() * 1000
    run = Run(planned=2, seed=7, tier="smoke")
    for _ in range(2):
        run.finishes(one("pass"))
        run.finishes(one("pass"), when="teardown")
    assert run.ends() == 0
    header, *scenarios, footer = run.heard
    assert isinstance(header, RunHeader)
    assert (header.planned, header.seed, header.tier) == (2, 7, "smoke")
    assert (header.client, header.oracle, header.redis.source) == (PARTY, PARTY, "nowhere")
    assert header.environment["node"] == "20 (system)"
    assert header.options == {"seed": "7", "tier": "smoke"}
    assert scenarios == [one("pass"), one("pass")]
    assert isinstance(footer, RunFooter)
    assert (footer.exit_code, footer.verdicts, footer.startup_ms) == (0, {"pass": 2}, {"redis": 1.5})
    assert before - 1 <= header.started_ms <= footer.finished_ms


@pytest.mark.parametrize(
    ("verdicts", "planned", "code"),
    [
        (["pass", "warn", "unsupported"], 3, 0),
        (["pass", "fail"], 2, 1),
        (["pass", "inconclusive"], 2, 4),
        (["unsupported"], 1, 4),
        (["fail", "inconclusive"], 2, 1),
        (["fail", "error"], 2, 1),
        (["pass", "error"], 2, 3),
        (["pass"], 2, 3),
    ],
    ids=[
        "it holds",
        "a failure",
        "an open question",
        "nothing decided",
        "a failure counts more than what is open",
        "a failure counts more than what broke",
        "an error",
        "one is missing",
    ],
)
def test_the_exit_code_of_a_selection(verdicts: list[Verdict], planned: int, code: int) -> None:
    run = Run(planned=planned, select=["add.lifo"])
    for verdict in verdicts:
        run.finishes(one(verdict))
    assert run.ends() == code
    assert run.plugin.exit_code == run.footer.exit_code == code


def test_a_run_of_which_scenarios_are_missing_names_the_first_reason() -> None:
    silent = Run(planned=2)
    silent.ends(3)
    assert silent.footer.broke == "pytest ended with 3 and no reason"
    pytest_broke, process_broke, scenario_broke = Run(planned=2), Run(planned=2), Run(planned=2)
    with pytest.raises(ValueError, match="strings") as error:
        raise ValueError("strings must be utf-8 encodable")
    pytest_broke.plugin.pytest_internalerror(error)
    process_broke.plugin.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw1")), "Not properly ended\n")
    scenario_broke.breaks("Traceback\nE   OSError: no more files\n")
    for run, reason in (
        (pytest_broke, "pytest broke: ValueError: strings must be utf-8 encodable"),
        (process_broke, "the process gw1 of the run broke: Not properly ended"),
        (scenario_broke, "test_x.py::y has no record: E   OSError: no more files"),
    ):
        run.breaks("a consequence")
        run.ends()
        assert (run.footer.broke, run.footer.stopped) == (reason, "")


def test_a_process_that_ended_as_it_should_is_not_a_reason() -> None:
    run = Run(planned=1)
    run.plugin.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="gw1"), workeroutput={}), None)
    run.finishes(one("pass"))
    run.ends()
    assert run.footer.broke == ""


def test_a_repetition_at_the_end_of_a_process_counts() -> None:
    run = Run(planned=2)
    run.doubts()
    run.announced.clear()
    run.finishes(one("pass"))
    assert run.announced == ["1 scenarios are in doubt and are repeated one by one"]
    run.process_ends(one("fail", finding("add.lifo")))
    assert run.ends() == 1
    assert (run.footer.verdicts, run.footer.broke) == ({"fail": 1, "pass": 1}, "")


def test_a_doubtful_scenario_that_no_process_returned_is_missing() -> None:
    run = Run(planned=2)
    run.doubts()
    run.finishes(one("pass"))
    assert run.ends() != 0
    assert run.footer.broke


def test_text_of_any_kind_in_the_handshake_gets_into_the_header() -> None:
    run = Run(planned=1, invocation=["run", "--", "./dri\udcffver" + "r" * 9000])
    [header] = run.heard
    assert isinstance(header, RunHeader)
    encode(header)
    assert len(header.command[-1]) < 2000


def test_without_a_whole_profile_a_run_is_undecided() -> None:
    run = Run(planned=1)
    run.finishes(one("pass"))
    assert run.ends() == 4


def test_the_header_says_why_requirements_are_not_run() -> None:
    [header] = Run(planned=1, select=["add.lifo"]).heard
    assert isinstance(header, RunHeader)
    assert header.not_run["add.custom-id"] == "outside --select"
    assert header.not_run["cluster.tagged-works"] == "need a Redis Cluster and outside --select"
    assert "add.lifo" not in header.not_run


def test_an_unknown_profile_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageProblem, match=r"unknown profile 'produccer' — did you mean producer"):
        Run(profile=["worker", "produccer"])


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("flow_failures/*", "did you mean flow-failures/*"),
        ("add.lifoo", "did you mean add.lifo?"),
        (
            "add/a_lifo_job_enters_wait_at_the_left",
            "did you mean add/a_plain_job_enters_wait_at_the_left or add/a_lifo",
        ),
        ("xyzzy", "`bullmq-conformance list` prints every id"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused_although_another_one_matches(pattern: str, hint: str) -> None:
    with pytest.raises(NothingSelected) as problem:
        Run(select=["add.lifo", pattern])
    assert problem.value.what == f"no scenario matches {pattern} of --select"
    assert hint in problem.value.hint
    assert problem.value.exit_code == 5


def test_a_pattern_that_this_run_cannot_take_is_announced() -> None:
    announced: list[str] = []
    plugin = GatePlugin(RunConfig(tier="smoke", select=["add.plain.waits", "race"]), [], announced.append)
    assert plugin._not_run() == {"not run": "--select race: its scenarios are in tier core"}
    assert announced == ["not run: --select race: its scenarios are in tier core"]
    assert "its scenarios are in tier core" in nothing_selected(RunConfig(tier="smoke", select=["race"])).hint


def test_an_invalid_share_is_refused() -> None:
    with pytest.raises(UsageProblem, match="invalid percentage 'most' for --min-decided"):
        Run(min_decided="most")


def test_a_profile_that_the_driver_does_not_declare_is_reported_before_anything_runs() -> None:
    with pytest.raises(Undecidable, match=r"does not declare the profile worker: resolve, managed-worker") as problem:
        Run(profile=["worker"])
    assert problem.value.exit_code == 4


def test_a_profile_of_another_redis_is_reported_before_anything_runs() -> None:
    ready = msgspec.structs.replace(READY, capabilities=["cluster"])
    environment = dataclasses.replace(prepared(), handshakes={"client": ready})
    with pytest.raises(Undecidable, match=r"cannot be decided on one Redis.*--redis cluster:3"):
        insist_on_profiles(RunConfig(profile=["cluster"]), environment)


def test_a_stale_entry_fails_the_run() -> None:
    run = Run(KnownFailure(requirement="add.lifo", reason="old"), planned=1)
    run.finishes(one("pass"))
    assert run.ends() == 1
    assert run.footer.stale == {"add.lifo": "old"}
    assert run.footer.problems == []


@pytest.mark.parametrize(("at_most", "exit_code"), [(2, 4), (1, 1)])
def test_scenarios_that_pass_only_when_repeated_fail_a_run_that_meets_too_many(at_most: int, exit_code: int) -> None:
    entry = FlakyFailure(operation="worker.*", reason="now and then", at_most=at_most)
    run = Run(planned=2)
    run.plugin.unsteady = (entry,)
    for _ in range(2):
        run.finishes(msgspec.structs.replace(one("pass"), unsteady=entry.reason))
    assert (run.ends(), len(run.footer.problems)) == (exit_code, exit_code % 4)


def test_an_entry_that_matches_nothing_fails_the_run() -> None:
    run = Run(KnownFailure(requirement="add.lifo", reason="old", where="event.*"), planned=1)
    excused_by_another = record({"add.lifo": "fail"}, finding("add.lifo", where="job.name"))
    run.finishes(excused_by_another)
    assert run.ends() == 1
    assert len(run.footer.problems) == 1


def test_an_interrupted_run_has_no_footer() -> None:
    run = Run(planned=2)
    run.finishes(one("pass"))
    run.ends(int(pytest.ExitCode.INTERRUPTED))
    assert not isinstance(run.heard[-1], RunFooter)
    assert run.plugin.exit_code is None


def test_a_problem_inside_pytest_keeps_pytests_own_exit_code() -> None:
    run = Run(planned=1)
    run.finishes(one("fail"))
    assert run.ends(int(pytest.ExitCode.INTERNAL_ERROR)) == pytest.ExitCode.INTERNAL_ERROR


def test_nothing_planned_means_nothing_written() -> None:
    run = Run(planned=0)
    assert run.ends(int(pytest.ExitCode.NO_TESTS_COLLECTED)) == pytest.ExitCode.NO_TESTS_COLLECTED
    assert run.heard == []
    assert run.plugin.exit_code is None


def test_the_header_shows_no_password() -> None:
    run = Run(planned=1, invocation=["bullmq-conformance", "run", "--redis=redis://me:s3cret@h:1"])
    [header] = run.heard
    assert isinstance(header, RunHeader)
    assert header.command[-1] == f"--redis=redis://me:{HIDDEN}@h:1"


def test_nothing_selected_says_what_was_asked_for() -> None:
    assert "add.x, lock" in nothing_selected(RunConfig(select=["add.x", "lock"])).what
    assert "tier smoke, level MUST" in nothing_selected(RunConfig(tier="smoke", level="MUST")).what


def test_a_prepared_run_crosses_to_another_process() -> None:
    prepared = BenchPlan.decode(
        '{"server":{"mode":"cluster","nodes":["h:1"],"db":0,"username":null,"password":"p","tls":true,"source":"s",'
        '"version":"7","settings":{},"own":false},"oracle":{"name":"node","command":["n"],"environment":{"A":"b"}},'
        '"client":{"name":"c","command":["c"],"environment":{}},"seed":4,"scripts":{"pause":"--"},"logs":""}'
    )
    assert BenchPlan.decode(prepared.encode()) == prepared
    assert prepared.server.password == "p"
    assert prepared.oracle.environment == {"A": "b"}


def test_a_client_is_shown_under_its_own_name() -> None:
    said = ClientInfo(name="its own name", language="go", version="1")
    ready = Ready(protocol=1, client=said, ops=[], capabilities=[], fixed_prefix="bull")
    party = party_of(Launch("launched as this", ["./driver"]), ready, by_name=False)
    assert (party.name, party.fixed_prefix, party.command) == ("its own name", "bull", ["./driver"])


def test_a_ready_line_is_what_a_party_is_made_of() -> None:
    """`Party` must have a place for everything that the handshake says of a driver."""
    assert set(Ready.__struct_fields__) - {"protocol", "client"} <= set(Party.__struct_fields__)


# Ending before the end, and known.toml.


@pytest.mark.parametrize(("verdict", "code"), [("pass", 4), ("fail", 1)])
def test_scenarios_outside_the_budget_are_reported(verdict: Verdict, code: int) -> None:
    run = Run(planned=3, budget="1ms")
    run.finishes(one(verdict))
    assert run.ends() == code
    assert (run.footer.stopped, run.footer.problems) == (BUDGET_USED, [])


def test_an_entry_is_not_stale_because_of_a_run_that_left_something_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.gate.plugin.whole_runs", lambda _config: lambda _tier: {"a/one", "a/two"})
    run = Run(KnownFailure(requirement="add.lifo", reason="old"), planned=2, budget="1ms")
    run.finishes(one("pass"))
    run.ends()
    assert run.footer.stale == {}


# pytest's own selection.


class TypedPlugin(GatePlugin):
    """The plugin of a typed `pytest conformance/`: it prepares the run itself, here without starting anything."""

    def _prepared(self) -> Environment:
        self._environment = self._environment or prepared()
        return self._environment


def typed(ids: Iterable[str], **options: Any) -> tuple[RunHeader, RunFooter]:
    """The run of a typed command whose workers collected these node ids, and in which everything passes."""
    heard: list[Record] = []
    plugin = TypedPlugin(RunConfig(**options), [heard.append], lambda _text: None)
    nodes = list(ids)
    # xdist starts its workers, for which everything is prepared, before they collect.
    plugin.pytest_configure_node(SimpleNamespace(workerinput={}))
    plugin.pytest_xdist_node_collection_finished(nodes)
    for _ in nodes:
        report = SimpleNamespace(when="call", failed=False, user_properties=[(PROPERTY, encode(one("pass")).decode())])
        plugin.pytest_runtest_logreport(cast("pytest.TestReport", report))
    session = SimpleNamespace(exitstatus=0, shouldfail=False, shouldstop=False)
    plugin.pytest_sessionfinish(cast("pytest.Session", session), 0)
    assert isinstance(heard[0], RunHeader)
    assert isinstance(heard[-1], RunFooter)
    return heard[0], heard[-1]


LIFO = "conformance/scenarios/test_add.py::test_a_lifo_job_enters_wait_at_the_right"


def test_pytests_own_selection_narrows_a_run_like_select() -> None:
    header, footer = typed([LIFO])
    assert (header.planned, footer.exit_code) == (1, 0), "the selection holds"
    assert header.deselected == len(selected_cases(RunConfig(), load_ledger(BULLMQ_VERSION))) - 1
    assert header.not_run["add.plain.waits"] == "outside pytest's selection"
    assert "add.lifo" not in header.not_run


def test_one_case_that_pytest_leaves_out_narrows_a_run() -> None:
    cases = selected_cases(RunConfig(), load_ledger(BULLMQ_VERSION))
    *most, _case = sorted((name for name in cases if name.endswith("]")), key=len)
    nodes = [f"scenarios/test_{name.replace('/', '.py::test_', 1)}" for name in [*(cases - set(most) - {_case}), *most]]
    header, _ = typed(nodes)
    assert header.deselected == 1
    assert "outside pytest's selection" not in header.not_run.values(), "the scenario has other cases"


def test_scenarios_left_out_by_options_do_not_count_as_deselected_by_pytest() -> None:
    header, _ = typed([LIFO], select=["add.lifo"])
    assert (header.planned, header.deselected) == (1, 0)


def test_a_scenario_that_was_not_started_leaves_no_record() -> None:
    node = SimpleNamespace(user_properties=[])
    runner = ScenarioRunner(cast("Bench", None), cast("Repeater", None), RunConfig(), [], StopRule(deadline_ms=1.0))
    with pytest.raises(pytest.skip.Exception, match=BUDGET_USED):
        runner.run(made("add.lifo"), cast("pytest.FixtureRequest", SimpleNamespace(node=node)), {})
    assert node.user_properties == []


def test_a_named_client_brings_its_known_failures() -> None:
    header = Run(planned=1, client="python-official").heard[0]
    assert isinstance(header, RunHeader)
    assert "python_official/known.toml: " in header.environment["known failures"]
    for options in ({"no_known": True}, {"command": ["driver"]}, {"client": "node"}):
        other = Run(planned=1, **{"client": "python-official", **options}).heard[0]
        assert isinstance(other, RunHeader)
        assert "known failures" not in other.environment


def test_known_and_no_known_contradict_each_other() -> None:
    with pytest.raises(UsageProblem, match="contradict"):
        RunConfig(known="known.toml", no_known=True).known_path  # noqa: B018
