"""Claiming, finishing, keeping and removing wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.jobs.record import JobOwner
from conformance.reference_impl.scripts import move as scripts_move

_PAUSE_UNSEEN = (
    'if command[1] == "HMGET" and on(command, "meta") then '
    "local found = send(unpack(command)) found[1] = false return found end"
)
"""Lua: the script takes a paused queue for a running one."""


@mutant("claim.newest-first", kills=("lifecycle.claim.oldest-first",))
def newest_first(damage: Damage) -> None:
    """A worker takes the job that was added last."""
    damage.commands(
        "moveToActive",
        'if command[1] == "RPOPLPUSH" then return send("LMOVE", command[2], command[3], "LEFT", "LEFT") end',
    )


@mutant("claim.least-urgent-first", kills=("lifecycle.claim.waiting-before-prioritized", "interop.prioritized"))
def least_urgent_first(damage: Damage) -> None:
    """Of the prioritized jobs, the one with the largest number runs first."""
    damage.commands("moveTo*", 'if command[1] == "ZPOPMIN" then command[1] = "ZPOPMAX" end')


@mutant("claim.early", kills=("lifecycle.claim.nothing", "order.due.promoted"))
def early(damage: Damage) -> None:
    """A claim promotes all delayed jobs, due or not."""
    damage.commands("moveToActive", 'if command[1] == "ZRANGEBYSCORE" then command[4] = "+inf" end')


@mutant("claim.pause-ignored", kills=("lifecycle.claim.paused", "pause.delayed-promoted"))
def pause_ignored(damage: Damage) -> None:
    """A worker does not see that the queue is paused."""
    damage.commands("moveToActive", _PAUSE_UNSEEN)


@mutant("claim.without-lock", kills=("lock.token",))
def without_lock(damage: Damage) -> None:
    """A claim sets no lock."""
    damage.commands("moveToActive", 'if command[1] == "SET" and on(command, "lock") then return 0 end')


@mutant("claim.locked-afterwards", kills=("lifecycle.claim.atomic",))
def locked_afterwards(damage: Damage) -> None:
    """A claim takes the job, and locks it with a second command."""
    without_lock(damage)

    def broken(fetch: Function) -> Function:
        async def fetch_and_lock(scripts: scripts_move.MoveScripts, token: str) -> scripts_move.FetchReply:
            fetched: scripts_move.FetchReply = await fetch(scripts, token)
            if fetched.job_id is not None:
                owner: JobOwner = vars(scripts)["_owner"]
                key = owner.keys.key(f"{fetched.job_id}:lock")
                await owner.connection.command("SET", key, token, "PX", owner.opts["lockDuration"])
            return fetched

        return fetch_and_lock

    damage.around(scripts_move.MoveScripts, "move_to_active", broken)


@mutant("claim.start-uncounted", kills=("lifecycle.claim.marks-start",))
def start_uncounted(damage: Damage) -> None:
    """A claim does not count the attempt."""
    damage.commands("moveToActive", 'if command[1] == "HINCRBY" and command[3] == "ats" then return 1 end')


@mutant("claim.start-untimed", kills=("lifecycle.claim.marks-start",))
def start_untimed(damage: Damage) -> None:
    """A claim does not note when the job started."""
    damage.commands(
        "moveToActive",
        'if at(command, "processedOn") then drop(command, "processedOn") if #command == 2 then return 0 end end',
    )


@mutant("complete.needs-metrics", kills=("lifecycle.complete.moves",))
def needs_metrics(damage: Damage) -> None:
    """A worker without the option `metrics` can finish no job, because the script meets nothing in its place."""
    damage.commands(
        "moveToFinished",
        'if cmsgpack.unpack(ARGV[8])["maxMetricsSize"] == "" then error("maxDataPoints is nil") end',
    )


@mutant("complete.stays-active", kills=("lifecycle.complete.moves",))
def stays_active(damage: Damage) -> None:
    """A completed job is still in `active`."""
    damage.commands("moveToFinished", 'if command[1] == "LREM" and on(command, "active") then return 1 end')


@mutant("complete.nothing-refused", kills=("lifecycle.complete.value",))
def nothing_refused(damage: Damage) -> None:
    """A job cannot complete without a result."""

    def broken(complete: Function) -> Function:
        async def move_to_completed(job: Job, value: Any, token: str, fetch_next: bool = True) -> Any:
            if getattr(value, "text", value) in ("null", None):
                raise InvalidArgument("a result is needed")
            return await complete(job, value, token, fetch_next)

        return move_to_completed

    damage.around(Job, "moveToCompleted", broken)


@mutant("complete.never-fetches", kills=("lifecycle.complete.fetches-next", "lifecycle.fail.next-job"))
def never_fetches(damage: Damage) -> None:
    """Finishing never claims the next job."""
    damage.argument("moveToFinished", 5, lambda _fetch: 0)


@mutant("complete.anything", kills=("lifecycle.complete.not-active",))
def anything(damage: Damage) -> None:
    """A job can be completed in any state, if only there is a lock."""
    damage.commands(
        "moveToFinished", 'if command[1] == "LREM" and on(command, "active") then send(unpack(command)) return 1 end'
    )


@mutant("complete.ghost", kills=("lifecycle.complete.missing",))
def complete_ghost(damage: Damage) -> None:
    """A job without hash can be completed."""
    damage.commands("moveToFinished", 'if command[1] == "EXISTS" and command[2] == KEYS[12] then return 1 end')


@mutant("fail.into-completed", kills=("lifecycle.fail.moves",))
def into_completed(damage: Damage) -> None:
    """A failed job is filed among the completed ones."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "ZADD" and on(command, "failed") then '
        'command[2] = string.gsub(command[2], "failed$", "completed") end',
    )


