"""Queues that have more jobs active than they allow, or fewer than they could."""

from __future__ import annotations

from typing import Final

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.queues.limits import QueueLimits
from conformance.reference_impl.workers.base import WorkerBase
from conformance.reference_impl.workers.fetching import Fetcher
from conformance.reference_impl.workers.stalled import StalledChecker

PATIENCE_S: Final = 60
"""Longer than any scenario waits."""
_READS_META: Final = 'command[1] == "HMGET" and on(command, "meta")'
_NO_LIMIT: Final = f"if {_READS_META} then local found = send(unpack(command)) found[2] = false return found end"
"""Lua: the script takes a queue with a limit for one without."""
_COUNTS_ACTIVE: Final = 'command[1] == "LLEN" and on(command, "active")'


@mutant("concurrency.unlimited", kills=("concurrency.queue-wide", "concurrency.paused"))
def unlimited(damage: Damage) -> None:
    """A claim overlooks the limit of the queue."""
    damage.commands("moveToActive", _NO_LIMIT)


@mutant("concurrency.one-too-many", kills=("concurrency.queue-wide",))
def one_too_many(damage: Damage) -> None:
    """A claim takes one job more than the queue allows."""
    damage.commands("moveToActive", f"if {_COUNTS_ACTIVE} then return send(unpack(command)) - 1 end")


@mutant("concurrency.counts-waiting", kills=("concurrency.queue-wide",))
def counts_waiting(damage: Damage) -> None:
    """Jobs that wait are counted like active ones."""
    damage.commands(
        "moveToActive", f'if {_COUNTS_ACTIVE} then return send(unpack(command)) + send("LLEN", KEYS[1]) end'
    )


@mutant("concurrency.fetches-beyond", kills=("concurrency.fetch-next",))
def fetches_beyond(damage: Damage) -> None:
    """Finishing a job hands out the next although the queue is full."""
    damage.commands("moveToFinished", _NO_LIMIT)


@mutant("concurrency.fetches-nothing", kills=("concurrency.fetch-next",))
def fetches_nothing(damage: Damage) -> None:
    """Finishing a job counts that job as active still, so that the place stays empty."""
    damage.commands("moveToFinished", f"if {_COUNTS_ACTIVE} then return send(unpack(command)) + 1 end")


@mutant("concurrency.wakes-for-nothing", kills=("concurrency.no-marker",))
def wakes_for_nothing(damage: Damage) -> None:
    """Adding a job to a full queue wakes a worker."""
    damage.commands("add*Job", _NO_LIMIT)


@mutant("concurrency.full-promotes-nothing", kills=("concurrency.promotes",))
def full_promotes_nothing(damage: Damage) -> None:
    """Due jobs stay in `delayed` while the queue is full."""
    damage.commands("moveToActive", "if command[1] == 'ZRANGEBYSCORE' and send('LLEN', KEYS[2]) > 0 then return {} end")


@mutant("concurrency.own-name", kills=("concurrency.settings",))
def own_name(damage: Damage) -> None:
    """The limit is stored under a name that no other client knows."""
    damage.around(
        QueueLimits,
        "setGlobalConcurrency",
        lambda _healthy: _set_under_another_name,
    )


async def _set_under_another_name(queue: QueueLimits, concurrency: int) -> None:
    await queue.connection.command("HSET", queue.keys.key("meta"), "maxConcurrency", concurrency)


@mutant("concurrency.never-maxed", kills=("concurrency.is-maxed",))
def never_maxed(damage: Damage) -> None:
    """A full queue is not called so."""
    damage.commands("isMaxed", f"if {_COUNTS_ACTIVE} then return 0 end")


@mutant("concurrency.room-beats-pause", kills=("concurrency.paused",))
def room_beats_pause(damage: Damage) -> None:
    """A queue with a limit hands out jobs while it is paused, as long as there is room."""
    damage.commands(
        "moveToActive",
        f"if {_READS_META} then local found = send(unpack(command)) "
        'if found[2] and found[1] then send("RPOPLPUSH", KEYS[8], KEYS[1]) found[1] = false end return found end',
    )


@mutant("concurrency.refusal-counts", kills=("concurrency.rate-limited",))
def refusal_counts(damage: Damage) -> None:
    """A claim that finds the queue full is counted as a start."""
    damage.commands(
        "moveToActive",
        f"if {_COUNTS_ACTIVE} then local active = send(unpack(command)) "
        'if active > 0 then send("INCR", KEYS[6]) end return active end',
    )


@mutant("concurrency.worker-limits-all", kills=("concurrency.each-worker",))
def worker_limits_all(damage: Damage) -> None:
    """A worker makes its own limit that of the queue."""

    def limiting(start: Function) -> Function:
        async def start_and_limit(checker: StalledChecker) -> None:
            worker: WorkerBase = vars(checker)["_worker"]
            await worker.connection.command("HSET", worker.keys.key("meta"), "concurrency", int(worker.concurrency))
            await start(checker)

        return start_and_limit

    damage.around(StalledChecker, "start", limiting)


@mutant("concurrency.waits-to-be-woken", kills=("concurrency.goes-on",))
def waits_to_be_woken(damage: Damage) -> None:
    """A place that becomes free is not used before a marker tells somebody of it."""
    damage.commands("moveToFinished", f"if {_COUNTS_ACTIVE} then return 1000000 end")
    damage.replace(Fetcher, "_block_timeout", lambda _fetcher, _until: PATIENCE_S)


@mutant("concurrency.handed-out-twice", kills=("performance.many-workers",))
def handed_out_twice(damage: Damage) -> None:
    """Now and then a claimed job stays in `wait`, and the next worker gets it as well."""
    damage.commands(
        "moveToActive",
        'if command[1] == "RPOPLPUSH" then local job = send(unpack(command)) '
        'if job and send("EXISTS", ARGV[1] .. job .. ":lock") == 0 then send("RPUSH", command[2], job) end '
        "return job end",
    )
