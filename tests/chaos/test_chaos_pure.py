"""Parts that need no process: workload, registry, memory, wire, report."""

from __future__ import annotations

import fnmatch
import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from chaos import observers
from chaos.crash_points import CrashPoint, points_of
from chaos.explanations import EXPLANATIONS, Identity, explanation_of, stale_explanations
from chaos.fault_invariants import invariants_tested_by
from chaos.faults.base import FAULTS, ChaosSystem, Fault, select_faults
from chaos.mutants.catalogue import CHAOS_MUTANTS
from chaos.mutants.hunt import Hunt
from chaos.options import TELLING, ChaosOptions, topology_for
from chaos.processes import ClientProcess
from chaos.recorder import HistoryRecorder, both_clocks
from chaos.report import render_all
from chaos.results import (
    FILE,
    FindingRow,
    InvariantCell,
    ResultRow,
    ResultsFile,
    ResultsHeader,
    any_failed,
    identity_of,
    read_results,
    timeline_of,
)
from chaos.terminal import print_result
from chaos.workload import OPENING, SEGMENTS, ChaosWorkload, ProcessorBehaviour, WorkloadMix
from conformance.checkers.histories.evidence import Evidence
from conformance.checkers.histories.history import (
    FaultEnded,
    FaultStarted,
    History,
    HistoryHeader,
    MachineStarved,
    ResourceSample,
    in_order,
)
from conformance.checkers.histories.history_checks import ALL_CHECKS
from conformance.checkers.histories.recovery import growth
from conformance.driver import run_queue
from conformance.driver.ops.queue import Add
from conformance.environment.clients import Launch
from conformance.gate.proof import all_proofs
from conformance.mutants.damage import Damage
from conformance.problems import UsageProblem
from conformance.reference_impl.scripts.runner import official_scripts
from conformance.servers.connection import wait_until
from tests.checkers.history_builders import completed_life, fault

IMPORTED = """
import sys
from conformance.cli.verbs import loaded_verbs
assert "chaos" in [verb.name for verb in loaded_verbs()]
sys.exit(any(name.startswith('chaos.') and name != 'chaos.config' for name in sys.modules))
"""
ISSUE_GROUPS = {"workers", "producers", "redis", "evictions", "network", "clocks", "topology", "containers"}


@pytest.mark.slow
def test_other_verbs_do_not_pay_for_chaos() -> None:
    assert subprocess.run([sys.executable, "-c", IMPORTED], check=False).returncode == 0


def test_a_seed_always_asks_for_the_same() -> None:
    first, second, other = (list(itertools.islice(ChaosWorkload(seed, WorkloadMix()), 60)) for seed in (7, 7, 8))
    assert first == second
    assert first != other


def test_the_workload_has_every_kind_and_names_are_unique() -> None:
    calls = list(itertools.islice(ChaosWorkload(1, WorkloadMix()), 1500))
    names = [job.name for call in calls for job in call.jobs]
    assert len(names) == len(set(names))
    behaviours = [
        msgspec.json.decode(call.op.data_raw, type=ProcessorBehaviour) for call in calls if isinstance(call.op, Add)
    ]
    assert {behaviour.kind for behaviour in behaviours} == {"plain", "retries", "fails", "waits", "delays"}
    jobs = [job for call in calls for job in call.jobs]
    assert {job.queue for job in jobs} == {"main", "limited", "narrow", "long"}
    assert any(job.parent for job in jobs)
    assert any(job.lifo for job in jobs)
    assert any(job.priority for job in jobs)
    assert any(not job.kept for job in jobs)


@pytest.mark.parametrize("seed", range(20))
def test_calls_that_timing_needs_come_first_and_not_by_chance(seed: int) -> None:
    """A run on a busy machine has few calls: its seed must not decide whether anything backs off."""
    workload = ChaosWorkload(seed, WorkloadMix())
    for calls in (itertools.islice(workload, len(OPENING)), workload.calm()):
        assert any(job.backoff_ms for call in calls for job in call.jobs)


def test_faults_of_every_group_say_what_they_do() -> None:
    assert {known.group for known in FAULTS.values()} == ISSUE_GROUPS
    assert all(known.what.endswith(".") for known in FAULTS.values())
    assert len(FAULTS) >= 50