@mutant("fail.last-reason-only", kills=("retry.succeeds-later",))
def fails_again(damage: Damage) -> None:
    """A job that failed once is filed among the failed ones, also when it completes."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "ZADD" and on(command, "completed") and send("HEXISTS", KEYS[12], "failedReason") == 1 then '
        'command[2] = string.gsub(command[2], "completed$", "failed") end',
    )


@mutant(
    "keep.everything",
    kills=(
        "lifecycle.remove-on-complete.all",
        "lifecycle.remove-on-complete.count",
        "lifecycle.remove-on-complete.age",
        "lifecycle.remove-on-fail",
    ),
)
def keep_everything(damage: Damage) -> None:
    """`removeOnComplete` and `removeOnFail` have no effect."""
    damage.replace(scripts_move, "keep_jobs", lambda *_: {"count": -1})


@mutant("keep.one-more", kills=("lifecycle.remove-on-complete.count",))
def one_more(damage: Damage) -> None:
    """One finished job too many is kept."""
    _edit_keep(damage, lambda keep: {**keep, "count": keep["count"] + 1} if keep.get("count", 0) > 0 else keep)


@mutant("keep.age-in-ms", kills=("lifecycle.remove-on-complete.age",))
def age_in_ms(damage: Damage) -> None:
    """The age is handed on in ms, where seconds are asked for."""
    _edit_keep(damage, lambda keep: {**keep, "age": keep["age"] * 1000} if "age" in keep else keep)


@mutant("keep.age-of-ms", kills=("lifecycle.remove-on-complete.age",))
def age_of_ms(damage: Damage) -> None:
    """The age of the option is taken as ms."""
    _edit_keep(damage, lambda keep: {**keep, "age": keep["age"] / 1000} if "age" in keep else keep)


@mutant("keep.failed-like-completed", kills=("lifecycle.remove-on-fail",))
def failed_like_completed(damage: Damage) -> None:
    """Failed jobs are kept by `removeOnComplete`."""

    def broken(keep: Function) -> Function:
        def keep_jobs(job_opts: Mapping[str, Any], worker_opts: Mapping[str, Any], _option: str) -> Any:
            return keep(job_opts, worker_opts, "removeOnComplete")

        return keep_jobs

    damage.around(scripts_move, "keep_jobs", broken)


@mutant("keep.worker-ignored", kills=("lifecycle.worker-keeps",))
def worker_ignored(damage: Damage) -> None:
    """`removeOnComplete` and `removeOnFail` of the worker have no effect."""
    damage.around(
        scripts_move, "keep_jobs", lambda healthy: lambda job_opts, _worker, option: healthy(job_opts, {}, option)
    )


@mutant("keep.worker-wins", kills=("lifecycle.worker-keeps",))
def worker_wins(damage: Damage) -> None:
    """The worker's rules overrule the job's own."""

    def broken(keep: Function) -> Function:
        def keep_jobs(job_opts: Mapping[str, Any], worker_opts: Mapping[str, Any], option: str) -> Any:
            return keep({} if option in worker_opts else job_opts, worker_opts, option)

        return keep_jobs

    damage.around(scripts_move, "keep_jobs", broken)


@mutant("keep.failed-ageless", kills=("lifecycle.remove-on-fail",))
def failed_ageless(damage: Damage) -> None:
    """The age in `removeOnFail` has no effect."""

    def broken(keep: Function) -> Function:
        def keep_jobs(job_opts: Mapping[str, Any], worker_opts: Mapping[str, Any], option: str) -> Any:
            chosen: Mapping[str, Any] = keep(job_opts, worker_opts, option)
            return {name: value for name, value in chosen.items() if (option, name) != ("removeOnFail", "age")}

        return keep_jobs

    damage.around(scripts_move, "keep_jobs", broken)


@mutant("keep.for-an-hour", kills=("lifecycle.no-expiry",))
def for_an_hour(damage: Damage) -> None:
    """Finished jobs expire after an hour."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "XADD" and (event(command) == "completed" or event(command) == "failed") then '
        'send("EXPIRE", KEYS[12], 3600) end',
    )


