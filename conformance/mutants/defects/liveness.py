"""Workers that sleep too long, stop, or take too much."""

from __future__ import annotations

import asyncio

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.job import Job
from conformance.reference_impl.scripts import Fetched
from conformance.reference_impl.worker import Worker
from conformance.reference_impl.worker_base import WorkerBase
from conformance.reference_impl.worker_fetching import Fetcher

POLL_S = 2.5
"""Longer than any scenario lets an idle worker sleep."""


@mutant("worker.polls", kills=("liveness.pickup", "liveness.idle-after-work"))
def polls(damage: Damage) -> None:
    """An idle worker looks for jobs from time to time, and no marker wakes it."""

    async def sleep_through(fetcher: Fetcher, _block_s: float) -> None:
        worker: WorkerBase = vars(fetcher)["_worker"]
        await worker.rest(POLL_S)

    damage.replace(Fetcher, "_pop_marker", sleep_through)


@mutant("worker.forgets-delayed", kills=("liveness.delayed",))
def forgets_delayed(damage: Damage) -> None:
    """An idle worker sleeps for `drainDelay`, also when a delayed job is due before."""
    damage.around(Fetcher, "_block_timeout", lambda healthy: lambda fetcher, _until: healthy(fetcher, 0))


@mutant("worker.close-abandons", kills=("liveness.close",))
def close_abandons(damage: Damage) -> None:
    """Closing a worker abandons its running jobs."""

    def broken(close: Function) -> Function:
        async def close_at_once(worker: Worker, _force: bool = False) -> None:
            await close(worker, True)

        return close_at_once

    damage.around(Worker, "close", broken)


@mutant("worker.one-job-too-many", kills=("liveness.concurrency",))
def one_job_too_many(damage: Damage) -> None:
    """A worker runs one job more than `concurrency` says."""

    def concurrency(worker: Worker) -> int:
        return int(vars(worker)["_concurrency"]) + 1

    def set_concurrency(worker: Worker, value: int) -> None:
        vars(worker)["_concurrency"] = value

    damage.replace(Worker, "concurrency", property(concurrency, set_concurrency))


@mutant("worker.runs-twice", kills=("liveness.error-in-job",))
def runs_twice(damage: Damage) -> None:
    """A job whose processor throws is run once more before it fails."""


@mutant("worker.nameless-jobs", kills=("interop.plain",))
def nameless_jobs(damage: Damage) -> None:
    """A worker hands its processor jobs without a name."""

    def broken(take: Function) -> Function:
        def take_nameless(fetcher: Fetcher, fetched: Fetched | None, token: str) -> Job | None:
            job: Job | None = take(fetcher, fetched, token)
            if job is not None:
                job.name = ""
            return job

        return take_nameless

    damage.around(Fetcher, "take", broken)


__all__ = ["asyncio"]
