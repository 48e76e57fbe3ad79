"""Rate limits and concurrency that are not kept, kept too well, or counted wrongly."""

from __future__ import annotations

from typing import Any, Final

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.workers.fetching import JobFetcher
from conformance.reference_impl.workers.locks import StalledChecker
from conformance.reference_impl.workers.worker import Worker

PATIENCE_S: Final = 60
"""Longer than any scenario waits."""
_COUNTS_ACTIVE: Final = 'command[1] == "LLEN" and on(command, "active")'


@mutant("ratelimit.not-taken-away", kills=("ratelimit.settings",))
def not_taken_away(damage: Damage) -> None:
    """A limit that was removed is still there."""

    async def nothing(_queue: Queue) -> None:
        return None

    damage.replace(Queue, "removeGlobalRateLimit", nothing)


@mutant("ratelimit.key-stays", kills=("ratelimit.remove-key",))
def key_stays(damage: Damage) -> None:
    """Removing the counter leaves it where it is."""

    async def keep(_queue: Queue) -> int:
        return 0

    damage.replace(Queue, "removeRateLimitKey", keep)


@mutant("ratelimit.ttl-ignores-the-limit", kills=("ratelimit.ttl",))
def ttl_ignores_the_limit(damage: Damage) -> None:
    """The time to live of the counter is answered, also below the limit."""
    damage.argument("getRateLimitTtl", 0, lambda _most: "1")


@mutant("ratelimit.sleeps-on", kills=("ratelimit.goes-on",))
def sleeps_on(damage: Damage) -> None:
    """A limited worker sleeps a hundred times too long."""

    def longer(healthy: Function) -> Function:
        def limit_for(fetcher: JobFetcher, duration_ms: float) -> Any:
            return healthy(fetcher, duration_ms * 100)

        return limit_for

    damage.around(JobFetcher, "limit_for", longer)


@mutant("concurrency.own-name", kills=("concurrency.settings",))
def own_name(damage: Damage) -> None:
    """The limit is stored under a name that no other client knows."""
    damage.around(
        Queue,
        "setGlobalConcurrency",
        lambda _healthy: _set_under_another_name,
    )


async def _set_under_another_name(queue: Queue, concurrency: int) -> None:
    await queue.connection.command("HSET", queue.keys.key("meta"), "maxConcurrency", concurrency)


@mutant("concurrency.worker-limits-all", kills=("concurrency.each-worker",))
def worker_limits_all(damage: Damage) -> None:
    """A worker makes its own limit that of the queue."""

    def limiting(start: Function) -> Function:
        async def start_and_limit(checker: StalledChecker) -> None:
            worker: Worker = vars(checker)["_worker"]
            await worker.connection.command("HSET", worker.keys.key("meta"), "concurrency", int(worker.concurrency))
            damage.witness.note()
            await start(checker)

        return start_and_limit

    damage.around(StalledChecker, "start", limiting)


@mutant("concurrency.waits-to-be-woken", kills=("concurrency.goes-on",))
def waits_to_be_woken(damage: Damage) -> None:
    """A free place is not used before a marker wakes a worker."""
    damage.commands("moveToFinished", f"if {_COUNTS_ACTIVE} then return 1000000 end")
    damage.replace(JobFetcher, "_block_timeout", lambda _fetcher, _until: PATIENCE_S)


@mutant("ratelimit.worker-cannot-say", kills=("ratelimit.by-hand",), by=("rate-limits/a_worker_may_set_the_limit_too",))
def worker_cannot_say(damage: Damage) -> None:
    """`rateLimit` of a worker has no effect."""

    async def keep(_worker: Worker, _expire_ms: int) -> None:
        return None

    damage.replace(Worker, "rateLimit", keep)
