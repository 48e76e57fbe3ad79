"""Proofs: the runs of a bug and of its fix, and what they have to show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.bugs.corpus import Bug
from conformance.bugs.proof import Prover, oracle_of
from conformance.gate import separate_run
from conformance.gate.records import Verdict, encode
from conformance.gate.separate_run import RUN_FILE, StoredRuns
from conformance.problems import EnvironmentProblem, UsageProblem
from tests.gate.gate_builders import finding
from tests.report.sample_runs import footer, header, scenario

from .test_bug_corpus import bug

ROW = "add.lifo"
PROVABLE = bug(requirement=ROW)


class Stage:
    """Runs that write these verdicts of the row in place of a result, by scenario. `runs`: the words of each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.results: list[dict[str, Verdict]] = []
        self.runs: list[list[str]] = []
        self.prover = Prover(StoredRuns(folder=folder, announce=lambda _text: None))
        monkeypatch.setattr(separate_run, "_ended", self._ended)

    def _ended(self, words: Sequence[str], log: Path, *, within_s: float) -> int:
        assert within_s > 0
        self.runs.append(list(words[6:]))
        lines = [encode(header())]
        for name, verdict in self.results.pop(0).items():
            found = [finding(ROW, message=f"wrong in {name}")] if verdict == "fail" else []
            lines.append(encode(scenario(name, verdict, ROW, findings=found)))
        (log.parent / RUN_FILE).write_bytes(b"".join([*lines, encode(footer(finished_ms=1, exit_code=0))]))
        log.write_text("")
        return 0


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_a_bug_is_caught_by_the_scenario_that_only_the_fix_passes(stage: Stage) -> None:
    stage.results = [{"add/old": "fail", "add/x": "fail"}, {"add/old": "fail", "add/x": "pass"}]
    proof = stage.prover.prove(PROVABLE)
    assert (proof.holds, proof.scenario, proof.seen) == (True, "add/x", "wrong in add/x")
    common = ["--no-known", "--format", "json", "--tier", "full", "--oracle", "5.62.0", "--select", ROW]
    assert stage.runs == [[*common, "--client", "node@5.1.0"], [*common, "--client", "node@5.2.0"]]


@pytest.mark.parametrize(
    ("with_bug", "with_fix"),
    [("pass", None), ("warn", None), ("unsupported", None), ("fail", "fail"), ("fail", "warn"), ("fail", "unchecked")],
)
def test_anything_else_does_not_catch_it(with_bug: Verdict, with_fix: Verdict | None, stage: Stage) -> None:
    stage.results = [{"add/x": with_bug}, *([{"add/x": with_fix}] if with_fix else [])]
    assert not stage.prover.prove(PROVABLE).holds
    assert stage.results == []


def test_a_run_that_is_too_busy_to_decide_is_repeated(stage: Stage) -> None:
    busy: dict[str, Verdict] = {"add/x": "inconclusive"}
    stage.results = [busy, {"add/x": "fail"}, busy, busy, {"add/x": "pass"}]
    assert stage.prover.prove(PROVABLE).holds
    assert stage.results == []


def test_a_machine_that_stays_too_busy_proves_nothing(stage: Stage) -> None:
    stage.results = [{"add/x": "inconclusive"}] * 3
    proof = stage.prover.prove(PROVABLE)
    assert (proof.holds, proof.with_bug) == (False, "inconclusive")


def test_the_redis_of_a_row_is_used(stage: Stage) -> None:
    stage.results = [{"cluster/x": "pass"}]
    stage.prover.prove(bug(requirement=ROW, redis="cluster:3"))
    assert stage.runs[0][6:9] == ["5.62.0", "--redis", "cluster:3"]


def test_a_release_that_lacks_the_operations_shows_nothing(stage: Stage) -> None:
    stage.results = [{}]
    assert stage.prover.prove(PROVABLE).with_bug == "unsupported"


def test_runs_are_kept(stage: Stage) -> None:
    stage.results = [{"add/x": "pass"}]
    assert stage.prover.prove(PROVABLE) == stage.prover.prove(PROVABLE)


def test_a_planted_defect_takes_the_place_of_releases(stage: Stage) -> None:
    stage.results = [{"add/x": "fail"}, {"add/x": "pass"}]
    planted = bug("rust-1", requirement=ROW, proof="add.lifo-left", select="add/x")
    assert stage.prover.prove(planted).holds
    mutant, reference = stage.runs
    assert mutant[-4:] == [sys.executable, "-m", "conformance.mutants.driver", "add.lifo-left"]
    assert reference[-4:] == ["--select", "add/x", "--client", "reference"]


@pytest.mark.parametrize(
    ("row", "oracle"),
    [
        (bug(requirement=ROW), "5.62.0"),
        (bug(requirement=ROW, fixed="5.70.0"), "5.70.0"),
        (bug(requirement=ROW, fixed="5.70.0", oracle="6.7.0"), "6.7.0"),
        (bug("python-1", requirement=ROW, fixed="7.0.0"), "5.62.0"),
        (bug(requirement=ROW, fixed="5.70.0", proof="add.lifo-left"), "5.62.0"),
    ],
)
def test_the_oracle_does_not_have_the_bug(row: Bug, oracle: str) -> None:
    assert oracle_of(row) == oracle


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (bug(), "violates no requirement"),
        (bug("rust-1", requirement=ROW), "the kit installs none of rust"),
        (bug(requirement=ROW, fixed=""), "there is none with a fix"),
    ],
)
def test_an_unprovable_bug_has_a_reason(row: Bug, message: str, stage: Stage) -> None:
    with pytest.raises(UsageProblem, match=message):
        stage.prover.prove(row)


def test_a_run_that_breaks_off_is_a_problem_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_words: Sequence[str], log: Path, *, within_s: float) -> int:
        log.write_text(f"error: no such release ({within_s > 0})\n")
        return 3

    monkeypatch.setattr(separate_run, "_ended", ended)
    prover = Prover(StoredRuns(folder=tmp_path, announce=lambda _text: None))
    with pytest.raises(EnvironmentProblem, match="node-1 with the bug: error: no such release"):
        prover.prove(PROVABLE)
