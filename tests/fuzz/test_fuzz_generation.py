"""Sequences come from the model and the seed alone: they are generated without clients and without Redis."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.driver.ops import REGISTRY, Op, flow, lifecycle, queue
from conformance.fuzz.campaign import Campaign, CampaignOptions
from conformance.fuzz.comparison import KnownDifferences, StepDifference
from conformance.fuzz.prediction import SequenceModel
from conformance.fuzz.shrinking import simpler_steps, workers_of_two
from conformance.fuzz.strategies.arguments import (
    INEXACT_TEXTS,
    PLAIN_TEXTS,
    TROUBLEMAKERS,
    as_javascript_writes,
    json_texts,
)
from conformance.fuzz.strategies.exploring import JOB_OPS, QUEUE_OPS, CallCombination, PairCoverage, legal_pairs
from conformance.fuzz.strategies.vocabulary import (
    ATTEMPTS_MADE,
    ID_COUNTERS,
    LONG_DELAYS,
    ONLY_OTHERS,
    PRIORITY_COUNTERS,
    SYNTAX,
)
from conformance.fuzz.target import FuzzTarget, Mode
from conformance.model import operations
from conformance.protocol.versions import SUPPORTED_ORACLES
from conformance.steps.records import as_record, from_record
from conformance.steps.shapes import CallStep, CounterStep, Step, opening
from conformance.upstream.declarations import read_declarations
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_bullmq


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
        return list(found)

    def end(self, why: str) -> None:
        """Go on noting."""


class DryDrivers:
    """Clients that can do everything, and are not there."""

    frozen = exact_data = breaks_redis = cuts = keeps_last = True
    operations = frozenset(REGISTRY)


class DryTarget:
    """Keeps every sequence in `players`."""

    drivers = DryDrivers()

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.players: list[DryPlayer] = []

    def start(self, known: KnownDifferences | None = None) -> DryPlayer:  # noqa: ARG002 - the interface has it
        self.players.append(DryPlayer())
        return self.players[-1]

    def end(self, runner: DryPlayer) -> None:
        """Nothing to clear."""


def dry_target(mode: Mode = "differential") -> tuple[FuzzTarget, list[Any]]:
    """The target, and the list that its players go into."""
    target = DryTarget(mode)
    return cast("FuzzTarget", target), target.players


ROUNDS = 8
"""In which every pair of operation and state has to occur; four or five do."""


def _sequences(seed: int, number: int = 4, mode: Mode = "differential") -> list[Sequence[Step]]:
    target, players = dry_target(mode)
    campaign = Campaign(target, CampaignOptions(600.0, seed, sequences_per_round=number, most_rounds=1))
    campaign.run()
    return [runner.steps for runner in players]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_sequences() -> None:
    first = _sequences(5)
    assert first == _sequences(5)
    assert max(map(len, first)) >= 50


@pytest.mark.slow
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


@pytest.mark.slow
def test_in_interop_a_worker_belongs_to_one_client() -> None:
    workers: set[tuple[str, str]] = set()
    for steps in _sequences(5, 24, "interop"):
        assert workers_of_two(steps) == set()
        for fewer in simpler_steps(steps):
            assert workers_of_two(fewer) == set()
        workers |= {(step.by, step.handle) for step in steps if isinstance(step, CallStep) and not step.opens}
    assert workers >= {("client", "worker-1"), ("oracle", "worker-2"), ("client", "worker-r"), ("oracle", "worker-r2")}


def test_every_operation_that_the_model_knows_can_come() -> None:
    known = {name for name in REGISTRY if name not in operations.NOT_MODELLED | operations.LIFECYCLE}
    never = {"queue.getWorkers", "queue.getWorkersCount"}
    loops = {"worker.pause", "worker.resume", "worker.isPaused", "worker.isRunning"}
    assert {*JOB_OPS, *QUEUE_OPS} == known - never - loops


@dataclass(frozen=True)
class DryCampaign:
    """Steps of a campaign of some rounds. `left`: pairs of operation and state that are missing after each round."""

    steps: list[Step]
    left: list[int]

    @property
    def ops(self) -> list[Op[Any]]:
        return [step.op for step in self.steps if isinstance(step, CallStep)]


@pytest.fixture(scope="module")
def long_campaign() -> DryCampaign:
    target, players = dry_target()
    campaign = Campaign(target, CampaignOptions(600.0, 0, most_rounds=1))
    left = [len(legal_pairs(REGISTRY))]
    for _ in range(2 * ROUNDS):
        campaign.run()
        generated = campaign.progress.coverage.generated_pairs
        left.append(sum(generated[pair] == 0 for pair in legal_pairs(REGISTRY)))
    return DryCampaign([step for player in players for step in player.steps], left)


@pytest.mark.slow
def test_every_legal_pair_of_operation_and_state_is_soon_generated(long_campaign: DryCampaign) -> None:
    left = long_campaign.left[: ROUNDS + 1]
    assert left[-1] == 0, f"pairs never generated, by round: {left}"
    assert left[1] > 0, "one round is not enough, or the later ones prove nothing"


JOB_TYPES = re.compile(
    r"(BaseJob|CompressableJob|DefaultJob|Deduplication|Backoff|Repeat|Repeatable|Parent|QueueBase|Queue|Worker"
    r"|RateLimiter|Metrics)Options|KeepJobs"
)
"""Types of options that a call of the fuzzer can carry."""


@pytest.mark.slow
@pytest.mark.parametrize("version", SUPPORTED_ORACLES)
def test_every_option_is_sent_or_left_out_for_a_reason(version: str, long_campaign: DryCampaign) -> None:
    declared = read_declarations(ensure_bullmq(find_node(None), version, announce=print).root).options
    names = [name for name in declared if JOB_TYPES.fullmatch(name.partition(".")[0])]
    assert len(names) > 60
    sent = {name for op in long_campaign.ops for name in _options_in(op)}
    unsent = [name for name in names if name.rpartition(".")[2] not in sent]
    surplus = [name for name in unsent if not any(fnmatchcase(name, like) for like in _left_out())]
    assert surplus == [], "let a strategy send it, or write a line of tests/fuzz/unsent.toml"


@pytest.mark.slow
def test_no_option_is_left_out_that_is_sent(long_campaign: DryCampaign) -> None:
    sent = {name for op in long_campaign.ops for name in _options_in(op)} - {"settings", "telemetry", "prefix"}
    assert [like for like in _left_out() if like.rpartition(".")[2] in sent] == []


def _left_out() -> list[str]:
    parts = tomllib.loads(Path(__file__).with_name("unsent.toml").read_text("utf-8")).values()
    return [like for part in parts for like in part["names"]]


def _options_in(op: Op[Any]) -> Iterator[str]:
    """Names of all options in a call, those inside of others included."""
    match op:
        case lifecycle.Open():
            yield from _names_in(op.options)
        case queue.Add():
            yield from _names_in(op.opts)
        case queue.AddBulk():
            yield from (name for job in op.jobs for name in _names_in(job.opts))
        case flow.UpsertJobScheduler():
            yield from (*_names_in(op.repeat), *_names_in(op.opts or {}))


def _names_in(options: dict[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield name
        yield from _names_in(value) if isinstance(value, dict) else ()


@pytest.mark.slow
def test_large_numbers_and_odd_texts_come_in_every_way_of_adding(long_campaign: DryCampaign) -> None:
    counters = {(step.counter, step.value) for step in long_campaign.steps if isinstance(step, CounterStep)}
    assert {value for name, value in counters if name == "id"} == set(ID_COUNTERS)
    assert {value for name, value in counters if name == "pc"} == set(PRIORITY_COUNTERS)
    assert {value for name, value in counters if name == "atm"} == set(ATTEMPTS_MADE)
    texts = {
        "queue.add": json.dumps([(op.name, op.opts) for op in long_campaign.ops if isinstance(op, queue.Add)]),
        "queue.addBulk": json.dumps(
            [(job.name, job.opts) for op in long_campaign.ops if isinstance(op, queue.AddBulk) for job in op.jobs]
        ),
        "queue.upsertJobScheduler": json.dumps(
            [(op.id, op.repeat) for op in long_campaign.ops if isinstance(op, flow.UpsertJobScheduler)]
        ),
    }
    everywhere = "".join(texts.values())
    for name, kind in SYNTAX.items():
        sent = [text for text in (*kind, *ONLY_OTHERS.get(name, ())) if json.dumps(text) in everywhere]
        assert len(sent) >= 3, (name, sent)
    never = {way: [delay for delay in LONG_DELAYS if str(delay) not in sent] for way, sent in texts.items()}
    assert not any(never.values()), never


@pytest.mark.slow
def test_counters_are_high_before_the_first_call_in_every_way_of_adding() -> None:
    """In the same sequence: a bulk, a flow and a scheduler take the next number."""
    ways: set[str] = set()
    for steps in _sequences(7, 40):
        # Hypothesis gives a sequence up before its first step now and then.
        if steps and isinstance(steps[0], CounterStep):
            ways |= {step.name for step in steps if isinstance(step, CallStep)}
    assert ways >= {"queue.add", "queue.addBulk", "flow.add", "queue.upsertJobScheduler"}


def test_a_generated_pair_is_not_aimed_at_again() -> None:
    coverage, calls = PairCoverage(), {"queue.pause", "job.promote"}
    pair = CallCombination("queue.pause", "running")
    assert coverage.count_generated([pair]) == 1
    assert pair.pair in coverage.worth_trying(calls)
    assert coverage.count_generated([pair]) == 0
    assert pair.pair not in coverage.worth_trying(calls)
    assert pair.pair in coverage.never_tried(calls), "it has not been compared yet"
    coverage.count_compared([pair])
    assert pair.pair not in coverage.never_tried(calls)


@pytest.mark.slow
def test_operations_that_are_left_out_are_not_called_on_the_way_either() -> None:
    target, players = dry_target()
    options = CampaignOptions(600.0, 3, left_out=("queue.pause",), sequences_per_round=8, most_rounds=1)
    campaign = Campaign(target, options)
    campaign.run()
    names = {step.name for runner in players for step in runner.steps}
    assert "queue.pause" not in names
    assert "queue.resume" in names


@pytest.mark.slow
def test_some_calls_are_cut_off() -> None:
    cut = {step.cut for steps in _sequences(5, 40) for step in steps if isinstance(step, CallStep) and step.cut}
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
