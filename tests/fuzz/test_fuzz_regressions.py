"""The files in `conformance/scenarios/regressions/`: each is a scenario of a ledger row, and can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.environment.clients import Launch
from conformance.fuzz.replay_file import read_replay
from conformance.fuzz.replaying import play_back
from conformance.fuzz.steps import FaultStep
from conformance.ledger.loader import load_ledger
from conformance.mutants.damage import Damage
from conformance.mutants.registry import Mutant
from conformance.reference_impl.jobs import options
from conformance.scenarios import test_regressions
from conformance.servers import Server

from .hunting import stage_for

FILES = sorted(test_regressions.REGRESSIONS.glob("*.jsonl"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_a_scenario_of_its_row(path: Path) -> None:
    replay = read_replay(path)
    name = f"test_{path.stem.replace('-', '_')}"
    made = getattr(test_regressions, name).scenario
    assert made.requirements == (replay.header.requirement,)
    assert load_ledger().row(replay.header.requirement).id == replay.header.requirement
    assert made.title == replay.header.title
    assert replay.differences
    assert not any(isinstance(step, FaultStep) and step.fault == "script-flush" for step in replay.steps)


def test_a_client_with_the_mistake_fails_the_file(server: Server, oracle: Launch) -> None:
    def long_names(damage: Damage) -> None:
        damage.replace(options, "encode", dict)

    replay = read_replay(test_regressions.REGRESSIONS / "telemetry-options.jsonl")
    mutant = Mutant("long-names", "Options keep their long names.", (), (), (), (), long_names)
    with stage_for(mutant, server, oracle) as stage:
        played = play_back(stage, replay)
    assert played.shows(replay)
