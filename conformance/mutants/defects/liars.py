"""Clients that answer from their own memory and never look into Redis: no answer of theirs is worth anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError

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


@mutant("liar.counts", kills=("getters.counts",))
def counts(damage: Damage) -> None:
    """Counts are those of the jobs that this object has added."""
    memory = _remembering(damage)

    async def get_counts(queue: Queue, *states: str) -> dict[str, int]:
        return {state: len(memory.of(queue)) if state == "waiting" else 0 for state in states}

    damage.replace(Queue, "getJobCounts", get_counts)


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


@mutant("liar.jobs", kills=("getters.order",))
def jobs(damage: Damage) -> None:
    """Lists of jobs are those of the jobs that were added."""
    memory = _remembering(damage)

    async def get_jobs(
        queue: Queue, _types: Sequence[str], start: int = 0, _end: int = -1, asc: bool = False
    ) -> list[Job | None]:
        added = [*memory.of(queue).values()][start:]
        return [*added] if asc else [*reversed(added)]

    damage.replace(Queue, "getJobs", get_jobs)


@mutant("liar.is-paused", kills=("pause.answer",))
def is_paused(damage: Damage) -> None:
    """The first answer to isPaused is remembered forever."""
    answers: dict[int, bool] = {}

    def broken(ask: Function) -> Function:
        async def is_paused_once(queue: Queue) -> bool:
            if id(queue) not in answers:
                answers[id(queue)] = bool(await ask(queue))
            return answers[id(queue)]

        return is_paused_once

    damage.around(Queue, "isPaused", broken)


@mutant("liar.add", kills=("add.plain.waits", "add.delayed.set"))
def add(damage: Damage) -> None:
    """Adding answers an id and stores nothing."""
    counter: dict[int, int] = {}

    async def pretend(queue: Queue, name: str, data: Any, opts: dict[str, Any] | None = None) -> Job:
        counter[id(queue)] = counter.get(id(queue), 0) + 1
        return Job(queue, name, data, opts, str(counter[id(queue)]))

    damage.replace(Queue, "add", pretend)


@mutant("liar.complete", kills=("lifecycle.complete.moves",))
def complete(damage: Damage) -> None:
    """Completing a job is only claimed."""

    async def pretend(_job: Job, *_args: Any) -> None:
        return None

    damage.replace(Job, "moveToCompleted", pretend)


@mutant("liar.connection", kills=("getters.drain",))
def connection(damage: Damage) -> None:
    """Draining succeeds, but the client then reports a lost connection."""

    def broken(drain: Function) -> Function:
        async def drain_and_complain(queue: Queue, *args: Any) -> None:
            await drain(queue, *args)
            raise RedisConnectionError("the connection is closed")

        return drain_and_complain

    damage.around(Queue, "drain", broken)
