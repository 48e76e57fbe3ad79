"""Schedulers that are early, late, forgetful or endless, or that are changed, removed, listed or refused wrongly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import job_scheduler, queue_producer, recurrence, repeat
from conformance.reference_impl.clock import Clock
from conformance.reference_impl.connection.connection import text
from conformance.reference_impl.errors import BullMQError
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.recurrence import RepeatMapping, SchedulerRecord
from conformance.reference_impl.repeat import Repeat
from conformance.reference_impl.scripts.add import SchedulerIteration, ScheduleScripts
from conformance.reference_impl.scripts.manage import JobScripts
from conformance.reference_impl.workers.fetching import ScheduleContinuation
from conformance.reference_impl.workers.worker import Worker


@mutant("scheduler.start-ignored", kills=("scheduler.every.start",))
def start_ignored(damage: Damage) -> None:
    """`startDate` has no effect on intervals."""
    damage.around(
        job_scheduler, "_schedule", lambda healthy: lambda given, name: {**healthy(given, name), "startDate": None}
    )


@mutant("scheduler.zone-ignored", kills=("scheduler.pattern",))
def zone_ignored(damage: Damage) -> None:
    """Patterns are read in UTC; `tz` has no effect."""
    _edit_pattern(damage, lambda given: {**given, "tz": "UTC"})


@mutant("scheduler.pattern-at-once", kills=("scheduler.pattern",))
def pattern_at_once(damage: Damage) -> None:
    """A pattern is due at once, and not when it says."""
    _edit_pattern(damage, lambda given: {**given, "immediately": True})


@mutant("scheduler.immediately-ignored", kills=("scheduler.pattern.immediately",))
def immediately_ignored(damage: Damage) -> None:
    """`immediately` has no effect."""
    _edit_pattern(damage, lambda given: {**given, "immediately": False})


@mutant("scheduler.one-job-only", kills=("scheduler.next",))
def one_job_only(damage: Damage) -> None:
    """Fetching a scheduler's job makes no next one."""

    async def nothing(_schedules: ScheduleContinuation, _job: Any) -> bool:
        return True

    damage.replace(ScheduleContinuation, "continue_from", nothing)


@mutant("scheduler.colons-end", kills=("scheduler.next",), by=("scheduler-jobs-ahead/an_id_with_many_colons_goes_on",))
def colons_end(damage: Damage) -> None:
    """A scheduler whose id has four colons or more makes one job only."""

    def broken(go_on: Function) -> Function:
        async def continue_some(schedules: ScheduleContinuation, job: Job) -> bool:
            return (job.repeatJobKey or "").count(":") >= 4 or bool(await go_on(schedules, job))

        return continue_some

    damage.around(ScheduleContinuation, "continue_from", broken)


@mutant("scheduler.next-after-success", kills=("scheduler.next",), by=("scheduler/fetching_makes_the_next_job",))
def next_after_success(damage: Damage) -> None:
    """The next job is made when the one before is completed, so a failed one ends its scheduler."""
    fetched: dict[str, ScheduleContinuation] = {}
    go_on = ScheduleContinuation.continue_from

    async def remember(schedules: ScheduleContinuation, job: Job) -> bool:
        fetched[job.known_id] = schedules
        return True

    def broken(complete: Function) -> Function:
        async def complete_and_continue(job: Job, value: Any, token: str, fetchNext: bool = True) -> Any:  # noqa: N803
            if schedules := fetched.pop(job.known_id, None):
                await go_on(schedules, job)
            return await complete(job, value, token, fetchNext)

        return complete_and_continue

    damage.replace(ScheduleContinuation, "continue_from", remember)
    damage.around(Job, "moveToCompleted", broken)


@mutant(
    "scheduler.offset-as-text-fails",
    kills=("scheduler.every.first",),
    by=("scheduler-jobs-ahead/an_offset_as_text_is_accepted",),
)
def offset_as_text_fails(damage: Damage) -> None:
    """An upsert whose offset is a text ends with an error of the script."""

    def broken(upsert: Function) -> Function:
        async def upsert_scheduler(
            queue: Queue, scheduler: str, given: RepeatMapping, template: Mapping[str, Any] | None = None
        ) -> Any:
            if isinstance(given.get("offset"), str):
                raise BullMQError("attempt to compare number with string")
            return await upsert(queue, scheduler, given, template)

        return upsert_scheduler

    damage.around(Queue, "upsertJobScheduler", broken)


@mutant("scheduler.not-put-off", kills=("scheduler.next.fails",))
def not_put_off(damage: Damage) -> None:
    """A job whose successor cannot be made is left where it is."""

    async def nothing(_schedules: ScheduleContinuation, _job: Any) -> None:
        damage.witness.note()

    damage.replace(ScheduleContinuation, "_put_off", nothing)


@mutant("scheduler.returned-without-options", kills=("getters.job.options",))
def returned_without_options(damage: Damage) -> None:
    """The job that an upsert returns has no options."""

    def broken(upsert: Function) -> Function:
        async def upsert_without_options(*arguments: Any, **named: Any) -> Any:
            job = await upsert(*arguments, **named)
            if job is not None:
                job.opts = {}
            return job

        return upsert_without_options

    damage.around(Queue, "upsertJobScheduler", broken)