@mutant("fail.stays-active", kills=("lifecycle.one-state",))
def fail_stays_active(damage: Damage) -> None:
    """A job that is put off stays among the active ones."""
    damage.commands("moveToDelayed", 'if command[1] == "LREM" and on(command, "active") then return 1 end')


@mutant(
    "keep.logs-left", kills=("lifecycle.remove-on-complete.all", "lifecycle.remove.waiting", "lifecycle.leaves-nothing")
)
def logs_left(damage: Damage) -> None:
    """The log of a removed job is left."""
    damage.commands(
        "*",
        'if command[1] == "DEL" then for place = #command, 2, -1 do '
        'if string.sub(command[place], -5) == ":logs" then table.remove(command, place) end end end',
    )


@mutant("remove.locked-too", kills=("lifecycle.remove.locked",))
def locked_too(damage: Damage) -> None:
    """A job that a worker holds can be removed."""
    damage.commands("removeJob", 'if command[1] == "GET" and on(command, "lock") then return false end')


@mutant("remove.stays-listed", kills=("lifecycle.remove.waiting",))
def stays_listed(damage: Damage) -> None:
    """A removed job stays in its container."""
    damage.commands("removeJob", 'if command[1] == "LREM" or command[1] == "ZREM" then return 1 end')


@mutant("finish.pause-ignored", kills=("pause.running-goes-on",))
def finish_pause_ignored(damage: Damage) -> None:
    """Finishing with fetch-next takes a parked job of a paused queue."""
    damage.commands(
        "moveToFinished",
        _PAUSE_UNSEEN + ' if command[1] == "RPOPLPUSH" and send("EXISTS", KEYS[8]) == 1 then command[2] = KEYS[8] end',
    )


def _edit_keep(damage: Damage, edit: Function) -> None:
    damage.around(scripts_move, "keep_jobs", lambda healthy: lambda *args: edit(healthy(*args)))
