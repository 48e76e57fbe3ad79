"""Clients that answer from their own memory and never look into Redis: no answer of theirs is worth anything."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_base import QueueBase


class RememberedAnswers:
    """The jobs that were added through each queue object, in order."""

    def __init__(self) -> None:
        self._jobs: dict[int, dict[str, Job]] = {}

    def of(self, queue: QueueBase[Any]) -> dict[str, Job]:
        """Jobs that were added through this object."""
        return self._jobs.setdefault(id(queue), {})


def _remembering(damage: Damage) -> RememberedAnswers:
    """Let the client remember what it adds."""
    memory = RememberedAnswers()

    def broken(add: Function) -> Function:
        async def add_job(queue: Queue, *args: Any) -> Job:
            job: Job = await add(queue, *args)
            memory.of(queue)[job.known_id] = job
            return job

        return add_job

    damage.around(Queue, "add", broken)
    return memory


@mutant("liar.state", kills=("getters.state",))
def state(damage: Damage) -> None:
    """Every job that this object has added waits."""
    memory = _remembering(damage)

    async def get_state(queue: Queue, job_id: str) -> str:
        return "waiting" if job_id in memory.of(queue) else "unknown"

    damage.replace(Queue, "getJobState", get_state)


@mutant("liar.job", kills=("getters.job.fields", "interop.plain"))
def job(damage: Damage) -> None:
    """A job read back is the one that was added."""
    memory = _remembering(damage)

    async def get_job(queue: Queue, job_id: str) -> Job | None:
        return memory.of(queue).get(job_id)

    damage.replace(Queue, "getJob", get_job)
