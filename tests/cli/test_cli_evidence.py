"""No verb passes on too little evidence: what nothing was tried for, or nothing is there to check, is undecided."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from chaos.faults.base import FAULTS
from chaos.results import InvariantCell, ResultRow
from conformance.checkers.histories.history import HistoryFooter, HistoryHeader, encode
from conformance.cli.chaos import conclude, possible_faults
from conformance.cli.matrix import exit_code as exit_code_of_matrix
from conformance.cli.versions import exit_code as exit_code_of_versions
from conformance.fuzz.replay import read_replay
from conformance.problems import NothingSelected, Undecidable, UsageProblem
from conformance.report.matrix import CellState
from conformance.versions.changes import VersionDiff

TESTS = Path(__file__).resolve().parent.parent


def _crash_point(*, examined: int, lacks: str = "") -> ResultRow:
    cell = InvariantCell(verdict="ok", examined=examined)
    return ResultRow(name="crash", kind="crash", client="mine", lacks=lacks, cells={"conservation": cell})


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], 4),
        ([_crash_point(examined=0, lacks="flow.add")], 4),
        ([_crash_point(examined=0, lacks="flow.add"), _crash_point(examined=1)], 0),
    ],
)
def test_a_campaign_that_examined_nothing(
    results: Sequence[ResultRow], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conclude(results) == code
    assert ("UNDECIDED: nothing was examined" in capsys.readouterr().out) is (code == 4)


def test_a_campaign_whose_faults_are_all_impossible() -> None:
    containers = [fault for fault in FAULTS.values() if fault.only_containers]
    assert containers
    with pytest.raises(NothingSelected, match="no selected fault can run"):
        possible_faults(containers, "")


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ({"conformant", "holds"}, 0),
        ({"conformant", "undecided"}, 4),
        ({"undecided", "not-conformant"}, 1),
        ({"not-run"}, 1),
        (set(), 4),
    ],
)
def test_a_matrix_with_an_undecided_cell(states: set[CellState], code: int) -> None:
    assert exit_code_of_matrix(states) == code


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({"scenarios": 7}, 0),
        ({"scenarios": 0}, 4),
        ({"scenarios": 7, "undecided": {"add/plain": "the machine was too busy"}}, 4),
        # An option that one release ignores is a difference, also if no scenario uses it.
        ({"scenarios": 7, "declared_new": ["JobsOptions.new"]}, 1),
    ],
)
def test_two_versions_of_which_not_everything_was_compared(found: dict[str, Any], code: int) -> None:
    difference = VersionDiff(kit="1", older="5.62.0", newer="6.7.0", tier="core", compared_ms=0, **found)
    assert exit_code_of_versions(difference) == code


def test_a_replay_file_without_steps(tmp_path: Path) -> None:
    path = tmp_path / "header.jsonl"
    path.write_text((TESTS / "fuzz" / "replays" / "wrong-score.jsonl").read_text("utf-8").splitlines()[0], "utf-8")
    with pytest.raises(UsageProblem, match="has no steps"):
        read_replay(path)


def test_a_history_in_which_no_job_ran(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the verb needs Spark")
    from reports.options import HistoryConfig
    from reports.verbs.checks import check_history

    path = tmp_path / "history.jsonl"
    path.write_bytes(encode(HistoryHeader()) + encode(HistoryFooter(at_ms=1, lines=0)))
    with pytest.raises(Undecidable, match="no job ran in"):
        check_history(HistoryConfig(), path)


@pytest.mark.parametrize(
    ("queues", "queue", "why"),
    [
        ([], "", "there is no queue in the store"),
        (["mail"], "mial", "there is no queue 'mial'"),
        (["mail"], "mail", ""),
        (["mail"], "", ""),
    ],
)
def test_a_store_without_the_queue(queues: list[str], queue: str, why: str) -> None:
    pytest.importorskip("pyspark", reason="the verbs need Spark")
    from reports.snapshot.format import QueueFacts, SnapshotManifest
    from reports.verbs.store_readings import demand_content

    facts = QueueFacts(rows=1, events_complete=True, generated_ids=False)
    unknown: dict[str, Any] = dict.fromkeys(("kit", "bullmq", "scripts_sha256", "source", "prefix", "queue"), "")
    manifest = SnapshotManifest(
        **unknown,
        taken_ms=0,
        redis_settings={},
        redis_version="",
        rows={"meta": len(queues)},
        moving=[],
        queues=dict.fromkeys(queues, facts),
        buckets=1,
    )
    with pytest.raises(Undecidable, match=why) if why else nullcontext():
        demand_content(queue, manifest, manifest)