@mutant("scheduler.stops-its-worker", kills=("scheduler.next.worker-goes-on",))
def stops_its_worker(damage: Damage) -> None:
    """A worker that could not make a successor takes no other job."""

    def broken(put_off: Function) -> Function:
        async def put_off_and_stop(schedules: ScheduleContinuation, job: Any) -> None:
            worker: Worker = vars(schedules)["_worker"]
            worker.lifecycle.apply("pause")
            damage.witness.note()
            await put_off(schedules, job)

        return put_off_and_stop

    damage.around(ScheduleContinuation, "_put_off", broken)


@mutant("scheduler.successor-twice", kills=("scheduler.next.once",))
def successor_twice(damage: Damage) -> None:
    """Every fetch of a scheduler's job makes one more job, a retry as well."""

    def broken(update: Function) -> Function:
        async def update_scheduler(scripts: ScheduleScripts, following: SchedulerIteration) -> str | None:
            key = f"repeat:{following.scheduler_id}"
            runner, keys = vars(scripts)["_runner"], vars(scripts)["_owner"].keys
            due = await runner.connection.command("ZSCORE", keys.key("repeat"), following.scheduler_id)
            current = following.producer if due is None else f"{key}:{text(due)}"
            made: str | None = await update(scripts, dataclasses.replace(following, producer=current))
            return made

        return update_scheduler

    damage.around(ScheduleScripts, "update_job_scheduler", broken)


@mutant("scheduler.unlimited", kills=("scheduler.limit",))
def unlimited(damage: Damage) -> None:
    """`limit` has no effect."""
    _edit_count(damage, lambda given: {name: value for name, value in given.items() if name != "limit"})


@mutant("scheduler.endless", kills=("scheduler.end",))
def endless(damage: Damage) -> None:
    """`endDate` has no effect."""
    damage.replace(job_scheduler, "is_over", lambda _repeat, _now: False)
    _edit_pattern(damage, lambda given: {**given, "endDate": None})


@mutant("scheduler.past-end-accepted", kills=("scheduler.end",))
def past_end_accepted(damage: Damage) -> None:
    """An endDate that has passed is accepted."""
    damage.replace(queue_producer, "refuse_past_end", lambda _repeat, _now: None)


@mutant("scheduler.template-options-lost", kills=("scheduler.template",))
def template_options_lost(damage: Damage) -> None:
    """The options of a template have no effect."""
    _edit_template(damage, lambda template: {**template, "opts": {}})


@mutant("scheduler.template-data-lost", kills=("scheduler.template",))
def template_data_lost(damage: Damage) -> None:
    """The data of a template has no effect."""
    _edit_template(damage, lambda template: {**template, "data": {}})


def _edit_pattern(damage: Damage, edit: Function) -> None:
    def broken(reckon: Function) -> Function:
        def next_by_pattern(after: int, given: RepeatMapping, clock: Clock) -> int | None:
            due: int | None = reckon(after, edit(given), clock)
            return due

        return next_by_pattern

    damage.around(recurrence, "next_by_pattern", broken)


def _edit_count(damage: Damage, edit: Function) -> None:
    damage.around(job_scheduler, "next_count", lambda healthy: lambda given: healthy(edit(given)))


def _edit_template(damage: Damage, edit: Function) -> None:
    def broken(upsert: Function) -> Function:
        async def upsert_scheduler(
            queue: Queue, scheduler: str, given: RepeatMapping, template: Mapping[str, Any] | None = None
        ) -> Any:
            return await upsert(queue, scheduler, given, edit(template or {}))

        return upsert_scheduler

    damage.around(Queue, "upsertJobScheduler", broken)


@mutant("late.no-seconds", kills=("scheduler.pattern",))
def no_seconds(damage: Damage) -> None:
    """The seconds of a cron pattern have no effect."""

    def broken(reckon: Function) -> Function:
        def next_by_pattern(after: int, repeat: RepeatMapping, clock: Clock) -> int | None:
            due: int | None = reckon(after, {**repeat, "pattern": " ".join(repeat["pattern"].split()[-5:])}, clock)
            return due

        return next_by_pattern

    damage.around(recurrence, "next_by_pattern", broken)


@mutant("scheduler.anything-goes", kills=("scheduler.arguments",))
def anything_goes(damage: Damage) -> None:
    """Options that exclude each other are taken."""
    damage.replace(job_scheduler, "_validate", lambda _repeat: None)


@mutant("scheduler.legacy-ends", kills=("scheduler.legacy-repeat", "scheduler.legacy-repeat.ahead"))
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


@mutant(
    "scheduler.former-jobs-stay",
    kills=("scheduler.job-protected",),
    by=("scheduler-changes/a_former_job_can_be_removed",),
)
def former_jobs_stay(damage: Damage) -> None:
    """No job that a scheduler has ever made can be removed."""

    def broken(remove: Function) -> Function:
        async def remove_others(scripts: JobScripts, job_id: str, *, remove_children: bool) -> bool:
            is_made = job_id.startswith("repeat:")
            return not is_made and bool(await remove(scripts, job_id, remove_children=remove_children))

        return remove_others

    damage.around(JobScripts, "remove_job", broken)


@mutant(
    "scheduler.nobody-has-a-record",
    kills=("scheduler.list",),
    by=("scheduler-changes/a_scheduler_that_does_not_exist_cannot_be_read",),
)
def missing_has_a_record(damage: Damage) -> None:
    """A scheduler that does not exist is read as one that never runs."""

    def broken(read: Function) -> Function:
        async def get_job_scheduler(queue: Queue, scheduler_id: str) -> Any:
            return await read(queue, scheduler_id) or SchedulerRecord(key=scheduler_id, next=0)

        return get_job_scheduler

    damage.around(Queue, "getJobScheduler", broken)
