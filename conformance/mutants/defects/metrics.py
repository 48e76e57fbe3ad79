"""Finished jobs counted wrongly."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl.scripts.move import MoveScripts
from conformance.reference_impl.scripts.read import ReadScripts

_POINTS = 'if command[1] == "LPUSH" and on(command, "data") then {} end'
"""Lua: around the command that stores points."""


def _edit_size(damage: Damage, size: Any) -> None:
    def broken(options: Function) -> Function:
        def finish_options(scripts: MoveScripts, finish: Any) -> dict[str, Any]:
            return {**options(scripts, finish), "maxMetricsSize": size}

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


@mutant("metrics.counts-retries", kills=("metrics.counted",))
def counts_retries(damage: Damage) -> None:
    """A failure that is retried is counted too."""
    damage.commands(
        "retryJob",
        'if event(command) == "waiting" then send("HINCRBY", ARGV[1] .. "metrics:failed", "count", 1) end',
    )


@mutant("metrics.kept-only", kills=("metrics.counted",))
def kept_only(damage: Damage) -> None:
    """Jobs that are removed when they finish are not counted."""
    damage.commands(
        "moveToFinished",
        'if command[1] == "HINCRBY" and command[3] == "count" and send("EXISTS", KEYS[12]) == 0 then return 1 end',
    )


@mutant("metrics.no-zeros", kills=("metrics.points",))
def no_zeros(damage: Damage) -> None:
    """Minutes in which nothing was finished have no point."""
    damage.commands("moveToFinished", _POINTS.format("for place = #command, 4, -1 do table.remove(command, place) end"))


@mutant("metrics.one-early", kills=("metrics.points",))
def one_early(damage: Damage) -> None:
    """The finish that begins a minute is counted to the minute before."""
    damage.commands("moveToFinished", _POINTS.format("command[3] = tonumber(command[3]) + 1"))


@mutant("metrics.oldest-first", kills=("metrics.points",))
def oldest_first(damage: Damage) -> None:
    """New points go behind the old ones."""
    damage.commands("moveToFinished", _POINTS.format('command[1] = "RPUSH"'))


@mutant("metrics.untrimmed", kills=("metrics.trimmed",))
def untrimmed(damage: Damage) -> None:
    """Points are never dropped."""
    damage.commands("moveToFinished", 'if command[1] == "LTRIM" and on(command, "data") then return 0 end')


@mutant("metrics.one-point-more", kills=("metrics.trimmed",))
def one_point_more(damage: Damage) -> None:
    """One point too many is kept."""
    damage.commands("moveToFinished", 'if command[1] == "LTRIM" and on(command, "data") then command[4] = 3 end')


@mutant("metrics.page-counted", kills=("metrics.read",))
def page_counted(damage: Damage) -> None:
    """The number of points told is that of the page."""

    def broken(read: Function) -> Function:
        async def get_metrics(scripts: ReadScripts, kind: Any, start: int, end: int) -> tuple[Any, Any, int]:
            meta, points, _ = await read(scripts, kind, start, end)
            return meta, points, len(points)

        return get_metrics

    damage.around(ReadScripts, "get_metrics", broken)


@mutant("metrics.kinds-confused", kills=("metrics.read",))
def kinds_confused(damage: Damage) -> None:
    """Who asks for completed jobs is told of failed ones."""

    def broken(read: Function) -> Function:
        async def get_metrics(scripts: ReadScripts, _kind: Any, start: int, end: int) -> Any:
            return await read(scripts, "failed", start, end)

        return get_metrics

    damage.around(ReadScripts, "get_metrics", broken)


@mutant("metrics.outlive-the-queue", kills=("metrics.removed",))
def outlive_the_queue(damage: Damage) -> None:
    """Obliterating a queue leaves its metrics."""
    damage.commands(
        "obliterate",
        'if command[1] == "DEL" then for place = #command, 2, -1 do '
        'if string.find(command[place], ":metrics:") then table.remove(command, place) end end '
        "if #command == 1 then return 0 end end",
    )
