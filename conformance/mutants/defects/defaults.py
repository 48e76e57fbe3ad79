"""Workers whose options have other defaults than Node's."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage
from conformance.mutants.registry import mutant
from conformance.reference_impl.workers import worker as worker_module
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.running_worker import DEFAULT_OPTIONS
from conformance.reference_impl.workers.worker import Worker


def _have(damage: Damage, **options: Any) -> None:
    """Let workers have other options than Node's where their user gives none."""
    damage.replace(worker_module, "DEFAULT_OPTIONS", {**DEFAULT_OPTIONS, **options})


@mutant("default.short-locks", kills=("lock.duration.default",))
def short_locks(damage: Damage) -> None:
    """Locks live for 10 s."""
    _have(damage, lockDuration=10_000)


@mutant("default.rare-checks", kills=("stalled.interval.default",))
def rare_checks(damage: Damage) -> None:
    """A stalled check counts for two minutes."""
    _have(damage, stalledInterval=120_000)


@mutant("default.no-forgiveness", kills=("stalled.limit.default",))
def no_forgiveness(damage: Damage) -> None:
    """The first stall is one too many."""
    _have(damage, maxStalledCount=0)


@mutant("default.two-at-once", kills=("liveness.concurrency.default",))
def two_at_once(damage: Damage) -> None:
    """A worker runs two jobs at a time."""
    _have(damage, concurrency=2)


@mutant("default.never-blocks", kills=("liveness.idle-wait.default", "liveness.sleeps"))
def never_blocks(damage: Damage) -> None:
    """An idle worker looks for jobs ten times a second, and waits for no marker."""

    async def rest(fetcher: JobFetcher, _block_s: float) -> None:
        worker: Worker = vars(fetcher)["_worker"]
        await worker.rest(0.1)

    damage.replace(JobFetcher, "_pop_marker", rest)


@mutant("default.keeps-nothing", kills=("retention.default",))
def keeps_nothing(damage: Damage) -> None:
    """Completed jobs are removed unless an option keeps them."""
    _have(damage, removeOnComplete={"count": 0})
