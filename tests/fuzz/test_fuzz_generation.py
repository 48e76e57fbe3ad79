"""Sequences come from the model and the seed alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.driver.ops import REGISTRY
from conformance.fuzz.campaign import Campaign
from conformance.fuzz.coverage import JOB_OPS, QUEUE_OPS, Combination, Coverage, legal_pairs
from conformance.fuzz.foresight import Foresight
from conformance.fuzz.steps import CallStep, Step, as_record, from_record, opening
from conformance.fuzz.strategies.json_texts import INEXACT, PLAIN, TROUBLEMAKERS, json_texts, written
from conformance.model import legality

from .dry import dry_stage
from .hunting import Silence

ROUNDS = 8
"""In which every pair of operation and state has to occur; four or five do."""


def _sequences(seed: int, number: int = 4) -> list[Sequence[Step]]:
    stage, plays = dry_stage()
    campaign = Campaign(stage, 600.0, seed, Silence(), sequences_per_round=number, most_rounds=1)
    campaign.run()
    return [play.steps for play in plays]


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
    known = {name for name in REGISTRY if name not in legality.NOT_MODELLED | legality.LIFECYCLE}
    never = {"queue.getWorkers", "queue.getWorkersCount"}
    loops = {"worker.pause", "worker.resume", "worker.isPaused", "worker.isRunning"}
    assert {*JOB_OPS, *QUEUE_OPS} == known - never - loops


def test_every_legal_pair_of_operation_and_state_is_soon_generated() -> None:
    stage, _ = dry_stage()
    campaign = Campaign(stage, 600.0, 0, Silence(), most_rounds=1)
    left = [len(legal_pairs(REGISTRY))]
    while left[-1] and len(left) <= ROUNDS:
        campaign.run()
        left.append(sum(campaign.coverage.drawn_pairs[pair] == 0 for pair in legal_pairs(REGISTRY)))
    assert left[-1] == 0, f"pairs never generated, by round: {left}"
    assert left[1] > 0, "one round is not enough, or the later ones prove nothing"


def test_what_was_tried_is_not_aimed_at_again() -> None:
    coverage, calls = Coverage(), {"queue.pause", "job.promote"}
    pair = Combination("queue.pause", "running")
    assert coverage.draw([pair]) == 1
    assert pair.pair in coverage.worth_trying(calls)
    assert coverage.draw([pair]) == 0
    assert pair.pair not in coverage.worth_trying(calls)
    assert pair.pair in coverage.never_tried(calls), "nobody has compared it yet"
    coverage.compare([pair])
    assert pair.pair not in coverage.never_tried(calls)


def test_operations_that_are_left_out_are_not_called_on_the_way_either() -> None:
    stage, plays = dry_stage()
    campaign = Campaign(stage, 600.0, 3, Silence(), left_out=("queue.pause",), sequences_per_round=8, most_rounds=1)
    campaign.run()
    names = {step.name for play in plays for step in play.steps}
    assert "queue.pause" not in names
    assert "queue.resume" in names


def test_some_calls_are_cut_off() -> None:
    cut = {step.cut for steps in _sequences(5, 12) for step in steps if isinstance(step, CallStep) and step.cut}
    assert cut


def test_the_model_follows_time_and_faults() -> None:
    foresight = Foresight()
    steps = [
        opening("queue-1", "queue", "q"),
        opening("worker-1", "worker", "q"),
        from_record({"call": "queue.add", "on": "queue-1", "args": {"name": "n"}}),
        from_record({"call": "worker.getNextJob", "on": "worker-1", "args": {"token": "t"}}),
    ]
    for step in steps:
        assert foresight.follow(step, 1_700_000_000_000) is not None
    assert foresight.world().queue("q").jobs == {"1": "active"}
    assert foresight.world().queue("q").tokens == {"1": "t"}
    foresight.follow(from_record({"clock_ms": 30_000}), 0)
    assert foresight.world().queue("q").tokens == {}


def test_the_listed_texts_are_json() -> None:
    for text in (*PLAIN, *TROUBLEMAKERS, *INEXACT):
        json.loads(text)
    for text in (*PLAIN, *TROUBLEMAKERS):
        text.encode("utf-8")


@given(json_texts(exact=True), st.text(st.characters(categories=["Cs"]), max_size=3))
@settings(max_examples=50)
def test_generated_texts_are_json_and_can_be_sent(text: str, surrogates: str) -> None:
    json.loads(text)
    text.encode("utf-8")
    assert _in_javascript(json.loads(written(surrogates))) == _in_javascript(surrogates)
    written(surrogates).encode("utf-8")


def _in_javascript(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
