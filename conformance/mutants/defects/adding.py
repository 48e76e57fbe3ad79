"""Adding jobs wrongly, with options that are lost, stored wrongly or ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts import add as scripts_add


@mutant("add.negative-delay-delays", kills=("add.delayed.negative",))
def negative_delay_delays(damage: Damage) -> None:
    """Every delay but 0 makes a delayed job, negative ones included."""

    def broken(placement: Function) -> Function:
        def place(job: scripts_add.AddArguments) -> Any:
            delayed = job.options.get("delay", 0) < 0
            return placement(replace(job, options={**job.options, "delay": 1}) if delayed else job)

        return place

    damage.around(scripts_add, "_placement", broken)


@mutant("add.priority-ignored", kills=("add.prioritized.set",))
def priority_ignored(damage: Damage) -> None:
    """Jobs with a priority wait like any other."""

    def broken(placement: Function) -> Function:
        return lambda job: placement(replace(job, options={**job.options, "priority": 0}))

    damage.around(scripts_add, "_placement", broken)


@mutant("add.priority-zero-counts", kills=("add.priority.zero",))
def priority_zero_counts(damage: Damage) -> None:
    """Priority 0 is taken for the most urgent priority."""

    def broken(placement: Function) -> Function:
        def place(job: scripts_add.AddArguments) -> Any:
            given = job.options.get("priority") is not None
            return placement(replace(job, options={**job.options, "priority": 1}) if given else job)

        return place

    damage.around(scripts_add, "_placement", broken)


@mutant("add.priority-unlimited", kills=("add.priority.limit",))
def priority_unlimited(damage: Damage) -> None:
    """There is no highest priority."""
    damage.replace(options, "PRIORITY_LIMIT", 2**40)


@mutant("add.priority-fraction", kills=("add.priority.integer", "add.bulk.all-or-nothing-validation"))
def priority_fraction(damage: Damage) -> None:
    """Priorities with a fraction are taken."""
    damage.replace(options, "_validate_priority", lambda _priority: None)


@mutant("add.custom-id-ignored", kills=("add.custom-id", "add.duplicate.ignored"))
def custom_id_ignored(damage: Damage) -> None:
    """`jobId` has no effect."""
    damage.around(Job, "to_new_job", lambda healthy: lambda job: replace(healthy(job), job_id=None))


@mutant("add.custom-id-numbers", kills=("add.custom-id.integer-refused",))
def custom_id_numbers(damage: Damage) -> None:
    """Integer ids are taken."""

    def broken(validate: Function) -> Function:
        return lambda job_id: None if str(job_id).lstrip("-").isdigit() else validate(job_id)

    damage.around(options, "_validate_job_id", broken)


@mutant("add.custom-id-colons", kills=("add.custom-id.colon-refused",))
def custom_id_colons(damage: Damage) -> None:
    """Ids with colons are taken."""
    damage.around(
        options, "_validate_job_id", lambda healthy: lambda job_id: healthy(job_id.replace(":", "") if job_id else None)
    )


@mutant("add.two-colons-refused", kills=("add.custom-id",))
def two_colons_refused(damage: Damage) -> None:
    """Every id with a colon is refused, also one with two."""

    def broken(validate: Function) -> Function:
        def check(job_id: Any) -> None:
            if ":" in str(job_id or ""):
                raise InvalidArgument("no colons")
            validate(job_id)

        return check

    damage.around(options, "_validate_job_id", broken)


@mutant("add.custom-id-like-marker", kills=("add.custom-id.colon-refused",))
def custom_id_like_marker(damage: Damage) -> None:
    """Ids that workers take for an old marker are taken."""
    damage.replace(options, "validate_explicit_id", lambda _options: None)


@mutant("add.bulk-reversed", kills=("add.bulk.order", "interop.bulk"))
def bulk_reversed(damage: Damage) -> None:
    """A bulk is added last job first."""

    def broken(create: Function) -> Function:
        async def create_bulk(owner: Any, jobs: list[Mapping[str, Any]]) -> list[Job]:
            created: list[Job] = await create(owner, jobs[::-1])
            return created[::-1]

        return create_bulk

    damage.around(Job, "createBulk", broken)


@mutant("add.size-limit-excluded", kills=("add.size-limit",))
def size_limit_excluded(damage: Damage) -> None:
    """Data of exactly the limit is refused."""
    damage.around(options, "_validate_size", lambda healthy: lambda name, limit, text: healthy(name, limit, text + "x"))


@mutant("add.size-limit-ignored", kills=("add.size-limit",))
def size_limit_ignored(damage: Damage) -> None:
    """`sizeLimit` has no effect."""
    damage.replace(options, "_validate_size", lambda _name, _limit, _text: None)


@mutant("add.senseless-options", kills=("add.options-refused",))
def senseless_options(damage: Damage) -> None:
    """A job is added with options that contradict each other or mean nothing."""
    damage.replace(options, "_validate_exclusive", lambda _options: None)
    damage.replace(options, "_validate_jitter", lambda _chosen: None)


@mutant("add.defaults-win", kills=("add.default-options",))
def defaults_win(damage: Damage) -> None:
    """The queue's default options overrule the job's own."""

    def broken(add: Function) -> Function:
        async def add_job(queue: Queue, name: str, data: Any, opts: Mapping[str, Any] | None = None) -> Job:
            job: Job = await add(queue, name, data, {**(opts or {}), **(queue.opts.get("defaultJobOptions") or {})})
            return job

        return add_job

    damage.around(Queue, "add", broken)


@mutant("add.defaults-ignored", kills=("add.default-options",))
def defaults_ignored(damage: Damage) -> None:
    """The queue's default options have no effect."""
    damage.replace(Queue, "_default_options", lambda _queue: {})


@mutant("add.attempts-missing", kills=(), warns=("add.options.attempts-default",))
def attempts_missing(damage: Damage) -> None:
    """Options without `attempts` are stored without."""
    _edit_stored(damage, lambda stored: {name: value for name, value in stored.items() if value or name != "attempts"})


@mutant("add.one-attempt", kills=("add.options.attempts-default",))
def one_attempt(damage: Damage) -> None:
    """A job is stored with one attempt, however many it is given."""
    _edit_stored(damage, lambda stored: {**stored, "attempts": 1} if stored.get("attempts") else stored)


@mutant("add.backoff-bare", kills=("add.options.backoff-number",))
def backoff_bare(damage: Damage) -> None:
    """A number as back-off is stored as a number."""
    damage.replace(options, "normalize_backoff", lambda given: given)


@mutant("add.long-names", kills=("add.options.short-names",))
def long_names(damage: Damage) -> None:
    """Options are stored under their long names."""
    damage.replace(options, "encode", dict)


@mutant("add.unknown-options-dropped", kills=("add.options.kept",))
def unknown_options_dropped(damage: Damage) -> None:
    """Options that the client does not know are not stored."""
    _edit_stored(damage, lambda stored: {name: value for name, value in stored.items() if name != "unknownOption"})


@mutant("add.options-as-text", kills=("add.options.kept",))
def options_as_text(damage: Damage) -> None:
    """Numbers among the options are stored as texts."""
    _edit_stored(damage, lambda stored: {**stored, **{k: str(v) for k, v in stored.items() if k == "stackTraceLimit"}})


def _edit_stored(damage: Damage, edit: Function) -> None:
    damage.around(options, "encode", lambda healthy: lambda given: edit(healthy(given)))
