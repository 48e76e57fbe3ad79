"""Options of jobs that are stored wrongly, or not heeded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.jobs import backoff, options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queues.queue import Queue


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


@mutant("add.attempts-missing", kills=("add.options.attempts-default",))
def attempts_missing(damage: Damage) -> None:
    """Options without `attempts` are stored without."""
    _edit_stored(damage, lambda stored: {name: value for name, value in stored.items() if value or name != "attempts"})


@mutant("add.backoff-bare", kills=("add.options.backoff-number",))
def backoff_bare(damage: Damage) -> None:
    """A number as back-off is stored as a number."""
    damage.replace(backoff, "normalize", lambda given: given)


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
