"""One version against another: the words of the run, what is kept, and what a run that breaks off says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.gate import separate_run
from conformance.gate.records import encode
from conformance.gate.separate_run import RUN_FILE
from conformance.problems import EnvironmentProblem
from conformance.versions.pair_runner import PairRunner
from tests.report.sample_runs import footer, header, party, scenario

WHOLE = (
    encode(header(oracle=party(ops=["queue.add"]), client=party(ops=["queue.add", "queue.pause"])))
    + encode(scenario("add/x", "pass"))
    + encode(footer(finished_ms=1, exit_code=0))
)


class Stage:
    """A runner whose runs write `text` in place of a result. `runs`: the words of each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = WHOLE
        self.runs: list[list[str]] = []
        self.said: list[str] = []
        self.runner = PairRunner(runs=folder, announce=self.said.append, tier="full", jobs=2)
        monkeypatch.setattr(separate_run, "_ended", self._ended)

    def _ended(self, words: Sequence[str], log: Path, *, within_s: float) -> int:
        assert within_s > 0
        self.runs.append(list(words[6:]))
        (log.parent / RUN_FILE).write_bytes(self.text)
        log.write_text("error: no Redis here\n")
        return 3


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_the_older_one_is_the_oracle_and_the_newer_one_the_client(stage: Stage) -> None:
    pair = stage.runner.run("5.62.0", "6.7.0", {"pause", "add"})
    oracle = ["--oracle", "5.62.0", "--client", "node@6.7.0", "--no-known", "--format", "json"]
    assert stage.runs == [["--jobs", "2", *oracle, "--tier", "full", "--select", "add", "--select", "pause"]]
    assert [record.id for record in pair.scenarios] == ["add/x"]
    assert pair.client_ops - pair.oracle_ops == {"queue.pause"}


def test_a_run_is_kept_until_another_one_is_asked_for(stage: Stage) -> None:
    stage.runner.run("5.62.0", "6.7.0")
    stage.runner.run("5.62.0", "6.7.0")
    assert stage.said == ["bullmq 5.62.0 against 6.7.0: kept"]
    stage.runner.run("5.62.0", "6.7.0", {"pause"})
    stage.runner.run("6.7.0", "5.62.0")
    stage.runner.run("6.7.0", "5.62.0", again=True)
    assert len(stage.runs) == 4


def test_a_run_that_was_cut_is_a_problem_in_its_own_words_and_is_not_kept(stage: Stage) -> None:
    stage.text = encode(header())
    with pytest.raises(EnvironmentProblem, match=r"5\.62\.0 against 6\.7\.0: error: no Redis here"):
        stage.runner.run("5.62.0", "6.7.0")
    stage.text = WHOLE
    assert stage.runner.run("5.62.0", "6.7.0").scenarios