def test_faults_are_chosen_by_name_and_glob() -> None:
    assert [chosen.name for chosen in select_faults("worker.kill, clock.*-ahead")] == [
        "worker.kill",
        "clock.producer-ahead",
        "clock.worker-ahead",
        "clock.worker-hour-ahead",
    ]
    assert select_faults("none") == []
    with pytest.raises(UsageProblem, match=r"unknown fault 'worker\.kil'"):
        select_faults("worker.kil")


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_tests_invariants_that_exist(name: str) -> None:
    tested = invariants_tested_by([FAULTS[name]])
    assert "recovery" in tested
    assert tested <= {check.name for check in ALL_CHECKS}


def test_a_run_whose_tested_check_is_unknown_does_not_succeed() -> None:
    unknown = InvariantCell(verdict="unknown", examined=0, reasons=["too little"])
    row = ResultRow(
        name="f", kind="faults", client="c", cells={"closing": unknown, "memory": unknown}, tested=["closing"]
    )
    assert row.unproven == ["closing"]
    assert any_failed([row])
    lacking = msgspec.structs.replace(unknown, applicable=False)
    assert not any_failed([msgspec.structs.replace(row, cells={"closing": lacking})])
    assert not any_failed([msgspec.structs.replace(row, tested=["rate"])])


def test_a_window_bears_the_names_of_its_fault_and_of_its_victims() -> None:
    recorder, process = HistoryRecorder(), cast("ClientProcess", SimpleNamespace(name="worker-1"))
    empty_system = ChaosSystem(cast("Any", None), [], [], recorder, "p", 0, random.Random(0))

    @contextmanager
    def hurt(system: ChaosSystem) -> Iterator[None]:
        with system.window(victims=[process], keys=["lock"]):
            yield

    with Fault("network.reset", "x", hurt, "network").inject_into(empty_system):
        pass
    assert [line.fault for line in recorder.since(0) if isinstance(line, FaultStarted | FaultEnded)] == [
        "network.reset"
    ] * 2
    window = Evidence(recorder.finish()).windows[0]
    assert (window.target, list(window.keys)) == ("worker-1", ["lock"])
    assert window.hurts("worker-1")
    assert not window.hurts("worker-2")


def test_a_fault_goes_to_a_topology_that_has_it() -> None:
    assert topology_for("single", select_faults("cluster.failover")) == "cluster"
    assert topology_for("cluster", select_faults("worker.kill")) == "cluster"


def test_the_command_that_repeats_a_run() -> None:
    launch, faults = Launch("reference", ["x"], named=True), select_faults("worker.kill")
    options = ChaosOptions(client=launch, faults=faults, seed=3)
    line = options.reproduce
    assert line == "bullmq-conformance chaos --faults worker.kill --seed 3 --client reference"
    assert replace(options, hold_ms=60_000).reproduce == line.replace("--seed 3", "--hold 1m --seed 3")


def test_the_command_that_repeats_a_run_has_the_versions_that_took_part() -> None:
    launch = Launch("python-official@2.16.2", ["x"], packages=["redis==7.4.1"], named=True)
    options = ChaosOptions(client=launch, faults=select_faults("worker.kill"), oracle="6.7.0")
    client = "--with redis==7.4.1 --client python-official@2.16.2"
    assert options.reproduce == f"bullmq-conformance chaos --oracle 6.7.0 --faults worker.kill {client}"
    assert options.reproduce_crash_points == f"bullmq-conformance chaos --oracle 6.7.0 --crash-points {client}"
    by_command = replace(options, client=Launch("driver", ["./driver", "-v"]))
    assert by_command.reproduce.endswith("--faults worker.kill -- ./driver -v")


def test_crash_points_are_exhaustive() -> None:
    points = [point for segment in SEGMENTS for point in points_of(segment)]
    assert len({str(point) for point in points}) == len(points)
    scripts = {point.script for point in points}
    assert len(scripts) >= 35
    assert all(
        {point.point for point in points if point.script == script and point.hurt == "cut"} == PHASES
        for script in scripts
    )


PHASES = {"before-send", "after-execute", "mid-reply"}


@pytest.mark.parametrize("name", CHAOS_MUTANTS)
def test_a_defect_can_be_inflicted(name: str) -> None:
    """The replaced attributes exist: a client that only crashes shows nothing. test_mutants.py checks the effects."""
    with Damage(name) as damage:
        CHAOS_MUTANTS[name].inflict(damage)
        damage.scripts(official_scripts())


