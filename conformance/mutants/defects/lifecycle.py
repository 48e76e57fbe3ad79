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


@mutant("claim.locked-afterwards", kills=("lifecycle.claim.atomic",))
def locked_afterwards(damage: Damage) -> None:
    """A claim takes the job, and locks it with a second command."""
    damage.commands("moveToActive", 'if command[1] == "SET" and on(command, "lock") then return 0 end')

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


@mutant("keep.one-more", kills=("lifecycle.remove-on-complete.count",))
def one_more(damage: Damage) -> None:
    """One finished job too many is kept."""
    _edit_keep(damage, lambda keep: {**keep, "count": keep["count"] + 1} if keep.get("count", 0) > 0 else keep)


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


def _edit_keep(damage: Damage, edit: Function) -> None:
    damage.around(scripts_move, "keep_jobs", lambda healthy: lambda *args: edit(healthy(*args)))
