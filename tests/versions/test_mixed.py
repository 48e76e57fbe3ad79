"""Shared queues: planted releases are named with the right word, and so is the known loss between real ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.cli.fuzz import replay
from conformance.cli.versions import versions
from conformance.environment.clients import Launch, Toolchain, find_toolchain
from conformance.problems import UsageProblem
from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.report.mixed import read_mixed_record, render_mixed_page
from conformance.servers import RedisInstance, open_server
from conformance.steps.records import as_record, feature_step
from conformance.versions.mixed.features import FEATURES
from conformance.versions.mixed.judging import Alone, Word, judge
from conformance.versions.mixed.record import MixedRecord
from conformance.versions.mixed.replay import write_mixed_replays
from conformance.versions.mixed.session import MixedSession, casts, chosen_features
from conformance.versions.mixed.stage import Delivery, FeatureOutcome

from .skews import LATER_SKEWS, SKEWS, Skew

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "versions" / "mixed"
LEAST_NAMED = 11
HEADER = '{"mixed": 2, "feature": "f", "older": "node", "newer": "node", "roles": [], "word": "lost"}'
KEEP_LAST = "deduplication, keepLastIfActive"
pytestmark = [pytest.mark.long(13, processes=2), pytest.mark.slow]


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain("", lambda _: None)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisInstance]:
    with open_server(None, announce=lambda _: None) as found:
        yield found


def _skewed(name: str, skew: Skew) -> Launch:
    return Launch(name, [sys.executable, "-m", "tests.versions.skews", name, skew.made_from])


def _compared(older: Launch, newer: Launch, server: RedisInstance, feature: str) -> MixedRecord:
    return MixedSession(older, newer, server, pairs=1).compare(chosen_features([feature]))


@pytest.mark.parametrize("name", [*SKEWS, *(pytest.param(name, marks=pytest.mark.slow) for name in LATER_SKEWS)])
def test_a_planted_skew_is_named_with_its_word(name: str, toolchain: Toolchain, server: RedisInstance) -> None:
    skew = {**SKEWS, **LATER_SKEWS}[name]
    sound = toolchain.launch(f"node@{skew.made_from}")
    row = _compared(sound, _skewed(name, skew), server, skew.feature).rows[0]
    assert row.worst == skew.word, {column: (cell.word, cell.detail) for column, cell in row.cells.items()}


def test_enough_skews_are_planted() -> None:
    assert len(SKEWS) > LEAST_NAMED
    assert sum(skew.made_from != "5.62.0" for skew in SKEWS.values()) >= len(("two", "newer than 5.62"))


@pytest.mark.parametrize("feature", sorted({skew.feature for skew in (*SKEWS.values(), *LATER_SKEWS.values())}))
def test_a_release_shares_its_queues_with_itself(feature: str, toolchain: Toolchain, server: RedisInstance) -> None:
    launch = toolchain.launch("node@6.7.0")
    row = _compared(launch, launch, server, feature).rows[0]
    assert {cell.word for cell in row.cells.values()} == {"nothing"}, row.cells


def test_the_loss_of_the_last_job_is_found_and_can_be_replayed(tmp_path: Path) -> None:
    words = ("5.62.0", "6.7.0", "--feature", KEEP_LAST, "--out", str(tmp_path), "--format", "markdown")
    result = CliRunner().invoke(versions, ("mixed", *words), standalone_mode=False, catch_exceptions=False)
    assert result.return_value == 1
    assert "job 3 is not run instead of once; left behind: dn:d" in result.stdout
    files = sorted((tmp_path / "replays" / "5.62.0-6.7.0").iterdir())
    assert [path.name for path in files] == ["deduplication-keepLastIfActive.adder.jsonl"]
    again = CliRunner().invoke(replay, (str(files[0]),), standalone_mode=False, catch_exceptions=False)
    assert again.return_value == 1
    assert "lost: job 3 is not run instead of once" in again.stdout
    assert "only node@6.7.0: runs 1 3 4" in again.stdout
    healed = (str(files[0]), "--partner", "node@6.7.0")
    assert CliRunner().invoke(replay, healed, standalone_mode=False, catch_exceptions=False).return_value == 0


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.json")), ids=lambda path: path.stem)
def test_a_committed_page_is_made_from_its_record_and_has_its_replay_files(path: Path, tmp_path: Path) -> None:
    record = read_mixed_record(path)
    assert path.stem == f"{record.older}-{record.newer}"
    assert path.with_suffix(".md").read_text("utf-8") == render_mixed_page(record), "run `make generate`"
    written = {file.name: file.read_bytes() for file in write_mixed_replays(record, tmp_path)}
    folder = path.parent / "replays" / path.stem
    assert written == {file.name: file.read_bytes() for file in folder.iterdir()}


def test_three_pairs_of_releases_are_committed() -> None:
    pairs = list(combinations(SUPPORTED_ORACLES, 2))
    assert {path.stem for path in PAGES.glob("*.json")} == {f"{older}-{newer}" for older, newer in pairs}


def _handed(*places: tuple[str, int, int]) -> FeatureOutcome:
    """Jobs that were handed out, each with the time (ms) and the step."""
    return FeatureOutcome(deliveries=tuple(Delivery(job, "worker", at_ms, step) for job, at_ms, step in places))


@pytest.mark.parametrize(
    ("places", "word"),
    [
        ([("a", 0, 2), ("b", 20_000, 4)], "nothing"),
        ([("a", 0, 2), ("b", 0, 2)], "early"),
        ([("a", 0, 2), ("b", 10_000, 4)], "early"),
        ([("b", 0, 2), ("a", 20_000, 4)], "late"),
        ([("a", 0, 2), ("b", 20_000, 5)], "nothing"),
    ],
    ids=["as alone", "both at one step", "before its time", "changed places", "a step later"],
)
def test_a_job_that_is_run_against_a_limit_is_early(places: list[tuple[str, int, int]], word: Word) -> None:
    alone = _handed(("a", 0, 2), ("b", 20_000, 4))
    assert judge(_handed(*places), Alone(alone, alone), {}).word == word


def test_roles_are_given_to_both_in_every_way() -> None:
    columns = [column for column, _ in casts(("adder", "latecomer", "worker"))]
    assert len(columns) == len(set(range(2**3))) - len(("all older", "all newer"))
    # First the one worker and then one producer after the other, or the other way round.
    assert (columns.count("producers"), columns.count("workers")) == (3, 3)


def test_every_feature_has_a_producer_and_a_name_of_its_own() -> None:
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)
    for feature in FEATURES:
        assert {column for column, _ in casts(feature.roles)} >= {"producers", "workers"}, feature.name
        lines = [json.dumps(as_record(step)) for step in feature.steps]
        assert tuple(feature_step(json.loads(line)) for line in lines) == feature.steps


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1"),
        ('{"mixed": 1}\n', "line 1: .*feature"),
        (HEADER.replace("2", "1"), "format 1, this kit reads 2"),
        (f"{HEADER}\n" + '{"do": "dance"}\n', "line 2: unknown step: .*dance"),
    ],
)
def test_a_bad_replay_file_is_refused_with_its_line(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text or '{"mixed": ', "utf-8")
    with pytest.raises(UsageProblem, match=why if text else "replay file"):
        CliRunner().invoke(replay, (str(path),), standalone_mode=False, catch_exceptions=False)


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(UsageProblem, match="no feature matches 'teleport'"):
        chosen_features(["teleport"])
