"""Replay files: steps written down and read, the files of the planted defects, and the regressions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.driver.ops import flow, queue, worker
from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.environment.prepare import EnvironmentOptions
from conformance.fuzz.comparison import DifferenceClass, StepDifference
from conformance.fuzz.replay import Replay, ReplayHeader, file_name, read_replay, run_replay, write_replay
from conformance.fuzz.setup import FuzzedDrivers
from conformance.fuzz.target import FuzzTarget, Mode, open_target
from conformance.ledger.loader import load_ledger
from conformance.mutants.damage import Damage
from conformance.mutants.matrix import MutantDriver
from conformance.mutants.registry import Mutant
from conformance.problems import UsageProblem
from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.reference_impl.jobs import options
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.scenarios import test_regressions
from conformance.servers import RedisInstance
from conformance.steps.records import as_record, from_record, step_line
from conformance.steps.shapes import CallStep, ClockStep, CounterStep, FaultStep, Step, calls_of, opening

from .hunting import NEWER, REPLAYS, SKEWED, SKEWS, oracle_of_this_machine, target_for
from .planted import HEALTHY, PLANTED

CHILD = flow.FlowJob(name="c", queue="r", opts={"jobId": "f1-1"})
STEPS: list[Step] = [
    opening("queue-1", "queue", "q", skipMetasUpdate=True),
    opening("worker-1", "worker", "q", name="w"),
    CallStep("queue-1", queue.Add(name="é🎉", data_raw='"\\ud800"', opts={"delay": 5, "de": {"id": "x"}})),
    CallStep("queue-1", queue.AddBulk(jobs=[queue.NewJob(name="a", opts={"lifo": True})]), by="oracle"),
    CallStep("flow", flow.AddFlow(flow=flow.FlowJob(name="p", queue="q", children=[CHILD]))),
    CallStep("worker-1", worker.MoveToFailed(job="1", token="t", message="", unrecoverable=True)),
    CallStep("queue-1", queue.Pause()),
    CallStep("queue-1", queue.Resume(), cut="mid-reply"),
    ClockStep(20_000),
    FaultStep("delete-lock", "q", "1"),
    FaultStep("wake", "r"),
    FaultStep("script-flush"),
    CounterStep("id", "q", 299_999_998),
    CounterStep("atm", "q", 40, "1"),
    FaultStep("disconnect"),
]


@pytest.mark.parametrize("step", STEPS, ids=step_line)
def test_a_step_survives_being_written_down(step: Step) -> None:
    assert from_record(as_record(step)) == step


def test_a_record_leaves_out_what_is_at_its_default() -> None:
    assert as_record(STEPS[0]) == {
        "call": "open",
        "on": "queue-1",
        "args": {"role": "queue", "queue": "q", "options": {"skipMetasUpdate": True}},
    }
    assert as_record(STEPS[6]) == {"call": "queue.pause", "on": "queue-1", "args": {}}
    assert as_record(STEPS[11]) == {"fault": "script-flush"}


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"call": "queue.fly", "on": "queue-1"},
        {"call": "queue.add", "on": "queue-1", "args": {}},
        {"call": "queue.add", "on": 5, "args": {"name": "n"}},
        {"call": "queue.pause", "on": "queue-1", "by": "stranger"},
        {"call": "queue.pause", "on": "queue-1", "cut": "sometime"},
        {"clock_ms": "soon"},
        {"fault": "earthquake"},
        {"counter": "jobs", "queue": "q", "value": 1},
        {"counter": "id", "queue": "q", "value": "many"},
    ],
    ids=str,
)
def test_an_invalid_step_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        from_record(record)


def test_client_objects_do_not_count_as_calls() -> None:
    assert calls_of(STEPS) == 6


def test_a_step_is_shown_in_one_line() -> None:
    assert step_line(STEPS[3]) == (
        'queue-1 (its partner): queue.addBulk(jobs=[{"name":"a","data_raw":"{}","opts":{"lifo":true}}])'
    )
    assert step_line(STEPS[7]) == "queue-1: queue.resume(), cut mid-reply"
    assert step_line(ClockStep(5)) == "5 ms pass"
    assert step_line(FaultStep("delete-lock", "q", "1")) == "delete-lock q 1"
    assert step_line(CounterStep("id", "q", 5)) == "id of q is 5"
    assert step_line(CounterStep("atm", "q", 40, "1")) == "atm of q 1 is 40"


HEADER = ReplayHeader(
    title="something is different",
    requirement="add.plain.waits",
    kit="0.1.0",
    bullmq="5.62.0",
    mode="interop",
    clock="running",
    seed=7,
    client="some-client",
    version="1.2",
    beside=[DifferenceClass("open", "meta", "missing-key")],
)
DIFFERENCE = StepDifference("fault.disconnect", "job.delay", "wrong-value", "q:1", '"0"', '"NaN"', "breaks-others")


def test_a_file_holds_everything(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "one.jsonl"
    replay = Replay(HEADER, tuple(STEPS), (DIFFERENCE,))
    write_replay(replay, path)
    assert read_replay(path) == replay
    assert read_replay(path).groups == {DIFFERENCE.group}


def test_the_difference_is_shown_next_to_its_step(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    write_replay(Replay(HEADER, tuple(STEPS), (DIFFERENCE,)), path)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(lines) == 1 + len(STEPS)
    assert [number for number, line in enumerate(lines) if "differs" in line] == [len(STEPS)]


def test_a_difference_in_bytes_that_are_not_utf_8_is_written(tmp_path: Path) -> None:
    odd = replace(DIFFERENCE, actual="\udcff", key="\ud800")
    write_replay(Replay(HEADER, tuple(STEPS), (odd,)), tmp_path / "odd.jsonl")
    (kept,) = read_replay(tmp_path / "odd.jsonl").differences
    assert (kept.actual, kept.key) == (r"\udcff", r"\ud800")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("nonsense\n", "line 1: it is not a header"),
        ('{"replay":1}\n', "line 1: it is not a header"),
        ('{"replay":1,"surprise":2}\n', "line 1: it is not a header"),
        ("HEADER\n{\n", "line 2:"),
        ('HEADER\n{"clock_ms":1}\n[]\n', "line 3: a line is one JSON object"),
        ('HEADER\n{"call":"queue.fly"}\n', "line 2: unknown step: {'call': 'queue.fly'}"),
        ('HEADER\n{"drain":["w"]}\n', "line 2: only a feature of `versions mixed` has this step: w: complete jobs"),
        ('HEADER\n{"clock_ms":1,"differs":[{"where":5,"kind":"x"}]}\n', "line 2:"),
        ('HEADER\n{"clock_ms":1,"differs":7}\n', "line 2:"),
    ],
)
def test_a_bad_file_is_refused_by_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.jsonl"
    write_replay(Replay(HEADER, ()), path)
    path.write_text(text.replace("HEADER\n", path.read_text("utf-8")), "utf-8")
    with pytest.raises(UsageProblem) as refused:
        read_replay(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    write_replay(Replay(HEADER, ()), path)
    path.write_text(path.read_text("utf-8").replace('"replay":1', '"replay":2'), "utf-8")
    with pytest.raises(UsageProblem, match="format 2"):
        read_replay(path)


def test_a_missing_file_and_an_unwritable_folder_are_usage_problems(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="cannot read"):
        read_replay(tmp_path / "none.jsonl")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(UsageProblem, match="cannot write"):
        write_replay(Replay(HEADER, ()), tmp_path / "file" / "one.jsonl")


def test_the_name_of_a_file_is_harmless() -> None:
    assert file_name(DifferenceClass("queue.add", "answer.x", "outcome ok, not other/../..")) == (
        "queue.add-answer.x-outcome-ok-not-other-..-...jsonl"
    )


MOST_CALLS = 8
PLANTED_FILES = sorted(REPLAYS.glob("*.jsonl"))


@pytest.fixture(scope="module")
def healthy(server: RedisInstance, oracle: Launch) -> Iterator[FuzzTarget]:
    with target_for(HEALTHY, server, oracle) as target:
        yield target


def test_there_is_one_file_for_each_defect() -> None:
    assert len(PLANTED) == 28
    assert {path.stem for path in PLANTED_FILES} == set(PLANTED)


@pytest.mark.parametrize("path", PLANTED_FILES, ids=lambda path: path.stem)
def test_the_file_is_short_and_fails_on_the_sick_client(path: Path, server: RedisInstance, oracle: Launch) -> None:
    replay = read_replay(path)
    assert calls_of(replay.steps) <= MOST_CALLS
    with target_for(PLANTED[path.stem], server, oracle) as target:
        outcome = run_replay(target, replay)
    assert outcome.fails, PLANTED[path.stem].what
    assert outcome.shows(replay), [str(difference) for step in outcome.steps for difference in step.differences]
    assert outcome.steps[-1].differences


@pytest.mark.parametrize("path", PLANTED_FILES, ids=lambda path: path.stem)
def test_the_file_passes_on_the_healthy_client(path: Path, healthy: FuzzTarget) -> None:
    replay = read_replay(path)
    outcome = run_replay(healthy, replay)
    assert not outcome.fails, [str(difference) for step in outcome.steps for difference in step.differences]
    assert not outcome.unplayed
    assert len(outcome.steps) == len(replay.steps)


SKEWED_FILES = sorted(SKEWED.glob("*.jsonl"))


@pytest.mark.parametrize("path", SKEWED_FILES, ids=lambda path: path.stem)
def test_a_difference_of_two_clients_is_found_in_turns(path: Path, server: RedisInstance, oracle: Launch) -> None:
    replay = read_replay(path)
    assert {step.by for step in replay.steps if isinstance(step, CallStep)} == {"client", "oracle"}
    with target_for(SKEWS[path.stem], server, oracle, "interop") as target:
        assert run_replay(target, replay).shows(replay)
    with target_for(HEALTHY, server, oracle, "interop") as target:
        outcome = run_replay(target, replay)
    assert (outcome.fails, outcome.unplayed) == (False, "")


@pytest.mark.parametrize("path", SKEWED_FILES, ids=lambda path: path.stem)
def test_one_client_alone_does_not_show_it(path: Path, server: RedisInstance, oracle: Launch) -> None:
    replay = read_replay(path)
    alone = [replace(step, by="client") if isinstance(step, CallStep) else step for step in replay.steps]
    with target_for(SKEWS[path.stem], server, oracle) as target:
        assert not run_replay(target, replace(replay, steps=tuple(alone))).fails


NEWER_FILES = sorted(NEWER.glob("*.jsonl"))
"""Of features that 5.62.0 does not have, by the defect of the newest Node (`tests/mutants/newer_node.mjs`)."""


@pytest.fixture(scope="module")
def newest() -> Launch:
    return oracle_of_this_machine(SUPPORTED_ORACLES[-1])


@pytest.mark.slow
@pytest.mark.parametrize("path", NEWER_FILES, ids=lambda path: path.stem)
def test_a_loss_by_a_newer_feature_is_shown(path: Path, server: RedisInstance, newest: Launch) -> None:
    replay = read_replay(path)
    sick = Launch(path.stem, [sys.executable, "-m", "tests.mutants.newer_node", path.stem])
    for client, fails in ((sick, True), (newest, False)):
        drivers = FuzzedDrivers(server, RestartableDriver(newest, 0), RestartableDriver(client, 0))
        with closing(FuzzTarget(drivers)) as target:
            outcome = run_replay(target, replay)
        assert (outcome.fails, outcome.unplayed) == (fails, "")
        assert outcome.shows(replay) == fails


def _keeping_the_last(more: dict[str, object]) -> Iterator[Step]:
    """Jobs come while the owner of their deduplication id is at work; the last one follows it, and the id is free."""
    opts = {"deduplication": {"id": "d", "ttl": 20_000, "extend": True, "keepLastIfActive": True}}
    yield opening("queue-1", "queue", "q")
    yield opening("worker-1", "worker", "q")
    ignored: dict[str, object] = {"delay": 20_000}
    for job in ({}, ignored):  # the second is ignored, because the owner has not started
        yield CallStep("queue-1", queue.Add(name="job", opts={**opts, **job}))
    yield CallStep("worker-1", worker.GetNextJob(token="t"))
    for job in ({}, more):
        yield CallStep("queue-1", queue.Add(name="last", data_raw="7", opts={**opts, **job}))
    yield CallStep("worker-1", worker.MoveToFailed(job="1", token="t", message="boom"))
    yield ClockStep(20_000)
    yield CallStep("worker-1", worker.GetNextJob(token="t"))
    yield CallStep("worker-1", worker.MoveToCompleted(job=str(more.get("jobId", "4")), token="t", value_raw="1"))


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"delay": 20_000}, {"priority": 2}, {"jobId": "own"}, {"lifo": True}], ids=str)
def test_the_model_predicts_what_keeping_the_last_does(more: dict[str, object], server: RedisInstance) -> None:
    newer = RestartableDriver(oracle_of_this_machine("5.81.5"), 0)
    replay = Replay(HEADER, tuple(_keeping_the_last(more)))
    with closing(FuzzTarget(FuzzedDrivers(server, newer, None), "model")) as target:
        outcome = run_replay(target, replay)
    assert [str(difference) for step in outcome.steps for difference in step.differences] == []
    assert (outcome.unplayed, len(outcome.steps)) == ("", len(replay.steps))


def test_at_least_three_of_the_five_are_found_in_turns() -> None:
    assert len(SKEWS) == 5
    assert len(SKEWED_FILES) >= 3


def test_a_partner_takes_the_oracles_turns(server: RedisInstance, oracle: Launch) -> None:
    replay = read_replay(REPLAYS / "fifo-broken-at-third.jsonl")
    turns = [replace(step, by="oracle") if isinstance(step, CallStep) else step for step in replay.steps]
    in_turns = replace(replay, steps=tuple(turns))
    with target_for(HEALTHY, server, oracle, "interop") as target:
        assert not run_replay(target, in_turns).fails
        sick = MutantDriver(Launch("sick", []), 0, mutant=PLANTED["fifo-broken-at-third"], scripts=official_scripts())
        target.drivers.partner = sick
        assert run_replay(target, in_turns).shows(replay)
        assert "in turns with mutant fifo-broken-at-third" in target.parties


@pytest.mark.parametrize("mode", ["differential", "model"])
def test_a_partner_is_for_turns(mode: Mode) -> None:
    with pytest.raises(UsageProblem, match="--partner needs --mode interop"):
        open_target(EnvironmentOptions(client="node", partner="reference"), ExitStack(), mode)


REGRESSION_FILES = sorted(test_regressions.REGRESSIONS.glob("*.jsonl"))


@pytest.mark.parametrize("path", REGRESSION_FILES, ids=lambda path: path.stem)
def test_a_file_is_a_scenario_of_its_row(path: Path) -> None:
    replay = read_replay(path)
    name = f"test_{path.stem.replace('-', '_')}"
    made = getattr(test_regressions, name).scenario
    assert made.requirements == (replay.header.requirement,)
    assert load_ledger().row(replay.header.requirement).id == replay.header.requirement
    assert made.title == replay.header.title
    assert replay.differences
    assert not any(isinstance(step, FaultStep) and step.fault == "script-flush" for step in replay.steps)


def test_a_client_with_the_mistake_fails_the_file(server: RedisInstance, oracle: Launch) -> None:
    def long_names(damage: Damage) -> None:
        damage.replace(options, "encode", dict)

    replay = read_replay(test_regressions.REGRESSIONS / "telemetry-options.jsonl")
    mutant = Mutant("long-names", "Options keep their long names.", (), long_names)
    with target_for(mutant, server, oracle) as target:
        outcome = run_replay(target, replay)
    assert outcome.shows(replay)
