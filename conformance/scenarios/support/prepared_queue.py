"""A queue that a scenario brings into a state before the step that it is about."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import TypeAlias

from conformance.participants.handles import FlowHandle, QueueHandle, WorkerHandle
from conformance.participants.participant import Participant


class PreparedQueue:
    """A queue with the handles that its steps need; each one is opened when a step first uses it.

    `job`: id of the job that the scenario is about. `at_work`: how many other jobs are active. `undo`: repairs what the
    steps had to damage in Redis.
    """

    def __init__(self, client: Participant, name: str = "q", *, job: str = "1", at_work: int = 0) -> None:
        self.client, self.name, self.job, self.at_work = client, name, job, at_work
        self.queue: QueueHandle = client.queue(name)
        self.undo = ExitStack()

    # Opened on first use: an open handle that a scenario does not need would change what Redis holds.
    @cached_property
    def worker(self) -> WorkerHandle:
        """A worker that is driven step by step."""
        return self.client.worker(queue=self.name)

    @cached_property
    def flow(self) -> FlowHandle:
        """A FlowProducer."""
        return self.client.flow()

    @cached_property
    def below(self) -> PreparedQueue:
        """The queue of the children."""
        return PreparedQueue(self.client, "below", job="child")

    def as_parent(self, job: str = "") -> dict[str, str]:
        """The option `parent` of a child of this job (default: `job`)."""
        return {"id": job or self.job, "queue": self.queue.redis.base[:-1]}


Step: TypeAlias = Callable[[PreparedQueue], object]
