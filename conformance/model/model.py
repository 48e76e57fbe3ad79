"""The model: it turns calls into predictions, and exposes its state, also as a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from conformance.driver.ops import Op, lifecycle
from conformance.model.calls import CallFailure, ModelHandle, NotModelled, Prediction
from conformance.model.dispatch import CallContext
from conformance.model.getters import state_of
from conformance.model.lifecycle import open_handle
from conformance.model.operations import function_for
from conformance.model.order import is_paused
from conformance.model.state import FlowRelations, ModelState, QueueState
from conformance.model.texts import cjson
from conformance.observe.tables import (
    Counter,
    Deduplication,
    Dependency,
    Expiring,
    Job,
    Lock,
    LogRow,
    Marker,
    Membership,
    Meta,
    Metrics,
    Scheduler,
    Snapshot,
)
from conformance.protocol.states import LIST_CONTAINERS, ZSET_CONTAINERS
from conformance.steps.shapes import CallStep, ClockStep, CounterStep, FaultStep, OutsideStep

MISSING = "missing"
"""The state of a job of which nothing is there."""


def snapshot(state: ModelState) -> Snapshot:
    """Everything under the model's prefix, of this instant."""
    queues = sorted(state.queues.values(), key=lambda queue: queue.name)
    tables: dict[str, Any] = {
        "jobs": _jobs,
        "memberships": _memberships,
        "locks": lambda queue: _locks(state, queue),
        "dependencies": _dependencies,
        "logs": _logs,
        "events": lambda queue: iter(queue.events),
        "schedulers": _schedulers,
        "deduplications": lambda queue: _deduplications(state, queue),
        "metas": _metas,
        "markers": _markers,
        "limiters": lambda queue: _expiring(state, queue, "limiter"),
        "stalled_checks": lambda queue: _expiring(state, queue, "stalled-check"),
        "counters": _counters,
        "metrics": _metrics,
    }
    rows = {name: tuple(row for queue in queues for row in make(queue)) for name, make in tables.items()}
    return Snapshot(prefix=state.prefix, taken_ms=state.server_ms, **rows)


def _jobs(queue: QueueState) -> Iterator[Job]:
    for job, fields in sorted(queue.jobs.items()):
        if fields:
            yield Job(queue=queue.name, id=job, fields=dict(fields))


def _memberships(queue: QueueState) -> Iterator[Membership]:
    for name in (*LIST_CONTAINERS, *ZSET_CONTAINERS):
        container = queue.container(name)
        if isinstance(container, list):
            for position, job in enumerate(container):
                yield Membership(queue=queue.name, container=name, job=job, position=position)
        else:
            for job, score in container.items():
                yield Membership(queue=queue.name, container=name, job=job, score=score)
    for job in sorted(queue.stalled):
        yield Membership(queue=queue.name, container="stalled", job=job)


def _locks(state: ModelState, queue: QueueState) -> Iterator[Lock]:
    for job, lock in sorted(queue.locks.items()):
        yield Lock(queue=queue.name, job=job, token=lock.value, ttl_ms=lock.ttl_ms(state.server_ms))


def _dependencies(queue: QueueState) -> Iterator[Dependency]:
    for parent, relations in sorted(queue.flow_relations.items()):
        yield from _children(queue.name, parent, relations)


def _children(queue: str, parent: str, relations: FlowRelations) -> Iterator[Dependency]:
    for child in sorted(relations.unprocessed):
        yield Dependency(queue=queue, parent=parent, kind="pending", child=child)
    for kind, values in (("processed", relations.processed), ("failed", relations.ignored)):
        for child, value in sorted(values.items()):
            yield Dependency(queue=queue, parent=parent, kind=kind, child=child, value=value)
    for child, score in relations.failed.items():
        yield Dependency(queue=queue, parent=parent, kind="unsuccessful", child=child, score=score)


def _logs(queue: QueueState) -> Iterator[LogRow]:
    for job, rows in sorted(queue.logs.items()):
        for position, text in enumerate(rows):
            yield LogRow(queue=queue.name, job=job, position=position, text=text)


