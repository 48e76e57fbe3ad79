"""The model's prediction of a sequence: the state for the generation of steps, and the completion of each call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from conformance.fuzz.comparison import Completion
from conformance.model import Model, NotModelled
from conformance.observe.tables import Snapshot
from conformance.protocol.states import STATE_CONTAINERS
from conformance.steps.shapes import NOWHERE, CallStep, Step, addressed

JobState: TypeAlias = str
"""The container that a job is in (`wait`, `paused`, `active`, ...), or `missing`."""

MISSING: JobState = "missing"
JOB_STATES: tuple[JobState, ...] = (*STATE_CONTAINERS, MISSING)

CONTAINERS = {"waiting": "wait"}
"""Names of states that differ from those of their containers."""

SAME_ON_EQUAL_STATES = frozenset({"queue.trimEvents"})
"""Calls whose outcome the model cannot predict, but which do the same to two equal states."""


@dataclass(frozen=True)
class PredictedQueue:
    """One queue. `jobs`: state by id, in a stable order; `tokens`: lock token by id of the locked jobs."""

    jobs: dict[str, JobState] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    schedulers: tuple[str, ...] = ()
    deduplications: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    paused: bool = False

    def state_of(self, job: str) -> JobState:
        """The state of a job, `missing` if it does not exist."""
        return self.jobs.get(job, MISSING)

    def in_states(self, states: Iterable[JobState]) -> list[str]:
        """The jobs in any of the states, in a stable order."""
        wanted = frozenset(states)
        return [job for job, state in self.jobs.items() if state in wanted]


EMPTY = PredictedQueue()


@dataclass(frozen=True)
class SequenceState:
    """All queues of a sequence by name; a queue that nothing was written to yet is empty."""

    queues: dict[str, PredictedQueue] = field(default_factory=dict)

    def queue(self, name: str) -> PredictedQueue:
        """One queue."""
        return self.queues.get(name, EMPTY)


class SequenceModel:
    """The model, taking the steps of a sequence."""

    def __init__(self) -> None:
        self._model = Model()
        self.certain = True
        """Whether the model knew what the last step would bring."""

    @property
    def prefix(self) -> str:
        """The prefix of the model's keys."""
        return self._model.prefix

    def follow(self, step: Step, now_ms: int) -> Completion | None:
        """Take one step. `now_ms`: the clock of the callers.

        Returns how a call completes, or None if two conforming clients may differ: the result depends on the order in
        which Redis returns the members of a set.
        """
        self.certain = True
        if not isinstance(step, CallStep):
            self._model.endure(step)
            return Completion("ok")
        if step.cut == "before-send":
            return Completion("info", code="connection-lost", message="Redis never saw the call")
        return self._call(step, now_ms)

    def state(self) -> SequenceState:
        """The state after the steps so far."""
        return SequenceState({name: self._queue(name) for name in self._model.queues()})

    def snapshot(self) -> Snapshot:
        """The state as it would be read from Redis."""
        return self._model.snapshot()

    def _call(self, step: CallStep, now_ms: int) -> Completion | None:
        model = self._model
        try:
            prediction = model.apply(replace(step, op=addressed(step.op, model.prefix, NOWHERE)), now_ms)
        except NotModelled:
            self.certain = False
            return Completion("info", message="the model says nothing about this call")
        self.certain = prediction.determined
        # Two equal states stay equal after these, so the sequence can go on without a prediction.
        if not prediction.determined and step.name not in SAME_ON_EQUAL_STATES:
            return None
        if prediction.status == "ok":
            return Completion("ok", dict(prediction.value or {}))
        return Completion("fail", code=prediction.code or "other", message="as the model says")

    def _queue(self, name: str) -> PredictedQueue:
        model = self._model
        by_state = model.jobs_by_state(name)
        jobs = {job: CONTAINERS.get(state, state) for state, jobs in by_state.items() for job in jobs}
        tokens = {job: token for job in jobs if (token := model.lock_token(name, job)) is not None}
        return PredictedQueue(
            jobs=jobs,
            tokens=tokens,
            schedulers=tuple(model.schedulers(name)),
            deduplications=tuple(model.deduplication_ids(name)),
            parents=tuple(model.parents(name)),
            paused=model.is_paused(name),
        )
