"""Schedulers that are changed, removed, listed or refused wrongly, and those of the older option `repeat`."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.schedules import job_scheduler, repeat
from conformance.reference_impl.schedules.job_scheduler import JobScheduler
from conformance.reference_impl.schedules.repeat import Repeat

_NOT_A_SCHEDULERS_JOB = 'if command[1] == "HGET" and command[3] == "rjk" then return false end'


@mutant("scheduler.upsert-adds", kills=("scheduler.upsert.pending",))
def upsert_adds(damage: Damage) -> None:
    """An upsert leaves the pending job of the old template."""
    damage.commands(
        "addJobScheduler",
        'if command[1] == "EXISTS" and not memory.asked then memory.asked = true return 0 end',
    )


@mutant("scheduler.upsert-tells", kills=("scheduler.upsert.pending",))
def upsert_tells(damage: Damage) -> None:
    """An upsert leaves event `removed` of the job that it replaces."""
    damage.commands(
        "addJobScheduler",
        'if command[1] == "ZREM" and on(command, "delayed") then '
        'send("XADD", KEYS[9], "*", "event", "removed", "jobId", command[3], "prev", "delayed") end',
    )


@mutant("scheduler.removal-leaves-job", kills=("scheduler.remove",))
def removal_leaves_job(damage: Damage) -> None:
    """The delayed job of a removed scheduler still runs."""
    damage.commands("removeJobScheduler", 'if command[1] == "ZREM" and on(command, "delayed") then return 0 end')


@mutant("scheduler.removal-leaves-record", kills=("scheduler.remove",))
def removal_leaves_record(damage: Damage) -> None:
    """The record of a removed scheduler stays."""
    damage.commands(
        "removeJobScheduler", 'if command[1] == "DEL" and command[2] == KEYS[1] .. ":" .. ARGV[1] then return 1 end'
    )


@mutant("scheduler.job-removable", kills=("scheduler.job-protected",))
def job_removable(damage: Damage) -> None:
    """The current job of a scheduler can be removed by itself."""
    damage.commands("removeJob", _NOT_A_SCHEDULERS_JOB)


@mutant("scheduler.job-drained", kills=("scheduler.job-protected",))
def job_drained(damage: Damage) -> None:
    """Draining takes the current jobs of schedulers too."""
    damage.commands("drain", 'if command[1] == "ZRANGE" and on(command, "repeat") then return {} end')


@mutant("scheduler.job-cleaned", kills=("scheduler.job-protected",))
def job_cleaned(damage: Damage) -> None:
    """Cleaning takes the current jobs of schedulers too."""
    damage.commands("cleanJobsInSet", _NOT_A_SCHEDULERS_JOB)


@mutant("scheduler.list-turned", kills=("scheduler.list",))
def list_turned(damage: Damage) -> None:
    """Schedulers are listed in the other order."""

    def broken(read: Function) -> Function:
        async def get_schedulers(schedulers: JobScheduler, start: int = 0, end: int = -1, asc: bool = False) -> Any:
            return await read(schedulers, start, end, not asc)

        return get_schedulers

    damage.around(JobScheduler, "getJobSchedulers", broken)


@mutant("scheduler.miscounted", kills=("scheduler.list",))
def miscounted(damage: Damage) -> None:
    """Schedulers are not counted."""

    async def none(_schedulers: JobScheduler) -> int:
        return 0

    damage.replace(JobScheduler, "getSchedulersCount", none)


@mutant("scheduler.anything-goes", kills=("scheduler.arguments",))
def anything_goes(damage: Damage) -> None:
    """Options that exclude each other are taken."""
    damage.replace(job_scheduler, "_validate", lambda _repeat: None)


@mutant("scheduler.collision-unseen", kills=("scheduler.collision",))
def collision_unseen(damage: Damage) -> None:
    """A job that has ended is overwritten by the next one of the same time."""
    damage.commands(
        "addJobScheduler",
        'if command[1] == "EXISTS" then return 0 end',
    )


@mutant("scheduler.legacy-ends", kills=("scheduler.legacy-repeat",))
def legacy_ends(damage: Damage) -> None:
    """The option `repeat` makes one job only."""
    damage.around(repeat, "next_count", lambda healthy: lambda given: None if given.get("count") else healthy(given))
    damage.around(
        job_scheduler, "next_count", lambda healthy: lambda given: None if given.get("count") else healthy(given)
    )


@mutant("scheduler.legacy-key", kills=("scheduler.legacy-repeat",))
def legacy_key(damage: Damage) -> None:
    """The key of the option `repeat` is made in another way."""
    damage.around(Repeat, "_hash", lambda healthy: lambda made, given: healthy(made, f"{given}:"))