def _schedulers(queue: QueueState) -> Iterator[Scheduler]:
    for scheduler in sorted({*queue.scheduler_times, *queue.scheduler_records}):
        time, record = queue.scheduler_times.score(scheduler), queue.scheduler_records.get(scheduler)
        yield Scheduler(queue=queue.name, id=scheduler, next=time, fields=None if record is None else dict(record))


def _deduplications(state: ModelState, queue: QueueState) -> Iterator[Deduplication]:
    for name, owner in sorted(queue.deduplications.items()):
        yield Deduplication(queue=queue.name, id=name, job=owner.value, ttl_ms=owner.ttl_ms(state.server_ms))
    for name, kept in sorted(queue.kept_back.items()):
        fields = {"name": kept.name, "data": kept.data_raw, "opts": cjson(kept.options), "jid": kept.id}
        if kept.parent_key is not None:
            links = {"pk": kept.parent_key, "pd": kept.links["parent"], "pdk": f"{kept.parent_key}:dependencies"}
            fields |= links
        yield Deduplication(queue=queue.name, id=name, job="", ttl_ms=-1, next=fields)


def _metas(queue: QueueState) -> Iterator[Meta]:
    if queue.meta:
        yield Meta(queue=queue.name, fields=dict(queue.meta))


def _markers(queue: QueueState) -> Iterator[Marker]:
    for member, score in sorted(queue.marker.items()):
        yield Marker(queue=queue.name, member=member, score=score)


def _expiring(state: ModelState, queue: QueueState, name: str) -> Iterator[Expiring]:
    key = queue.limiter if name == "limiter" else queue.stalled_check
    if key is not None:
        yield Expiring(queue=queue.name, name=name, value=key.value, ttl_ms=key.ttl_ms(state.server_ms))


def _counters(queue: QueueState) -> Iterator[Counter]:
    for name, value in (("id", queue.id_counter), ("pc", queue.priority_counter)):
        if value is not None:
            yield Counter(queue=queue.name, name=name, value=str(value))


def _metrics(queue: QueueState) -> Iterator[Metrics]:
    for kind, record in sorted(queue.metrics.items()):
        yield Metrics(queue=queue.name, kind=kind, fields=dict(record.fields), points=tuple(record.points))