def test_mutants_name_invariants() -> None:
    assert len(CHAOS_MUTANTS) >= 12
    assert {mutant.kills for mutant in CHAOS_MUTANTS.values()} <= {check.name for check in ALL_CHECKS}
    under = {mutant.under for mutant in CHAOS_MUTANTS.values() if isinstance(mutant.under, str)}
    assert under <= {"", *FAULTS}


NODE = Identity(client="node", version="5.62.0", named=True)
REFERENCE = Identity(client="reference", version="0.1", named=True)


def test_explanations_are_about_invariants_and_narrow() -> None:
    assert {explanation.check for explanation in EXPLANATIONS} <= {check.name for check in ALL_CHECKS}
    twice = "queue.add was answered ok, and there are 2 such jobs"
    assert explanation_of(NODE, "indeterminate", "network.reset", twice) is not None
    assert explanation_of(NODE, "indeterminate", "addStandardJob mid-reply cut", twice) is not None
    assert explanation_of(NODE, "indeterminate", "addStandardJob before-send cut", twice) is None
    assert explanation_of(NODE, "indeterminate", "network.reset", twice.replace("2", "3")) is None
    assert explanation_of(NODE, "indeterminate", "network.latency", twice) is None
    assert explanation_of(REFERENCE, "indeterminate", "network.reset", twice) is None
    assert explanation_of(NODE, "durability", "network.reset", "acknowledged by queue.add, and gone") is None
    assert explanation_of(NODE, "durability", "redis.oom", "acknowledged by queue.add, and gone") is None
    assert explanation_of(REFERENCE, "durability", "redis.oom", "acknowledged by flow.add, and gone") is None


def test_an_explanation_is_for_what_the_kit_has_started_itself() -> None:
    """`chaos -- node wrap.mjs` is started by a program that is called node, and says it is bullmq 5.62.0."""
    twice = "queue.add was answered ok, and there are 2 such jobs"
    for who in (
        identity_of(Launch("node", ["node", "wrap.mjs"]), "5.62.0"),
        Identity(client="node", version="6.0.0", named=True),
    ):
        assert explanation_of(who, "indeterminate", "network.reset", twice) is None, who
    other_version = identity_of(Launch("node@5.81.3", ["node"], named=True), "5.81.3")
    assert explanation_of(other_version, "indeterminate", "network.reset", twice) is not None
    assert all(explanation.client not in {"", "*"} for explanation in EXPLANATIONS)
    assert all(explanation.versions not in {"", "*"} for explanation in EXPLANATIONS)


def test_an_unused_explanation_is_reported() -> None:
    """Only if every fault was injected in which it is known to happen."""
    crashes = (str(point) for segment in SEGMENTS for point in points_of(segment))
    everywhere = dict.fromkeys([*FAULTS, *crashes], NODE)
    (stale,) = stale_explanations({"chaos.flow-refused-unnoticed", "chaos.node-resends"}, everywhere)
    assert "chaos.node-reconnect-pause" in stale
    assert not stale_explanations(set(), {"network.reset": NODE})
    assert not stale_explanations(set(), dict.fromkeys(everywhere, REFERENCE))


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("progress", "7 jobs were ready when redis.away-20s was healed; work went on after: 18000 ms"),
        ("progress", "worker-1 did not ask for a job of main within 5000 ms after redis.away-20s was healed; other"),
        ("timing", "promoted 18000 ms after it was due, which is more than 5000 ms"),
        ("closing", "close of worker-1 on main did not end within 13506 ms: close may or may not have happened"),
        ("event-readers", "the reader of worker-2 had not reported 12 entries at the end"),
    ],
)
def test_the_pause_of_node_explains_every_symptom_of_it_and_only_after_20_s(check: str, message: str) -> None:
    assert explanation_of(NODE, check, "redis.away-20s", message) is not None
    assert explanation_of(NODE, check, "network.outage-all", message) is None
    assert explanation_of(REFERENCE, check, "redis.away-20s", message) is None
    assert explanation_of(NODE, check, "redis.away-20s", f"worker-1 was closed, and {message}") is None


