"""Where the generator's view of the state comes from: the model, which plays along without any client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from conformance.fuzz.answers import Answer
from conformance.fuzz.sides import placed
from conformance.fuzz.steps import NOWHERE, CallStep, ClockStep, FaultStep, Step
from conformance.fuzz.world import QueueWorld, World
from conformance.model import Call, Model, NotModelled
from conformance.observe.tables import Snapshot

CONTAINERS = {"waiting": "wait"}
"""Names of states that differ from those of their containers."""

SAME_ON_EQUAL_STATES = frozenset({"queue.trimEvents"})
"""Calls that the model cannot predict, but which do the same to two equal states."""

STREAM_ID = "0-1"
"""Stands for the ids of stream entries, which are Redis's time: the model has none."""


class Foresight:
    """Follows a sequence on the model and says what the state is now."""

    def __init__(self) -> None:
        self.model = Model()
        self.certain = True
        """Whether the model knew what the last step would bring."""

    def follow(self, step: Step, now_ms: int) -> Answer | None:
        """Take one step. `now_ms`: the clock of the callers.

        Answers what a call will be answered, or None where two conforming clients may go different ways: what comes out
        depends on the order in which Redis hands out the members of a set.
        """
        self.certain = True
        match step:
            case ClockStep():
                self.model.pass_time(step.ms)
            case FaultStep(fault="delete-lock"):
                self.model.delete_lock(step.queue, step.job)
            case FaultStep(fault="wake"):
                self.model.take_markers(step.queue)
            case FaultStep():
                self.model.script_flush()
            case CallStep(cut="before-send"):
                return Answer("info", code="connection-lost", message="Redis never saw the call")
            case CallStep():
                return self._call(step, now_ms)
        return Answer("ok")

    def world(self) -> World:
        """The state after the steps so far."""
        return World({name: self._queue(name) for name in self.model.queues()})

    def _call(self, step: CallStep, now_ms: int) -> Answer | None:
        model = self.model
        try:
            prediction = model.apply(Call(step.handle, placed(step.op, model.prefix, NOWHERE)), now_ms)
        except NotModelled:
            self.certain = False
            return Answer("info", message="the model says nothing about this call")
        self.certain = prediction.determined
        if not prediction.determined and step.name not in SAME_ON_EQUAL_STATES:
            return None
        if prediction.status == "ok":
            return Answer("ok", dict(prediction.value or {}))
        return Answer("fail", code=prediction.code or "other", message="as the model says")

    def _queue(self, name: str) -> QueueWorld:
        model = self.model
        by_state = model.jobs_by_state(name)
        jobs = {job: CONTAINERS.get(state, state) for state, jobs in by_state.items() for job in jobs}
        tokens = {job: token for job in jobs if (token := model.lock_token(name, job)) is not None}
        return QueueWorld(
            jobs=jobs,
            tokens=tokens,
            schedulers=tuple(model.schedulers(name)),
            deduplications=tuple(model.deduplication_ids(name)),
            parents=tuple(model.parents(name)),
            paused=model.is_paused(name),
        )


@dataclass
class ModelSide:
    """The model in the place of a client. It has no keys in Redis; `sight` is its state."""

    foresight: Foresight = field(default_factory=Foresight)

    @property
    def prefix(self) -> str:
        """The prefix of the model's keys."""
        return self.foresight.model.prefix

    def perform(self, step: CallStep, now_ms: int | None) -> Answer:
        """What the model says that the call is answered."""
        assert now_ms is not None, "the oracle has a clock"
        answer = self.foresight.follow(step, now_ms)
        known = answer is not None and self.foresight.certain
        return (
            answer if answer and known else Answer("unsupported", message="the model does not know what comes of this")
        )

    def endure(self, step: ClockStep | FaultStep) -> None:
        """Let a step of the clock or a fault happen to the model."""
        self.foresight.follow(step, 0)

    def sight(self) -> ModelSight:
        """The model's state as it would be seen in Redis."""
        snapshot = self.foresight.model.snapshot()
        events = tuple(replace(event, id=STREAM_ID) for event in snapshot.events)
        return ModelSight(replace(snapshot, events=events))


@dataclass(frozen=True)
class ModelSight:
    """What is seen of the model."""

    snapshot: Snapshot
    imagined = True
    """It is in no Redis."""

    @property
    def essence(self) -> str:
        """Never equal to what is seen in Redis: the canonical rules have to compare."""
        return ""

    @property
    def times_left(self) -> Mapping[str, int]:
        """Times to live in ms by key without prefix."""
        rows = self.snapshot
        found = {f"{row.queue}:{row.job}:lock": row.ttl_ms for row in rows.locks}
        found |= {f"{row.queue}:de:{row.id}": row.ttl_ms for row in rows.deduplications}
        found |= {f"{row.queue}:{row.name}": row.ttl_ms for row in (*rows.limiters, *rows.stalled_checks)}
        return {key: int(ttl) for key, ttl in found.items() if not isinstance(ttl, str) and ttl >= 0}