class Model:
    """Everything under one key prefix, as real BullMQ 5.62.0 on Node would leave it.

    The client's clock comes with each call; the server's clock, which only times to live obey, moves by `endure`.
    """

    def __init__(self) -> None:
        self._state = ModelState()

    @property
    def prefix(self) -> str:
        """The prefix of the model's keys; options with a qualified queue (`parent.queue`) start with it."""
        return self._state.prefix

    def apply(self, call: CallStep, now_ms: int) -> Prediction:
        """Carry out a call at this time of the client's clock (Unix ms).

        A call that fails may still have changed something. Raises NotModelled for what the model says nothing about;
        the model is as before then.
        """
        # Copied before the call: NotModelled may be raised after the first changes.
        before = self._state.copy()
        state = self._state
        state.journal, state.determined = [], True
        for members in state.sorted_sets():
            # Reset for each call: only the orders that this one asks for count.
            members.guessed = False
        try:
            value = self._carry_out(call, now_ms)
        except CallFailure as failure:
            return self._prediction(call, code=failure.code)
        except NotModelled:
            self._state = before
            raise
        return self._prediction(call, value=msgspec.to_builtins(value))

    def is_determined(self, call: CallStep, now_ms: int) -> bool:
        """Whether the model knows this call, and its outcome does not depend on the order of members of a set."""
        try:
            return self.copy().apply(call, now_ms).determined
        except NotModelled:
            return False

    def copy(self) -> Model:
        """An independent copy, to try something out."""
        duplicate = Model()
        duplicate._state = self._state.copy()
        return duplicate

    def endure(self, step: OutsideStep) -> None:
        """Make a step happen that no client takes. Of the clocks, only the server's advances."""
        state = self._state
        match step:
            case ClockStep():
                state.pass_time(step.clock_ms)
            case FaultStep(fault="delete-lock"):
                state.queue(step.queue).locks.pop(step.job, None)
            case FaultStep(fault="wake"):
                state.queue(step.queue).marker.clear()
            case FaultStep(fault="delete-stalled-check"):
                state.queue(step.queue).stalled_check = None
            case FaultStep():
                # Clients send the scripts again, which only flow producers notice.
                state.scripts.clear()
            case CounterStep(counter="id"):
                state.queue(step.queue).id_counter = step.value
            case CounterStep(counter="pc"):
                state.queue(step.queue).priority_counter = step.value
            case CounterStep() if state.queue(step.queue).jobs.get(step.job):
                state.queue(step.queue).hash(step.job)["atm"] = str(step.value)

    # The state.

    def snapshot(self) -> Snapshot:
        """Everything, in the tables that the reader fills from Redis."""
        return snapshot(self._state)

    def queues(self) -> list[str]:
        """Names of all queues that were ever named."""
        return sorted(self._state.queues)

    def jobs(self, queue: str) -> list[str]:
        """Ids of the jobs that have a hash, the oldest hash first."""
        return list(self._state.queue(queue).jobs)

    def state_of(self, queue: str, job: str) -> str:
        """The job's state; `paused` for a job that waits in a paused queue, `unknown` in no container, or `missing`."""
        home = self._state.queue(queue)
        state = "paused" if job in home.paused else state_of(home, job)
        return MISSING if state == "unknown" and job not in home.jobs else state

    def jobs_by_state(self, queue: str) -> dict[str, list[str]]:
        """All jobs that have a hash, by their state."""
        found: dict[str, list[str]] = {}
        for job in self.jobs(queue):
            found.setdefault(self.state_of(queue, job), []).append(job)
        return found

    def handles(self, role: str | None = None) -> dict[str, ModelHandle]:
        """The open handles by name; of one role only, if one is given."""
        return {name: handle for name, handle in self._state.handles.items() if role in (None, handle.role)}

    def held(self, worker: str) -> Mapping[str, str]:
        """The jobs that a worker has claimed and not given back, with the token of each."""
        return dict(self._state.handles[worker].tokens)

    def lock_token(self, queue: str, job: str) -> str | None:
        """The token under which a job is locked."""
        lock = self._state.queue(queue).locks.get(job)
        return None if lock is None else lock.value

    def schedulers(self, queue: str) -> list[str]:
        """Ids of the job schedulers."""
        return self._state.queue(queue).scheduler_times.members()

    def deduplication_ids(self, queue: str) -> list[str]:
        """The deduplication ids that are taken."""
        return list(self._state.queue(queue).deduplications)

    def parents(self, queue: str) -> list[str]:
        """Jobs that have, or had, children."""
        all_relations = self._state.queue(queue).flow_relations
        return [job for job, relations in all_relations.items() if relations.exists()]

    def is_paused(self, queue: str) -> bool:
        """Whether the queue is paused."""
        return is_paused(self._state.queue(queue))

    def key(self, queue: str, job: str) -> str:
        """The full key of a job under the model's prefix."""
        return self._state.queue(queue).key(job)

    def _carry_out(self, call: CallStep, now_ms: int) -> object:
        op = call.op
        if isinstance(op, lifecycle.Open):
            return open_handle(self._state, call.handle, op)
        if isinstance(op, lifecycle.Reset):
            self._state.handles.clear()
            return None
        handle = self._state.handles.get(call.handle)
        carry_out = function_for(op)
        if carry_out is None:
            raise NotModelled(f"the operation {call.name}")
        if handle is None or not _fits(op, handle):
            raise CallFailure("invalid-argument", "no such handle, or not for this operation")
        return carry_out(CallContext(self._state, handle, now_ms), op)

    def _prediction(self, call: CallStep, *, value: object = None, code: str | None = None) -> Prediction:
        state = self._state
        return Prediction(
            op=call.name,
            status="ok" if code is None else "fail",
            value=(value or {}) if code is None else None,  # type: ignore[arg-type]  # operations return structs
            code=code,
            events=tuple(state.journal),
            determined=state.determined and not any(members.guessed for members in state.sorted_sets()),
        )


def _fits(op: Op[object], handle: ModelHandle) -> bool:
    """Job operations work on workers too; all others on the one kind of handle that they are for."""
    if type(op).op.startswith("job."):
        return handle.role in {"queue", "worker"}
    return type(op).on in {handle.role, "any"}
