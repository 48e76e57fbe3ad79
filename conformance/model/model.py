"""The model itself: calls go in, predictions come out, and the state can be looked at."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from conformance.driver.ops import Op, lifecycle
from conformance.model.areas import ANSWERERS
from conformance.model.calls import Call, Failure, Handle, NotModelled, Prediction
from conformance.model.getters import state_of
from conformance.model.lifecycle import open_handle
from conformance.model.order import is_paused
from conformance.model.snapshots import snapshot
from conformance.model.stage import Stage
from conformance.model.state import World
from conformance.observe.layout import QUEUE_KEYS
from conformance.observe.tables import Snapshot

MISSING = "missing"
"""The state of a job of which nothing is there."""


class Model:
    """Everything under one key prefix, as real BullMQ 5.62.0 on Node would leave it.

    The client's clock comes with each call; the server's clock, which only times to live obey, moves by `pass_time`.
    """

    def __init__(self) -> None:
        self._world = World()

    @property
    def prefix(self) -> str:
        """The prefix of the model's keys; options that name a qualified queue (`parent.queue`) begin with it."""
        return self._world.prefix

    def apply(self, call: Call, now_ms: int) -> Prediction:
        """Carry out a call at this time of the client's clock (Unix ms).

        A call that fails may still have changed something. Raises NotModelled for what the model says nothing about;
        the model is as before then.
        """
        before = self._world.copy()
        world = self._world
        world.journal, world.determined = [], True
        for one in world.sorted_sets():
            one.guessed = False
        try:
            answer = self._answer(call, now_ms)
        except Failure as failure:
            return self._prediction(call, code=failure.code)
        except NotModelled:
            self._world = before
            raise
        return self._prediction(call, value=msgspec.to_builtins(answer))

    def is_determined(self, call: Call, now_ms: int) -> bool:
        """Whether the model knows this call, and its outcome does not depend on the order of members of a set."""
        try:
            return self.copy().apply(call, now_ms).determined
        except NotModelled:
            return False

    def copy(self) -> Model:
        """An independent copy, to try something out."""
        duplicate = Model()
        duplicate._world = self._world.copy()
        return duplicate

    def pass_time(self, duration_ms: int) -> None:
        """Let the server's clock go on (ms): locks, rate windows, deduplication and the stalled check run out."""
        self._world.pass_time(duration_ms)

    # What may happen beside calls.

    def delete_lock(self, queue: str, job: str) -> None:
        """The lock of a job expires, or is evicted."""
        self._world.queue(queue).locks.pop(job, None)

    def take_markers(self, queue: str) -> None:
        """Idle workers wake up, and have taken all wake-up markers of the queue."""
        self._world.queue(queue).marker.clear()

    def script_flush(self) -> None:
        """Redis forgets the scripts. Clients send them again, and nobody notices, except for flow producers."""
        self._world.scripts.clear()

    def forget_connection(self, handle: str) -> None:
        """A client dies: its handle is gone, what it held stays active and locked."""
        self._world.handles.pop(handle, None)

    # What there is.

    def snapshot(self) -> Snapshot:
        """Everything, in the tables that the reader fills from Redis."""
        return snapshot(self._world)

    def queues(self) -> list[str]:
        """Names of all queues that were ever named."""
        return sorted(self._world.queues)

    def jobs(self, queue: str) -> list[str]:
        """Ids of the jobs that have a hash, the oldest hash first."""
        return list(self._world.queue(queue).jobs)

    def state_of(self, queue: str, job: str) -> str:
        """The job's state; `paused` for a job that waits in a paused queue, `unknown` in no container, or `missing`."""
        home = self._world.queue(queue)
        state = "paused" if job in home.paused else state_of(home, job)
        return MISSING if state == "unknown" and job not in home.jobs else state

    def jobs_by_state(self, queue: str) -> dict[str, list[str]]:
        """All jobs that have a hash, by their state."""
        found: dict[str, list[str]] = {}
        for job in self.jobs(queue):
            found.setdefault(self.state_of(queue, job), []).append(job)
        return found

    def handles(self, role: str | None = None) -> dict[str, Handle]:
        """The open handles by name; of one role only, if one is given."""
        return {name: one for name, one in self._world.handles.items() if role in (None, one.role)}

    def held(self, worker: str) -> Mapping[str, str]:
        """The jobs that a worker has claimed and not given back, with the token of each."""
        return dict(self._world.handles[worker].tokens)

    def lock_token(self, queue: str, job: str) -> str | None:
        """The token under which a job is locked."""
        lock = self._world.queue(queue).locks.get(job)
        return None if lock is None else lock.value

    def schedulers(self, queue: str) -> list[str]:
        """Ids of the job schedulers."""
        return self._world.queue(queue).scheduler_times.members()

    def deduplication_ids(self, queue: str) -> list[str]:
        """The deduplication ids that are taken."""
        return list(self._world.queue(queue).deduplications)

    def parents(self, queue: str) -> list[str]:
        """Jobs that have, or had, children."""
        families = self._world.queue(queue).families
        return [job for job, family in families.items() if family.exists()]

    def is_paused(self, queue: str) -> bool:
        """Whether the queue is paused."""
        return is_paused(self._world.queue(queue))

    def key(self, queue: str, job: str) -> str:
        """The full key of a job under the model's prefix."""
        return self._world.queue(queue).key(job)

    def free_id(self, queue: str) -> str:
        """A custom id that nobody uses."""
        taken = {*self._world.queue(queue).jobs, *QUEUE_KEYS}
        return next(name for number in range(len(taken) + 1) if (name := f"custom-{number}") not in taken)

    def _answer(self, call: Call, now_ms: int) -> object:
        op = call.op
        if isinstance(op, lifecycle.Open):
            return open_handle(self._world, call.handle, op)
        if isinstance(op, lifecycle.Reset):
            self._world.handles.clear()
            return None
        handle = self._world.handles.get(call.handle or "")
        answerer = ANSWERERS.get(type(op))
        if answerer is None:
            raise NotModelled(f"the operation {call.name}")
        if handle is None or not _fits(op, handle):
            raise Failure("invalid-argument", "no such handle, or not for this operation")
        return answerer(Stage(self._world, handle, now_ms), op)

    def _prediction(self, call: Call, *, value: object = None, code: str | None = None) -> Prediction:
        world = self._world
        return Prediction(
            op=call.name,
            status="ok" if code is None else "fail",
            value=(value or {}) if code is None else None,  # type: ignore[arg-type]  # answers are structs
            code=code,
            events=tuple(world.journal),
            determined=world.determined and not any(one.guessed for one in world.sorted_sets()),
        )


def _fits(op: Op[object], handle: Handle) -> bool:
    """Job operations work on workers too; all others on the one kind of handle that they are for."""
    if type(op).op.startswith("job."):
        return handle.role in {"queue", "worker"}
    return type(op).on in {handle.role, "any"}
