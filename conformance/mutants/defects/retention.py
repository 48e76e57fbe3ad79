"""Finished jobs, logs and events that are kept too long or not long enough, and metrics that count wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import META
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.scripts import move as scripts_move
from conformance.reference_impl.scripts.manage import ReadScripts
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.scripts.runner import EvalCommand

KeepOption = Mapping[str, Any]


def _edit_keep(damage: Damage, edit: Callable[[KeepOption], KeepOption]) -> None:
    """Change what the finishing script is given about the jobs to keep."""

    def broken(keep: Function) -> Function:
        def keep_jobs(job_opts: KeepOption, worker_opts: KeepOption, option: str) -> KeepOption:
            return edit(keep(job_opts, worker_opts, option))

        return keep_jobs

    damage.around(scripts_move, "keep_jobs", broken)


# Jobs.


@mutant("retention.count-instead-of-age", kills=("retention.age-and-count",))
def count_instead_of_age(damage: Damage) -> None:
    """With a count the age has no effect."""
    _edit_keep(damage, lambda keep: {"count": keep["count"]} if "count" in keep else keep)


@mutant("retention.age-instead-of-count", kills=("retention.age-and-count",))
def age_instead_of_count(damage: Damage) -> None:
    """With an age the count has no effect."""
    _edit_keep(damage, lambda keep: {"age": keep["age"]} if "age" in keep else keep)


@mutant("retention.zero-is-no-age", kills=("retention.age-zero",))
def age_zero_ignored(damage: Damage) -> None:
    """An age of 0 is taken for none."""
    _edit_keep(damage, lambda keep: keep if keep.get("age") != 0 else {"count": -1})


@mutant("retention.negative-is-none", kills=("retention.keep-all",))
def negative_is_none(damage: Damage) -> None:
    """A negative count keeps nothing."""
    _edit_keep(damage, lambda keep: {**keep, "count": max(keep.get("count", 0), 0)})


@mutant("retention.failed-parents-stay", kills=("lifecycle.remove-on-fail",))
def failed_parents_stay(damage: Damage) -> None:
    """A parent that fails because of its child is kept, in spite of its own `removeOnFail`."""

    def kept(call: EvalCommand) -> EvalCommand:
        arguments = list(call.arguments)
        if arguments[4] == "failed" and str(arguments[3]).startswith("child "):
            opts = msgspec.msgpack.decode(bytes(arguments[7]))  # type: ignore[arg-type]  # packed by the client
            arguments[7] = msgspec.msgpack.encode({**opts, "keepJobs": {"count": -1}})
        return EvalCommand(call.name, call.keys, arguments)

    damage.calls("moveToFinished", kept)


# Logs.


# Events.


@mutant("retention.trim-refused", kills=("retention.events.by-hand",))
def trim_refused(damage: Damage) -> None:
    """Trimming the events passes its arguments in the wrong places, and Redis refuses them."""

    async def trim_events(queue: Queue, max_length: int) -> int:
        return int(await queue.connection.command("XTRIM", max_length, "MAXLEN", queue.keys.key("events")))

    damage.replace(Queue, "trimEvents", trim_events)


@mutant("retention.first-queue-wins", kills=("retention.events.last-queue-wins",))
def first_queue_wins(damage: Damage) -> None:
    """A limit of the stream that is set is not set again."""

    def broken(write: Function) -> Function:
        async def write_meta(queue: Queue) -> None:
            if not await queue.connection.at_once("HEXISTS", queue.keys.key(META), "opts.maxLenEvents"):
                await write(queue)

        return write_meta

    damage.around(Queue, "_write_meta", broken)


def _edit_size(damage: Damage, size: Any) -> None:
    def broken(options: Function) -> Function:
        def finish_options(scripts: MoveScripts, state: str, job: Any) -> dict[str, Any]:
            return {**options(scripts, state, job), "maxMetricsSize": size}

        return finish_options

    damage.around(MoveScripts, "_finish_options", broken)


@mutant("metrics.always", kills=("metrics.off",))
def always(damage: Damage) -> None:
    """Every worker counts."""
    _edit_size(damage, 10)


@mutant("metrics.never", kills=("metrics.counted", "metrics.points", "metrics.trimmed"))
def never(damage: Damage) -> None:
    """The option `metrics` has no effect."""
    _edit_size(damage, "")


@mutant("metrics.kinds-confused", kills=("metrics.read",))
def kinds_confused(damage: Damage) -> None:
    """Metrics of completed jobs are those of failed ones."""

    def broken(read: Function) -> Function:
        async def get_metrics(scripts: ReadScripts, _kind: Any, start: int, end: int) -> Any:
            return await read(scripts, "failed", start, end)

        return get_metrics

    damage.around(ReadScripts, "get_metrics", broken)
