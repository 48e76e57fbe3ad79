"""Sequences come from the model and the seed alone: they are generated without clients and without Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.driver.ops import REGISTRY
from conformance.fuzz.campaign import Campaign, CampaignOptions
from conformance.fuzz.comparison import KnownDifferences, StepDifference
from conformance.fuzz.prediction import SequenceModel
from conformance.fuzz.steps import CallStep, Mode, Step, as_record, from_record, opening
from conformance.fuzz.strategies.arguments import (
    INEXACT_TEXTS,
    PLAIN_TEXTS,
    TROUBLEMAKERS,
    as_javascript_writes,
    json_texts,
)
from conformance.fuzz.strategies.exploring import JOB_OPS, QUEUE_OPS, CallCombination, PairCoverage, legal_pairs
from conformance.fuzz.target import FuzzTarget
from conformance.model import operations


class DryPlayer:
    """Runs nothing."""

    live = True

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def perform(self, step: Step) -> list[StepDifference]:
        """Only note the step."""
        self.steps.append(step)
        return []

    def news(self, found: Sequence[StepDifference]) -> list[StepDifference]:
        """Nothing new."""
        return list(found)

    def end(self, why: str) -> None:
        """Go on noting."""


class DryDrivers:
    """Clients that can do everything, and are not there."""

    frozen = exact_data = breaks_redis = cuts = True
    operations = frozenset(REGISTRY)


class DryTarget:
    """Keeps every sequence in `players`."""

    mode: Mode = "differential"
    drivers = DryDrivers()

    def __init__(self) -> None:
        self.players: list[DryPlayer] = []

    def start(self, known: KnownDifferences | None = None) -> DryPlayer:  # noqa: ARG002 - the interface has it
        """A new sequence."""
        self.players.append(DryPlayer())
        return self.players[-1]

    def end(self, runner: DryPlayer) -> None:
        """Nothing to clear."""


def dry_target() -> tuple[FuzzTarget, list[Any]]:
    """The target, and the list that its players go into."""
    target = DryTarget()
    return cast("FuzzTarget", target), target.players


ROUNDS = 8
"""In which every pair of operation and state has to occur; four or five do."""


def _sequences(seed: int, number: int = 4) -> list[Sequence[Step]]:
    target, players = dry_target()
    campaign = Campaign(target, CampaignOptions(600.0, seed, sequences_per_round=number, most_rounds=1))
    campaign.run()
    return [runner.steps for runner in players]


def test_the_same_seed_gives_the_same_sequences() -> None:
    first = _sequences(5)
    assert first == _sequences(5)
    assert max(map(len, first)) >= 50


def test_another_seed_gives_others() -> None:
    assert _sequences(5) != _sequences(6)


def test_steps_can_be_written_down_and_use_only_handles_that_were_made() -> None:
    for steps in _sequences(7):
        assert [from_record(json.loads(json.dumps(as_record(step)))) for step in steps] == steps
        made: set[str] = set()
        for step in steps:
            if isinstance(step, CallStep):
                assert step.opens != (step.handle in made)
                made.add(step.handle)


def test_every_operation_that_the_model_knows_can_come() -> None:
    known = {name for name in REGISTRY if name not in operations.NOT_MODELLED | operations.LIFECYCLE}
    never = {"queue.getWorkers", "queue.getWorkersCount"}
    loops = {"worker.pause", "worker.resume", "worker.isPaused", "worker.isRunning"}
    assert {*JOB_OPS, *QUEUE_OPS} == known - never - loops


@pytest.mark.turns(days=3)
def test_every_legal_pair_of_operation_and_state_is_soon_generated() -> None:
    target, _ = dry_target()
    campaign = Campaign(target, CampaignOptions(600.0, 0, most_rounds=1))
    left = [len(legal_pairs(REGISTRY))]
    while left[-1] and len(left) <= ROUNDS:
        campaign.run()
        generated = campaign.progress.coverage.generated_pairs
        left.append(sum(generated[pair] == 0 for pair in legal_pairs(REGISTRY)))
    assert left[-1] == 0, f"pairs never generated, by round: {left}"
    assert left[1] > 0, "one round is not enough, or the later ones prove nothing"


def test_what_was_tried_is_not_aimed_at_again() -> None:
    coverage, calls = PairCoverage(), {"queue.pause", "job.promote"}
    pair = CallCombination("queue.pause", "running")
    assert coverage.count_generated([pair]) == 1
    assert pair.pair in coverage.worth_trying(calls)
    assert coverage.count_generated([pair]) == 0
    assert pair.pair not in coverage.worth_trying(calls)
    assert pair.pair in coverage.never_tried(calls), "it has not been compared yet"
    coverage.count_compared([pair])
    assert pair.pair not in coverage.never_tried(calls)


def test_operations_that_are_left_out_are_not_called_on_the_way_either() -> None:
    target, players = dry_target()
    options = CampaignOptions(600.0, 3, left_out=("queue.pause",), sequences_per_round=8, most_rounds=1)
    campaign = Campaign(target, options)
    campaign.run()
    names = {step.name for runner in players for step in runner.steps}
    assert "queue.pause" not in names
    assert "queue.resume" in names


def test_some_calls_are_cut_off() -> None:
    cut = {step.cut for steps in _sequences(5, 12) for step in steps if isinstance(step, CallStep) and step.cut}
    assert cut


def test_the_model_follows_time_and_faults() -> None:
    model = SequenceModel()
    steps = [
        opening("queue-1", "queue", "q"),
        opening("worker-1", "worker", "q"),
        from_record({"call": "queue.add", "on": "queue-1", "args": {"name": "n"}}),
        from_record({"call": "worker.getNextJob", "on": "worker-1", "args": {"token": "t"}}),
    ]
    for step in steps:
        assert model.follow(step, 1_700_000_000_000) is not None
    assert model.state().queue("q").jobs == {"1": "active"}
    assert model.state().queue("q").tokens == {"1": "t"}
    model.follow(from_record({"clock_ms": 30_000}), 0)
    assert model.state().queue("q").tokens == {}


def test_the_listed_texts_are_json() -> None:
    for text in (*PLAIN_TEXTS, *TROUBLEMAKERS, *INEXACT_TEXTS):
        json.loads(text)
    for text in (*PLAIN_TEXTS, *TROUBLEMAKERS):
        text.encode("utf-8")


@given(json_texts(exact=True), st.text(st.characters(categories=["Cs"]), max_size=3))
@settings(max_examples=50)
def test_generated_texts_are_json_and_can_be_sent(text: str, surrogates: str) -> None:
    json.loads(text)
    text.encode("utf-8")
    assert _in_javascript(json.loads(as_javascript_writes(surrogates))) == _in_javascript(surrogates)
    as_javascript_writes(surrogates).encode("utf-8")


def _in_javascript(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