def test_explanations_are_of_faults_and_rows_that_exist() -> None:
    """And the ledger proves each row."""
    crashes = {str(point) for segment in SEGMENTS for point in points_of(segment)}
    places = {*FAULTS, *crashes}
    for explanation in EXPLANATIONS:
        assert fnmatch.filter(places, explanation.where), explanation.where
        assert explanation.row in all_proofs()


def _samples(*sizes_mb: int) -> History:
    lines = [
        ResourceSample(at_ms=at, memory={"worker-1": mb * 2**20, "kit": at * 2**20}) for at, mb in enumerate(sizes_mb)
    ]
    return History(HistoryHeader(), in_order(lines))


@pytest.mark.parametrize(("share", "starved"), [(0.9, True), (0.4, False)])
def test_starvation_of_a_client_is_recorded(share: float, starved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes between two looks: each asks for the time, and once more for its sample."""
    recorder, clock, waited_s = HistoryRecorder(), itertools.count(step=500), itertools.count(step=share)
    monkeypatch.setattr(observers, "PERIOD_S", 0.001)
    monkeypatch.setattr(run_queue, "thread_waits_s", lambda pid: {"1": next(waited_s) if pid == 1 else 0.0})
    monkeypatch.setattr(recorder, "now_ms", lambda: next(clock))
    with observers.ProcessMonitor(recorder, lambda: {"worker-1": 1, "worker-2": 2}):
        assert wait_until(lambda: len(recorder.since(0)) > 12, deadline_s=20)
    named = {line.process for line in recorder.since(0) if isinstance(line, MachineStarved)}
    assert named == ({"worker-1"} if starved else set())


def test_growing_memory_is_found() -> None:
    assert growth(_samples(*[100] * 40)) == {}
    assert growth(_samples(*range(100, 140))) == {}
    assert list(growth(_samples(*range(50, 450, 10)))) == ["worker-1"]
    assert growth(_samples(50, 500)) == {}


def test_redis_may_grow_by_the_jobs_that_it_keeps_and_no_other() -> None:
    growing = _samples(*range(50, 450, 10))
    samples = [line for line in growing.lines if isinstance(line, ResourceSample)]
    lines = [msgspec.structs.replace(line, memory={"redis": line.memory["worker-1"]}) for line in samples]
    of_redis = History(growing.header, in_order(lines))
    assert list(growth(of_redis, kept_jobs=1000)) == ["redis"]
    assert growth(of_redis, kept_jobs=200_000) == {}
    assert list(growth(growing, kept_jobs=200_000)) == ["worker-1"]


def test_a_timeline_has_throughput_and_windows() -> None:
    timeline = timeline_of(History(HistoryHeader(), in_order([*completed_life(), *fault(300, 600, "redis.kill")])))
    assert timeline.throughput == [1, 0, 0]
    assert timeline.latency_ms[0] == 20
    assert [window.fault for window in timeline.windows] == ["redis.kill"]


def _results(folder: Path, *results: ResultRow, complete: bool = True) -> Path:
    file = ResultsFile(folder / FILE, ResultsHeader(started="now", command="bullmq-conformance chaos"))
    for result in results:
        file.put(result)
    if complete:
        file.finish()
    return folder


def _result(name: str = "worker.kill", **cells: InvariantCell) -> ResultRow:
    kind = "crash" if " " in name else "faults"
    history = History(HistoryHeader(), in_order(completed_life()))
    timeline = timeline_of(history) if kind == "faults" else None
    return ResultRow(name=name, kind=kind, client="<b>", cells=cells, reproduce="again", timeline=timeline)  # type: ignore[arg-type]


BAD = InvariantCell(verdict="fail", examined=3, findings=[FindingRow(message="gone <i>", job="q:1", lines=["{}"])])
AS_NODE = InvariantCell(
    verdict="explained", examined=1, findings=[FindingRow(message="m", explained="why", row="chaos.x")]
)
GOOD = InvariantCell(verdict="ok", examined=1)


def test_reports_of_a_campaign(tmp_path: Path) -> None:
    folder = _results(
        tmp_path,
        _result(durability=BAD, order=GOOD, progress=GOOD),
        _result("moveToFinished mid-reply cut", order=GOOD, tokens=AS_NODE),
        _result("moveToFinished before-send cut", tokens=BAD),
    )
    assert [path.name for path in render_all(folder)] == ["report.html", "junit.xml", "summary.md"]
    page = (folder / "report.html").read_text()
    assert "gone &lt;i&gt;" in page
    assert "<b>" not in page.replace("<b>durability</b>", "").replace("<b>tokens</b>", "")
    assert "Repeat it with" in page
    assert "chaos.x" in page
    junit = (folder / "junit.xml").read_text()
    assert junit.count("<failure") == 2
    table = (folder / "summary.md").read_text()
    assert "| `<b>` | moveToFinished | cut | ✗ | · | ≈ |" in table


def test_a_campaign_that_broke_off(tmp_path: Path) -> None:
    render_all(_results(tmp_path, _result(order=GOOD), complete=False))
    assert "run is incomplete" in (tmp_path / "report.html").read_text()
    assert "run is incomplete" in (tmp_path / "summary.md").read_text()
    assert "incomplete" in (tmp_path / "junit.xml").read_text()


def test_an_invalid_results_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem):
        read_results(tmp_path / FILE)
    (tmp_path / FILE).write_text("nonsense\n")
    with pytest.raises(UsageProblem):
        read_results(tmp_path / FILE)


def test_a_stop_between_two_clocks_does_not_set_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pair of readings is 3 ms apart, the second is not."""
    monotonic_s, unix_ns = iter([10.0, 10.003, 10.004, 10.004]), iter([5_003_000_000, 5_004_000_000])
    monkeypatch.setattr(time, "monotonic", lambda: next(monotonic_s))
    monkeypatch.setattr(time, "time_ns", lambda: next(unix_ns))
    assert both_clocks(tries=2) == (10.004, 5004.0)


# The order of the default campaign.


def campaign(**more: Any) -> ChaosOptions:
    return ChaosOptions(client=Launch("c", ["c"]), faults=select_faults("*"), crash_points=True, **more)


def test_the_faults_that_report_most_come_before_the_crash_points_and_no_fault_is_left_out() -> None:
    before, after = campaign(alone=True).runs_around_crash_points()
    assert [fault.name for run in before for fault in run.faults] == list(TELLING)
    assert not before[0].faults
    assert {fault.name for run in [*before, *after] for fault in run.faults} == set(FAULTS)
    assert len(before) + len(after) == len(FAULTS) + 1


def test_a_line_that_repeats_a_run_has_no_password() -> None:
    launch = Launch("driver", ["driver", "--redis=redis://user:planted@127.0.0.1:6379"])
    options = ChaosOptions(client=launch, faults=[])
    for line in (options.reproduce, options.reproduce_crash_points):
        assert "planted" not in line
        assert "redis://user:***@127.0.0.1:6379" in line


def test_named_faults_are_run_in_the_order_of_the_list() -> None:
    before, after = campaign().runs_around_crash_points()
    assert [fault.name for run in before for fault in run.faults] == list(FAULTS)
    assert not after


@pytest.mark.parametrize("name", CHAOS_MUTANTS)
def test_every_planted_defect_shows_in_the_first_part_of_the_campaign(name: str) -> None:
    under = CHAOS_MUTANTS[name].under
    assert isinstance(under, CrashPoint) or under in {"", *TELLING}


def test_a_hunt_hears_what_a_campaign_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Shown by the verb's own lines: an invariant that is unknown is not named, nor one of a run to come."""
    monkeypatch.setenv("COLUMNS", "200")
    mutant = CHAOS_MUTANTS["close.hangs"]
    broken = InvariantCell(
        verdict="fail", examined=1, findings=[FindingRow(message="never ended", job="a:1", lines=[])]
    )
    unsure = InvariantCell(verdict="unknown", examined=0, reasons=["0 closes"])
    rows = [
        ResultRow(name="no fault", kind="faults", client="python", cells={"closing": unsure, "events": broken}),
        ResultRow(name="redis.oom", kind="faults", client="python", cells={"closing": broken}),
    ]
    heard = Hunt(mutant)
    heard.hear("    not run: Redis did not come back", 1.0)
    for row, tested in zip(rows, (["closing"], []), strict=True):
        print_result(msgspec.structs.replace(row, tested=tested))
        for line in capsys.readouterr().out.splitlines():
            heard.hear(line, 75.0)
    assert heard.row == ["`close.hangs`", "`closing`", "75 s", "redis.oom", "events"]
    assert heard.runs == len(rows)
    assert Hunt(mutant).row[2] == "not found"
