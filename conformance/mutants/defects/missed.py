"""Holes of the gate: defects that violate a row, and that its scenarios do not notice.

A hole that is closed fails the kill matrix, until the row moves to `kills` and the mutant to the module of its area.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import scripts_move
from conformance.reference_impl.job import Job
from conformance.reference_impl.job_moves import JobMoves
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts_move import MoveScripts

_PAUSE_UNSEEN = (
    'if command[1] == "HMGET" and on(command, "meta") then '
    "local found = send(unpack(command)) found[1] = false return found end"
)
"""Lua: the script takes a paused queue for a running one."""


# Attribution: the finding is there, but speaks against another row.


@mutant("missed.start-uncounted", kills=("lifecycle.claim.oldest-first",), missed=("lifecycle.claim.marks-start",))
def start_uncounted(damage: Damage) -> None:
    """Claiming does not count the attempt."""
    damage.commands("moveToActive", 'if command[1] == "HINCRBY" and command[3] == "ats" then return 1 end')


@mutant("missed.stacktrace-unlimited", warns=("job.hash.stacktrace",), missed=("retry.stacktrace-limit",))
def stacktrace_unlimited(damage: Damage) -> None:
    """`stackTraceLimit` has no effect."""

    def broken(remember: Function) -> Function:
        def remember_all(job: JobMoves, error: BaseException) -> None:
            older = job.stacktrace
            remember(job, error)
            job.stacktrace = [*older, job.stacktrace[-1]]

        return remember_all

    damage.around(JobMoves, "_remember_stack", broken)


@mutant("missed.stacktrace-newest-first", missed=("job.hash.stacktrace",))
def stacktrace_newest_first(damage: Damage) -> None:
    """The newest stack trace is first: all traces are compared as if they were the same text."""

    def broken(remember: Function) -> Function:
        def remember_first(job: JobMoves, error: BaseException) -> None:
            remember(job, error)
            job.stacktrace = job.stacktrace[-1:] + job.stacktrace[:-1]

        return remember_first

    damage.around(JobMoves, "_remember_stack", broken)


# While the queue is paused: only addStandardJob and the promotion by a claim are looked at.


@mutant(
    "missed.paused-moves-wait",
    missed=("stalled.runs-next", "retry.immediately", "retry.manual", "getters.promote", "getters.change-priority"),
)
def paused_moves_wait(damage: Damage) -> None:
    """Recovered, retried, promoted and re-prioritised jobs of a paused queue enter `wait`."""
    for script in ("moveStalledJobsToWait", "retryJob", "reprocessJob", "promote", "changePriority"):
        damage.commands(script, _PAUSE_UNSEEN)


@mutant("missed.paused-marker", missed=("pause.marker",))
def paused_marker(damage: Damage) -> None:
    """Adding a prioritized job to a paused queue sets the marker."""
    damage.commands("addPrioritizedJob", _PAUSE_UNSEEN)


@mutant("missed.resume-prioritized", missed=("pause.marker",))
def resume_prioritized(damage: Damage) -> None:
    """Resuming a queue that has only prioritized jobs wakes nobody."""
    damage.commands("pause", 'if command[1] == "ZCARD" then return 0 end')


@mutant(
    "missed.paused-unread",
    missed=("getters.counts", "getters.state", "getters.counts-per-priority", "getters.drain"),
)
def paused_unread(damage: Damage) -> None:
    """Counts, states and draining leave out the list `paused`."""
    damage.commands("getCounts", 'if command[1] == "LLEN" and on(command, "paused") then return 0 end')
    damage.commands("getStateV2", 'if command[1] == "LPOS" and on(command, "paused") then return false end')
    damage.commands("getCountsPerPriority", 'if command[1] == "HEXISTS" then return 0 end')
    damage.commands("drain", 'if command[1] == "LRANGE" and on(command, "paused") then return {} end')


# Order: the scenario has one job only.


@mutant("missed.wrong-end", missed=("getters.promote", "retry.manual", "getters.change-priority"))
def wrong_end(damage: Damage) -> None:
    """Promoted, by hand retried and re-prioritised jobs enter `wait` at the end where workers take them."""
    damage.commands("promote", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')
    damage.commands("reprocessJob", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')
    damage.commands("changePriority", 'if command[1] == "LPUSH" then command[1] = "RPUSH" end')


# Finishing with fetch-next, which is how every real worker gets most of its jobs.


@mutant("missed.fetch-next-no-priority", missed=("lifecycle.complete.fetches-next", "lifecycle.fail.next-job"))
def fetch_next_no_priority(damage: Damage) -> None:
    """Finishing with fetch-next overlooks prioritized jobs."""
    damage.commands("moveToFinished", 'if command[1] == "ZPOPMIN" then return {} end')


@mutant("missed.fetch-next-no-promotion", missed=("order.due.promoted", "lifecycle.complete.fetches-next"))
def fetch_next_no_promotion(damage: Damage) -> None:
    """Finishing with fetch-next promotes no delayed job."""
    damage.commands("moveToFinished", 'if command[1] == "ZRANGEBYSCORE" then return {} end')


@mutant("missed.fetch-next-unsigned", missed=("job.hash.processed-by",))
def fetch_next_unsigned(damage: Damage) -> None:
    """A named worker does not sign the jobs that it got by finishing another."""
    _edit_finish(damage, name=None)


@mutant("missed.fetch-next-short-lock", missed=("lock.duration", "lifecycle.complete.fetches-next"))
def fetch_next_short_lock(damage: Damage) -> None:
    """The lock of a job that was got by finishing another lives for a second."""
    _edit_finish(damage, lockDuration=1000)


# Traces that are left behind.


@mutant("missed.finished-still-stalled", missed=("stalled.two-checks",))
def finished_still_stalled(damage: Damage) -> None:
    """A job that is finished or retried stays marked as possibly stalled."""
    damage.commands("moveTo*", 'if command[1] == "SREM" then return 0 end')
    damage.commands("retryJob", 'if command[1] == "SREM" then return 0 end')


@mutant("missed.extended-still-stalled", missed=("lock.extend", "lock.extend-many"))
def extended_still_stalled(damage: Damage) -> None:
    """A job whose lock is extended stays marked as possibly stalled."""
    damage.commands("extendLock*", 'if command[1] == "SREM" then return 0 end')


@mutant("missed.counter-kept", missed=("order.prioritized.score",))
def counter_kept(damage: Damage) -> None:
    """The counter of priorities is kept when no prioritized job is left."""
    damage.commands("moveTo*", 'if command[1] == "DEL" and on(command, "pc") then return 0 end')


@mutant("missed.clean-leaves-logs", missed=("getters.clean",))
def clean_leaves_logs(damage: Damage) -> None:
    """Cleaning leaves the logs of the jobs."""
    damage.commands(
        "cleanJobsInSet",
        'if command[1] == "DEL" then for place = #command, 2, -1 do '
        'if string.sub(command[place], -5) == ":logs" then table.remove(command, place) end end end',
    )


# Options given at another place than the scenario gives them.


@mutant("missed.worker-keeps-everything", missed=("lifecycle.remove-on-complete.count", "lifecycle.remove-on-fail"))
def worker_keeps_everything(damage: Damage) -> None:
    """`removeOnComplete` and `removeOnFail` of the worker have no effect."""
    damage.around(
        scripts_move, "keep_jobs", lambda healthy: lambda job_opts, _worker, option: healthy(job_opts, {}, option)
    )


@mutant("missed.failed-ageless", missed=("lifecycle.remove-on-fail",))
def failed_ageless(damage: Damage) -> None:
    """The age in `removeOnFail` has no effect."""

    def broken(keep: Function) -> Function:
        def keep_jobs(job_opts: Mapping[str, Any], worker_opts: Mapping[str, Any], option: str) -> Any:
            chosen: Mapping[str, Any] = keep(job_opts, worker_opts, option)
            return {name: value for name, value in chosen.items() if (option, name) != ("removeOnFail", "age")}

        return keep_jobs

    damage.around(scripts_move, "keep_jobs", broken)


@mutant("missed.bulk-without-defaults", missed=("add.default-options",))
def bulk_without_defaults(damage: Damage) -> None:
    """The queue's default options do not apply to a bulk."""

    async def add_bulk(queue: Queue, jobs: Sequence[Mapping[str, Any]]) -> list[Job]:
        await queue.waitUntilReady()
        return await Job.createBulk(queue, jobs)

    damage.replace(Queue, "addBulk", add_bulk)


def _edit_finish(damage: Damage, **options: Any) -> None:
    damage.around(
        MoveScripts, "_finish_options", lambda healthy: lambda scripts, job: {**healthy(scripts, job), **options}
    )
