"""Each planted defect has a replay file made by the fuzzer: it fails on the sick client, not on the healthy one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.environment.clients import Launch
from conformance.fuzz.replay_file import read_replay
from conformance.fuzz.replaying import play_back
from conformance.fuzz.stage import Stage
from conformance.fuzz.steps import calls_of
from conformance.servers import Server

from .hunting import REPLAYS, stage_for
from .planted import PLANTED
from .sick_driver import HEALTHY

MOST_CALLS = 8
FILES = sorted(REPLAYS.glob("*.jsonl"))


@pytest.fixture(scope="module")
def healthy(server: Server, oracle: Launch) -> Iterator[Stage]:
    with stage_for(HEALTHY, server, oracle) as stage:
        yield stage


def test_there_is_one_file_for_each_defect() -> None:
    assert len(PLANTED) == 15
    assert {path.stem for path in FILES} == set(PLANTED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_is_short_and_fails_on_the_sick_client(path: Path, server: Server, oracle: Launch) -> None:
    replay = read_replay(path)
    assert calls_of(list(replay.steps)) <= MOST_CALLS
    with stage_for(PLANTED[path.stem], server, oracle) as stage:
        played = play_back(stage, replay)
    assert played.fails, PLANTED[path.stem].what
    assert played.shows(replay), [str(one) for step in played.steps for one in step.differences]
    assert played.steps[-1].differences


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_file_passes_on_the_healthy_client(path: Path, healthy: Stage) -> None:
    replay = read_replay(path)
    played = play_back(healthy, replay)
    assert not played.fails, [str(one) for step in played.steps for one in step.differences]
    assert not played.unplayed
    assert len(played.steps) == len(replay.steps)
